//! A flow alone takes the time of the closed form, to the picosecond.

use gradwire_fabric::topology::{Device, Fabric};
use gradwire_netsim::setup::Setup;
use gradwire_netsim::simulation;
use gradwire_protocol::units::{ByteCount, Instant, Span};

use crate::world::{HEADER, fabric, flow, flows, run, setup, took, ungranted};

/// When the last packet has arrived, by definition: packet p leaves link h when it has arrived over
/// link h - 1 and packet p - 1 has left. It shares only this with the formula under test.
fn stored_and_forwarded(fabric: &Fabric, ends: (u32, u32), sizes: &[u64]) -> Span {
    let links = fabric.path(ends.0, ends.1);
    let mut left = vec![Span::ZERO; links.len()];
    for &bytes in sizes {
        let mut here = Span::ZERO;
        for (hop, &link) in links.iter().enumerate() {
            let link = fabric.links[link as usize];
            let free = left[hop].max(here);
            left[hop] = free + link.rate.transmit_time(ByteCount::new(bytes));
            here = left[hop] + link.latency;
        }
    }
    let last = links
        .last()
        .map(|&link| fabric.links[link as usize].latency);
    left[links.len() - 1] + last.unwrap_or_default()
}

/// Bytes on the wire of the packets of a flow: a header and framing around segments of
/// `mtu - 64` bytes, rounded down to a multiple of 16.
fn sizes(fabric: &Fabric, bytes: u64) -> Vec<u64> {
    let segment = (u64::from(fabric.mtu) - HEADER) / 16 * 16;
    let whole = bytes / segment;
    let rest = bytes - whole * segment;
    let payloads = (0..whole)
        .map(|_| segment)
        .chain((rest > 0).then_some(rest));
    payloads
        .map(|payload| payload + HEADER + u64::from(fabric.framing))
        .collect()
}

/// Fabrics of equal and unequal rates, and how many hops their first host is from their last. Where
/// a link in the middle is slower than the sender, it has memory for the packets that wait.
const SHAPES: [(&str, usize); 8] = [
    ("single:4@100G", 2),
    ("single:4@25G,framing=0,latency=300ns", 2),
    ("leaf-spine:4x4x4@100G", 4),
    ("leaf-spine:4x4x4@100G/400G,framing=0", 4),
    ("leaf-spine:4x4x4@400G/100G,buffer=4MiB", 4),
    ("fat-tree:k=4@100G,framing=0", 6),
    ("fat-tree:k=4@100G/40G,buffer=4MiB", 6),
    ("fat-tree:k=4@10G/800G,mtu=1500", 6),
];

/// One path, because short packets that take another path than the full ones before them overtake
/// them: a sprayed flow of a few packets may be quicker than the closed form, which has one path.
#[test]
fn a_flow_alone_takes_the_time_of_the_closed_form_to_the_picosecond() {
    for (shape, hops) in SHAPES {
        for bytes in [1, 4032, 4033, 5_000, 100_000, 2_000_000] {
            let fabric = fabric(shape);
            let ends = (0, fabric.hosts - 1);
            assert_eq!(fabric.path(ends.0, ends.1).len(), hops, "{shape}");
            let sizes = sizes(&fabric, bytes);
            let expected = stored_and_forwarded(&fabric, ends, &sizes);
            let mut setup = ungranted(setup(fabric, flows(vec![flow(ends.0, ends.1, bytes)])));
            setup.job.transport.entropies = 1;
            let alone = &run(&setup).flows[0];
            assert_eq!(took(alone), expected, "{bytes} bytes over {shape}");
            assert_eq!(alone.ideal, expected, "{bytes} bytes over {shape}");
        }
    }
}

/// With n packets of S, the last of T, over H equal links of latency d:
/// FCT = (n - 1) S + (H - 1) S + T + H d. For 2,000,000 bytes in segments of 4,032 bytes,
/// n = 497, S = 327.68 ns, T = (128 + 64) x 80 ps: 6 hops take 170.183040 us.
#[test]
fn a_sprayed_flow_of_2_mb_over_6_hops_takes_170_183_040_ps() {
    let text = "fat-tree:k=8@100G,framing=0";
    let fabric = fabric(text);
    let setup = ungranted(setup(fabric, flows(vec![flow(0, 127, 2_000_000)])));
    let (full, last) = (Span::from_picos(4096 * 80), Span::from_picos(192 * 80));
    let expected = full * (496 + 5) + last + Span::from_micros(6);
    assert_eq!(expected, Span::from_picos(170_183_040));
    assert_eq!(took(&run(&setup).flows[0]), expected);
}

/// The first packet takes H (S + d) to the receiver, whose grant of A bytes takes H (A + d) back;
/// the rest of the flow begins then, instead of when the unscheduled packets had left:
/// FCT = H (S + d) + H (A + d) + stored and forwarded time of the rest. The window is open from
/// the beginning, so the flow waits for the grant only.
#[test]
fn a_flow_waits_one_round_trip_for_its_grant() {
    for (shape, hops) in SHAPES {
        let fabric = fabric(shape);
        let ends = (0, fabric.hosts - 1);
        let bytes = 2_000_000;
        let sizes = sizes(&fabric, bytes);
        let mut setup = setup(fabric.clone(), flows(vec![flow(ends.0, ends.1, bytes)]));
        setup.job.transport.unscheduled = ByteCount::new(2 * sizes[0]);
        setup.job.transport.speculative = ByteCount::new(0);
        setup.job.transport.initial_window = setup.job.transport.window.most();
        setup.job.transport.entropies = 1;
        let there = stored_and_forwarded(&fabric, ends, &sizes[..1]);
        let grant = first_answer(&setup, there);
        let back = stored_and_forwarded(&fabric, (ends.1, ends.0), &[grant]);
        let rest = stored_and_forwarded(&fabric, ends, &sizes[2..]);
        let measured = took(&run(&setup).flows[0]);
        assert_eq!(
            measured,
            there + back + rest,
            "{hops} hops of {shape}, {grant} bytes"
        );
    }
}

/// A slow link leaves a flow a window of fewer packets than a receiver acknowledges unasked. It was
/// empty for 50 us in each round trip, and the flow took 1.3 times as long.
#[test]
fn a_small_window_waits_for_no_ack() {
    let fabric = fabric("fat-tree:k=8@100G/10G");
    let ends = (0, fabric.hosts - 1);
    let mut setup = setup(fabric, flows(vec![flow(ends.0, ends.1, 2_000_000)]));
    setup.job.transport.entropies = 1;
    let alone = &run(&setup).flows[0];
    let longer = took(alone).as_secs_f64() / alone.ideal.as_secs_f64();
    assert!(longer < 1.1, "{longer} times the ideal time");
}

/// Bytes on the wire of the receiver's answer to the first packet, which arrives after `there`.
fn first_answer(setup: &Setup, there: Span) -> u64 {
    let limit = Instant::START + there + Span::from_picos(1);
    let setup = Setup {
        limit,
        ..setup.clone()
    };
    let outcome = simulation::run(&setup, &mut |_| ()).expect("the setup makes sense");
    let last = setup.fabric.hosts - 1;
    let answers = outcome
        .links
        .iter()
        .find(|link| link.from == Device::Host(last));
    let answers = answers.expect("every host has a link");
    assert_eq!(answers.packets, 1);
    answers.bytes
}
