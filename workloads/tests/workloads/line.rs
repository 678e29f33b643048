//! Steps whose matrices are split over hosts in one dimension.

use gradwire_protocol::units::Rate;
use gradwire_workloads::workload::{CollectiveKind, Hosts, Task, Work, Workload};

fn read(line: &str, count: u32) -> Result<Workload, String> {
    let rate = Rate::from_gbps(100);
    let workload = Workload::from_pattern(line, Hosts { count, rate }, 1);
    workload.map_err(|error| error.to_string())
}

fn sums(tasks: &[Task]) -> Vec<(u32, u64)> {
    let sums = tasks.iter().filter_map(|task| match task.work {
        Work::Collective { kind, bytes, .. } => {
            assert_eq!(kind, CollectiveKind::AllReduce);
            Some((task.step, bytes.get()))
        }
        _ => None,
    });
    sums.collect()
}

#[test]
fn a_layer_sums_twice_forward_and_twice_back() {
    let workload = read("step:gpt2:megatron=4,tokens=32,steps=1", 4).expect("the line is right");
    workload.check(4).expect("it can be carried");
    // Activations of all tokens, 768 elements wide: of 12 layers, in two forward and one backward
    // passes.
    let sums = sums(&workload.programs[3].tasks);
    assert_eq!(sums.len(), 12 * 2 * 3);
    assert!(sums.iter().all(|(_, bytes)| *bytes == 4 * 32 * 768 * 4));
    assert_eq!(workload.groups, [[0, 1, 2, 3]]);
}

#[test]
fn a_layer_computes_after_the_sum_before_it() {
    let workload = read("step:gpt2:megatron=2,steps=1", 2).expect("the line is right");
    let tasks = &workload.programs[0].tasks;
    let named = |name: &str| tasks.iter().position(|task| task.name == name);
    let at = |name: &str| named(name).expect("there is such a task") as u32;
    let layer = |name: &str| format!("transformer.h.3.{name}");
    let sum = at(&format!("all-reduce forward {}", layer("attn.c_proj")));
    assert!(
        tasks[at(&format!("forward {}", layer("ln_2"))) as usize]
            .after
            .contains(&sum)
    );
    let sum = at(&format!("all-reduce backward {}", layer("mlp.c_fc")));
    assert!(
        tasks[at(&format!("backward {}", layer("ln_2"))) as usize]
            .after
            .contains(&sum)
    );
}

#[test]
fn a_wrong_line_says_what_is_allowed() {
    let refusal = |text| read(text, 8).expect_err("the line is wrong");
    assert!(refusal("step:gpt2:megatron=0").contains("whole numbers from 1 to 4096"));
    assert!(refusal("step:gpt2:megatron=4").contains("4 hosts share the matrices"));
    assert!(refusal("step:gpt2:megatron=16").contains("needs 16 hosts or more; there are 8"));
    assert!(refusal("step:gpt2:megatron=8,team=2").contains("team= is for ddp, tensors"));
    assert!(refusal("step:vgg16:megatron=8").contains("vgg16 has no pair of matrices"));
}
