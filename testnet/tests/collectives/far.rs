//! Long paths: an operation ends when its results are here, not when its messages are acknowledged.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, LossTerms, Operation};
use gradwire_protocol::job::{HoleFilling, Job, PacketSecurity};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::units::Span;
use gradwire_testnet::link::Profile;

use crate::world::{World, all_reduce, reduction, share, tensor, tolerating, values};

const ELEMENTS: usize = 40_000;
const ONE_WAY: Span = Span::from_millis(20);

fn job() -> Job {
    Job {
        security: PacketSecurity::None,
        ..Job::default()
    }
}

fn far(drop: f64) -> Profile {
    Profile {
        drop: share(drop),
        ..Profile::perfect(ONE_WAY)
    }
}

fn operation(ranks: u16, rank: u16, sequence: u32, holes: Option<HoleFilling>) -> Operation {
    Operation {
        loss: holes.map_or(LossTerms::NONE, |holes| tolerating(0.1, holes)),
        ..all_reduce(ranks, sequence, tensor(DType::F32, values(rank, ELEMENTS)))
    }
}

fn gather(rank: u16, sequence: u32) -> Operation {
    let own = tensor(DType::F32, values(rank, ELEMENTS));
    Operation {
        collective: Collective::AllGather,
        input: Some(Buffer::Owned(own)),
        ..all_reduce(2, sequence, vec![0; 2 * ELEMENTS * 4])
    }
}

/// How long an operation takes on all ranks, in ways over the path.
fn ways(world: &mut World, operation: impl FnMut(u16) -> Operation) -> f64 {
    let begun = world.network.now();
    world.submit_all(operation);
    world.run();
    (world.network.now() - begun).as_secs_f64() / ONE_WAY.as_secs_f64()
}

fn kept(world: &World) -> usize {
    let hosts = world.network.hosts().iter();
    hosts.map(Communicator::kept_messages).sum()
}

#[test]
fn an_operation_waits_for_no_acknowledgement() {
    for holes in [None, Some(HoleFilling::ErrorFeedback)] {
        let mut world = World::new(2, &job(), far(0.0), 1);
        for sequence in 0..4 {
            let took = ways(&mut world, |rank| operation(2, rank, sequence, holes));
            // The first ones find out how long the path is.
            assert!(sequence < 2 || took < 2.2, "{holes:?}: {took} ways");
            let sum = reduction(DType::F32, ReduceOp::Sum, 2, ELEMENTS);
            for rank in 0..2 {
                assert_eq!(world.result(rank).0, sum, "operation {sequence}");
            }
        }
        assert!(kept(&world) > 0, "no copy serves the other rank");
        let took = ways(&mut world, |rank| gather(rank, 4));
        assert!(took < 1.2, "a gather takes {took} ways");
    }
}

/// The caller writes into its tensor as soon as it has it, and the network loses packets.
#[test]
fn ranks_that_wait_get_what_was_promised() {
    for ranks in [2, 3, 5] {
        let mut world = World::new(ranks, &job(), far(0.05), u64::from(ranks));
        for sequence in 0..12 {
            world.submit_all(|rank| operation(ranks, rank, sequence, None));
            world.run();
            let sum = reduction(DType::F32, ReduceOp::Sum, ranks, ELEMENTS);
            for rank in 0..ranks {
                assert_eq!(world.result(rank).0, sum, "operation {sequence} of {ranks}");
            }
        }
        let until = world.at(Span::from_millis(5_000));
        world.network.run_until(until);
        assert_eq!(kept(&world), 0, "copies of {ranks} ranks");
    }
}

/// Packets overtake each other by less than a thirty-second of the round trip.
#[test]
fn parity_restores_no_segment_that_is_only_late() {
    let late = Profile {
        jitter: Span::from_micros(800),
        ..far(0.0)
    };
    let mut job = job();
    job.transport.parity = ParityRule::Share(share(0.1));
    let mut world = World::new(2, &job, late, 1);
    let restored = |world: &World| {
        let counters = world.network.hosts().iter().map(Communicator::counters);
        counters
            .map(|of| of.receiver.restored_segments)
            .sum::<u64>()
    };
    // The first one finds out how long the path is.
    world.perform(|rank| operation(2, rank, 0, None));
    let before = restored(&world);
    for sequence in 1..8 {
        world.perform(|rank| operation(2, rank, sequence, None));
    }
    assert_eq!(restored(&world), before);
    let sent = world.network.hosts()[0].counters().sender;
    assert!(sent.parity_packets > 0);
}
