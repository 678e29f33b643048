//! Patience: stragglers of a step that are not waited for, and are not lost either.

use std::ops::Range;

use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::Operation;
use gradwire_protocol::job::{HoleFilling, Job};
use gradwire_protocol::units::{ByteCount, Rank, Rate, Span};
use gradwire_testnet::link::{Profile, Queue};

use crate::world::{World, all_reduce, floats, small_job, tensor, tolerating};

const RANKS: u16 = 3;
const ELEMENTS: usize = 12_000;
/// More steps than a tensor needs before its usual time is known.
const USUAL_STEPS: u32 = 12;
const TOLERANCE: f64 = 0.3;
/// A tensor that fills windows for many round trips.
const WIDENING_ELEMENTS: usize = 400_000;
/// Sums of such a tensor after which windows are as large as before.
const WIDENING_STEPS: u32 = 3;

fn job(patience: Option<f64>) -> Job {
    let mut job = small_job();
    job.collectives.chunk = ByteCount::mib(1);
    job.collectives.patience = patience;
    // A part of each message is not sent yet when a slow path makes it late.
    job.transport.initial_window = ByteCount::kib(16);
    job
}

fn fast() -> Profile {
    Profile::perfect(Span::from_micros(10))
}

/// Serves a rank's packets at this rate, and loses none.
fn slow(mbit: u64) -> Profile {
    let queue = Queue {
        rate: Rate::from_bits_per_second(mbit * 1_000_000),
        threshold: ByteCount::mib(64),
        limit: ByteCount::mib(64),
    };
    Profile {
        queue: Some(queue),
        ..fast()
    }
}

/// Packets of a message come in any order, over a long time.
fn scattered() -> Profile {
    Profile {
        jitter: Span::from_millis(20),
        ..fast()
    }
}

fn step((rank, ranks): (u16, u16), sequence: u32, holes: HoleFilling) -> Operation {
    let value = f64::from(1_u32 << rank);
    let values = tensor(DType::F32, std::iter::repeat_n(value, ELEMENTS));
    Operation {
        loss: tolerating(TOLERANCE, holes),
        ..all_reduce(ranks, sequence, values)
    }
}

/// One step: how long it took, the values of rank 0, and the segments that receivers did without.
fn run(world: &mut World, sequence: u32, holes: HoleFilling) -> (Span, Vec<f32>, u64) {
    let begun = world.network.now();
    let ranks = world.network.hosts().len() as u16;
    let results = world.perform(|rank| step((rank, ranks), sequence, holes));
    let took = world.network.now() - begun;
    let lost = results.iter().map(|(_, outcome)| outcome.lost_segments);
    let (lost, bits) = (lost.sum(), &results[0].0);
    assert!(results.iter().all(|(bytes, _)| bytes == bits), "replicas");
    (took, floats(bits), lost)
}

fn given_up(world: &World) -> u64 {
    let hosts = world.network.hosts().iter();
    hosts
        .map(|rank| rank.counters().receiver.given_up_segments)
        .sum()
}

fn owed_bytes(world: &World) -> usize {
    let hosts = world.network.hosts().iter();
    hosts.map(|rank| rank.residuals().bytes()).sum()
}

/// A world in which the usual time of the tensor is known.
fn with_usual_time(ranks: u16, job: &Job, holes: HoleFilling, seed: u64) -> World {
    let mut world = World::new(ranks, job, fast(), seed);
    for sequence in 0..USUAL_STEPS {
        let (_, sums, lost) = run(&mut world, sequence, holes);
        assert_eq!(lost, 0, "all steps take as long, so nothing is late");
        assert!(sums.iter().all(|&sum| sum == sum_of(ranks)));
    }
    world
}

/// The sum of what all ranks contribute to an element in a step.
fn sum_of(ranks: u16) -> f32 {
    ((1_u32 << ranks) - 1) as f32
}

/// A world in which the usual time of the tensor is known, and then one path is as given.
fn with_late_path(job: &Job, late: Profile, holes: HoleFilling, seed: u64) -> World {
    let mut world = with_usual_time(RANKS, job, holes, seed);
    world.network.set_link(Rank(0), Rank(1), late);
    world
}

/// Lossless sums until windows have grown back. Packets in disorder count as lost, which makes a
/// window smaller than a message; its end then takes a round trip more than patience bears.
fn widen_windows(world: &mut World, sequences: Range<u32>) {
    for sequence in sequences {
        let values = tensor(DType::F32, std::iter::repeat_n(1.0, WIDENING_ELEMENTS));
        world.perform(|_| Operation {
            tensor_key: 0,
            ..all_reduce(RANKS, sequence, values.clone())
        });
    }
}

#[test]
fn patience_ends_a_step_and_the_next_brings_the_rest() {
    let holes = HoleFilling::ErrorFeedback;
    let disorder = (1..=10).map(|seed| (scattered(), seed));
    for (late, seed) in [(slow(10), 1), (slow(30), 2)].into_iter().chain(disorder) {
        let mut world = with_late_path(&job(Some(1.5)), late, holes, seed);
        let (_, first, lost) = run(&mut world, USUAL_STEPS, holes);
        assert!(lost > 0);
        // Senders take packets that others have overtaken for lost, and say so.
        assert!((1..=lost).contains(&given_up(&world)), "counted apart");
        assert!(owed_bytes(&world) > 0);

        world.network.set_link(Rank(0), Rank(1), fast());
        let healed = USUAL_STEPS + 1 + WIDENING_STEPS;
        widen_windows(&mut world, USUAL_STEPS + 1..healed);
        let mut sums: Vec<f64> = first.iter().map(|&sum| sum.into()).collect();
        for sequence in healed..healed + 9 {
            let (_, more, _) = run(&mut world, sequence, holes);
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += f64::from(more);
            }
        }
        let owed = owed_bytes(&world);
        assert_eq!(owed, 0, "the last step was late for no rank, seed {seed}");
        assert!(sums.iter().all(|&sum| sum == 70.0), "nothing is lost");
    }
}

#[test]
fn patience_saves_the_time_of_the_last_stragglers() {
    let holes = HoleFilling::ErrorFeedback;
    let time_of_all = |patience| -> f64 {
        let times = (1..=40).map(|seed| {
            let mut world = with_late_path(&job(patience), scattered(), holes, seed);
            run(&mut world, USUAL_STEPS, holes).0.as_secs_f64()
        });
        times.sum()
    };
    let (endless, ended) = (time_of_all(None), time_of_all(Some(1.5)));
    assert!(ended < 0.8 * endless, "{ended:.3} s, {endless:.3} without");
}

#[test]
fn without_error_feedback_patience_is_endless() {
    for holes in [
        HoleFilling::Rescale,
        HoleFilling::Zero,
        HoleFilling::Previous,
    ] {
        let mut world = with_late_path(&job(Some(1.5)), slow(10), holes, 4);
        let (_, _, lost) = run(&mut world, USUAL_STEPS, holes);
        assert_eq!((lost, given_up(&world)), (0, 0), "{holes:?}");
    }
}

#[test]
fn a_path_that_stays_slow_is_waited_for_again() {
    let holes = HoleFilling::ErrorFeedback;
    let mut world = with_late_path(&job(Some(1.5)), slow(30), holes, 5);
    let lost: Vec<u64> = (USUAL_STEPS..USUAL_STEPS + 80)
        .map(|sequence| {
            let results = world.perform(|rank| step((rank, RANKS), sequence, holes));
            results[1].1.lost_segments
        })
        .collect();
    assert!(lost[0] > 0);
    assert!(lost[70..].iter().all(|&lost| lost == 0), "{lost:?}");
}

/// However little of a sum may be missing, no more of it ever is.
#[test]
fn patience_stays_within_the_tolerance() {
    let holes = HoleFilling::ErrorFeedback;
    let mut world = with_late_path(&job(Some(1.2)), slow(10), holes, 6);
    for sequence in USUAL_STEPS..USUAL_STEPS + 10 {
        let results = world.perform(|rank| step((rank, RANKS), sequence, holes));
        for (_, outcome) in results {
            let tolerant = outcome.expected_segments / 2;
            let most = TOLERANCE * tolerant as f64;
            assert!(outcome.lost_segments as f64 <= most, "{outcome:?}");
        }
    }
}

/// A rank sends nothing in time to any other; with six of them a sum can do without one.
#[test]
fn a_rank_that_is_late_altogether_is_left_behind() {
    let (holes, ranks) = (HoleFilling::ErrorFeedback, 6);
    for (late, seed) in [(slow(2), 7), (Profile::perfect(Span::from_millis(40)), 8)] {
        let time_of_all = |patience| {
            let mut world = with_usual_time(ranks, &job(patience), holes, seed);
            for other in 1..ranks {
                world.network.set_link(Rank(0), Rank(other), late);
            }
            let (took, first, _) = run(&mut world, USUAL_STEPS, holes);
            for other in 1..ranks {
                world.network.set_link(Rank(0), Rank(other), fast());
            }
            let mut sums: Vec<f32> = first;
            for sequence in USUAL_STEPS + 1..USUAL_STEPS + 10 {
                let (_, more, _) = run(&mut world, sequence, holes);
                sums.iter_mut()
                    .zip(more)
                    .for_each(|(sum, more)| *sum += more);
            }
            assert_eq!(owed_bytes(&world), 0);
            assert!(
                sums.iter().all(|&sum| sum == 10.0 * sum_of(ranks)),
                "nothing is lost"
            );
            (took.as_secs_f64(), given_up(&world))
        };
        let ((endless, none), (ended, given_up)) = (time_of_all(None), time_of_all(Some(1.5)));
        assert!(none == 0 && given_up > 0);
        // The late rank's own part of the result is waited for, behind the packets on its way.
        assert!(ended < 0.9 * endless, "{ended:.4} s, {endless:.4} without");
    }
}
