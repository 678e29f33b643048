//! Many buckets at once over real sockets and over shared memory: front layers are done first.

#[expect(dead_code, reason = "other facts need more of it")]
mod world;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use gradwire_collectives::operation::Layers;
use gradwire_protocol::job::{Job, WireChoice};
use gradwire_protocol::units::{Layer, Span};
use gradwire_runtime::{LocalRank, RankTask};

use world::{open, sum};

const PATIENCE: Duration = Duration::from_secs(30);
const BUCKETS: u16 = 64;
const BUCKET_BYTES: usize = 1 << 20;

/// An all-reduce of two ranks whose tensor belongs to one layer.
fn bucket(layer: u16) -> RankTask {
    let mut operation = sum(2, u32::from(layer), vec![0; BUCKET_BYTES]);
    operation.layers = Layers {
        count: BUCKETS,
        spans: vec![(0, Layer(layer))],
    };
    operation.tensor_key = u64::from(layer);
    RankTask {
        operation,
        timeout: Some(Span::from_millis(30_000)),
    }
}

/// Submits all buckets as a backward pass does, the last layers first; returns the layers in the
/// order in which they were done.
fn order_of_completion(rank: &LocalRank) -> Vec<u16> {
    let (tell, told) = channel();
    let tasks: Vec<(u16, RankTask)> = (0..BUCKETS).map(|layer| (layer, bucket(layer))).collect();
    for (layer, task) in tasks.into_iter().rev() {
        let tell = tell.clone();
        let done = move |result: Result<_, _>| {
            result.expect("nothing fails");
            tell.send(layer).expect("somebody listens");
        };
        rank.submit(task, Box::new(done));
    }
    drop(tell);
    told.iter().collect()
}

fn orders_over(wire: WireChoice) -> Vec<Vec<u16>> {
    let mut job = Job::default();
    job.transport.wire = wire;
    let opened = [0, 1].map(|rank| open(rank, 2, &job));
    let rendezvous = opened[0].rendezvous().expect("rank 0 listens").to_string();
    thread::scope(|scope| {
        let ranks = opened.map(|open| {
            let rendezvous = &rendezvous;
            scope.spawn(move || {
                let rank = open.join(rendezvous, PATIENCE).expect("equal jobs");
                let order = order_of_completion(&rank);
                rank.close(PATIENCE);
                order
            })
        });
        let orders = ranks.map(|rank| rank.join().expect("no rank panics"));
        orders.to_vec()
    })
}

/// Callbacks run on several threads and ranks are not in step, so single buckets may change places:
/// the front half must be done before nearly all of the back half.
#[test]
fn front_buckets_finish_before_back_buckets() {
    for wire in [WireChoice::Udp, WireChoice::Auto] {
        for order in orders_over(wire) {
            println!("{wire:?}: {order:?}");
            let early = &order[..usize::from(BUCKETS / 2)];
            let front = early.iter().filter(|layer| **layer < BUCKETS / 2).count();
            assert!(front >= 28, "{wire:?}: {front} of 32 in {order:?}");
        }
    }
}
