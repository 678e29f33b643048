//! Ranks whose all-reduces an aggregator sums, over real sockets: exact, sealed, with losses, and
//! without a gap when the aggregator ends.

mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use gradwire_protocol::job::{Job, PacketCipher, ReduceAlgorithm};
use gradwire_protocol::units::{Share, Span};
use gradwire_runtime::aggregator::{AggregatorError, AggregatorOpening, NetworkAggregator};
use gradwire_runtime::{LocalRank, RankCounters, RankTask};

use world::{PATIENCE, on_ranks, sum};

const RANKS: u16 = 4;
const ELEMENTS: u32 = 100_003;
const SUMS: u32 = 20;

/// Whole numbers, so that sums are exact in every order.
fn values(rank: u16, sequence: u32) -> Vec<u8> {
    let value = |at: u32| ((at * 7 + u32::from(rank) * 3 + sequence) % 1_000) as f32;
    (0..ELEMENTS)
        .map(value)
        .flat_map(f32::to_le_bytes)
        .collect()
}

fn exact(sequence: u32) -> Vec<u8> {
    let value = |at: u32| -> u32 {
        let of = |rank: u32| (at * 7 + rank * 3 + sequence) % 1_000;
        (0..u32::from(RANKS)).map(of).sum()
    };
    let sums = (0..ELEMENTS).map(|at| value(at) as f32);
    sums.flat_map(f32::to_le_bytes).collect()
}

fn open(job: &Job, token: &str) -> NetworkAggregator {
    let opened = NetworkAggregator::open(AggregatorOpening {
        job: job.clone(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        token: token.to_owned(),
    });
    opened.expect("loopback has ports")
}

fn summed(rank: &LocalRank, sequence: u32) {
    let operation = sum(RANKS, sequence, values(rank.rank().0, sequence));
    let task = RankTask {
        operation,
        timeout: Some(Span::from_millis(30_000)),
    };
    let ended = rank.run(task).expect("nothing fails");
    let bytes = ended.buffer.bytes().expect("it has bytes");
    assert!(bytes == exact(sequence), "sum {sequence} is wrong");
}

/// Sums on all ranks, with an aggregator until `end` of them have been done.
fn with_aggregator(mut job: Job, mut aggregator: NetworkAggregator, end: u32) -> Vec<RankCounters> {
    job.collectives.algorithm = ReduceAlgorithm::InNetwork;
    job.collectives.aggregator = Some(aggregator.address());
    let (is_over, done) = (AtomicBool::new(false), AtomicU32::new(0));
    let counted = Mutex::new(Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && done.load(Ordering::Relaxed) < end {
                aggregator.poll().expect("it runs");
                thread::sleep(Duration::from_millis(1));
            }
            drop(aggregator);
        });
        on_ranks(RANKS, &job, |rank| {
            for sequence in 0..SUMS {
                summed(&rank, sequence);
                done.fetch_max(sequence + 1, Ordering::Relaxed);
            }
            let mut counted = counted.lock().expect("nobody panics with it");
            counted.push(rank.counters());
            drop(counted);
            rank.close(PATIENCE);
        });
        is_over.store(true, Ordering::Relaxed);
    });
    counted.into_inner().expect("nobody panics with it")
}

#[test]
fn sealed_sums_with_losses_are_exact() {
    let mut job = Job::default();
    job.faults.drop = Share::new(0.01).expect("a share");
    let aggregator = open(&job, "secret");
    for counters in with_aggregator(job, aggregator, SUMS) {
        assert_eq!(counters.network_sums, u64::from(SUMS), "{counters:?}");
    }
}

#[test]
fn ranks_go_on_when_the_aggregator_ends() {
    let aggregator = open(&Job::default(), "secret");
    let counted = with_aggregator(Job::default(), aggregator, SUMS / 2);
    for counters in &counted {
        let alone = counters.sums_without_aggregator + counters.failed_network_sums;
        assert!(counters.network_sums >= u64::from(SUMS / 2), "{counters:?}");
        assert_eq!(
            counters.network_sums + alone,
            u64::from(SUMS),
            "{counters:?}"
        );
        assert_eq!(
            counters.network_sums, counted[0].network_sums,
            "ranks agree"
        );
    }
}

#[test]
fn an_aggregator_with_another_token_or_cipher_sums_nothing() {
    let job = Job {
        cipher: PacketCipher::Aes128Gcm,
        ..Job::default()
    };
    for aggregator in [open(&Job::default(), "another"), open(&job, "secret")] {
        for counters in with_aggregator(Job::default(), aggregator, SUMS) {
            assert_eq!(counters.network_sums, 0, "{counters:?}");
            assert_eq!(counters.sums_without_aggregator, u64::from(SUMS));
        }
    }
}

#[test]
fn no_aggregator_opens_without_a_token() {
    let opened = NetworkAggregator::open(AggregatorOpening {
        job: Job::default(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        token: String::new(),
    });
    assert!(matches!(opened, Err(AggregatorError::NoToken)));
}
