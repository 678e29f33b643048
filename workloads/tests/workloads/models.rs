//! Models from files of other tools, written here: layers, bytes and times, and what is refused.

use gradwire_workloads::model::Model;
use proptest::prelude::*;

/// Bytes and times of two layers, the first with names of a tensor-parallel group's collectives.
const LAYERS: &str = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n2\n\
    front -1 500 ALLREDUCE 64 40 ALLREDUCE 64 7 ALLREDUCE 4096 10\n\
    back -1 600 NONE 0 30 NONE 0 9 REDUCESCATTER 4098 0\n";

/// Name, parameters and backward nanoseconds of each gradient.
fn gradients(model: &Model) -> Vec<(&str, u64, u64)> {
    let gradients = model.gradients.iter();
    let gradients = gradients.map(|one| (&one.name[..], one.parameters, one.backward.as_nanos()));
    gradients.collect()
}

/// Name and forward nanoseconds of each layer.
fn layers(model: &Model) -> Vec<(&str, u64)> {
    let layers = model.layers.iter();
    layers
        .map(|one| (&one.name[..], one.forward.as_nanos()))
        .collect()
}

#[test]
fn weight_gradients_of_a_list_of_layers_are_those_of_its_model() {
    let model = Model::from_layers("m.txt", LAYERS).expect("the list is right");
    assert_eq!(
        gradients(&model),
        [("back", 1_025, 39), ("front", 1_024, 47)]
    );
    assert_eq!(layers(&model), [("front", 500), ("back", 600)]);
    let remarks = model.remarks.join("\n");
    assert!(
        remarks.contains("2 collectives that are not weight gradients (128 bytes) are left out")
    );
    assert!(
        remarks.contains("update times (0 us together) are left out"),
        "{remarks}"
    );
}

#[test]
fn data_parallel_layers_exchange_before_they_compute_the_gradient_of_their_input() {
    let data = LAYERS.replace("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", "DATA");
    let model = Model::from_layers("m.txt", &data).expect("the list is right");
    assert_eq!(
        gradients(&model),
        [("back", 1_025, 9), ("front", 1_024, 37)]
    );
}

#[test]
fn a_layer_that_begins_again_from_a_checkpoint_takes_its_time_backward() {
    let keys = "model_parallel_NPU_group: 2 checkpoints: 1 0 checkpoint_initiates: 1 1";
    let again = LAYERS.replace("model_parallel_NPU_group: 2", keys);
    let model = Model::from_layers("m.txt", &again).expect("the list is right");
    assert_eq!(gradients(&model)[0], ("back", 1_025, 539));
}

#[test]
fn a_list_without_gradients_or_with_a_wrong_line_is_refused_with_the_reason() {
    let refusal = |text: &str| {
        let model = Model::from_layers("m.txt", text);
        model.expect_err("it is wrong").to_string()
    };
    let none = LAYERS.replace("ALLREDUCE 4096", "ALLTOALL 4096");
    let none = none.replace("REDUCESCATTER 4098", "NONE 4098");
    assert!(refusal(&none).starts_with("no gradient is exchanged: at least one layer needs"));
    let slow = LAYERS.replace("600", "100000000001");
    assert!(refusal(&slow).starts_with("line 4: layer `back`: its pass takes more than 100 s"));
    assert!(refusal(&LAYERS.replace("600", "6OO")).starts_with("line 4: compute time `6OO`"));
    let large = LAYERS.replace("4096", "18446744073709551615");
    assert!(refusal(&large).contains("line 3: layer `front`: its gradient has more than"));
    assert!(refusal("").contains("is not a strategy"));
}

/// Two passes of two layers, as the text converter of Chakra names its operations.
fn named(passes: u32) -> String {
    let mut operations = Vec::new();
    for _ in 0..passes {
        let mut add = |name: &str, micros: u32, needs: &str, bytes: u32| {
            let kind = if bytes > 0 { 7 } else { 4 };
            let id = operations.len();
            operations.push(format!(
                r#"{{"Id": {id}, "Name": "{name}", "NodeType": {kind}, "runtime": {micros},
                    "data_deps": [{needs}], "comm_type": 0, "comm_size": {bytes}}}"#
            ));
            id.to_string()
        };
        let front = add("COMP_NODE_front_FWD", 5, "", 0);
        add("COMM_COLL_NODE_front_ALLREDUCE", 0, &front, 64);
        add("COMP_NODE_back_FWD", 6, &front, 0);
        let weight = add("COMP_NODE_back_BWD_WG", 9, "", 0);
        add("COMM_COLL_NODE_back_ALLREDUCE", 0, &weight, 800);
        add("COMP_NODE_back_BWD_IG", 4, &weight, 0);
        let weight = add("COMP_NODE_front_BWD_WG", 7, "", 0);
        add("COMM_COLL_NODE_front_ALLREDUCE", 0, &weight, 400);
    }
    format!(r#"{{"workload_graph": [{}]}}"#, operations.join(", "))
}

#[test]
fn a_trace_whose_operations_name_layers_has_them_and_its_first_pass_counts() {
    for passes in [1, 2] {
        let model = Model::from_chakra("m.json", named(passes).as_bytes());
        let model = model.expect("the trace is right");
        assert_eq!(layers(&model), [("front", 5_000), ("back", 6_000)]);
        assert_eq!(
            gradients(&model),
            [("back", 200, 9_000), ("front", 100, 11_000)]
        );
        let left_out = model.remarks.join("; ");
        assert!(
            left_out.contains("1 collectives that are not weight gradients"),
            "{left_out}"
        );
        assert_eq!(
            left_out.contains("passes behind the first"),
            passes > 1,
            "{left_out}"
        );
    }
}

/// A trace as it is recorded, in the JSON of protocol buffers.
const MESSAGES: &str = r#"{ "version": "0.0.4" }{
  "id": "2", "name": "conv2d", "type": "COMP_NODE", "durationMicros": "30",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}{
  "id": "3", "name": "convolution_backward", "type": "COMP_NODE", "dataDeps": ["2"],
  "durationMicros": "900", "attr": [{"name": "is_cpu_op", "boolVal": true}]
}{
  "id": "4", "name": "dgrad", "type": "COMP_NODE", "durationMicros": "20",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}{
  "id": "5", "name": "ncclAllReduce", "type": "COMM_COLL_NODE", "attr": [
    {"name": "is_cpu_op", "boolVal": false}, {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "int64Val": "4000"}]
}{
  "id": "6", "name": "wgrad", "type": "COMP_NODE", "durationMicros": "40",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}{
  "id": "7", "name": "ncclAllReduce", "type": "COMM_COLL_NODE", "attr": [
    {"name": "is_cpu_op", "boolVal": false}, {"name": "comm_type", "int64Val": "0"},
    {"name": "comm_size", "int64Val": "8000"}]
}{
  "id": "8", "name": "sgd", "type": "COMP_NODE", "durationMicros": "3",
  "attr": [{"name": "is_cpu_op", "boolVal": false}]
}"#;

#[test]
fn each_sum_of_a_recorded_trace_is_a_layer_and_the_gpu_tells_the_time() {
    let model = Model::from_chakra("m.json", MESSAGES.as_bytes()).expect("the trace is right");
    assert_eq!(
        gradients(&model),
        [("bucket 0", 1_000, 20_000), ("bucket 1", 2_000, 40_000)]
    );
    assert_eq!(layers(&model), [("bucket 1", 20_000), ("bucket 0", 10_000)]);
    let remarks = model.remarks.join("; ");
    assert!(
        remarks.contains("it names no layers: each of its 2 exchanged sums"),
        "{remarks}"
    );
    assert!(
        remarks.contains("3 us of computing behind the last sum are left out"),
        "{remarks}"
    );
}

#[test]
fn where_no_operation_is_called_backward_the_forward_pass_is_a_share() {
    let text = MESSAGES.replace("convolution_backward", "convolution");
    let model = Model::from_chakra("m.json", text.as_bytes()).expect("the trace is right");
    let share = model.forward().as_secs_f64() / model.backward().as_secs_f64();
    assert!(
        (share - gradwire_workloads::model::FORWARD_SHARE).abs() < 1e-3,
        "{share}"
    );
    let all = model.forward().as_secs_f64() + model.backward().as_secs_f64();
    assert!((all - 90e-6).abs() < 1e-9, "{all}");
    assert!(
        model
            .remarks
            .iter()
            .any(|one| one.contains("no operation is called backward"))
    );
}

#[test]
fn a_trace_that_is_no_model_is_refused_with_the_reason() {
    let refusal = |text: &str| {
        let model = Model::from_chakra("m.json", text.as_bytes());
        model.expect_err("it is wrong").to_string()
    };
    assert!(refusal(r#"{"nodes": []}"#).contains("host trace of PyTorch, without durations"));
    assert!(refusal(&MESSAGES.replace("\"4000\"", "\"4k\"")).contains(
        "`4k` is not a whole \
    number"
    ));
    let (begin, _) = MESSAGES.split_once("dgrad").expect("it is there");
    assert!(refusal(begin).contains("at line 8"));
    assert!(refusal(r#"{"workload_graph": [{"Id": 0}]}"#).contains("missing field `NodeType`"));
    assert!(refusal(r#"{"workload_graph": []}"#).starts_with("no gradient is exchanged"));
    assert!(refusal("{}").starts_with("no gradient is exchanged"));
    assert!(refusal("no trace").contains("a protocol buffer of Chakra"));
}

proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0_usize..1_600, letter in 0_u8..=255) {
        for text in [LAYERS.to_owned(), named(1), MESSAGES.to_owned()] {
            let mut bytes = text.into_bytes();
            let at = at % bytes.len();
            bytes[at] = letter;
            let text = String::from_utf8_lossy(&bytes);
            for model in [
                Model::from_layers("m", &text).ok(),
                Model::from_chakra("m", &bytes).ok(),
            ] {
                prop_assert!(model.is_none_or(|model| model.parameters() > 0));
            }
        }
    }
}
