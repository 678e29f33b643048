//! Ids, sequences, steps and counts wrap, all at once.

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{HoleFilling, Job};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{ByteCount, JobId, MessageId, Rank, Span, Step};
use gradwire_testnet::network::Network;

use crate::world::{World, all_reduce, rough, small_job, tolerating};

const RANKS: u16 = 3;
/// Operations of each kind, half of them before the wrap.
const OPERATIONS: u32 = 24;

/// Ranks whose counters are all about to wrap.
fn world(job: &Job, seed: u64) -> World {
    let hosts = (0..RANKS).map(|rank| {
        let identity = Identity {
            rank: Rank(rank),
            world_size: RANKS,
            job: JobId(7),
            epoch: 1,
        };
        let endpoint = Endpoint::new(identity, job, seed + u64::from(rank));
        let endpoint = endpoint.with_first_message(MessageId(u32::MAX - 40));
        Communicator::new(endpoint, job).with_first_count(u16::MAX - 8)
    });
    World {
        network: Network::new(hosts.collect(), rough(0.1), seed),
        ranks: RANKS,
    }
}

/// The operation number `n` of a job that has reached the end of its numbers.
fn nearly_last(n: u32) -> Operation {
    let number = (u32::MAX - OPERATIONS / 2).wrapping_add(n);
    Operation {
        step: Step(number),
        loss: tolerating(0.1, HoleFilling::Rescale),
        ..all_reduce(RANKS, number, vec![0; 4_000])
    }
}

fn to_the_next(n: u32, rank: u16) -> [Operation; 2] {
    let (to, from, tag) = (Rank((rank + 1) % RANKS), Rank((rank + 2) % RANKS), 3);
    [
        Collective::Send { to, tag },
        Collective::Receive { from, tag },
    ]
    .map(|collective| Operation {
        collective,
        ..all_reduce(RANKS, 0, vec![n as u8; 500])
    })
}

#[test]
fn operations_complete_while_all_numbers_wrap() {
    for (seed, credit) in [(1, 0), (2, 2_000), (3, 2_000)] {
        let mut job = small_job();
        job.collectives.credit = ByteCount::new(credit);
        let mut world = world(&job, seed);
        for n in 0..OPERATIONS {
            for rank in 0..RANKS {
                world
                    .submit(rank, nearly_last(n))
                    .expect("a valid operation");
                for operation in to_the_next(n, rank) {
                    world.submit(rank, operation).expect("a valid operation");
                }
                // Some ranks are ahead of others.
                let until = world.at(Span::from_micros(u64::from(rank) * 70));
                world.network.run_until(until);
            }
            if n % 5 == 4 {
                world.run();
            }
        }
        world.run();
        for rank in 0..RANKS {
            let completions = std::iter::from_fn(|| world.completion(rank));
            let ended = completions.filter(|completion| completion.result.is_ok());
            assert_eq!(
                ended.count(),
                3 * OPERATIONS as usize,
                "seed {seed}, rank {rank}"
            );
        }
        let until = world.at(Span::from_millis(5_000));
        world.network.run_until(until);
        for communicator in world.network.hosts() {
            assert_eq!(communicator.kept_messages(), 0, "seed {seed}");
        }
    }
}
