//! Verbs over two Soft-RoCE devices, whose packets pass a switch with the rendered configuration:
//! rank 0 sends through its narrow port to rank 1.

use std::path::Path;

use serde_json::Value;

use crate::guest::{self, RDMA, number, object, text};
use crate::switch::{Queue, queues};

/// Exit code of a rank that lost the others, or the network.
const LOST: &str = "4";
/// Exit code of a rank that this host denies something.
const REFUSED: &str = "5";

fn written() -> Option<&'static Path> {
    guest::written(RDMA)
}

/// The last line that each rank of a job printed, after both have ended well.
fn ends(out: &Path, job: &str) -> [Value; 2] {
    [0, 1].map(|rank| {
        let errors = text(out, &format!("{job}-rank{rank}.errors"));
        assert_eq!(code(out, job, rank), "0", "{job}, rank {rank}: {errors}");
        let text = text(out, &format!("{job}-rank{rank}.json"));
        let last = text.lines().last().expect("a rank says how it ended");
        serde_json::from_str(last).expect("a JSON object a line")
    })
}

fn code(out: &Path, job: &str, rank: u16) -> String {
    let code = text(out, &format!("{job}-rank{rank}.code"));
    code.trim().to_owned()
}

/// The error of a rank that failed with this exit code.
fn complaint(out: &Path, (job, rank): (&str, u16), expected: &str) -> String {
    let errors = text(out, &format!("{job}-rank{rank}.errors"));
    let ended = code(out, job, rank);
    assert_eq!(ended, expected, "{job}, rank {rank}: {errors}");
    errors
}

#[test]
fn the_devices_talk_to_each_other_through_the_switch() {
    let Some(out) = written() else { return };
    let devices = text(out, "devices");
    for device in ["rxe0/1 state ACTIVE", "rxe1/1 state ACTIVE"] {
        assert!(devices.contains(device), "{devices}");
    }
    let passed = |when: &str| -> u64 {
        let all = object(out, &format!("pingpong-{when}.json"));
        let all = all.as_array().expect("a list of queueing disciplines");
        let port = all.iter().find(|one| one["kind"] == "htb");
        number(port.expect("the port's shaper"), "packets")
    };
    let crossed = passed("after") - passed("before");
    assert!(crossed >= 20, "{crossed} of 20 packets passed the switch");
}

#[test]
fn doctor_lists_devices_with_addresses_and_mtu() {
    let Some(out) = written() else { return };
    let report = object(out, "doctor.json");
    let checks = report["host"]["checks"].as_array().expect("a list");
    for (check, words) in [
        ("rdma_device", "rxe0: Ethernet, ACTIVE"),
        ("rdma_device", "rxe1: Ethernet, ACTIVE"),
        ("rdma_gid", "1 10.1.0.1 (RoCE v2)"),
        ("rdma_mtu", "rxe1: 4096 bytes a packet"),
        ("rdma_access", "rxe0: /dev/infiniband/uverbs0 may be used"),
    ] {
        let is_it = |one: &&Value| {
            one["name"] == check && one["found"].as_str().is_some_and(|it| it.contains(words))
        };
        let found = checks.iter().find(is_it);
        let found = found.unwrap_or_else(|| panic!("{check}: {words:?} is in {checks:?}"));
        assert_eq!(found["state"], "ok", "{found}");
    }
}

#[test]
fn all_reduces_of_all_sizes_are_exact() {
    let Some(out) = written() else { return };
    let text = text(out, "perf.json");
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
        .collect();
    let (last, rows) = rows.split_last().expect("a summary at the end");
    assert_eq!(last["summary"]["wire"], "rdma");
    let sizes: Vec<u64> = rows.iter().map(|row| number(row, "size_bytes")).collect();
    assert_eq!(sizes, [4 << 10, 128 << 10, 4 << 20]);
    for row in rows {
        assert_eq!(
            (number(row, "wrong"), number(row, "lost_segments")),
            (0, 0),
            "{row}"
        );
    }
    // No loss is allowed, so every packet is ECT: marked, not dropped.
    let [control, class, ..] = &queues(out, "perf")[..] else {
        panic!("a queue for control, and some for classes");
    };
    assert!(class.sent > 1_000 && class.marked > 0, "{class:?}");
    assert_eq!((class.early, class.full), (0, 0), "{class:?}");
    assert!(control.sent > 0, "{control:?}");
    assert_eq!(
        (control.marked, control.early, control.full),
        (0, 0, 0),
        "{control:?}"
    );
}

#[test]
fn front_and_back_layers_have_queues_of_their_own() {
    let Some(out) = written() else { return };
    let queues = queues(out, "buckets");
    assert_eq!(queues.len(), 4, "{queues:?}");
    assert!(queues.iter().all(|queue| queue.sent > 0), "{queues:?}");
}

/// A job of 3 all-reduces of 256 KiB through the narrow port: the counters of its ranks and of the
/// switch.
fn crowded(out: &Path, job: &str) -> ([Value; 2], Queue) {
    let ends = ends(out, job);
    for end in &ends {
        let counts = (number(end, "all_reduces"), number(end, "wrong"));
        assert_eq!(
            (counts, number(end, "kernel_drops")),
            ((3, 0), 0),
            "{ends:?}"
        );
    }
    let mut queues = queues(out, job);
    let class = queues.swap_remove(1);
    assert!(
        class.early > 0 && class.marked > 0 && class.full == 0,
        "{class:?}"
    );
    // Its layers are unknown: no other class is used.
    assert_eq!(queues[1].sent + queues[2].early, 0, "{queues:?}");
    (ends, class)
}

/// Rank 1's accepted losses, and half of the segments of rank 0: the share of reduce-scatters.
fn lost_of(ends: &[Value; 2]) -> (u64, f64) {
    assert_eq!(number(&ends[0], "lost_segments"), 0, "{ends:?}");
    let contributed = number(&ends[0], "sent_segments") / 2;
    (number(&ends[1], "lost_segments"), contributed as f64)
}

#[test]
fn losses_within_the_tolerance_are_accepted() {
    let Some(out) = written() else { return };
    let (ends, class) = crowded(out, "tolerant");
    let (lost, contributed) = lost_of(&ends);
    assert!(0 < lost && lost as f64 <= 0.6 * contributed, "{ends:?}");
    assert!(lost <= class.early, "{ends:?}, {class:?}");
}

#[test]
fn losses_beyond_the_tolerance_are_repaired() {
    let Some(out) = written() else { return };
    let (ends, _) = crowded(out, "lossy");
    let (lost, contributed) = lost_of(&ends);
    assert!(lost as f64 <= 0.05 * contributed, "{ends:?}");
    assert!(number(&ends[0], "repaired_segments") > 0, "{ends:?}");
}

#[test]
fn receivers_read_the_marks_that_the_switch_made() {
    let Some(out) = written() else { return };
    for job in ["tolerant", "lossy"] {
        let (ends, class) = crowded(out, job);
        let came = number(&ends[1], "marked_segments");
        // Probes ride behind their data, and can be marked too.
        let probes = number(&ends[0], "probes");
        assert!(
            (came..=came + probes).contains(&class.marked),
            "{job}: {came} came and {probes} probes were sent, {class:?}"
        );
        assert_eq!(
            number(&ends[0], "marked_segments"),
            0,
            "the way back is wide"
        );
    }
}

#[test]
fn gradients_are_equal_on_both_ranks() {
    let Some(out) = written() else { return };
    ends(out, "gradients");
    let floats = |path: &Path| -> Vec<f32> {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let float = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("chunks of four"));
        bytes.chunks_exact(4).map(float).collect()
    };
    let folder = guest::scripts().join(RDMA);
    let [a, b] = [0, 1].map(|rank| floats(&folder.join(format!("gradients-{rank}.f32"))));
    let sums = [0, 1].map(|rank| floats(&out.join(format!("sum-{rank}.f32"))));
    let bits = |sum: &[f32]| sum.iter().map(|one| one.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&sums[0]), bits(&sums[1]), "replicas stay identical");
    assert_eq!(sums[0].len(), a.len());
    let mut estimated = 0;
    for ((a, b), sum) in a.iter().zip(&b).zip(&sums[0]) {
        // A missing contribution is replaced by counting the other rank's twice.
        assert!(
            [a + b, 2.0 * a, 2.0 * b].contains(sum),
            "{a} + {b} is not {sum}"
        );
        estimated += usize::from(*sum != a + b);
    }
    assert!(
        10 * estimated <= a.len(),
        "{estimated} of {} are estimates",
        a.len()
    );
}

#[test]
fn faults_are_mended_as_over_udp() {
    let Some(out) = written() else { return };
    for (fault, sign) in [
        ("drop", Some("faults_dropped")),
        ("duplicate", Some("replayed_packets")),
        ("reorder", None),
        ("corrupt", Some("forged_packets")),
    ] {
        let ends = ends(out, fault);
        for end in &ends {
            let counts = ["all_reduces", "wrong", "lost_segments"].map(|key| number(end, key));
            assert_eq!(counts, [2, 0, 0], "{fault}: {ends:?}");
        }
        if let Some(sign) = sign {
            let seen: u64 = ends.iter().map(|end| number(end, sign)).sum();
            assert!(seen > 0, "{fault}: no {sign} in {ends:?}");
        }
    }
}

#[test]
fn dead_paths_end_the_job_on_both_sides() {
    let Some(out) = written() else { return };
    for (rank, other) in [(0, 1), (1, 0)] {
        let told = complaint(out, ("one_way", rank), LOST);
        assert!(told.contains(&format!("rank {other} was lost")), "{told}");
    }
}

#[test]
fn obstacles_to_rdma_are_named_with_remedies() {
    let Some(out) = written() else { return };
    for (job, cause, mend) in [
        ("device", "names \"mlx5_0\"", "devices are rxe0, rxe1"),
        ("gid", "transport.rdma_gid is 200", "1: 10.1.0.1"),
        ("mtu", "transport.mtu is 9000", "set transport.mtu to 4144"),
        ("permission", "cannot be opened", "/dev/infiniband/uverbs"),
        ("memory", "cannot be registered", "ulimit -l unlimited"),
        (
            "library",
            "libibverbs.so.1 cannot be loaded",
            "apt install libibverbs1",
        ),
        (
            "down",
            "port 1 of RDMA device rxe0 is down",
            "ip link set up",
        ),
    ] {
        let told = complaint(out, (job, 0), REFUSED);
        assert!(told.contains(cause) && told.contains(mend), "{job}: {told}");
    }
}

#[test]
fn ports_agree_on_the_smaller_mtu() {
    let Some(out) = written() else { return };
    for end in ends(out, "narrow") {
        assert_eq!(
            (number(&end, "all_reduces"), number(&end, "wrong")),
            (2, 0),
            "{end}"
        );
    }
    let told = text(out, "narrow-rank0.errors");
    assert!(told.contains("1072") && told.contains("smallest"), "{told}");
}

#[test]
fn removed_devices_or_cables_end_the_job() {
    let Some(out) = written() else { return };
    for (job, causes) in [
        ("gone", ["was removed", "was removed"]),
        // Whichever is seen first: the port, or the way that went with it.
        ("cable", ["went down", "has no way"]),
    ] {
        for rank in [0, 1] {
            let told = complaint(out, (job, rank), LOST);
            assert!(told.contains("rxe1"), "{job}: {told}");
            assert!(
                causes.iter().any(|cause| told.contains(cause)),
                "{job}: {told}"
            );
        }
    }
}
