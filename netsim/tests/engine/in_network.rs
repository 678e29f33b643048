//! Switches that sum all-reduces: bytes on every link, times, and sums that stay exact under loss.
//!
//! Hosts check every sum that they get: it must have each contribution once.

use gradwire_fabric::topology::Device;
use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::setup::{Setup, Transport};

use crate::world::{lines, pattern, run};

/// Payload of a full packet of 4,096 bytes.
const SEGMENT: u64 = 4_032;
const SUMMING: [Transport; 4] = [
    Transport::SwitchMl,
    Transport::Atp,
    Transport::AtpServers,
    Transport::NetReduce,
];

fn with(transport: Transport, shape: &str, text: &str, seed: u64) -> Setup {
    Setup {
        transport,
        ..lines(shape, text, seed)
    }
}

/// Runs to the end of all tasks.
fn completed(setup: &Setup) -> Outcome {
    let outcome = run(setup);
    let all = outcome.tasks.iter().all(|task| task.ended.is_some());
    assert!(all, "{}, seed {}", setup.transport, setup.seed);
    outcome
}

/// Microseconds until the last host has the sum.
fn took(setup: &Setup) -> f64 {
    let outcome = completed(setup);
    let ends = outcome.tasks.iter().filter_map(|task| task.ended);
    let last = ends.max().expect("there are tasks");
    last.as_picos() as f64 / 1e6
}

/// Data packets on the links from one kind of device to another.
fn packets(outcome: &Outcome, counts: fn(Device, Device) -> bool) -> Vec<u64> {
    let links = outcome.links.iter();
    let links = links.filter(|link| counts(link.from, link.to));
    links.map(|link| link.data_packets).collect()
}

fn is_uplink(from: Device, _: Device) -> bool {
    matches!(from, Device::Host(_))
}

/// A tensor of M bytes instead of the 2 (P - 1) / P M of a ring. In ATP a member also sends out the
/// sums for which it is the server: 1 / P of them.
#[test]
fn a_tensor_crosses_every_uplink_once() {
    let tensor = 6 * 96 * SEGMENT;
    let text = format!("all-reduce:{tensor}");
    for (transport, expected) in [
        (Transport::SwitchMl, 576),
        (Transport::NetReduce, 576),
        (Transport::Atp, 576 + 96),
        (Transport::AtpServers, 576 + 96),
    ] {
        let outcome = completed(&with(transport, "single:6@100G", &text, 1));
        assert_eq!(packets(&outcome, is_uplink), [expected; 6], "{transport}");
    }
    let ring = with(
        Transport::Roce,
        "single:6@100G",
        &format!("ring:{tensor}"),
        1,
    );
    let sent = packets(&completed(&ring), is_uplink);
    assert_eq!(sent, [576 * 2 * 5 / 6; 6]);
}

/// 2 (P - 1) / P is 1.667 at six hosts: the most that sums in the network can gain there. ACKs of
/// every packet take 3 % of a link, so each is compared with a ring that has as many: SwitchML has
/// none, gradwire few.
#[test]
fn six_hosts_gain_the_ratio_of_their_bytes() {
    for (transport, of_ring) in [
        (Transport::SwitchMl, Transport::Gradwire),
        (Transport::NetReduce, Transport::Dctcp),
    ] {
        let ring = took(&with(of_ring, "single:6@100G", "ring:100MB", 1));
        let sums = took(&with(transport, "single:6@100G", "all-reduce:100MB", 1));
        let off = ring / sums / (2.0 * 5.0 / 6.0) - 1.0;
        println!("{transport}: {ring:.0} us by a ring of {of_ring}, {sums:.0} us by the switch");
        assert!(
            off.abs() < 0.03,
            "{transport}: {} times as fast",
            ring / sums
        );
    }
}

/// Sapio et al., NSDI 2021, figure 4: the rate does not depend on the number of workers.
#[test]
fn four_eight_and_sixteen_workers_take_as_long() {
    for transport in [Transport::SwitchMl, Transport::NetReduce] {
        let times = [4, 8, 16].map(|workers| {
            let shape = format!("single:{workers}@100G");
            took(&with(transport, &shape, "all-reduce:8MB", 1))
        });
        println!("{transport}: {times:.0?} us");
        let spread = times[2] / times[0] - 1.0;
        assert!(spread.abs() < 0.01, "{transport}: {times:?} us");
    }
}

/// Leaves sum their hosts' contributions, one spine those of the leaves.
#[test]
fn a_leaf_sends_up_one_packet_for_all_of_its_hosts() {
    let text = format!("all-reduce:{}", 100 * SEGMENT);
    for transport in [Transport::SwitchMl, Transport::NetReduce] {
        let outcome = completed(&with(transport, "leaf-spine:3x4x2@100G", &text, 1));
        let mut between = packets(&outcome, |from, to| {
            matches!((from, to), (Device::Switch(_), Device::Switch(_)))
        });
        between.sort_unstable();
        // Three links up and three down are in the tree, those of the other spine are not.
        let expected = [0, 0, 0, 0, 0, 0, 100, 100, 100, 100, 100, 100];
        assert_eq!(between, expected, "{transport}");
    }
}

#[test]
fn two_jobs_get_exact_sums_over_lossy_links() {
    for transport in SUMMING {
        for (seed, loss) in [(1, "0.01%"), (2, "0.1%"), (3, "1%"), (4, "5%")] {
            let shape = format!("leaf-spine:3x4x2@100G,loss={loss}");
            let mut setup = with(transport, &shape, "all-reduce:1MB@hosts=0-5", seed);
            let other = pattern("all-reduce:1MBx3@hosts=6-11", &setup.fabric, seed);
            let both = setup.workload.beside(other);
            setup.workload = both.expect("both leave the algorithm open");
            completed(&setup);
        }
    }
}

/// Beside a switch with aggregators every contribution comes to a server, and the sums stay exact.
#[test]
fn servers_alone_do_all_that_switches_do_not() {
    let times = [Transport::Atp, Transport::AtpServers]
        .map(|transport| took(&with(transport, "single:6@100G", "all-reduce:8MB", 1)));
    println!("ATP: {times:.0?} us");
    assert!(times[1] > times[0], "{times:?} us");
}
