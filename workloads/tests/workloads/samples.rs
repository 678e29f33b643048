//! Files of other tools, read as they are.
//!
//! They are not part of the repository. Put them into `workloads/data/workloads/third-party/`, and
//! these tests read them; else they say that they are skipped.

use std::io::Read;
use std::path::Path;

use gradwire_protocol::units::{ByteCount, Span};
use gradwire_workloads::connection_matrix::ConnectionMatrix;
use gradwire_workloads::model::Model;
use gradwire_workloads::workload::{CollectiveKind, Start, Work, Workload};

fn sample(name: &str) -> Option<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/workloads/third-party");
    let bytes = std::fs::read(folder.join(name)).ok();
    if bytes.is_none() {
        eprintln!("skipped: no sample `{name}` in data/workloads/third-party");
    }
    bytes
}

fn text(name: &str) -> Option<String> {
    let bytes = sample(name)?;
    Some(String::from_utf8(bytes).expect("samples of text are text"))
}

/// Bytes of a kind of collective in the program of the first rank.
fn bytes(workload: &Workload, wanted: CollectiveKind) -> u64 {
    let works = workload.programs[0].tasks.iter().map(|task| &task.work);
    works
        .map(|work| match work {
            Work::Collective { kind, bytes, .. } if *kind == wanted => bytes.get(),
            _ => 0,
        })
        .sum()
}

#[test]
fn connection_matrices_of_htsim_are_read_as_they_are() {
    let files = [
        ("one.cm", 1, 0),
        ("incast.cm", 15, 0),
        ("perm_16n_16c_2MB.cm", 16, 0),
        ("alltoall_serial_16n.cm", 240, 224),
    ];
    for (name, flows, triggers) in files {
        let Some(text) = text(name) else { return };
        let matrix = ConnectionMatrix::parse(&text).expect("htsim reads it");
        assert_eq!(matrix.hosts, 16, "{name}");
        let workload = matrix.workload;
        assert_eq!(
            (workload.flows.len(), workload.triggers.len()),
            (flows, triggers),
            "{name}"
        );
        let size = ByteCount::new(2_000_000);
        assert!(
            workload.flows.iter().all(|flow| flow.bytes == size),
            "{name}"
        );
        let waiting = workload
            .flows
            .iter()
            .filter(|flow| matches!(flow.start, Start::On(_)));
        assert_eq!(waiting.count(), triggers, "{name}");
        workload.check(16).expect("all of its flows start");
    }
}

#[test]
fn a_schedule_of_goal_is_read_as_it_is() {
    let Some(text) = text("htsim-incast_8_1_2MiB.goal") else {
        return;
    };
    let workload = Workload::from_goal(&text).expect("txt2bin reads it");
    workload.check(16).expect("its messages meet");
    assert_eq!(workload.programs.len(), 16);
    let tasks: usize = workload
        .programs
        .iter()
        .map(|program| program.tasks.len())
        .sum();
    assert_eq!(tasks, 4);
    assert_eq!(workload.programs[15].tasks[1].after, [0]);
}

/// Bytes as summed over the columns of the file.
#[test]
fn a_language_model_of_aicb_carries_the_bytes_of_its_file() {
    let Some(text) = text("aicb-Llama7B-tp2.txt") else {
        return;
    };
    let workload = Workload::from_layers(&text, 8).expect("SimAI reads it");
    workload.check(8).expect("a step comes to its end");
    assert_eq!(workload.layer_count, 76);
    assert_eq!(bytes(&workload, CollectiveKind::AllGather), 6_754_926_592);
    assert_eq!(
        bytes(&workload, CollectiveKind::ReduceScatter),
        13_509_853_184
    );
    let all_reduced = bytes(&workload, CollectiveKind::AllReduce);
    assert_eq!(all_reduced, 9_198_133_264);
    assert_eq!(workload.groups[0], [0, 1]);
    let model = Model::from_layers("Llama7B-tp2.txt", &text).expect("it has gradients");
    assert_eq!(model.bytes().get(), 13_509_853_184);
}

#[test]
fn a_larger_model_of_aicb_runs_in_groups_of_eight() {
    let Some(text) = text("aicb-GPT13B-tp8.txt") else {
        return;
    };
    let workload = Workload::from_layers(&text, 32).expect("SimAI reads it");
    workload.check(32).expect("a step comes to its end");
    assert_eq!(workload.layer_count, 92);
    let refused = Workload::from_layers(&text, 12).expect_err("12 is no multiple of 8");
    assert!(refused.to_string().contains("a multiple of 8"));
}

#[test]
fn resnet_of_astra_sim_reduces_its_gradients_layer_by_layer() {
    let Some(text) = text("astra-sim-Resnet50_DataParallel.txt") else {
        return;
    };
    let workload = Workload::from_layers(&text, 16).expect("ASTRA-sim reads it");
    workload.check(16).expect("a step comes to its end");
    assert_eq!(workload.layer_count, 54);
    assert_eq!(bytes(&workload, CollectiveKind::AllReduce), 102_011_648);
    let model = Model::from_layers("Resnet50_DataParallel.txt", &text).expect("it has gradients");
    assert_eq!((model.layers.len(), model.bytes().get()), (54, 102_011_648));
}

#[test]
fn a_recorded_trace_of_chakra_is_read_as_it_is() {
    let Some(archive) = sample("chakra-feeder_tests_trace.tar.gz") else {
        return;
    };
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&archive[..]));
    let entries = archive.entries().expect("the archive is whole");
    let mut trace = Vec::new();
    for entry in entries {
        let mut entry = entry.expect("the archive is whole");
        entry.read_to_end(&mut trace).expect("the archive is whole");
    }
    let traces = [trace.clone(), trace];
    let workload = Workload::from_chakra(&traces).expect("the feeder reads it");
    workload.check(2).expect("the trace comes to its end");
    let tasks = &workload.programs[1].tasks;
    assert_eq!(tasks.len(), 3664);
    let shared = tasks
        .iter()
        .filter(|task| matches!(task.work, Work::Collective { .. }));
    assert_eq!(shared.count(), 7);
    let model = Model::from_chakra("chakra.0.et", &traces[0]).expect("it is a step of ResNet-50");
    assert_eq!(model.parameters(), 25_557_032);
    assert_eq!(model.forward().as_nanos().div_ceil(1_000), 89_781);
    assert_eq!(model.backward(), Span::from_micros(197_746));
}
