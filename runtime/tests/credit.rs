//! A credit over real sockets: it holds messages back, and changes no bit of what they carry.

mod world;

use std::sync::Mutex;
use std::sync::mpsc::channel;

use gradwire_collectives::operation::Layers;
use gradwire_protocol::job::{Job, ReduceAlgorithm, WireChoice};
use gradwire_protocol::units::{ByteCount, Layer, Span};
use gradwire_runtime::{EndedOperation, LocalRank, RankTask};

use world::{PATIENCE, on_ranks, sum};

const BUCKETS: u16 = 8;
/// Not a multiple of any size: shards, chunks and segments have short ends.
const ELEMENTS: u32 = 40_009;
/// A shard has several.
const CHUNK: ByteCount = ByteCount::kib(16);

/// Values whose sums round, so that they show the order in which they were added.
fn gradients(rank: u16, layer: u16) -> Vec<u8> {
    let value = |at: u32| {
        let mixed = (at + 1).wrapping_mul(2_654_435_761) ^ u32::from(rank * 31 + layer);
        (mixed as f32).sqrt() * 1e-3 - 16.0
    };
    let values = (0..ELEMENTS).map(value);
    values.flat_map(f32::to_le_bytes).collect()
}

fn bucket(rank: &LocalRank, world_size: u16, layer: u16) -> RankTask {
    let own = gradients(rank.rank().0, layer);
    let mut operation = sum(world_size, u32::from(layer), own);
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

/// A rank's values at the end of each layer; all are submitted as a backward pass does.
fn reduced(rank: &LocalRank, world_size: u16) -> Vec<Vec<u8>> {
    let (tell, told) = channel();
    for layer in (0..BUCKETS).rev() {
        let tell = tell.clone();
        let done = move |result: Result<EndedOperation, _>| {
            let ended = result.expect("nothing fails");
            let bytes = ended.buffer.bytes().expect("it has bytes").to_vec();
            tell.send((layer, bytes)).expect("somebody listens");
        };
        rank.submit(bucket(rank, world_size, layer), Box::new(done));
    }
    drop(tell);
    let mut layers: Vec<(u16, Vec<u8>)> = told.iter().collect();
    layers.sort_by_key(|(layer, _)| *layer);
    layers.into_iter().map(|(_, bytes)| bytes).collect()
}

/// The layers of all ranks, which are the same on each, and how many messages each rank held back.
fn with_credit(
    credit: u64,
    algorithm: ReduceAlgorithm,
    world_size: u16,
) -> (Vec<Vec<u8>>, Vec<u64>) {
    let mut job = Job::default();
    job.transport.wire = WireChoice::Udp;
    job.collectives.algorithm = algorithm;
    job.collectives.chunk = CHUNK;
    job.collectives.credit = ByteCount::new(credit);
    let all = Mutex::new(Vec::new());
    on_ranks(world_size, &job, |rank| {
        let layers = reduced(&rank, world_size);
        let held = rank.metrics().expect("it is open").held_messages;
        let mut all = all.lock().expect("nobody panics with it");
        all.push((layers, held));
        drop(all);
        rank.close(PATIENCE);
    });
    let all = all.into_inner().expect("nobody panics with it");
    let (mut layers, held): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let first = layers.pop().expect("there are ranks");
    assert_eq!(first.len(), usize::from(BUCKETS), "every layer is done");
    assert!(layers.iter().all(|other| *other == first), "ranks agree");
    (first, held)
}

#[test]
fn credit_does_not_change_the_bits() {
    // In a ring the order of additions is fixed; of two ranks it does not matter.
    for (algorithm, world_size) in [(ReduceAlgorithm::Ring, 3), (ReduceAlgorithm::Direct, 2)] {
        let (unbounded, held) = with_credit(0, algorithm, world_size);
        assert!(
            held.iter().all(|&held| held == 0),
            "{algorithm:?}: {held:?}"
        );
        for credit in [1, 3_000, 64 << 10, 1 << 20] {
            let (bounded, held) = with_credit(credit, algorithm, world_size);
            assert!(bounded == unbounded, "{algorithm:?}, credit {credit}");
            let each_held = held.iter().all(|&held| held > 0);
            // A shard's chunks are ready at once: all but one of them wait.
            assert!(
                each_held || credit >= CHUNK.get(),
                "credit {credit}: {held:?}"
            );
        }
    }
}
