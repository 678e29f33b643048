//! The form in which an algorithm is written: the messages of one rank, and what each waits for.
//!
//! A plan has messages in, messages out and gates. A gate opens when all its messages in are
//! received and the gate that it comes after is open; then its region is finished (holes settled,
//! averages divided) and its messages out start. [`MessagePlan::START`] is open from the beginning.
//! Messages in may come at any time, before their gate's turn too. A plan says nothing about bytes'
//! values, so algorithms are tested for steps and bytes without running them (`rehearsal`), and run
//! by `running` alike.
//!
//! Two rules that every algorithm here obeys. Part numbers are the same on both sides of a message
//! and lie below [`PARTS`], apart from point-to-point's. A region that a message leaves from is
//! overwritten only by a message whose sender has completely received the former: then what the
//! endpoint may still repeat of it is a duplicate, which its receiver drops.

pub(crate) mod region;
#[cfg(test)]
pub(crate) mod rehearsal;

use std::ops::Range;

use gradwire_protocol::units::{ByteCount, Rank};

use crate::plan::region::TensorRegion;

/// Part numbers of collectives lie below this, those of point-to-point messages from here on.
pub(crate) const PARTS: u16 = 0x8000;
/// Chunks of one operation that are on their way at once: enough to overlap the gather of one with
/// the reduction of the next, few enough that a chunk is still in cache when it is gathered.
pub(crate) const CHUNKS_ON_THE_WAY: usize = 4;
/// Messages of algorithms without chunks are cut to at most this.
const PIECE_BYTES: usize = 64 << 20;
/// Chunks are at most this long, whatever the job says: messages have 32-bit lengths.
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// Operations that send no more than this end without waiting for word that it has arrived.
pub(crate) const EARLY_BYTES_MAX: usize = 32 << 10;

/// What an arriving segment does to the bytes that are there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SegmentLanding {
    /// It replaces them.
    Copy,
    /// It is reduced into them.
    Reduce,
}

/// Whether the operation's loss tolerance applies to a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reliability {
    /// It must arrive whole.
    Lossless,
    /// It is a contribution that goes straight to where the sum is finished: what is lost of it is
    /// within the tolerance.
    Tolerant,
}

/// Whether a plan needs [`TensorMemory::ScratchUse`](crate::plan::region::Place::Scratch).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScratchUse {
    /// Nothing lands there.
    Unused,
    /// It is a copy of the input, made before anything else.
    CopyOfInput,
    /// It has one slot for each seat, as long as the result buffer; the own one is a copy of that,
    /// made before anything else. What finishes is the reduction of all slots, in their order.
    Slots {
        /// How many there are.
        count: usize,
        /// The one of this rank.
        own: usize,
    },
}

/// Number of a gate in its plan.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct GateId(pub(crate) usize);

/// A message in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedReceive {
    pub(crate) from: Rank,
    pub(crate) part: u16,
    /// A region of the result buffer or of the scratch.
    pub(crate) region: TensorRegion,
    pub(crate) landing: SegmentLanding,
    pub(crate) reliability: Reliability,
    /// How many ranks' values are summed in it.
    pub(crate) contributors: u16,
    /// The gate that waits for it.
    pub(crate) gate: GateId,
}

/// A message out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedSend {
    pub(crate) to: Rank,
    pub(crate) part: u16,
    pub(crate) region: TensorRegion,
    pub(crate) reliability: Reliability,
    /// How many ranks' values are summed in it.
    pub(crate) contributors: u16,
    /// The gate that it waits for.
    pub(crate) gate: GateId,
}

/// A point that messages wait for.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlanGate {
    /// Messages in, and gates that it comes after, until it opens.
    pub(crate) waits: usize,
    /// What holds a finished reduction when it opens.
    pub(crate) finish: Option<TensorRegion>,
    /// The messages out that start then, in this order.
    pub(crate) opens: Vec<usize>,
    /// The gates that come after it.
    pub(crate) next: Vec<GateId>,
}

/// The messages of one operation on one rank.
#[derive(Clone, Debug)]
pub(crate) struct MessagePlan {
    /// Bytes to copy before anything else: from where, to where.
    pub(crate) copy: Option<(TensorRegion, TensorRegion)>,
    /// Whether messages land in the scratch, a copy of the input.
    pub(crate) scratch: ScratchUse,
    /// Sorted by (from, part).
    pub(crate) inbounds: Vec<PlannedReceive>,
    /// Sorted by (to, part).
    pub(crate) outbounds: Vec<PlannedSend>,
    /// Bytes of all of them.
    pub(crate) outbound_bytes: usize,
    pub(crate) gates: Vec<PlanGate>,
}

impl MessagePlan {
    /// The gate that is open from the beginning.
    pub(crate) const START: GateId = GateId(0);

    /// A plan without messages.
    pub(crate) fn new() -> Self {
        Self {
            copy: None,
            scratch: ScratchUse::Unused,
            inbounds: vec![],
            outbounds: vec![],
            outbound_bytes: 0,
            gates: vec![PlanGate::default()],
        }
    }

    /// A new gate, which waits for nothing yet.
    pub(crate) fn gate(&mut self) -> GateId {
        self.gates.push(PlanGate::default());
        GateId(self.gates.len() - 1)
    }

    /// A new gate that opens only after another one: what it starts needs the other's messages too.
    pub(crate) fn gate_after(&mut self, before: GateId) -> GateId {
        let gate = self.gate();
        self.follow(gate, before);
        gate
    }

    /// A new gate that opens only after all that were made since there were `count` of them.
    pub(crate) fn gate_after_all_since(&mut self, count: usize) -> GateId {
        let gate = self.gate();
        for before in count..gate.0 {
            self.follow(gate, GateId(before));
        }
        gate
    }

    fn follow(&mut self, gate: GateId, before: GateId) {
        if before != Self::START {
            self.gates[gate.0].waits += 1;
            self.gates[before.0].next.push(gate);
        }
    }

    /// Lets a gate finish the reduction in `region` when it opens.
    pub(crate) fn finish_at(&mut self, gate: GateId, region: TensorRegion) {
        self.gates[gate.0].finish = Some(region);
    }

    /// Adds a message in. An empty region needs none, unless it is empty on purpose.
    pub(crate) fn receive(&mut self, inbound: PlannedReceive) {
        if inbound.region.bytes > 0 || inbound.region == TensorRegion::NOTHING {
            self.inbounds.push(inbound);
        }
    }

    /// Adds a message out. An empty region needs none, unless it is empty on purpose.
    pub(crate) fn send(&mut self, outbound: PlannedSend) {
        if outbound.region.bytes > 0 || outbound.region == TensorRegion::NOTHING {
            self.outbounds.push(outbound);
        }
    }

    /// The finished plan: gates know what they wait for and what they open.
    #[must_use]
    pub(crate) fn sealed(mut self) -> Self {
        for inbound in &self.inbounds {
            self.gates[inbound.gate.0].waits += 1;
        }
        self.inbounds
            .sort_by_key(|inbound| (inbound.from, inbound.part));
        let mut order: Vec<usize> = (0..self.outbounds.len()).collect();
        order.sort_by_key(|&at| (self.outbounds[at].to, self.outbounds[at].part));
        let mut place = vec![0; order.len()];
        for (sorted, &at) in order.iter().enumerate() {
            place[at] = sorted;
        }
        for (at, outbound) in self.outbounds.iter().enumerate() {
            self.gates[outbound.gate.0].opens.push(place[at]);
        }
        self.outbounds = order.iter().map(|&at| self.outbounds[at]).collect();
        let bytes = |outbound: &PlannedSend| outbound.region.bytes;
        self.outbound_bytes = self.outbounds.iter().map(bytes).sum();
        self
    }

    /// The message in with this sender and part.
    pub(crate) fn inbound(&self, from: Rank, part: u16) -> Option<usize> {
        let key = |inbound: &PlannedReceive| (inbound.from, inbound.part);
        self.inbounds.binary_search_by_key(&(from, part), key).ok()
    }

    /// The message out with this receiver and part.
    pub(crate) fn outbound(&self, to: Rank, part: u16) -> Option<usize> {
        let key = |outbound: &PlannedSend| (outbound.to, outbound.part);
        self.outbounds.binary_search_by_key(&(to, part), key).ok()
    }
}

/// A rank's seat in its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupSeat<'a> {
    /// The group, in the order that all its ranks agree on.
    pub(crate) ranks: &'a [Rank],
    /// Position of this rank in it.
    pub(crate) me: usize,
    /// How many ranks' values each of them brings; one each when there is nothing here.
    pub(crate) brings: &'a [u16],
}

impl<'a> GroupSeat<'a> {
    /// The seat of number `me` among ranks that bring their own values.
    pub(crate) fn new(ranks: &'a [Rank], me: usize) -> Self {
        let brings = &[];
        Self { ranks, me, brings }
    }

    /// How many ranks' values a seat brings.
    pub(crate) fn brought_by(&self, seat: usize) -> u16 {
        self.brings.get(seat).copied().unwrap_or(1)
    }

    /// Ranks in the group.
    pub(crate) fn world(&self) -> usize {
        self.ranks.len()
    }

    /// How many ranks' values all seats together bring.
    pub(crate) fn contributors(&self) -> u16 {
        if self.brings.is_empty() {
            u16::try_from(self.ranks.len()).expect("ranks are distinct 16-bit numbers")
        } else {
            self.brings.iter().sum()
        }
    }

    /// The seat `distance` further on, around the group.
    pub(crate) fn after(&self, distance: usize) -> usize {
        (self.me + distance) % self.world()
    }

    /// The seat `distance` before, around the group.
    pub(crate) fn before(&self, distance: usize) -> usize {
        (self.me + self.world() - distance % self.world()) % self.world()
    }

    /// The seats of all others in rotated order: each rank starts with the one after itself, so
    /// that no rank is everybody's first.
    pub(crate) fn others(self) -> impl Iterator<Item = usize> {
        (1..self.ranks.len()).map(move |distance| (self.me + distance) % self.ranks.len())
    }
}

/// How a tensor is cut: into chunks that are worked on one after the other, each chunk into one
/// shard per rank. All cuts are between elements and as even as they can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorCut {
    elements: usize,
    element_bytes: usize,
    pub(crate) chunks: usize,
}

impl TensorCut {
    /// Cuts `bytes` into chunks of about `chunk`, but into no more than `chunks_max`.
    pub(crate) fn new(
        bytes: usize,
        element_bytes: usize,
        chunk: ByteCount,
        chunks_max: usize,
    ) -> Self {
        let chunk = chunk.as_usize().clamp(1, CHUNK_BYTES_MAX);
        let chunks = bytes.div_ceil(chunk).clamp(1, chunks_max.max(1));
        Self {
            elements: bytes / element_bytes,
            element_bytes,
            chunks,
        }
    }

    /// One of the chunks.
    pub(crate) fn chunk(&self, chunk: usize) -> ElementRun {
        let element_bytes = self.element_bytes;
        let whole = ElementRun {
            first: 0,
            count: self.elements,
            element_bytes,
        };
        whole.shard(self.chunks, chunk)
    }
}

/// A run of a tensor's elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementRun {
    first: usize,
    count: usize,
    element_bytes: usize,
}

impl ElementRun {
    /// One of `shards` parts of it.
    pub(crate) fn shard(self, shards: usize, shard: usize) -> Self {
        let (first, count) = even_part(self.count, shards, shard);
        Self {
            first: self.first + first,
            count,
            ..self
        }
    }

    /// A run, which is not empty, of `shards` parts of it.
    pub(crate) fn run_of_shards(self, shards: usize, run: Range<usize>) -> Self {
        let (start, last) = (
            self.shard(shards, run.start),
            self.shard(shards, run.end - 1),
        );
        Self {
            count: last.first + last.count - start.first,
            ..start
        }
    }

    /// Byte offset and length.
    pub(crate) fn range(self) -> (usize, usize) {
        (
            self.first * self.element_bytes,
            self.count * self.element_bytes,
        )
    }

    /// Its bytes in the result buffer.
    pub(crate) fn region(self) -> TensorRegion {
        let (offset, bytes) = self.range();
        TensorRegion::buffer(offset, bytes)
    }
}

/// First element and number of elements of part `index`, when `whole` elements are cut into
/// `parts` whose sizes differ by at most one, larger ones first.
fn even_part(whole: usize, parts: usize, index: usize) -> (usize, usize) {
    let (size, larger) = (whole / parts, whole % parts);
    (
        index * size + index.min(larger),
        size + usize::from(index < larger),
    )
}

/// Part, byte offset and length of the messages that carry `bytes` without chunks.
pub(crate) fn pieces(bytes: usize) -> impl Iterator<Item = (u16, usize, usize)> {
    let starts = (0..bytes).step_by(PIECE_BYTES).enumerate();
    starts.map(move |(index, offset)| {
        let part = u16::try_from(index).expect("32,768 pieces are 2 TiB");
        assert!(part < PARTS, "32,768 pieces are 2 TiB");
        (part, offset, PIECE_BYTES.min(bytes - offset))
    })
}

/// The same for messages that are sent even when there is nothing in them, so that both sides learn
/// that they agree.
pub(crate) fn pieces_or_nothing(bytes: usize) -> impl Iterator<Item = (u16, usize, usize)> {
    pieces(bytes).chain((bytes == 0).then_some((0, 0, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_shards_cover_the_tensor_without_overlap() {
        for (bytes, element_bytes) in [(0, 4), (4, 4), (52, 4), (1000, 8), (4096, 2)] {
            let cut = TensorCut::new(bytes, element_bytes, ByteCount::new(100), 7);
            for shards in 1..=5 {
                let mut next = 0;
                for chunk in 0..cut.chunks {
                    for shard in 0..shards {
                        let (offset, length) = cut.chunk(chunk).shard(shards, shard).range();
                        assert_eq!(offset, next);
                        assert_eq!(offset % element_bytes, 0);
                        next = offset + length;
                    }
                }
                assert_eq!(next, bytes);
            }
        }
    }

    #[test]
    fn more_chunks_than_parts_can_number_become_larger_chunks() {
        assert_eq!(TensorCut::new(1 << 20, 4, ByteCount::new(1), 16).chunks, 16);
    }

    #[test]
    fn the_first_of_the_others_is_another_one_for_every_rank() {
        let ranks = [Rank(4), Rank(5), Rank(6)];
        let firsts = (0..3).map(|me| GroupSeat::new(&ranks, me).others().next());
        assert_eq!(firsts.collect::<Vec<_>>(), [Some(1), Some(2), Some(0)]);
    }
}
