//! Training steps of one line: the programs that they become, and the errors of wrong ones.

use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{Layer, Rate, Span};
use gradwire_workloads::model::Model;
use gradwire_workloads::workload::{CollectiveKind, Hosts, Task, Work, Workload};
use proptest::prelude::*;

/// Two layers of 4 and 8 bytes.
const SMALL: &str = "layer,parameters,forward_ns,backward_ns\nfront,1,10,20\nback,2,30,40\n";

fn hosts(count: u32) -> Hosts {
    Hosts {
        count,
        rate: Rate::from_gbps(100),
    }
}

fn read(text: &str, count: u32) -> Result<Workload, String> {
    let small = Model::from_csv("small.csv", SMALL).expect("the table is right");
    let workload = Workload::from_pattern_with(text, hosts(count), 1, &[small]);
    workload.map_err(|error| error.to_string())
}

fn workload(text: &str, count: u32) -> Workload {
    let workload = read(text, count).expect("the line is right");
    workload
        .check(count)
        .expect("training steps can be carried");
    workload
}

/// Each task as `name <- names that it waits for`; `^` marks tasks that must only have started.
fn order(tasks: &[Task]) -> Vec<String> {
    let name = |&task: &u32| tasks[task as usize].name.clone();
    let lines = tasks.iter().map(|task| {
        let started = task
            .after_start
            .iter()
            .map(|task| format!("^{}", name(task)));
        let before: Vec<String> = task.after.iter().map(name).chain(started).collect();
        format!("{} {} <- {}", task.step, task.name, before.join(", "))
    });
    lines.collect()
}

#[test]
fn forward_of_a_layer_waits_for_the_layer_before_and_its_own_update() {
    let workload = workload("step:small.csv:tensors,steps=1", 2);
    let expected = [
        "0 forward front <- ",
        "0 forward back <- forward front",
        "0 backward back <- forward back",
        "0 all-reduce back <- backward back",
        "0 backward front <- backward back",
        "0 all-reduce front <- backward front",
        "1 forward front <- backward front, all-reduce front",
        "1 forward back <- forward front, all-reduce back",
    ];
    for program in &workload.programs {
        assert_eq!(order(&program.tasks), expected);
    }
    assert_eq!((workload.layer_count, workload.algorithm), (2, None));
}

#[test]
fn an_optimizer_that_steps_once_waits_for_all_updates() {
    let workload = workload(
        "step:small.csv:tensors,steps=1,update=all,algorithm=ring",
        2,
    );
    let order = order(&workload.programs[0].tasks);
    let first = "1 forward front <- backward front, all-reduce back, all-reduce front";
    assert_eq!(order[6..], [first, "1 forward back <- forward front"]);
    assert_eq!(workload.algorithm, Some(ReduceAlgorithm::Ring));
}

#[test]
fn codecs_take_time_beside_or_between() {
    let of = |options: &str| {
        let text = format!("step:small.csv:tensors,steps=1,codec=1G{options}");
        order(&workload(&text, 2).programs[0].tasks)
    };
    let beside = of("");
    assert_eq!(
        beside[3..5],
        [
            "0 code back <- backward back",
            "0 all-reduce back <- backward back"
        ]
    );
    let first = "1 forward front <- backward front, all-reduce front, code front";
    assert_eq!(beside[8], first);
    let between = of(",codec_on=compute");
    let back = [
        "0 encode back <- backward back",
        "0 all-reduce back <- encode back",
        "0 decode back <- all-reduce back",
    ];
    assert_eq!(between[3..6], back);
    assert_eq!(
        between[10],
        "1 forward front <- backward front, decode front"
    );
    let spans = |options: &str| {
        let text = format!("step:small.csv:tensors,steps=1,codec=1G{options}");
        let tasks = workload(&text, 2).programs.swap_remove(0).tasks;
        let coding = tasks
            .into_iter()
            .filter(|task| task.name.contains("code back"));
        let spans = coding.map(|task| match task.work {
            Work::Compute { span, .. } => span,
            _ => Span::ZERO,
        });
        spans.fold(Span::ZERO, |all, one| all + one)
    };
    // 8 bytes at 1 Gb/s, encoded and decoded.
    assert_eq!(spans(""), Span::from_nanos(128));
    assert_eq!(spans(""), spans(",codec_on=compute"));
}

#[test]
fn a_wrong_codec_says_what_is_allowed() {
    let refusal = |text: &str| read(text, 4).expect_err("the line is wrong");
    assert!(refusal("step:small.csv:ddp,codec=fast").contains("codec=`fast`: allowed are 1M to"));
    assert!(refusal("step:small.csv:ddp,codec_on=compute").contains("needs codec="));
    assert!(refusal("step:small.csv:ddp,codec=1G,codec_on=x").contains("cores and compute"));
    assert!(refusal("step:small.csv:ps=2,codec=1G").contains("codec= is for ddp and tensors"));
}

#[test]
fn a_bucket_begins_when_its_last_gradient_is_there_and_knows_its_layers() {
    let workload = workload("step:small.csv:ddp,steps=1", 2);
    let tasks = &workload.programs[0].tasks;
    assert_eq!(order(tasks)[4], "0 all-reduce bucket 0 <- backward front");
    let Work::Collective { bytes, layers, .. } = &tasks[4].work else {
        panic!("it is a collective: {:?}", tasks[4]);
    };
    assert_eq!(
        (bytes.get(), &layers[..]),
        (12, &[(0, Layer(1)), (8, Layer(0))][..])
    );
    assert_eq!(
        tasks[5].after,
        [3, 4],
        "one bucket brings both layers' updates"
    );
    assert_eq!(tasks[6].after, [5, 4]);
}

#[test]
fn a_server_gives_back_each_sum_when_it_is_complete() {
    let workload = workload("step:small.csv:ps=1,steps=2", 3);
    assert_eq!(workload.groups, [[0, 1], [0, 2]]);
    let server = order(&workload.programs[0].tasks);
    let of_step = |step, began: &str| {
        let of = |layer: &str| {
            let before = began.replace('*', layer);
            let push = format!("{step} push {layer} <- {before}");
            let pull = format!("{step} pull {layer} <- push {layer}, push {layer}");
            [push.clone(), push, pull.clone(), pull]
        };
        [of("back"), of("front")].concat()
    };
    assert_eq!(server, [of_step(0, ""), of_step(1, "^pull *")].concat());
    let worker = order(&workload.programs[1].tasks);
    assert_eq!(worker[3], "0 push back <- backward back");
    assert_eq!(worker[4], "0 pull back <- ^push back");
    assert_eq!(worker[9], "1 forward back <- forward front, pull back");
    let kinds = workload.programs[1]
        .tasks
        .iter()
        .filter_map(|task| match task.work {
            Work::Collective { kind, .. } => Some(kind),
            _ => None,
        });
    let (push, pull) = (
        CollectiveKind::Reduce { root: 0 },
        CollectiveKind::Broadcast { root: 0 },
    );
    assert_eq!(kinds.collect::<Vec<_>>(), [push, pull].repeat(4));
}

#[test]
fn the_last_worker_is_the_one_that_is_slow() {
    let workload = workload("step:small.csv:ddp,steps=2,slow=1.5@hosts=4,7,9", 12);
    let ends = &workload.step_ends[0];
    let compute = ends.workers.iter().map(|one| (one.host, one.compute));
    let compute: Vec<(u32, Span)> = compute.collect();
    let (alike, slow) = (Span::from_nanos(100), Span::from_nanos(150));
    assert_eq!(compute, [(4, alike), (7, alike), (9, slow)]);
    assert_eq!(ends.workers[0].forward_ends, [1, 6, 11]);
    assert_eq!(
        (ends.steps, &ends.layers[..]),
        (2, &["front", "back"].map(String::from)[..])
    );
}

#[test]
fn every_model_and_exchange_comes_to_its_end() {
    for model in [
        "alexnet",
        "vgg16",
        "resnet50",
        "transformer",
        "bert-base",
        "gpt2",
        "llama-8b",
    ] {
        for how in ["ddp", "tensors", "ps=3"] {
            workload(&format!("step:{model}:{how},steps=2"), 5);
        }
    }
}

#[test]
fn a_wrong_step_says_what_is_allowed() {
    let refusal = |text| read(text, 4).expect_err("the line is wrong");
    assert!(refusal("step:vgg61:ddp").contains("(did you mean `vgg16`?); known are alexnet"));
    assert!(refusal("step:vgg16").contains("it needs model:how; write it like `step:vgg16:ddp"));
    assert!(
        refusal("step:vgg16:dpp").contains("`dpp`: allowed are ddp, tensors, ps=SERVERS, gossip=")
    );
    assert!(refusal("step:vgg16:ps=0").contains("ps=`0`: allowed are whole numbers from 1 to"));
    assert!(refusal("step:vgg16:ps=4").contains("needs 5 hosts or more; there are 4"));
    let many = read("step:vgg16:ps=300", 600).expect_err("these are 90,000 pairs");
    assert!(
        many.contains("this many servers serve at most 500 hosts"),
        "{many}"
    );
    assert!(refusal("step:vgg16:ddp,steps=0").contains("steps=`0`: allowed are whole numbers"));
    assert!(refusal("step:vgg16:ddp,slow=0.5").contains("slow=`0.5`: allowed are 1 to 100"));
    assert!(refusal("step:vgg16:ddp,slow=NaN").contains("allowed are 1 to 100"));
    assert!(refusal("step:vgg16:ddp,update=some").contains("allowed are layer and all"));
    assert!(refusal("step:vgg16:ddp,algorithm=rong").contains("allowed are direct, ring"));
    assert!(refusal("step:vgg16:ddp,step=1").contains("`step` (did you mean `steps`?); known"));
}

#[test]
fn the_model_of_a_line_is_what_stands_before_how() {
    let of = |text| Workload::model_of(text);
    assert_eq!(of("step:vgg16:ps=8,steps=2"), Some("vgg16"));
    assert_eq!(of("step: a/b.csv :ddp@hosts=0-3"), Some("a/b.csv"));
    assert_eq!(of("ring:64MiB"), None);
}

proptest! {
    #[test]
    fn arbitrary_steps_never_panic(
        words in proptest::collection::vec(
            "small.csv|ddp|tensors|ps|steps|slow|update|scale|all|[0-9.]{0,4}|[:,=@]|\\PC{0,2}",
            0..12,
        ),
    ) {
        if let Ok(workload) = read(&format!("step:small.csv:{}", words.concat()), 4) {
            prop_assert!(workload.check(4).is_ok());
        }
    }
}
