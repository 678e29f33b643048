//! The same setup and seed give the same outcome: again, however the fabric is divided, on any
//! number of threads, in any build.

use gradwire_fabric::policy::Balance;
use gradwire_fabric::policy::SwitchBuffer;
use gradwire_fabric::topology::{Fabric, LinkChange, LinkState, LinkWay, SlowSpells, Trimming};
use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::results::statistics::digest;
use gradwire_netsim::setup::{Division, Setup, Transport};
use gradwire_netsim::simulation;
use gradwire_protocol::units::{ByteCount, Instant, Span};

use crate::world::{fabric, lines, pattern, run, setup, share, slow};

const SHAPE: &str = "fat-tree:k=8@100G";
const PATTERNS: [&str; 4] = [
    "permutation:30KB",
    "incast:31x30KB",
    "all-to-all:6KB@hosts=0-3,16-19,32-35,112-115",
    "all-to-all:6KB,parallel=2@hosts=0-3,16-19,32-35,112-115",
];

/// Events in a fabric that disturb packets.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Nothing,
    GrayLinks,
    SharedBuffers,
    Flaps,
    Samples,
    Marks,
    Random,
    Adaptive,
    /// Switches choose by load while one link fails and comes back; that link is of one region.
    AdaptiveFlap,
    /// Switches cut packets, and receivers grant them again.
    Trims,
    /// Some links are shorter than others.
    ShortLinks,
    /// Hosts send slowly now and then.
    SlowHosts,
}

const TROUBLES: [Trouble; 12] = [
    Trouble::Nothing,
    Trouble::GrayLinks,
    Trouble::SharedBuffers,
    Trouble::Flaps,
    Trouble::Samples,
    Trouble::Marks,
    Trouble::Random,
    Trouble::Adaptive,
    Trouble::AdaptiveFlap,
    Trouble::Trims,
    Trouble::ShortLinks,
    Trouble::SlowHosts,
];

/// Every `every`-th link between switches fails and comes back.
fn flapping(fabric: &mut Fabric, every: usize) {
    let links = fabric.links.len() as u32;
    for (micros, state) in [(3, LinkState::Down), (20, LinkState::Up)] {
        let at = Instant::START + Span::from_micros(micros);
        let links = (0..links).filter(|link| !fabric.links[*link as usize].has_host());
        let changes: Vec<_> = links
            .step_by(every)
            .map(|link| LinkChange {
                at,
                link,
                way: LinkWay::Both,
                state,
            })
            .collect();
        fabric.changes.extend(changes);
    }
}

fn with(trouble: Trouble, mut setup: Setup) -> Setup {
    let fabric = &mut setup.fabric;
    match trouble {
        Trouble::Nothing => {}
        Trouble::GrayLinks => {
            for link in fabric.links.iter_mut().step_by(3) {
                link.loss = share(0.01);
            }
        }
        Trouble::SharedBuffers => {
            let bytes = ByteCount::kib(256);
            fabric.buffer = SwitchBuffer::Shared { bytes, alpha: 1.0 };
        }
        Trouble::Flaps => flapping(fabric, 7),
        Trouble::Samples => setup.sample_every = Some(Span::from_nanos(70)),
        Trouble::Marks => fabric.marks_above = Some(share(0.02)),
        Trouble::Random => fabric.balance = Some(Balance::Random),
        Trouble::Adaptive => fabric.balance = Some(Balance::Adaptive),
        Trouble::AdaptiveFlap => {
            fabric.balance = Some(Balance::Adaptive);
            flapping(fabric, 1_000);
        }
        Trouble::Trims => fabric.trimming = Trimming::On,
        Trouble::ShortLinks => {
            for link in fabric.links.iter_mut().step_by(5) {
                link.latency = Span::from_nanos(600);
            }
        }
        Trouble::SlowHosts => {
            let spells = SlowSpells {
                left: share(0.5),
                length: Span::from_micros(5),
                apart: Span::from_micros(20),
            };
            fabric.spells.send = Some(spells);
        }
    }
    setup
}

/// An outcome without the fields that depend on the machine and on the number of threads.
fn essence(outcome: Outcome) -> Outcome {
    Outcome {
        events_per_thread: Vec::new(),
        cpu_per_thread: Vec::new(),
        ..outcome
    }
}

/// The first difference, in words.
fn difference(one: &Outcome, other: &Outcome) -> String {
    let flow = one.flows.iter().zip(&other.flows).find(|(a, b)| a != b);
    let links = one.links.iter().zip(&other.links).find(|(a, b)| a != b);
    let links = links.map(|(a, b)| {
        let [a, b] = [a, b].map(|link| (link.from, link.to, link.bytes, link.peak_queue));
        (a, b)
    });
    let sample = one.samples.iter().zip(&other.samples).find(|(a, b)| a != b);
    let [sizes, others] = [one, other].map(|outcome| {
        let samples = outcome.samples.len();
        (outcome.events, outcome.ended, samples, outcome.transport)
    });
    format!("{sizes:?} {others:?}\n{flow:?}\n{links:?}\n{sample:?}")
}

fn check(what: &str, setup: &Setup, threads: &[usize]) {
    let first = essence(run(setup));
    assert!(first.events > 1000, "{what}");
    let divided = threads
        .iter()
        .map(|&threads| (threads, Division::ByEdge, usize::MAX));
    let others = [
        (1, Division::ByThread, usize::MAX),
        (1, Division::ByEdge, 1),
        (1, Division::ByEdge, 3),
    ];
    for (threads, division, awake_peers) in divided.chain(others) {
        let again = essence(run(&Setup {
            threads,
            division,
            awake_peers,
            ..setup.clone()
        }));
        assert!(
            first == again,
            "{what}, seed {}, {threads} threads, {division:?}, {awake_peers} peers awake: {}",
            setup.seed,
            difference(&first, &again)
        );
    }
}

/// Every trouble with two of the patterns, and with all of them where time plays no part.
fn repeats(transport: Transport) {
    for (number, trouble) in TROUBLES.into_iter().enumerate() {
        for (index, text) in PATTERNS.into_iter().enumerate() {
            if index == number % PATTERNS.len() && !slow() {
                continue;
            }
            let lines = lines(SHAPE, text, 3);
            let setup = with(trouble, Setup { transport, ..lines });
            check(
                &format!("{transport}, {text}, {trouble:?}"),
                &setup,
                &[2, 3],
            );
        }
    }
}

#[test]
fn gradwire_gives_the_same_bytes_again_and_on_any_number_of_threads() {
    repeats(Transport::Gradwire);
}

#[test]
fn dctcp_gives_the_same_bytes_again() {
    repeats(Transport::Dctcp);
}

#[test]
fn pfabric_gives_the_same_bytes_again() {
    repeats(Transport::PFabric);
}

#[test]
fn ndp_gives_the_same_bytes_again() {
    repeats(Transport::Ndp);
}

#[test]
fn roce_with_pfc_gives_the_same_bytes_again() {
    repeats(Transport::Roce);
}

#[test]
fn irn_gives_the_same_bytes_again() {
    repeats(Transport::Irn);
}

#[test]
fn collectives_give_the_same_bytes_again() {
    for text in [
        "ring:1MiB@hosts=0-3,16-19",
        "direct:256KiB@hosts=0,16,32,48,64",
        "ps:2@256KiB@hosts=0-7,64-71",
    ] {
        let mut setup = with(Trouble::GrayLinks, lines(SHAPE, text, 3));
        setup.job.tolerance = share(0.1);
        check(text, &setup, &[2, 3]);
    }
}

#[test]
fn switches_that_sum_give_the_same_bytes_again() {
    for transport in [Transport::SwitchMl, Transport::Atp, Transport::NetReduce] {
        let text = "all-reduce:256KiB@hosts=0-3,16-19,64-67";
        let setup = with(Trouble::GrayLinks, lines(SHAPE, text, 3));
        let setup = Setup { transport, ..setup };
        check(&format!("{transport}, {text}"), &setup, &[2, 3]);
    }
}

#[test]
fn other_shapes_do() {
    for shape in [
        "leaf-spine:16x8x4@100G/200G,latency=700ns",
        "rail:16x8@100G,balance=random",
        "fat-tree:k=8,over=2@100G,buffer=1MiB*1",
    ] {
        let setup = with(Trouble::GrayLinks, lines(shape, PATTERNS[0], 3));
        check(shape, &setup, &[2, 3]);
    }
}

#[test]
fn runs_that_are_stopped_in_the_middle_give_the_same_bytes_again() {
    for transport in [Transport::Gradwire, Transport::Roce] {
        let setup = Setup {
            transport,
            limit: Instant::START + Span::from_micros(23),
            ..with(Trouble::Samples, lines(SHAPE, "incast:64x60KB", 3))
        };
        let stopped = |threads, division| {
            let setup = Setup {
                threads,
                division,
                ..setup.clone()
            };
            let outcome = simulation::run(&setup, &mut |_| ());
            essence(outcome.expect("the setup makes sense"))
        };
        let first = stopped(1, Division::ByEdge);
        assert!(first.timed_out, "{transport}");
        for (threads, division) in [
            (1, Division::ByThread),
            (2, Division::ByEdge),
            (3, Division::ByThread),
        ] {
            let again = stopped(threads, division);
            assert!(
                first == again,
                "{transport}, {threads} threads, {division:?}: {}",
                difference(&first, &again)
            );
        }
    }
}

#[test]
fn other_seeds_give_other_bytes() {
    let digest_of = |seed| {
        let setup = lines(SHAPE, PATTERNS[0], 1);
        digest(&run(&Setup { seed, ..setup }))
    };
    assert_ne!(digest_of(1), digest_of(2));
}

/// Digest of the flows of the run below, in every build on every machine.
const DIGEST: u64 = 0xd8fe_6d74_eccd_6596;

#[test]
fn a_debug_build_and_a_release_build_give_the_same_bytes() {
    let fabric = fabric("fat-tree:k=4@100G,balance=random");
    let workload = pattern("permutation:300KB", &fabric, 5);
    let setup = with(Trouble::GrayLinks, setup(fabric, workload));
    let digest = digest(&run(&setup));
    assert_eq!(
        digest,
        DIGEST,
        "this build gives {digest:#x}: write it into DIGEST in {} if the protocol or the engine \
         was changed on purpose, and see that debug and release give the same",
        file!()
    );
}

#[test]
fn a_large_fabric_gives_the_same_bytes_on_any_number_of_threads() {
    let text = if slow() {
        "permutation:200KB"
    } else {
        "permutation:4KB"
    };
    let setup = lines("fat-tree:k=16@100G,balance=random", text, 3);
    check(text, &setup, if slow() { &[2, 3, 4, 7] } else { &[3] });
}
