//! Lists of layers: SimAI / AICB and ASTRA-sim text.

use gradwire_protocol::units::{Layer, Span};
use gradwire_workloads::workload::{CollectiveKind, Program, Work, Workload};
use proptest::prelude::*;

/// Two layers; forward, input gradient and weight gradient take 1, 2 and 3 ns and share 10, 20 and
/// 30 bytes, in the second layer ten times that.
fn step(header: &str, hosts: u32) -> Workload {
    let layers = "a -1 1 ALLREDUCE 10 2 ALLGATHER 20 3 REDUCESCATTER 30 0\n\
                  b -1 10 ALLTOALL 100 20 NONE 0 30 ALLREDUCE 300 7\n";
    let text = format!("{header}\n2\n{layers}");
    let workload = Workload::from_layers(&text, hosts).expect("the layers are right");
    workload.check(hosts).expect("a step comes to its end");
    workload
}

fn refusal(text: &str) -> String {
    Workload::from_layers(text, 4)
        .expect_err("the layers are wrong")
        .to_string()
}

/// A task as text: its name and the names of those that it waits for.
fn order(program: &Program) -> Vec<String> {
    let name = |task: &u32| program.tasks[*task as usize].name.clone();
    let tasks = program.tasks.iter();
    tasks
        .map(|task| {
            let after: Vec<String> = task.after.iter().map(name).collect();
            format!("{} <- {}", task.name, after.join(", "))
        })
        .collect()
}

fn groups_of(workload: &Workload, rank: usize) -> Vec<(CollectiveKind, Vec<u32>)> {
    let works = workload.programs[rank].tasks.iter().map(|task| &task.work);
    works
        .filter_map(|work| match work {
            Work::Collective { kind, group, .. } => {
                Some((*kind, workload.groups[*group as usize].clone()))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_data_parallel_step_never_waits_for_weight_gradients() {
    let workload = step("DATA", 4);
    let expected = [
        "a forward <- ",
        "b forward <- a forward",
        "b weight gradient <- b forward",
        "b weight gradient all-reduce <- b weight gradient",
        "b weight gradient update <- b weight gradient all-reduce",
        "b input gradient <- b weight gradient",
        "a weight gradient <- b input gradient",
        "a weight gradient reduce-scatter <- a weight gradient",
    ];
    assert_eq!(order(&workload.programs[3]), expected);
    assert_eq!(workload.groups, [[0, 1, 2, 3]]);
    assert_eq!(workload.layer_count, 2);
}

#[test]
fn a_transformer_step_waits_for_tensor_parallel_collectives_only() {
    let workload = step("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", 4);
    let expected = [
        "a forward <- ",
        "a forward all-reduce <- a forward",
        "b forward <- a forward all-reduce",
        "b forward all-to-all <- b forward",
        "b forward update <- b forward all-to-all",
        "b input gradient <- b forward update",
        "b weight gradient <- b input gradient",
        "b weight gradient all-reduce <- b weight gradient",
        "b weight gradient update <- b weight gradient all-reduce",
        "a input gradient <- b weight gradient",
        "a input gradient all-gather <- a input gradient",
        "a weight gradient <- a input gradient all-gather",
        "a weight gradient reduce-scatter <- a weight gradient",
    ];
    assert_eq!(order(&workload.programs[0]), expected);
    let groups: Vec<Vec<u32>> = groups_of(&workload, 2).into_iter().map(|it| it.1).collect();
    let (tensor, data) = (vec![2, 3], vec![0, 2]);
    assert_eq!(
        groups,
        [&tensor, &tensor, &data, &tensor, &data].map(Clone::clone)
    );
}

#[test]
fn a_hybrid_step_waits_for_an_input_gradient_behind_the_weight_gradient() {
    let workload = step("HYBRID_MODEL_DATA model_parallel_NPU_group: 2", 4);
    let tasks = order(&workload.programs[0]);
    assert!(tasks.contains(&"a weight gradient <- a input gradient".to_owned()));
    let last = "a weight gradient reduce-scatter <- a weight gradient";
    assert_eq!(tasks.last().map(String::as_str), Some(last));
    let groups = groups_of(&workload, 2);
    assert_eq!(groups[0].1, [0, 2], "tensor-parallel ranks lie apart");
    assert_eq!(groups[2].1, [2, 3], "data-parallel ranks lie together");
}

#[test]
fn spans_and_layers_are_those_of_the_file() {
    let workload = step("MODEL", 2);
    let tasks = &workload.programs[0].tasks;
    let span = Span::from_nanos(1);
    assert_eq!(tasks[0].work, Work::Compute { span, unit: 0 });
    let shared = tasks.iter().filter_map(|task| match &task.work {
        Work::Collective { bytes, layers, .. } => Some((bytes.get(), layers[0].1)),
        _ => None,
    });
    let shared: Vec<(u64, Layer)> = shared.collect();
    assert_eq!(shared, [(10, Layer(0)), (100, Layer(1))]);
}

#[test]
fn layers_behind_a_checkpoint_run_forward_again() {
    let header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 \
                  checkpoints: 1 0 checkpoint_initiates: 1 1";
    let tasks = order(&step(header, 1).programs[0]);
    let expected = [
        "a forward <- ",
        "b forward <- a forward",
        "a forward <- b forward",
        "b input gradient <- a forward",
    ];
    assert_eq!(tasks[..4], expected);
}

#[test]
fn the_embedding_of_a_recommender_runs_beside_the_bottom_layers() {
    let text = "HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1\n3\n\
        e -1 5 ALLTOALL 10 0 ALLTOALL 10 5 NONE 0 0\n\
        bottom -1 6 NONE 0 6 NONE 0 6 ALLREDUCE 60 0\n\
        top -1 7 NONE 0 7 NONE 0 7 ALLREDUCE 70 0\n";
    let workload = Workload::from_layers(text, 4).expect("the layers are right");
    workload.check(4).expect("a step comes to its end");
    let tasks = order(&workload.programs[0]);
    let expected = [
        "e forward <- ",
        "e forward all-to-all <- e forward",
        "bottom forward <- e forward",
        "top forward <- bottom forward, e forward all-to-all",
    ];
    assert_eq!(tasks[..4], expected);
}

#[test]
fn experts_are_shared_within_and_across_their_groups() {
    let text = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 2 pp: 2 ga: 1 pp_comm 8\n1\n\
        moe -1 1 ALLTOALL_EP 64 1 ALLREDUCE 64 1 ALLREDUCE_DP_EP 64 0\n";
    let workload = Workload::from_layers(text, 32).expect("the layers are right");
    workload.check(32).expect("a step comes to its end");
    let groups = groups_of(&workload, 19);
    assert_eq!(groups[0].1, [17, 19], "experts");
    assert_eq!(groups[1].1, [18, 19], "tensor");
    assert_eq!(groups[2].1, [19, 23, 27, 31], "same experts");
}

#[test]
fn a_rank_alone_in_its_group_shares_nothing() {
    assert_eq!(groups_of(&step("DATA", 1), 0), []);
}

#[test]
fn wrong_lists_name_their_line() {
    assert!(refusal("").starts_with(
        "line 1: `` is not a strategy; known are DATA, MODEL, \
    HYBRID_"
    ));
    assert!(refusal("DATAA\n1\n").contains("(did you mean `DATA`?)"));
    assert_eq!(
        refusal("DATA\n2\na -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n"),
        "line 2 says 2 layers, the file has 1: correct one of them"
    );
    assert!(refusal("DATA\nx\n").starts_with("line 2: layers `x`: allowed is a whole number"));
    let row = |row: &str| refusal(&format!("DATA\n1\n{row}\n"));
    assert!(row("a -1 1 NONE 0").starts_with("line 3: 5 columns; a layer has 12"));
    let reduce = row("a -1 1 NONE 0 1 NONE 0 1 ALREDUCE 5 1");
    let expected = "line 3: `ALREDUCE` (did you mean `ALLREDUCE`?) is not a collective";
    assert!(reduce.starts_with(expected));
    let time = row("a -1 1.5 NONE 0 1 NONE 0 1 NONE 0 1");
    assert!(time.starts_with("line 3: compute time `1.5`: allowed is a whole number from 0"));
}

#[test]
fn wrong_headers_and_hosts_are_refused() {
    let header = |header: &str| {
        refusal(&format!(
            "{header}\n1\na -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 8 1\n"
        ))
    };
    assert!(header("HYBRID_TRANSFORMER").contains("needs `model_parallel_NPU_group: N`"));
    assert!(header("DATA modl: 3").contains("unknown key `modl`"));
    assert!(header("DATA pp: 0").contains("pp `0`: allowed is a whole number from 1"));
    assert!(header("DATA all_gpus: 8").contains("take 8 hosts or change the line"));
    assert!(header("DATA ep: 3").contains("4 data-parallel ranks are no multiple of 3"));
    let three = header("HYBRID_TRANSFORMER model_parallel_NPU_group: 3");
    assert!(three.starts_with("4 hosts cannot run it: their number must be a multiple of 3"));
    let again = header("DATA checkpoints: 0 checkpoint_initiates: 1 0");
    assert!(again.contains("no layer up to it is a checkpoint"));
    assert!(header("DATA checkpoints: 1 9").contains("there is no such layer"));
    assert!(header("HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 1").contains("there is no such layer"));
    assert!(header("DATA checkpoints: 2 0").contains("as many layers as announced"));
}

proptest! {
    #[test]
    fn arbitrary_layers_never_panic(
        strategy in "DATA|HYBRID_TRANSFORMER|HYBRID_DLRM|MICRO|HYBRID_CUSTOMIZED|MODEL",
        keys in "( (model_parallel_NPU_group|ep|pp|all_gpus|checkpoints|checkpoint_initiates|\
                 DLRM_LAST_BOTTOM_LAYER):| [0-9]| 4294967295){0,6}",
        rows in proptest::collection::vec(
            "[a-c] -1( [0-9]{1,2} (NONE|ALLREDUCE|ALLTOALL_EP|\\PC{0,3}) [0-9]{1,3}){3} 7( MODEL)?",
            0..4,
        ),
        hosts in 0..9_u32,
    ) {
        let text = format!("{strategy}{keys}\n{}\n{}", rows.len(), rows.join("\n"));
        if let Ok(workload) = Workload::from_layers(&text, hosts) {
            workload.check(hosts).expect("a step comes to its end");
        }
    }
}
