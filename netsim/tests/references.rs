//! The reference transports do what their papers say: closed forms, shares, queues, incasts.
//!
//! Packets are 4086 + 64 bytes, ACKs 64, nothing around them, on links of 100 Gb/s and 1 us: the
//! settings of the validation runs that htsim publishes.

use gradwire_fabric::topology::{Device, Fabric};
use gradwire_netsim::results::outcome::{FlowOutcome, LinkOutcome, Outcome};
use gradwire_netsim::setup::{Division, JournalMode, Setup, Transport};
use gradwire_netsim::simulation;
use gradwire_netsim::switches;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Share, Span};
use gradwire_workloads::workload::{Flow, Start, Workload};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use strum::VariantArray;

const SEED: u64 = 1;
/// Bytes of a full packet on the wire, and of the flow in it.
const PACKET: u64 = 4150;
const PAYLOAD: u64 = 4086;
const MB: u64 = 1_000_000;
/// Time of a full packet on a link, and of a link.
const PACKET_TIME: Span = Span::from_nanos(332);
const LATENCY: Span = Span::from_micros(1);

fn setup(transport: Transport, shape: &str, flows: Vec<Flow>) -> Setup {
    let shape = format!("{shape},mtu={PACKET},framing=0");
    Setup {
        fabric: Fabric::from_shape(&shape).expect("the shape is well formed"),
        workload: Workload {
            flows,
            ..Workload::default()
        },
        transport,
        job: Job::default(),
        seed: SEED,
        limit: Instant::START + Span::from_millis(500),
        threads: 1,
        division: Division::default(),
        awake_peers: usize::MAX,
        sample_every: None,
        background: None,
        journal: JournalMode::Off,
        clock: || Span::ZERO,
    }
}

/// Runs to the end.
fn run(setup: &Setup) -> Outcome {
    let outcome = run_to_limit(setup);
    let (transport, ended) = (setup.transport, outcome.ended);
    assert!(
        !outcome.timed_out,
        "seed {SEED}: {transport} goes on at {ended:?}"
    );
    outcome
}

fn run_to_limit(setup: &Setup) -> Outcome {
    simulation::run(setup, &mut |_| ()).expect("the setup makes sense")
}

fn references() -> impl Iterator<Item = Transport> {
    let all = Transport::VARIANTS.iter().copied();
    all.filter(|transport| *transport != Transport::Gradwire)
}

fn flow(source: u32, destination: u32, bytes: u64) -> Flow {
    Flow::new(source, destination, ByteCount::new(bytes))
}

fn starting(at: Span, flow: Flow) -> Flow {
    Flow {
        start: Start::At(Instant::START + at),
        ..flow
    }
}

/// The first `senders` hosts to the one after them.
fn incast(senders: u32, bytes: u64) -> Vec<Flow> {
    (0..senders)
        .map(|source| flow(source, senders, bytes))
        .collect()
}

/// A random cycle through all hosts: each sends to one, each receives from one.
fn permutation(hosts: u32, bytes: u64, seed: u64) -> Vec<Flow> {
    let mut order: Vec<u32> = (0..hosts).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let next = order.iter().cycle().skip(1);
    order
        .iter()
        .zip(next)
        .map(|(&from, &to)| flow(from, to, bytes))
        .collect()
}

/// From a flow's start until its sender knew that it had arrived, in microseconds.
fn took(flow: &FlowOutcome) -> f64 {
    let ended = flow.acknowledged.expect("the flow has ended");
    let started = flow.started.expect("the flow has begun");
    ended.since(started).as_secs_f64() * 1e6
}

fn longest(outcome: &Outcome) -> f64 {
    outcome.flows.iter().map(took).fold(0.0, f64::max)
}

/// Time of these bytes of flows on one link, in microseconds.
fn on_link(bytes: u64) -> f64 {
    (bytes.div_ceil(PAYLOAD) * PACKET * 8) as f64 / 1e5
}

fn link_from(outcome: &Outcome, host: u32) -> &LinkOutcome {
    let found = outcome
        .links
        .iter()
        .find(|link| link.from == Device::Host(host));
    found.expect("every host has a link")
}

/// FCT = (n-1) S + (H-1) S + S_last + H d + H (A + d): n packets of S and S_last on H links of
/// latency d, an ACK of A back. With the 2 MB over 6 links of htsim's `one.cm` it is 176.1995 us,
/// which htsim prints as 176.2. NDP is in it although PULLs clock it: its first window lasts until
/// they come, and they come at line rate. PULLs of the reverse path share no link with data.
#[test]
fn a_flow_alone_takes_the_time_of_the_closed_form_to_the_picosecond() {
    let (hops, bytes) = (6, 2 * MB);
    let packets = bytes.div_ceil(PAYLOAD);
    let on_wire = |bytes| Rate::from_gbps(100).transmit_time(ByteCount::new(bytes));
    let last = on_wire(bytes - (packets - 1) * PAYLOAD + 64);
    let there = on_wire(PACKET) * (packets - 1 + hops - 1) + last + LATENCY * hops;
    let both = there + (on_wire(64) + LATENCY) * hops;
    assert_eq!(both, Span::from_picos(176_199_520));
    for transport in references() {
        let alone = vec![flow(0, 15, bytes)];
        let outcome = run(&setup(transport, "fat-tree:k=4@100G", alone));
        let flow = &outcome.flows[0];
        if transport == Transport::Rccc {
            // Its credits leave a hundredth slower than the link takes packets.
            let slower = Instant::START + (there * 101).divided(100);
            assert!(flow.received > Some(Instant::START + there), "{transport}");
            assert!(flow.received < Some(slower), "{transport}");
            continue;
        }
        assert_eq!(flow.received, Some(Instant::START + there), "{transport}");
        assert_eq!(
            flow.acknowledged,
            Some(Instant::START + both),
            "{transport}"
        );
    }
}

#[test]
fn equal_setups_give_equal_outcomes() {
    for transport in references() {
        let setup = setup(transport, "fat-tree:k=4@100G", permutation(16, MB, SEED));
        let (first, second) = (run(&setup), run(&setup));
        assert_eq!(first.flows, second.flows, "{transport}");
        assert_eq!(first.links, second.links, "{transport}");
    }
}

#[test]
fn everything_arrives_over_links_that_lose_one_packet_in_a_hundred() {
    for transport in references() {
        let mut setup = setup(transport, "fat-tree:k=4@100G", permutation(16, MB, SEED));
        for link in &mut setup.fabric.links {
            link.loss = Share::new(0.01).expect("one in a hundred is a share");
        }
        let outcome = run(&setup);
        assert!(outcome.transport.repaired > 0, "{transport}");
        assert!(
            outcome.flows.iter().all(|flow| flow.lost_bytes == 0),
            "{transport}"
        );
    }
}

/// pFabric is not in it: it serves one flow after the other.
#[test]
fn two_flows_get_half_of_a_link_each() {
    let half = on_link(40 * MB);
    for transport in [Transport::Dctcp, Transport::Ndp] {
        let flows = vec![flow(0, 15, 20 * MB), flow(4, 15, 20 * MB)];
        let outcome = run(&setup(transport, "fat-tree:k=4@100G", flows));
        for flow in &outcome.flows {
            let off = took(flow) / half - 1.0;
            assert!(off.abs() < 0.03, "{transport}: {} of {half} us", took(flow));
        }
    }
}

/// Least and most packets in the queue to a host between 2 and 6 ms.
fn steady_queue(outcome: &Outcome, host: u32) -> (f64, f64) {
    let links = outcome.links.iter();
    let port = links
        .map(|link| link.to)
        .position(|to| to == Device::Host(host));
    let steady = Instant::START + Span::from_millis(2)..Instant::START + Span::from_millis(6);
    let samples = outcome.samples.iter();
    let samples = samples.filter(|sample| Some(sample.link as usize) == port);
    let samples = samples.filter(|sample| steady.contains(&sample.at));
    let depths: Vec<u64> = samples.map(|sample| sample.bytes).collect();
    assert!(depths.len() > 3000, "{} samples", depths.len());
    let packets =
        |depth: Option<&u64>| *depth.expect("thousands of samples") as f64 / PACKET as f64;
    (packets(depths.iter().min()), packets(depths.iter().max()))
}

/// Alizadeh et al., SIGCOMM 2010, section 3.3: N flows in step make a queue of at most K + N
/// packets, which swings by A = sqrt(2 N (C RTT + K)) / 2. Here queues hold whole packets, and K
/// counts the marked packet, too.
#[test]
fn dctcp_keeps_its_queue_between_the_bounds_of_the_paper() {
    let flows = vec![flow(0, 15, 40 * MB), flow(4, 15, 40 * MB)];
    let mut setup = setup(Transport::Dctcp, "fat-tree:k=4@100G", flows);
    setup.sample_every = Some(Span::from_micros(1));
    let policy = switches::policy(&setup);
    let mark = policy.marks_above(1, Rate::from_gbps(100)).div_ceil(PACKET) as f64 + 1.0;
    let pipe = policy.rtt.as_secs_f64() / PACKET_TIME.as_secs_f64();
    let swing = (2.0 * 2.0 * (pipe + mark)).sqrt() / 2.0;
    let (least, most) = steady_queue(&run(&setup), 15);
    assert!(
        most >= mark && most <= mark + 2.0,
        "{most} packets, K {mark}"
    );
    let bound = (mark + 2.0 - swing).floor();
    assert!(least >= bound, "{least} packets, at least {bound}");
}

/// Alizadeh et al., SIGCOMM 2013, section 5: short flows finish near their time alone. One packet
/// of the long flow may be on the wire when the first of a short one comes.
#[test]
fn pfabric_brings_short_flows_past_a_long_one() {
    let short = |n: u64| starting(Span::from_micros(200 * n), flow(1, 2, 10 * PAYLOAD));
    let flows = std::iter::once(flow(0, 2, 20 * MB)).chain((1..8).map(short));
    let outcome = run(&setup(Transport::PFabric, "single:3@100G", flows.collect()));
    for flow in &outcome.flows[1..] {
        let received = flow.received.zip(flow.started);
        let span = received.map(|(received, started)| received.since(started));
        let span = span.expect("the flow has ended");
        assert!(
            span <= flow.ideal + PACKET_TIME,
            "{span}, alone {}",
            flow.ideal
        );
    }
}

/// Handley et al., SIGCOMM 2017, section 6: an incast of 7 takes at most 5 % longer than the link.
#[test]
fn ndp_fills_the_link_of_an_incast() {
    let outcome = run(&setup(Transport::Ndp, "single:8@100G", incast(7, 2 * MB)));
    let (took, ideal) = (longest(&outcome), on_link(14 * MB));
    assert!(took < 1.05 * ideal, "{took} of {ideal} us");
    assert_eq!(outcome.transport.duplicates, 0);
}

/// Handley et al., SIGCOMM 2017: a permutation of long flows uses 92 % of a fat tree. Trimmed
/// packets cost the rest: each takes a PULL that a whole packet could have had.
#[test]
fn ndp_uses_nine_tenths_of_a_fat_tree_under_a_permutation() {
    let outcome = run(&setup(
        Transport::Ndp,
        "fat-tree:k=8@100G",
        permutation(128, 5 * MB, SEED),
    ));
    let round_trip = 14.02;
    let shares = outcome
        .flows
        .iter()
        .map(|flow| on_link(5 * MB) / (took(flow) - round_trip));
    let mean = shares.sum::<f64>() / 128.0;
    assert!((mean / 0.92 - 1.0).abs() < 0.05, "{mean} of the links");
}

/// The longest flow of each seed, averaged.
fn mean_of_seeds(seeds: u64, transport: Transport, flows: impl Fn(u64) -> Vec<Flow>) -> f64 {
    let tail = |seed| {
        let setup = Setup {
            seed,
            ..setup(transport, "fat-tree:k=8@100G", flows(seed))
        };
        longest(&run(&setup))
    };
    (1..=seeds).map(tail).sum::<f64>() / seeds as f64
}

/// An incast of this many drawn hosts of 128.
fn drawn_incast(senders: usize, bytes: u64, seed: u64) -> Vec<Flow> {
    let mut order: Vec<u32> = (0..128).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let (to, from) = (order[0], &order[1..=senders]);
    from.iter().map(|&from| flow(from, to, bytes)).collect()
}

type DrawnFlows = fn(u64) -> Vec<Flow>;

const PERMUTATION: (&str, DrawnFlows) =
    ("permutation of 2 MB", |seed| permutation(128, 2 * MB, seed));
const INCAST_127: (&str, DrawnFlows) = ("incast of 127", |_| incast(127, 2 * MB));
const INCAST_64: (&str, DrawnFlows) = ("incast of 64", |seed| drawn_incast(64, 64_000, seed));

/// Asserts that each cell takes as long as in htsim, within 5 %. Theirs are other permutations and
/// senders, so three of each are averaged here.
fn assert_as_in_htsim(transport: Transport, cells: &[((&str, DrawnFlows), f64)]) {
    for ((name, flows), theirs) in cells {
        let mean = mean_of_seeds(3, transport, flows);
        let off = mean / theirs - 1.0;
        println!("{name}: {mean:.1} us, {:.1} % off", off * 100.0);
        assert!(off.abs() < 0.05, "{name}: {mean} us, htsim {theirs}");
    }
}

/// htsim of the Ultra Ethernet Consortium, NSCC with trimming, REPS in the permutations, on the
/// same fabric.
#[test]
fn nscc_needs_as_long_as_in_htsim() {
    let short: (&str, DrawnFlows) = ("permutation of 100 KB", |seed| {
        permutation(128, 100_000, seed)
    });
    let cells = [
        (PERMUTATION, 195.0),
        (short, 26.6),
        (INCAST_127, 21_029.3),
        (INCAST_64, 368.7),
    ];
    assert_as_in_htsim(Transport::Nscc, &cells);
}

/// `htsim_uec -receiver_cc_only` on the same fabric.
#[test]
fn rccc_needs_as_long_as_in_htsim() {
    let long: (&str, DrawnFlows) = ("incast of 16, 1 MB", |seed| drawn_incast(16, MB, seed));
    let cells = [(INCAST_127, 20_891.4), (INCAST_64, 360.0), (long, 1_317.7)];
    assert_as_in_htsim(Transport::Rccc, &cells);
}

/// `htsim_eqds -paths 128` on the same fabric.
#[test]
fn eqds_needs_as_long_as_in_htsim() {
    let cells = [(PERMUTATION, 207.0), (INCAST_127, 20_963.4)];
    assert_as_in_htsim(Transport::Eqds, &cells);
}

/// Enough memory for the bytes that every ingress of a switch may hold before its pause works.
const LOSSLESS: &str = "buffer=4MiB";

#[test]
fn roce_with_pfc_loses_nothing_in_an_incast() {
    let shape = format!("single:8@100G,{LOSSLESS}");
    let outcome = run(&setup(Transport::Roce, &shape, incast(7, 2 * MB)));
    assert_eq!(
        (outcome.transport.repaired, outcome.transport.duplicates),
        (0, 0)
    );
    let classes = outcome.links.iter().flat_map(|link| &link.classes);
    assert_eq!(classes.map(|class| class.dropped_full).sum::<u64>(), 0);
    assert!(outcome.links.iter().any(|link| link.paused > Span::ZERO));
}

/// Zhu et al., SIGCOMM 2015, section 2.2: PFC stops whole links, also for flows to other hosts.
#[test]
fn an_incast_holds_back_an_innocent_flow_where_pfc_is() {
    let shape = format!("leaf-spine:2x8x1@100G/800G,{LOSSLESS}");
    let innocent = |transport| {
        let mut flows: Vec<Flow> = (0..7).map(|source| flow(source, 8, 2 * MB)).collect();
        flows.push(flow(7, 9, 2 * MB));
        let beside = run(&setup(transport, &shape, flows.clone()));
        let alone = run(&setup(transport, &shape, flows.split_off(7)));
        took(&beside.flows[7]) / took(&alone.flows[0])
    };
    let (roce, dctcp) = (innocent(Transport::Roce), innocent(Transport::Dctcp));
    assert!(roce > 2.0, "{roce} times as long");
    assert!(dctcp < 1.05, "{dctcp} times as long");
}

/// 2 MB from each of 128 hosts to another one, every flow on one path. The slowest flow takes
/// 865 us with DCQCN in ns-3 (the backend of ASTRA-sim, 8fd3604), and 702 to 830 us with PFC alone
/// in csg-htsim. Theirs are other permutations, so eight are averaged here.
#[test]
fn roce_needs_as_long_for_a_permutation_as_in_other_simulators() {
    let seeds = 8;
    let flows = |seed| permutation(128, 2 * MB, seed);
    let mean = mean_of_seeds(seeds, Transport::Roce, flows);
    let off = mean / 865.0 - 1.0;
    println!("{mean:.0} us, {:.1} % off", off * 100.0);
    assert!(off.abs() < 0.15, "seeds 1 to {seeds}: {mean} us");
}

/// An incast fills its link once the fast flows have ended: 20,676 us in csg-htsim.
#[test]
fn roce_needs_as_long_for_an_incast_as_in_another_simulator() {
    let incast = incast(127, 2 * MB);
    let tail = longest(&run(&setup(Transport::Roce, "fat-tree:k=8@100G", incast)));
    let off = tail / 20_676.0 - 1.0;
    assert!(off.abs() < 0.01, "{tail} us");
}

/// Zhu et al., SIGCOMM 2015, section 6: flows that meet come to equal rates.
#[test]
fn dcqcn_brings_a_late_flow_to_its_share() {
    let shape = format!("single:3@100G,{LOSSLESS}");
    let late = starting(Span::from_millis(2), flow(1, 2, 1000 * MB));
    let mut setup = setup(Transport::Roce, &shape, vec![flow(0, 2, 1000 * MB), late]);
    let mut sent_until = |millis| {
        setup.limit = Instant::START + Span::from_millis(millis);
        let outcome = run_to_limit(&setup);
        [0, 1].map(|host| link_from(&outcome, host).bytes as f64)
    };
    let (before, after) = (sent_until(30), sent_until(60));
    let [first, second] = [0, 1].map(|host| after[host] - before[host]);
    let share = second / (first + second);
    assert!(
        (share - 0.5).abs() < 0.05,
        "the late flow has {share} of the bytes sent"
    );
    assert!(
        first + second > 0.8 * 30e-3 * 100e9 / 8.0,
        "{} bytes",
        first + second
    );
}
