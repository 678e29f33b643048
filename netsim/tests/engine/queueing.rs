//! Queues are as long as queueing theory says.

use gradwire_fabric::policy::QosPolicy;
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::engine::host::Envelope;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::world::{fabric, mean_and_error, over_seeds, packet, talk};

const BYTES: u32 = 4162;
const RECEIVER: u32 = 63;
const PACKETS: u32 = 60_000;

/// The hosts' own links are a hundred times as fast, so that their queues do not smooth the
/// arrivals at the measured queue.
fn single() -> Fabric {
    let mut fabric = fabric("single:64@100G,mark=off,buffer=64MiB");
    let (_, senders) = fabric.links.split_last_mut().expect("there are 64 links");
    for link in senders {
        link.rate = Rate::from_gbps(10_000);
    }
    fabric
}

/// Packets at the times of a Poisson process, each from a host drawn evenly; and its length.
fn poisson(load: f64, seed: u64) -> (Vec<Vec<(Span, Envelope)>>, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let service = Rate::from_gbps(100).transmit_time(ByteCount::new(u64::from(BYTES)));
    let gap = service.as_picos() as f64 / load;
    let mut plans = vec![Vec::new(); 64];
    let mut now = 0.0;
    for _ in 0..PACKETS {
        now -= gap * (1.0 - rng.random::<f64>()).ln();
        let source = rng.random_range(0..RECEIVER) as usize;
        plans[source].push((Span::from_picos(now as u64), packet(RECEIVER, BYTES)));
    }
    (plans, now)
}

fn mean_queue(load: f64, seed: u64) -> f64 {
    let fabric = single();
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(10));
    for queue in &mut policy.queues {
        queue.marks_above = None;
    }
    let (plans, length) = poisson(load, seed);
    let talked = talk(&fabric, &policy, plans);
    assert_eq!(
        talked.hosts[RECEIVER as usize].heard.len(),
        PACKETS as usize
    );
    talked.port_to(RECEIVER).record.integral as f64 / length / f64::from(BYTES)
}

/// Pollaczek and Khinchine: the mean number that waits, without the one that is served, is
/// rho^2 / (2 (1 - rho)) where service takes constant time. Enough packets are run that 3 % is
/// more than three standard errors.
fn is_that_of_m_d_1(load: f64, seeds: u64) {
    let queues = over_seeds(1..=seeds, |seed| mean_queue(load, seed));
    let (mean, error) = mean_and_error(&queues);
    let expected = load * load / (2.0 * (1.0 - load));
    let what = format!("load {load}, seeds 1 to {seeds}: {mean} +- {error} of {expected} packets");
    println!("{what}");
    assert!(3.0 * error < 0.03 * expected, "too few: {what}");
    assert!((mean / expected - 1.0).abs() < 0.03, "{what}");
}

#[test]
fn a_queue_with_poisson_arrivals_at_half_load_is_that_of_m_d_1() {
    is_that_of_m_d_1(0.5, 4);
}

#[test]
fn it_is_at_a_load_of_0_7() {
    is_that_of_m_d_1(0.7, 10);
}

#[test]
fn it_is_at_a_load_of_0_8() {
    is_that_of_m_d_1(0.8, 16);
}
