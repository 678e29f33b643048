//! Steps of one tensor between which the chunks change: other shards, other messages, and the same
//! residuals.

use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{HoleFilling, Job, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_testnet::link::Profile;

use crate::world::{World, all_reduce, floats, rough, small_job, tensor, tolerating};

const ELEMENTS: usize = 6000;
const LONG_CHUNK: ByteCount = ByteCount::kib(16);
const SHORT_CHUNK: ByteCount = ByteCount::new(6400);

fn job() -> Job {
    let mut job = small_job();
    job.collectives.chunk = LONG_CHUNK;
    job
}

/// A tolerant sum of equal elements.
fn summed(ranks: u16, sequence: u32, value: f64, holes: HoleFilling) -> Operation {
    let values = tensor(DType::F32, std::iter::repeat_n(value, ELEMENTS));
    Operation {
        loss: tolerating(0.3, holes),
        ..all_reduce(ranks, sequence, values)
    }
}

fn cut_by(world: &mut World, chunk: ByteCount) {
    for rank in 0..world.ranks {
        world
            .network
            .command(Rank(rank), |communicator, _| communicator.set_chunk(chunk));
    }
}

fn lose(world: &mut World, profile: Profile) {
    for pair in 0..world.ranks * world.ranks {
        let (from, to) = (Rank(pair / world.ranks), Rank(pair % world.ranks));
        world.network.set_link(from, to, profile);
    }
}

fn owed(world: &World) -> usize {
    let hosts = world.network.hosts().iter();
    hosts.map(|rank| rank.residuals().bytes()).sum()
}

/// The sums of a lossy step of weights 1, 2, 4 and so on, and of a step without losses after
/// `change`, added up.
fn two_steps(mut world: World, collective: Collective, change: fn(&mut World)) -> Vec<f32> {
    let ranks = world.ranks;
    let step = |rank: u16, sequence| Operation {
        collective,
        ..summed(
            ranks,
            sequence,
            f64::from(1_u32 << rank),
            HoleFilling::ErrorFeedback,
        )
    };
    let sums = |results: Vec<(Vec<u8>, _)>| -> Vec<f32> {
        let at = match collective {
            Collective::Reduce { root } => usize::from(root.0),
            _ => 0,
        };
        floats(&results[at].0)
    };
    let first = sums(world.perform(|rank| step(rank, 0)));
    assert!(owed(&world) > 0, "{collective:?}: something was lost");
    change(&mut world);
    lose(&mut world, Profile::perfect(Span::from_micros(10)));
    let second = sums(world.perform(|rank| step(rank, 1)));
    assert_eq!(owed(&world), 0, "{collective:?}: bytes still owed");
    first.iter().zip(second).map(|(a, b)| a + b).collect()
}

#[test]
fn values_owed_in_the_own_shard_come_next() {
    let root = Rank(1);
    for collective in [Collective::AllReduce, Collective::Reduce { root }] {
        for seed in 0..10 {
            let world = World::new(3, &job(), rough(0.1), seed);
            let sums = two_steps(world, collective, |world| cut_by(world, SHORT_CHUNK));
            assert!(sums.iter().all(|sum| *sum == 14.0), "{collective:?}");
        }
    }
}

#[test]
fn values_owed_to_a_rank_of_the_own_host_come_next() {
    let mut job = job();
    job.collectives.algorithm = ReduceAlgorithm::Hierarchical;
    for seed in 0..10 {
        let world = World::on_hosts(&[0, 1, 0, 1], &job, rough(0.1), seed);
        let sums = two_steps(world, Collective::AllReduce, |world| {
            cut_by(world, SHORT_CHUNK);
        });
        assert!(sums.iter().all(|sum| *sum == 30.0), "seed {seed}");
    }
}

#[test]
fn the_previous_result_is_the_last_steps() {
    let mut world = World::new(3, &job(), Profile::perfect(Span::from_micros(10)), 31);
    let steps = [(2.0, LONG_CHUNK), (100.0, SHORT_CHUNK), (3.0, LONG_CHUNK)];
    let mut results = Vec::new();
    for (sequence, (value, chunk)) in (0..).zip(steps) {
        cut_by(&mut world, chunk);
        if sequence == 2 {
            lose(&mut world, rough(0.1));
        }
        results = world.perform(|_| summed(3, sequence, value, HoleFilling::Previous));
    }
    assert!(results.iter().any(|(_, outcome)| outcome.lost_segments > 0));
    for sum in floats(&results[0].0) {
        // Equal contributions are rescaled exactly; a 2 of two steps before would show.
        assert!((sum - 9.0).abs() < 1e-5, "{sum}");
    }
}
