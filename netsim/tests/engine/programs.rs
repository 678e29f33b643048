//! Reference transports carry training steps, and flows beside them, as closed forms say.
//!
//! One switch, links of 100 Gb/s, packets of 4,032 bytes with 64 + 66 around them. Without
//! computing, a step is its exchange.

use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::results::statistics::digest;
use gradwire_netsim::results::steps::Steps;
use gradwire_netsim::setup::{Setup, SetupError, Transport};
use gradwire_netsim::simulation;
use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_workloads::workload::{Hosts, Workload};
use strum::VariantArray;

use crate::training::{each_takes, model};
use crate::world::{fabric, micros, pattern, run, setup};

const RATE: Rate = Rate::from_gbps(100);
/// Bytes, forward and backward in microseconds.
type Layer = (u64, u64, u64);
const FOUR: [Layer; 4] = [(3_000_000, 0, 0); 4];
const ALL_BYTES: f64 = 12_000_000.0;

fn references() -> impl Iterator<Item = Transport> {
    let all = Transport::VARIANTS.iter().copied();
    all.filter(|transport| *transport != Transport::Gradwire)
}

/// Steps of a model on hosts of one switch, and their line.
fn step(layers: &[Layer], how: &str, hosts: u32) -> Workload {
    let hosts = Hosts {
        count: hosts,
        rate: RATE,
    };
    let line = format!("step:m:{how}");
    let workload = Workload::from_pattern_with(&line, hosts, 1, &[model(layers)]);
    workload.unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn on(transport: Transport, hosts: u32, workload: Workload) -> Setup {
    let fabric = fabric(&format!("single:{hosts}@100G"));
    Setup {
        transport,
        ..setup(fabric, workload)
    }
}

fn steps(setup: &Setup, outcome: &Outcome) -> Vec<Steps> {
    Steps::of(&setup.workload, &outcome.tasks)
}

/// The only job's.
fn run_steps(setup: &Setup) -> Steps {
    let mut all = steps(setup, &run(setup));
    assert_eq!(all.len(), 1, "it is one job");
    all.remove(0)
}

/// Microseconds that bytes take on a link.
fn on_wire(bytes: f64) -> f64 {
    bytes * 8.0 / 1e5 * (4_032.0 + 130.0) / 4_032.0
}

#[test]
fn a_ring_takes_its_bytes_on_the_wire_on_every_reference() {
    for transport in references() {
        let how = "ddp,steps=2,algorithm=ring";
        let steps = run_steps(&on(transport, 4, step(&FOUR, how, 4)));
        // EQDS takes 3 % longer than the others: the first answer ends a flow's first window.
        let within = match transport {
            Transport::Eqds => 0.07,
            _ => 0.05,
        };
        each_takes(&steps, 2, on_wire(ALL_BYTES * 1.5), within);
        assert!(steps.losses.iter().all(|loss| loss.share == 0.0));
    }
}

/// One worker and one server, so that flows never meet at a port: a push, then a pull.
#[test]
fn a_push_and_a_pull_take_their_bytes_on_the_wire_on_every_reference() {
    for transport in references() {
        let steps = run_steps(&on(transport, 2, step(&FOUR, "ps=1,steps=2", 2)));
        // Flows share a link evenly, so the first push ends with the last one. pFabric lets one go
        // after the other, and pulls hide behind pushes but for the last one.
        let hidden = match transport {
            Transport::PFabric => ALL_BYTES - 3_000_000.0,
            _ => 0.0,
        };
        each_takes(&steps, 2, on_wire(2.0 * ALL_BYTES - hidden), 0.05);
        let all = steps.completions.len();
        assert_eq!(all, 2 * 2 * 4, "{transport}: pushes and pulls of two steps");
    }
}

/// Three hosts send to each at once. RoCE is slower: notifications take its rates down.
#[test]
fn a_direct_all_reduce_takes_its_bytes_on_the_wire() {
    for transport in [Transport::Dctcp, Transport::PFabric, Transport::Ndp] {
        let how = "ddp,steps=2,algorithm=direct";
        let steps = run_steps(&on(transport, 4, step(&FOUR, how, 4)));
        each_takes(&steps, 2, on_wire(ALL_BYTES * 1.5), 0.08);
    }
}

/// ByteScheduler over DCTCP. The back layer is pushed from 200 us on, in parts of 4,096,000 bytes
/// at most, the front layer from 500 us on. The server's link begins with the first part and is
/// busy from then on. First come, first served, the front layer's sum comes last, and both forward
/// passes behind it. By layers, the front layer overtakes the first part on its way to the server,
/// and all on the way back, and its forward pass hides behind the rest.
#[test]
fn with_a_credit_front_layers_overtake_and_hide_their_forward_pass() {
    let layers = [(1_000_000, 100, 300), (10_000_000, 100, 200)];
    let all = on_wire(4_096_000.0 + 11_000_000.0);
    for (order, behind) in [(SendOrder::Layers, 100.0), (SendOrder::Arrival, 200.0)] {
        let workload = step(&layers, "ps=1,steps=2", 2);
        let mut setup = on(Transport::Dctcp, 2, workload);
        let collectives = &mut setup.job.collectives;
        collectives.order = order;
        (collectives.chunk, collectives.credit) = (ByteCount::kib(128), ByteCount::kib(256));
        each_takes(&run_steps(&setup), 2, 200.0 + all + behind, 0.02);
    }
}

#[test]
fn equal_seeds_give_equal_steps() {
    for transport in references() {
        let fabric = fabric("leaf-spine:2x2x2@100G");
        let workload = step(&FOUR, "ddp,steps=1,algorithm=ring", 4);
        let setup = Setup {
            transport,
            ..setup(fabric, workload)
        };
        let (first, second) = (run(&setup), run(&setup));
        assert_eq!(first.events, second.events, "{transport}");
        assert_eq!(digest(&first), digest(&second), "{transport}");
    }
}

#[test]
fn two_jobs_on_hosts_of_their_own_are_both_measured_and_do_not_meet() {
    let how = "ddp,steps=2,algorithm=ring";
    for &transport in Transport::VARIANTS {
        let alone = run_steps(&on(transport, 4, step(&FOUR, how, 4)));
        let there = |first| {
            let hosts: Vec<u32> = (first..first + 4).collect();
            let workload = step(&FOUR, how, 4).on_hosts(&hosts);
            workload.expect("there are as many hosts")
        };
        let both = there(0).beside(there(4)).expect("they name one algorithm");
        let setup = on(transport, 8, both);
        let outcome = run(&setup);
        for job in steps(&setup, &outcome) {
            let expected = micros(alone.iterations[0]);
            each_takes(&job, 2, expected, 0.02);
        }
    }
}

#[test]
fn two_jobs_on_the_same_hosts_share_their_links() {
    let how = "ddp,steps=2,algorithm=ring";
    for transport in [Transport::Dctcp, Transport::Gradwire] {
        let one = || step(&FOUR, how, 4);
        let both = one().beside(one()).expect("they name one algorithm");
        let setup = on(transport, 4, both);
        let outcome = run(&setup);
        let jobs = steps(&setup, &outcome);
        assert_eq!(jobs.len(), 2);
        let wire = on_wire(ALL_BYTES * 1.5);
        // Both send all bytes over the same links, in whichever order.
        let sum = |job: &Steps| job.iterations.iter().copied().map(micros).sum::<f64>();
        let longest = jobs.iter().map(sum).fold(0.0, f64::max);
        let ratio = longest / (4.0 * wire);
        assert!((0.97..1.1).contains(&ratio), "{transport}: {ratio}");
    }
}

#[test]
fn two_algorithms_in_one_run_are_refused() {
    let ring = step(&FOUR, "ddp,algorithm=ring", 4);
    let direct = step(&FOUR, "ddp,algorithm=direct", 4);
    let error = ring.beside(direct).expect_err("one run has one");
    assert!(
        error.to_string().contains("different algorithms"),
        "{error}"
    );
}

/// The front layer's ring is not hidden. Flows that waited for the straggler leave it at once, so
/// that flows that share its link end late and the ring behind it starts late: with that, at most
/// three times the ring's own time.
#[test]
fn a_straggler_sets_the_pace_on_every_reference() {
    let ring = on_wire(1_500_000.0);
    for transport in references() {
        let layers = [(1_000_000, 1_000, 2_000); 4];
        let how = "tensors,steps=2,slow=2,algorithm=ring";
        let steps = run_steps(&on(transport, 4, step(&layers, how, 4)));
        assert_eq!(steps.compute, Span::from_millis(24));
        for exposed in steps.exposed().map(micros) {
            let allowed = ring..3.0 * ring;
            assert!(
                allowed.contains(&exposed),
                "{transport}: {exposed}, ring {ring} us"
            );
        }
    }
}

#[test]
fn a_background_ends_with_the_last_step() {
    for &transport in Transport::VARIANTS {
        let fabric = fabric("single:4@100G");
        let background = pattern("poisson:websearch@0.3:500ms", &fabric, 7);
        let flows = background.flows.len();
        let workload = step(&FOUR, "ddp,steps=2,algorithm=ring", 4).with_background(background);
        let setup = Setup {
            transport,
            ..setup(fabric, workload)
        };
        let outcome = run(&setup);
        let steps = steps(&setup, &outcome);
        assert_eq!(steps[0].iterations.len(), 2, "{transport}");
        let alone = on_wire(ALL_BYTES * 1.5);
        let slowed = micros(steps[0].iterations[0]);
        assert!(
            slowed > 1.02 * alone,
            "{transport}: {slowed}, alone {alone} us"
        );
        let last = outcome.tasks.iter().filter_map(|task| task.ended).max();
        assert_eq!(Some(outcome.ended), last, "{transport}");
        let begun = outcome.flows.iter().filter(|flow| flow.started.is_some());
        assert!(begun.count() < flows, "{transport}: the rest is cut off");
    }
}

#[test]
fn flows_of_a_background_ride_dctcp_beside_gradwire() {
    let times = |transport| {
        let fabric = fabric("leaf-spine:2x4x2@100G");
        let background = pattern("poisson:websearch@0.5:2ms", &fabric, 7);
        let alone = Workload::default().with_background(background);
        let setup = Setup {
            transport,
            ..setup(fabric, alone)
        };
        run(&setup).flows
    };
    assert_eq!(times(Transport::Gradwire), times(Transport::Dctcp));
}

#[test]
fn a_background_that_is_cut_off_runs_on_one_thread() {
    let fabric = fabric("single:4@100G");
    let background = pattern("poisson:websearch@0.3:1ms", &fabric, 7);
    let workload = step(&FOUR, "ddp,steps=1", 4).with_background(background);
    let setup = Setup {
        threads: 2,
        ..setup(fabric, workload)
    };
    let error =
        simulation::run(&setup, &mut |_| ()).expect_err("the end of the run would be unknown");
    assert_eq!(error, SetupError::Over { threads: 2 });
}

/// A message from rank to rank is a flow; one that comes before its receive is asked for waits.
#[test]
fn messages_from_rank_to_rank_are_carried() {
    let text = "num_ranks 3\nrank 0 {\na: send 4032000b to 1 tag 3\n}\nrank 1 {\n\
                a: calc 900000\nb: recv 4032000b from 0 tag 3\nb requires a\n\
                c: send 4032000b to 2\nc requires b\n}\nrank 2 {\na: recv 4032000b from 1\n}\n";
    for transport in references() {
        let workload = Workload::from_goal(text).expect("the schedule is right");
        let outcome = run(&on(transport, 3, workload));
        let ended = outcome.tasks.iter().map(|task| task.ended);
        let ended: Option<Vec<_>> = ended.collect();
        let last = ended.expect("all have ended").into_iter().max();
        let last = micros(last.unwrap_or_default().since(Default::default()));
        let expected = 900.0 + on_wire(4_032_000.0);
        assert!((last / expected - 1.0).abs() < 0.05, "{transport}: {last}");
    }
}

#[test]
fn every_collective_comes_to_its_end_on_every_reference() {
    let line = |text: &str, hosts: u32| {
        let hosts = Hosts {
            count: hosts,
            rate: RATE,
        };
        Workload::from_pattern(text, hosts, 1).expect("the line is right")
    };
    for transport in references() {
        for algorithm in [
            ReduceAlgorithm::Auto,
            ReduceAlgorithm::Direct,
            ReduceAlgorithm::Ring,
            ReduceAlgorithm::HalvingDoubling,
        ] {
            let workload = Workload {
                algorithm: Some(algorithm),
                ..line("all-reduce:300KB", 5)
            };
            let outcome = run(&on(transport, 5, workload));
            let ended = outcome.tasks.iter().all(|task| task.ended.is_some());
            assert!(ended, "{transport}, {algorithm:?}");
        }
    }
}
