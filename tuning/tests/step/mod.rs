//! A flow-level model of the time of a training step: one worker, a wire in each direction, a
//! parameter server that is never the bottleneck.
//!
//! - Chunks are admitted while credit is left, front layers first, and then leave in order.
//! - Each chunk costs a fixed time in addition to its bytes. Its credit comes back a round trip
//!   after it has left, its sum over the other direction.
//! - The forward pass of a layer waits for all chunks of the layer.

use gradwire_tuning::surface::SchedulePoint;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Fixed time of a message, beside that of its bytes, in nanoseconds.
const PER_CHUNK: u64 = 20_000;
/// From the last byte of a message to its acknowledgement, in nanoseconds.
const ROUND_TRIP: u64 = 50_000;

/// A model in training: bytes per layer, front first, and nanoseconds of both passes.
pub(crate) struct Layers {
    /// Name in messages of the test.
    pub(crate) name: &'static str,
    bytes: Vec<u64>,
    backward: u64,
    forward: u64,
}

impl Layers {
    /// Like VGG16: one of the last layers has three quarters of the bytes.
    pub(crate) fn one_huge() -> Self {
        let thousands = [
            2, 37, 74, 148, 295, 590, 590, 1180, 2360, 2360, 2360, 2360, 2360, 102_764, 16_781,
            4097,
        ];
        Self {
            name: "one huge layer",
            bytes: thousands.iter().map(|n| n * 4000).collect(),
            backward: 85_000_000,
            forward: 45_000_000,
        }
    }

    /// Like ResNet50: many small layers.
    pub(crate) fn even() -> Self {
        Self {
            name: "even layers",
            bytes: (0..54).map(|n| 200_000 + n * n * 1840).collect(),
            backward: 63_500_000,
            forward: 33_000_000,
        }
    }

    /// Like BERT: the first layer is the largest, its gradient is ready last and needed first.
    pub(crate) fn large_first() -> Self {
        let block = [590, 590, 590, 590, 2360, 2360];
        let blocks = block.iter().cycle().take(12 * block.len());
        let thousands = std::iter::once(&23_800).chain(blocks);
        Self {
            name: "a large first layer",
            bytes: thousands.map(|n| n * 4000).collect(),
            backward: 66_000_000,
            forward: 35_000_000,
        }
    }
}

/// How fast bytes leave, in each direction.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    gbps: u64,
}

impl Wire {
    /// A wire of `gbps` times 10^9 bits per second.
    pub(crate) fn of_gbps(gbps: u64) -> Self {
        Self { gbps }
    }

    fn nanos(self, bytes: u64) -> u64 {
        bytes * 8 / self.gbps
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready { layer: usize },
    Returned { credit: u64 },
}

/// The waiting chunks, and the state of both wires.
struct Queue {
    waiting: BTreeSet<(usize, u64, u64)>,
    credit: i64,
    sent_until: u64,
    received_until: u64,
    updated: Vec<u64>,
}

/// Seconds from the start of backward to the end of the next forward.
pub(crate) fn time(layers: &Layers, wire: Wire, point: SchedulePoint) -> f64 {
    let count = layers.bytes.len() as u64;
    let mut events = BinaryHeap::new();
    for layer in 0..layers.bytes.len() {
        let at = layers.backward * (count - layer as u64) / count;
        events.push(Reverse((at, Event::Ready { layer })));
    }
    let mut queue = Queue {
        waiting: BTreeSet::new(),
        credit: point.credit.get() as i64,
        sent_until: 0,
        received_until: 0,
        updated: vec![0; layers.bytes.len()],
    };
    while let Some(Reverse((now, event))) = events.pop() {
        match event {
            Event::Ready { layer } => queue.cut(layer, layers.bytes[layer], point.chunk.get()),
            Event::Returned { credit } => queue.credit += credit as i64,
        }
        while let Some((at, credit)) = queue.admit(now, wire) {
            events.push(Reverse((at, Event::Returned { credit })));
        }
    }
    let forward = |at: u64, updated: &u64| at.max(*updated) + layers.forward / count;
    queue.updated.iter().fold(layers.backward, forward) as f64 * 1e-9
}

impl Queue {
    fn cut(&mut self, layer: usize, bytes: u64, chunk: u64) {
        let starts = (0..bytes).step_by(chunk as usize);
        let pieces = starts.map(|start| (layer, start, chunk.min(bytes - start)));
        self.waiting.extend(pieces);
    }

    /// Sends the most urgent chunk if there is credit; returns when its credit comes back, and how
    /// much.
    fn admit(&mut self, now: u64, wire: Wire) -> Option<(u64, u64)> {
        if self.credit <= 0 {
            return None;
        }
        let (layer, _, bytes) = self.waiting.pop_first()?;
        self.credit -= bytes as i64;
        self.sent_until = self.sent_until.max(now) + PER_CHUNK + wire.nanos(bytes);
        let summed = self.sent_until + ROUND_TRIP / 2;
        self.received_until = self.received_until.max(summed) + wire.nanos(bytes);
        self.updated[layer] = self.updated[layer].max(self.received_until);
        Some((self.sent_until + ROUND_TRIP, bytes))
    }
}
