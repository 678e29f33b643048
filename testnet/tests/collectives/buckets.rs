//! Many buckets in flight at once: those of the front layers complete first.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::operation::{Layers, Operation};
use gradwire_protocol::job::{Job, Mtu, ReduceAlgorithm};
use gradwire_protocol::units::{ByteCount, Layer, Rate, Span};
use gradwire_testnet::link::{Profile, Queue};

use crate::world::{World, all_reduce, share};

const BUCKETS: u16 = 64;

fn full_packets() -> Job {
    let mut job = Job::default();
    job.transport.mtu = Mtu::Bytes(9000);
    job
}

/// Links that are slower than their senders, as a loaded network's are.
fn slow(drop: f64) -> Profile {
    let queue = Queue {
        rate: Rate::from_gbps(25),
        threshold: ByteCount::kib(300),
        limit: ByteCount::mib(16),
    };
    Profile {
        queue: Some(queue),
        jitter: Span::from_micros(5),
        drop: share(drop),
        ..Profile::perfect(Span::from_micros(10))
    }
}

/// Returns the layers in the order in which their buckets completed on rank 0. The test submits
/// them like a backward pass, last layers first, and without bytes.
fn order_of_completion(world: &mut World, bytes: usize) -> Vec<u16> {
    let ranks = world.ranks;
    for (sequence, layer) in (0..BUCKETS).rev().enumerate() {
        world.submit_all(|_| Operation {
            buffer: Buffer::Virtual(bytes),
            layers: Layers {
                count: BUCKETS,
                spans: vec![(0, Layer(layer))],
            },
            ..all_reduce(ranks, sequence as u32, Vec::new())
        });
    }
    world.run();
    let completions = std::iter::from_fn(|| world.completion(0));
    let layer_of = |id: u64| BUCKETS - 1 - id as u16;
    completions
        .map(|completion| layer_of(completion.id.0))
        .collect()
}

#[test]
fn of_64_buckets_those_of_the_front_layers_are_complete_first() {
    let cases = [
        (2, ReduceAlgorithm::Direct),
        (4, ReduceAlgorithm::Direct),
        (4, ReduceAlgorithm::Ring),
    ];
    for (seed, (ranks, algorithm)) in (0..).zip(cases) {
        let mut job = full_packets();
        job.collectives.algorithm = algorithm;
        let mut world = World::new(ranks, &job, slow(0.0), seed);
        let order = order_of_completion(&mut world, 4 << 20);
        let front_to_back: Vec<u16> = (0..BUCKETS).collect();
        assert_eq!(order, front_to_back, "{ranks} ranks, {algorithm:?}");
    }
}

#[test]
fn loss_delays_a_front_layer_by_no_more_than_a_few_buckets() {
    for seed in 0..5 {
        let mut world = World::new(2, &full_packets(), slow(0.01), seed);
        let order = order_of_completion(&mut world, 1 << 20);
        for (place, layer) in order.iter().enumerate() {
            let late = place.saturating_sub(usize::from(*layer));
            assert!(
                late <= 6,
                "seed {seed}: layer {layer} is number {place} of {order:?}"
            );
        }
    }
}
