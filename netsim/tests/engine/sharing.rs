//! Flows that meet on a link fill it, and share it.

use gradwire_fabric::topology::{Device, LinkWay, OneWayFault};
use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::setup::{Setup, Transport};
use gradwire_netsim::simulation;
use gradwire_protocol::job::{GrantWindow, Job, SendWindow};
use gradwire_protocol::launch::{self, LaunchFacts};
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use gradwire_workloads::workload::{Flow, Start};

use crate::world::{
    HEADER, SEED, dropped, fabric, flow, flows, lines, micros, pattern, run, setup, tail, took,
};

/// Time of all bytes of these flows on one link, in microseconds, and of the first of them over
/// the links before.
fn wire_bound(setup: &Setup) -> f64 {
    let fabric = &setup.fabric;
    let framing = u64::from(fabric.framing);
    let segment = (u64::from(fabric.mtu) - HEADER) / 16 * 16;
    let on_wire = |bytes: u64| bytes + bytes.div_ceil(segment) * (HEADER + framing);
    let bytes = setup
        .workload
        .flows
        .iter()
        .map(|flow| on_wire(flow.bytes.get()));
    let all = fabric
        .host_rate()
        .transmit_time(ByteCount::new(bytes.sum()));
    let first = &setup.workload.flows[0];
    let full = fabric
        .host_rate()
        .transmit_time(ByteCount::new(segment + HEADER + framing));
    let hops = fabric.path(first.source, first.destination).len() as u64;
    micros(all + full * (hops - 1) + Span::from_micros(1) * hops)
}

/// Bytes of the flows that meet / rate of the last link + one-way path. The bound of the 127
/// senders is htsim's incast_128, in which its UEC and EQDS take 1.9 % and 1.5 % more. Only
/// packets sent before the receiver's first answer can be dropped: two of each sender, or those
/// that are speculative.
#[test]
fn an_incast_ends_within_1_percent_of_its_wire_bound() {
    for (shape, text) in [
        ("single:8@100G", "incast:7x1MB"),
        ("fat-tree:k=4@100G", "incast:15x500KB"),
        ("leaf-spine:8x8x4@100G", "incast:63x1MB"),
        ("fat-tree:k=8@100G", "incast:127x2MB"),
    ] {
        let setup = lines(shape, text, SEED);
        let outcome = run(&setup);
        let (tail, bound) = (tail(&outcome), wire_bound(&setup));
        let what = format!("{text} on {shape}, seed {SEED}: {tail:.1} us of {bound:.1} us");
        assert!(tail > bound * 0.999 && tail < bound * 1.01, "{what}");
        assert!(
            outcome.flows.iter().all(|flow| flow.lost_bytes == 0),
            "{what}"
        );
        let dropped = dropped(&outcome);
        let speculative = setup.job.transport.speculative.get() / u64::from(setup.fabric.mtu);
        let unasked = speculative.max(2) * setup.workload.flows.len() as u64;
        assert!(dropped <= unasked, "{what}: {dropped} packets dropped");
        println!("{what}, {dropped} packets dropped");
    }
}

fn sent_by(outcome: &Outcome, host: u32) -> f64 {
    let link = outcome
        .links
        .iter()
        .find(|link| link.from == Device::Host(host));
    link.expect("every host has a link").bytes as f64
}

/// Bytes that hosts 0 and 1 sent between two times, as shares of the last link's capacity.
fn shares(setup: &Setup, from: Span, until: Span) -> [f64; 2] {
    let at = |time| {
        let limit = Instant::START + time;
        let setup = Setup {
            limit,
            ..setup.clone()
        };
        let outcome = simulation::run(&setup, &mut |_| ()).expect("the setup makes sense");
        [0, 1].map(|host| sent_by(&outcome, host))
    };
    let (before, after) = (at(from), at(until));
    let capacity = 100e9 / 8.0 * until.beyond(from).as_secs_f64();
    [0, 1].map(|host| (after[host] - before[host]) / capacity)
}

#[test]
fn two_flows_get_half_of_their_link_each_and_end_when_both_have_passed() {
    for shape in ["single:3@100G", "leaf-spine:3x1x2@100G"] {
        let both = vec![flow(0, 2, 10_000_000), flow(1, 2, 10_000_000)];
        let setup = setup(fabric(shape), flows(both));
        let [first, second] = shares(&setup, Span::from_micros(200), Span::from_micros(1200));
        assert!(
            (first - 0.5).abs() < 0.01 && (second - 0.5).abs() < 0.01,
            "{shape}: {first} and {second}"
        );
        let outcome = run(&setup);
        let bound = wire_bound(&setup);
        for flow in &outcome.flows {
            let took = micros(took(flow));
            assert!(
                (took / bound - 1.0).abs() < 0.02,
                "{shape}: {took} us of {bound} us"
            );
        }
    }
}

#[test]
fn a_late_flow_gets_its_half_at_once() {
    let late = Flow {
        start: Start::At(Instant::START + Span::from_micros(400)),
        ..flow(1, 2, 10_000_000)
    };
    let setup = setup(
        fabric("single:3@100G"),
        flows(vec![flow(0, 2, 10_000_000), late]),
    );
    let [first, second] = shares(&setup, Span::from_micros(450), Span::from_micros(850));
    assert!(
        (first - 0.5).abs() < 0.01 && (second - 0.5).abs() < 0.01,
        "{first} and {second}"
    );
}

/// A receiver whose grant window is far below the unscheduled starts of its senders grants on when
/// these have arrived, though some of the senders announced themselves by PROBE.
#[test]
fn an_incast_of_large_unscheduled_starts_ends() {
    let mut setup = lines("single:128@100G", "incast:127x2MB", SEED);
    let transport = &mut setup.job.transport;
    transport.window = SendWindow::Bytes(ByteCount::mib(1));
    transport.unscheduled = ByteCount::kib(256);
    transport.grant_window = Some(GrantWindow::Bytes(ByteCount::kib(64)));
    let outcome = simulation::run(&setup, &mut |_| ()).expect("the setup makes sense");
    let ended = outcome.flows.iter().filter(|flow| flow.received.is_some());
    assert_eq!(ended.count(), 127, "ended at {:?}", outcome.ended);
}

/// The same incast with the defaults of a launch on 128 hosts with receive buffers of 8 MiB.
#[test]
fn an_incast_under_the_defaults_of_a_launch_drops_little() {
    let mut setup = lines("fat-tree:k=8@100G", "incast:127x2MB", SEED);
    let facts = LaunchFacts {
        mtu: setup.fabric.mtu + 48,
        receive_buffer: ByteCount::mib(8),
        peers: 127,
    };
    setup.job = launch::fitted(Job::default(), &facts);
    let outcome = run(&setup);
    let (tail, bound) = (tail(&outcome), wire_bound(&setup));
    let dropped = dropped(&outcome);
    println!("{dropped} packets dropped, {tail:.0} us of {bound:.0} us");
    assert!(dropped < 500, "{dropped} packets dropped");
    assert!(tail < bound * 1.1, "{tail:.0} us of {bound:.0} us");
}

/// Flows of a workload on one transport, and of a background on another.
fn beside(transport: Transport, background: Transport) -> Setup {
    let fabric = fabric("single:4@100G");
    let workload = pattern("incast:3x500KB", &fabric, SEED);
    let others = pattern("incast:3x500KB", &fabric, SEED);
    Setup {
        transport,
        background: Some(background),
        ..setup(fabric, workload.with_background(others))
    }
}

/// Incasts into one host, the workload's in DCTCP's queue or in NDP's, where switches trim.
#[test]
fn a_background_may_ride_another_transport() {
    let pairs = [
        (Transport::Ndp, Transport::Dctcp),
        (Transport::Dctcp, Transport::Roce),
        (Transport::Gradwire, Transport::Nscc),
    ];
    for (transport, background) in pairs {
        let setup = beside(transport, background);
        let outcome = run(&setup);
        let ended = outcome.flows.iter().filter(|flow| flow.received.is_some());
        assert_eq!(ended.count(), 6, "{transport} beside {background}");
        let bound = wire_bound(&setup);
        assert!(
            tail(&outcome) > bound * 0.99,
            "{transport} beside {background}"
        );
        if transport == Transport::Gradwire {
            // No background rides it.
            continue;
        }
        let same = run(&Setup {
            background: Some(transport),
            ..setup.clone()
        });
        let times = |outcome: &Outcome| outcome.flows.iter().map(took).collect::<Vec<_>>();
        assert_ne!(times(&outcome), times(&same));
    }
}

#[test]
fn transports_that_run_alone_are_refused_beside_others() {
    let setup = beside(Transport::Dctcp, Transport::Gradwire);
    let error = simulation::run(&setup, &mut |_| ()).expect_err("gradwire is no background");
    assert!(
        error.to_string().starts_with("gradwire runs alone"),
        "{error}"
    );
}

/// The links of a host lose in one direction only, or are slow in one.
#[test]
fn a_fault_of_one_direction_leaves_the_other_alone() {
    let mut setup = setup(fabric("single:2@100G"), flows(vec![flow(0, 1, 1_000_000)]));
    let whole = tail(&run(&setup));
    let to_switch = setup.fabric.links[0].ends[0] == Device::Host(0);
    let (forth, back) = match to_switch {
        true => (LinkWay::Forth, LinkWay::Back),
        false => (LinkWay::Back, LinkWay::Forth),
    };
    let slow = |way| OneWayFault {
        link: 0,
        way,
        rate: Some(Rate::from_gbps(10)),
        loss: None,
    };
    setup.fabric.one_way = vec![slow(back)];
    assert!(tail(&run(&setup)) < 1.2 * whole);
    setup.fabric.one_way = vec![slow(forth)];
    assert!(tail(&run(&setup)) > 8.0 * whole);
}
