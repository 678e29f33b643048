//! All-reduces put exactly the bytes on every link that their algorithm needs.

use gradwire_fabric::topology::Device;
use gradwire_netsim::results::outcome::{LinkOutcome, Outcome};

use crate::world::{HEADER, dropped, lines, run};

/// Payload of a full packet of 4,096 bytes.
const SEGMENT: u64 = 4032;
/// Bytes on the wire beyond the payload: header and framing.
const AROUND: u64 = HEADER + 66;

fn uplinks(outcome: &Outcome) -> impl Iterator<Item = &LinkOutcome> {
    let from_host = |link: &&LinkOutcome| matches!(link.from, Device::Host(_));
    outcome.links.iter().filter(from_host)
}

/// Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4: every rank sends (and receives)
/// 2 S (P - 1) / P of a tensor of S bytes, which no all-reduce can go below (Patarasuk and Yuan,
/// JPDC 2009). The shards here are whole segments, so this payload is a whole number of full
/// packets. Control packets are no data and take at most 3 % of it.
fn sends_2s_p_minus_1_over_p(algorithm: &str, ranks: u64) {
    let tensor = ranks * 32 * SEGMENT;
    let setup = lines(
        &format!("single:{ranks}@100G"),
        &format!("{algorithm}:{tensor}"),
        1,
    );
    let outcome = run(&setup);
    assert_eq!((dropped(&outcome), outcome.transport.repaired), (0, 0));
    assert!(outcome.tasks.iter().all(|task| task.ended.is_some()));
    let packets = 2 * tensor * (ranks - 1) / ranks / SEGMENT;
    let mut links = 0;
    for link in uplinks(&outcome) {
        let what = format!("{algorithm} of {ranks} ranks, {:?}", link.from);
        assert_eq!(link.data_packets, packets, "{what}");
        let data = packets * (SEGMENT + AROUND);
        let control = link.bytes.checked_sub(data).expect("all packets are full");
        let least = (link.packets - link.data_packets) * AROUND;
        assert!(
            control >= least,
            "{what}: {control} bytes of control packets"
        );
        assert!(
            control * 100 < data * 3,
            "{what}: {control} bytes of control packets"
        );
        links += 1;
    }
    assert_eq!(links, ranks);
}

#[test]
fn a_ring_sends_2s_p_minus_1_over_p_on_every_link() {
    for ranks in [4, 8, 16] {
        sends_2s_p_minus_1_over_p("ring", ranks);
    }
}

#[test]
fn a_ring_of_any_number_of_ranks_does() {
    for ranks in [2, 3, 5, 7] {
        sends_2s_p_minus_1_over_p("ring", ranks);
    }
}

#[test]
fn halving_and_doubling_does_for_powers_of_two() {
    for ranks in [2, 4, 8, 16] {
        sends_2s_p_minus_1_over_p("halving-doubling", ranks);
    }
}

#[test]
fn a_direct_all_reduce_does() {
    for ranks in [4, 8, 16] {
        sends_2s_p_minus_1_over_p("direct", ranks);
    }
}
