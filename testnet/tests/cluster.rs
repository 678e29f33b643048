//! A job of several ranks under random faults keeps its promises; seeds that once failed still
//! pass.

use std::sync::atomic::{AtomicU64, Ordering};

use gradwire_testnet::cluster::faults::{ClusterFault, FaultSet};
use gradwire_testnet::cluster::run::{run, run_twice};
use gradwire_testnet::cluster::schedule::ClusterSchedule;
use gradwire_testnet::cluster::shrink::shrink;
use gradwire_testnet::cluster::week;

/// Schedules that have failed once, one per line; the text after # says what they found.
const REGRESSIONS: &str = include_str!("../regressions/cluster.txt");

/// How many seeds: those of GRADWIRE_SEEDS, or many where long tests are wanted.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for by the environment"
)]
fn seeds() -> u64 {
    let wanted = std::env::var("GRADWIRE_SEEDS").ok();
    let slow = std::env::var_os("GRADWIRE_SLOW").is_some();
    let usual = if slow { 800 } else { 25 };
    wanted.and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Runs a schedule; a failing one is shrunk and printed.
fn hold(schedule: &ClusterSchedule) {
    if let Err(violation) = run(schedule) {
        let (small, violation) = shrink(schedule, violation, |smaller| run(smaller).err());
        panic!("{violation}\ngradwire sim fuzz --count 1 {small}\nwhole: {schedule}");
    }
}

#[test]
fn schedules_that_failed_once_hold() {
    let lines = REGRESSIONS.lines().map(|line| {
        let (schedule, _) = line.split_once('#').unwrap_or((line, ""));
        schedule.trim()
    });
    for line in lines.filter(|line| !line.is_empty()) {
        hold(&line.parse().expect("a schedule of this repository"));
    }
}

#[test]
fn random_faults_break_no_promise() {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let (next, seeds) = (AtomicU64::new(0), seeds());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    hold(&ClusterSchedule::of_seed(seed));
                }
            });
        }
    });
}

#[test]
fn without_faults_all_operations_succeed() {
    for seed in 0..20 {
        let schedule = ClusterSchedule {
            faults: FaultSet::NONE,
            ..ClusterSchedule::of_seed(seed)
        };
        hold(&schedule);
        let tally = run(&schedule).expect("it holds");
        assert_eq!((tally.failed, tally.holes), (0, 0));
        assert!(tally.completed > 0);
    }
}

#[test]
fn the_same_seed_sends_the_same_packets() {
    let mut hashes = Vec::new();
    for seed in 0..10 {
        let mut schedule = ClusterSchedule::of_seed(seed);
        schedule.faults = [ClusterFault::Burst, ClusterFault::Jitter]
            .into_iter()
            .collect();
        let tally = run_twice(&schedule).unwrap_or_else(|violation| panic!("{violation}"));
        hashes.push(tally.hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 10, "other seeds are other runs");
}

#[test]
fn a_long_training_job_stays_small_and_quiet() {
    let hours = if seeds() >= 800 { 2 * 24 } else { 2 };
    let tally = week::train(1, hours).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((tally.failed, tally.holes), (0, 0));
    assert!(tally.completed >= hours * 40 * 3 * 4, "{tally:?}");
}
