//! The order of gradients and the credit change the time of results, and only that.

use std::sync::Arc;

use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Layers, Operation};
use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::priority::SendOrder;
use gradwire_protocol::units::{ByteCount, Layer, Span};
use gradwire_testnet::link::Profile;

use crate::world::{World, all_reduce, rough, small_job, tensor, value, values};

const LAYERS: u16 = 6;

fn job(order: SendOrder, credit: u64) -> Job {
    let mut job = small_job();
    job.collectives.order = order;
    job.collectives.credit = ByteCount::new(credit);
    job
}

/// The gradients of a layer, the back one submitted first.
fn of_layer(ranks: u16, layer: u16, buffer: Vec<u8>) -> Operation {
    Operation {
        layers: Layers {
            count: LAYERS,
            spans: vec![(0, Layer(layer))],
        },
        ..all_reduce(ranks, u32::from(LAYERS - layer), buffer)
    }
}

/// Numbers whose sums do not depend on the order of adding.
fn exact(rank: u16, layer: u16) -> Vec<u8> {
    tensor(DType::F32, values(rank, 150 + 100 * usize::from(layer)))
}

/// Numbers whose sums do.
fn inexact(rank: u16, layer: u16) -> Vec<u8> {
    let elements = 150 + 100 * usize::from(layer);
    let thirds = (0..elements).map(|index| value(rank, index) / 3.0 + f64::from(rank) * 1e3);
    tensor(DType::F32, thirds)
}

/// Returns the results of all layers on all ranks, for any order of submitting.
fn results(job: &Job, hosts: &[u16], seed: u64) -> Vec<Vec<u8>> {
    let ranks = hosts.len() as u16;
    let mut world = World::on_hosts(hosts, job, rough(0.03), seed);
    for rank in 0..ranks {
        for turn in 0..LAYERS {
            // Every rank begins elsewhere.
            let layer = LAYERS - 1 - (turn + rank) % LAYERS;
            let operation = of_layer(ranks, layer, inexact(rank, layer));
            world.submit(rank, operation).expect("a valid operation");
        }
    }
    world.run();
    let mut all = Vec::new();
    for rank in 0..ranks {
        let mut of_rank: Vec<(u64, Vec<u8>)> = (0..LAYERS)
            .map(|_| {
                let completion = world.completion(rank).expect("all have ended");
                let outcome = completion.result.expect("all succeeded");
                assert_eq!(outcome.lost_segments, 0, "seed {seed}");
                let bytes = completion.buffer.bytes().expect("owned").to_vec();
                (bytes.len() as u64, bytes)
            })
            .collect();
        of_rank.sort();
        all.extend(of_rank.into_iter().map(|(_, bytes)| bytes));
    }
    all
}

#[test]
fn scheduling_changes_no_bit_of_a_sum_whatever_the_network_does() {
    let cases: [(ReduceAlgorithm, &[u16]); 3] = [
        (ReduceAlgorithm::Ring, &[0, 1, 2, 3]),
        (ReduceAlgorithm::Direct, &[0, 1, 2, 3]),
        (ReduceAlgorithm::Hierarchical, &[0, 0, 1, 1]),
    ];
    for seed in 1..=4 {
        for (algorithm, hosts) in cases {
            let with = |order, credit| {
                let mut job = job(order, credit);
                job.collectives.algorithm = algorithm;
                results(&job, hosts, seed)
            };
            let off = with(SendOrder::Arrival, 0);
            for credit in [0, 1, 700, 5_000] {
                let on = with(SendOrder::Layers, credit);
                assert!(on == off, "seed {seed}, {algorithm:?}, credit {credit}");
            }
        }
    }
}

#[test]
fn ranks_that_wait_for_one_sum_before_they_begin_the_next_do_not_wait_for_ever() {
    // Rank 0 begins with the front layer, whose messages take all credit; rank 1 begins with the
    // back layer and does not begin the front one before it has the sum.
    let job = job(SendOrder::Layers, 1);
    let mut world = World::new(2, &job, Profile::perfect(Span::from_micros(10)), 1);
    let gradients = |rank, layer| of_layer(2, layer, exact(rank, layer));
    for layer in [0, LAYERS - 1] {
        let submitted = world.submit(0, gradients(0, layer));
        submitted.expect("a valid operation");
    }
    for layer in [LAYERS - 1, 0] {
        let submitted = world.submit(1, gradients(1, layer));
        submitted.expect("a valid operation");
        let until = world.at(Span::from_millis(2_000));
        world.network.run_until(until);
        let completion = world.completion(1);
        assert!(completion.is_some(), "layer {layer} has ended");
    }
    world.run();
}

#[test]
fn no_layer_starves_behind_urgent_ones_that_keep_coming() {
    let job = job(SendOrder::Layers, 2_000);
    let mut world = World::new(2, &job, Profile::perfect(Span::from_micros(10)), 1);
    let step_of = |rank, layer, step: u32| Operation {
        step: gradwire_protocol::units::Step(step),
        ..Operation {
            sequence: 1_000 + step * 2 + u32::from(layer == 0),
            ..of_layer(2, layer, exact(rank, layer))
        }
    };
    for step in 0..20 {
        for rank in 0..2 {
            for layer in [LAYERS - 1, 0] {
                let submitted = world.submit(rank, step_of(rank, layer, step));
                submitted.expect("a valid operation");
            }
        }
    }
    world.run();
    let lengths = (0..40).map(|_| world.result(0).0.len());
    let lengths: Arc<[usize]> = lengths.collect();
    let back = exact(0, LAYERS - 1).len();
    for (step, pair) in lengths.chunks(2).enumerate() {
        assert!(pair.contains(&back), "step {step}: {lengths:?}");
    }
}
