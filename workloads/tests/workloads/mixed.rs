//! Steps of plans: programs that can end, exchanges in their places, refusals.

use gradwire_protocol::units::Rate;
use gradwire_workloads::workload::{CollectiveKind, Hosts, Task, Work, Workload};

fn read(line: &str, count: u32) -> Result<Workload, String> {
    let rate = Rate::from_gbps(100);
    let workload = Workload::from_pattern(line, Hosts { count, rate }, 1);
    workload.map_err(|error| error.to_string())
}

fn planned(line: &str) -> Workload {
    let workload = read(line, 4).expect("the line is right");
    workload.check(4).expect("it can be carried");
    workload
}

/// The exchanges of the first backward pass: their kinds and mebibytes.
fn exchanges(tasks: &[Task]) -> Vec<(CollectiveKind, u64)> {
    let back = tasks
        .iter()
        .skip_while(|task| !task.name.contains("backward"));
    let back = back.take_while(|task| !task.name.contains("forward"));
    let exchanges = back.filter_map(|task| match task.work {
        Work::Collective { kind, bytes, .. } => Some((kind, bytes.get())),
        _ => None,
    });
    exchanges.collect()
}

#[test]
fn every_way_of_a_block_can_be_carried() {
    for plan in ["15d", "15s", "2t-12t-1d", "2s-12dr-1d", "1t-1d-4sr-8tr-1s"] {
        for overlap in ["on", "off"] {
            let line = format!("step:gpt2:plan={plan},steps=2,overlap={overlap}");
            let workload = planned(&line);
            assert_eq!(workload.step_ends[0].workers.len(), 4);
            assert_eq!(workload.step_ends[0].workers[0].forward_ends.len(), 3);
        }
    }
}

#[test]
fn recomputing_adds_one_forward_pass() {
    let compute = |plan: &str| {
        let workload = planned(&format!("step:gpt2:plan={plan},steps=1"));
        workload.step_ends[0].workers[0].compute.as_secs_f64()
    };
    let (kept, again) = (compute("15d"), compute("2d-12dr-1d"));
    assert!((1.2..1.4).contains(&(again / kept)), "{again} and {kept}");
}

#[test]
fn split_matrices_change_the_layout_in_both_passes() {
    let workload = planned("step:vgg16:plan=15d-1t,steps=1,overlap=off");
    let found = exchanges(&workload.programs[0].tasks);
    let (inputs, outputs) = (4 * 32 * 4096 * 4, 32 * 1000 * 4);
    let first = [
        (CollectiveKind::AllToAll, outputs),
        (CollectiveKind::AllGather, inputs),
        (CollectiveKind::ReduceScatter, inputs),
    ];
    assert_eq!(found[..3], first);
    assert_eq!(found.len(), 3 + 15);
    let rest = found[3..].iter();
    assert!(
        rest.clone()
            .all(|(kind, _)| *kind == CollectiveKind::AllReduce)
    );
}

#[test]
fn a_wrong_plan_says_what_is_allowed() {
    let refusal = |text| read(text, 4).expect_err("the line is wrong");
    assert!(refusal("step:vgg16:plan=x").contains("such as 2d-11tr-s"));
    assert!(refusal("step:vgg16:plan=15d").contains("it has 15 blocks, and vgg16 has 16"));
    assert!(refusal("step:vgg16:plan=16d,team=2").contains("team= is for ddp, tensors"));
    let error = refusal("step:resnet50:plan=2d-1t-16d");
    assert!(error.contains("block 3 (layer1.0) cannot be t"), "{error}");
    let error = refusal("step:vgg16:ddp,samples=8");
    assert!(error.contains("samples= for plan="), "{error}");
}
