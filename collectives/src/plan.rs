//! The form in which an algorithm is written: the messages of one rank, and the gates they wait
//! for.
//!
//! A [`MessagePlan`] has messages in, messages out and gates. It says nothing about the values of
//! bytes. So tests check an algorithm's steps and bytes without running it (`rehearsal`).
//!
//! - A gate opens when all its messages in are received and the gates before it are open.
//! - Then its region is finished (holes settled, averages divided) and its messages out start.
//! - [`MessagePlan::START`] is open from the beginning.
//! - Messages in may come at any time, also before the gate before theirs has opened. If they are
//!   summed in the order of ranks, they then wait for that gate: only it completes the values that
//!   they are reduced into.
//!
//! Every algorithm obeys two rules:
//!
//! 1. Part numbers are the same on both sides of a message. Those of collectives lie below
//!    [`PARTS`].
//! 2. A region from which a message leaves is overwritten only by a message whose sender has
//!    received all of the outgoing one, or does without the rest (`collectives.patience`); the
//!    engine posts results only after the contributions in their place have left. If the endpoint
//!    still repeats a segment of the outgoing message, that is a duplicate, which its receiver
//!    drops.

pub(crate) mod cut;
pub(crate) mod message;
pub(crate) mod region;
#[cfg(test)]
pub(crate) mod rehearsal;
pub(crate) mod seat;

use gradwire_protocol::units::Rank;
use smallvec::SmallVec;

pub(crate) use cut::{ElementRun, TensorCut};
pub(crate) use message::{
    GateId, MessageForm, PARTS, PlannedReceive, PlannedSend, Reliability, SegmentLanding,
};
pub(crate) use region::{TensorMemory, TensorRegion};
pub(crate) use seat::GroupSeat;

/// Chunks of one operation that are on their way at once: enough to overlap the gather of one with
/// the reduction of the next, few enough that a chunk is still in cache when it is gathered.
pub(crate) const CHUNKS_ON_THE_WAY: usize = 4;

/// Operations that send no more bytes than this end without waiting until they have arrived: to
/// copy so much takes less time than an acknowledgement between near hosts.
pub(crate) const EARLY_BYTES_MAX: usize = 256 << 10;

/// How a plan uses its scratch memory, [`TensorMemory::Scratch`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ScratchUse {
    /// The plan needs no scratch.
    Unused,
    /// It is a copy of the input, made before anything else.
    CopyOfInput,
    /// It has one slot for each seat, as long as the result buffer. The slot of this seat is a copy
    /// of that buffer, made before anything else. The result reduces all slots in their order.
    Slots {
        /// How many there are.
        count: usize,
        /// The one of this rank.
        own: usize,
    },
}

/// A point that messages wait for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct PlanGate {
    /// Messages in, and gates that it comes after, until it opens.
    pub(crate) waits: usize,
    /// How many of these are gates.
    pub(crate) gates_before: usize,
    /// The messages in that are reduced into its region, in the order of their ranks.
    pub(crate) contributions: SmallVec<[usize; 2]>,
    /// The region whose reduction is finished when it opens.
    pub(crate) finish: Option<TensorRegion>,
    /// The messages out that start then, in this order.
    pub(crate) opens: SmallVec<[usize; 2]>,
    /// The gates that come after it.
    pub(crate) next: SmallVec<[GateId; 2]>,
}

/// The messages of one operation on one rank.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct MessagePlan {
    /// Bytes to copy before anything else: from where, to where.
    pub(crate) copy: Option<(TensorRegion, TensorRegion)>,
    /// How the plan uses its scratch memory.
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

    /// A new gate without waits.
    pub(crate) fn gate(&mut self) -> GateId {
        self.gates.push(PlanGate::default());
        GateId(self.gates.len() - 1)
    }

    /// A new gate that opens only after another one.
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
            self.gates[gate.0].gates_before += 1;
            self.gates[before.0].next.push(gate);
        }
    }

    /// Lets a gate finish the reduction in `region` when it opens.
    pub(crate) fn finish_at(&mut self, gate: GateId, region: TensorRegion) {
        self.gates[gate.0].finish = Some(region);
    }

    /// Adds a message in, unless its region is empty by chance: then both sides leave it out.
    pub(crate) fn receive(&mut self, inbound: PlannedReceive) {
        if inbound.region.bytes > 0 || inbound.region == TensorRegion::NOTHING {
            self.inbounds.push(inbound);
        }
    }

    /// Adds a message out, unless its region is empty by chance: then both sides leave it out.
    pub(crate) fn send(&mut self, outbound: PlannedSend) {
        if outbound.region.bytes > 0 || outbound.region == TensorRegion::NOTHING {
            self.outbounds.push(outbound);
        }
    }

    /// Adds the messages in of a region that may be too long for one.
    pub(crate) fn receive_in_pieces(&mut self, whole: PlannedReceive) {
        for (piece, region) in cut::pieces(whole.region) {
            let part = whole.part | piece;
            self.receive(PlannedReceive {
                part,
                region,
                ..whole
            });
        }
    }

    /// Adds the messages out of a region that may be too long for one.
    pub(crate) fn send_in_pieces(&mut self, whole: PlannedSend) {
        for (piece, region) in cut::pieces(whole.region) {
            let part = whole.part | piece;
            self.send(PlannedSend {
                part,
                region,
                ..whole
            });
        }
    }

    /// The finished plan: messages are sorted, and each gate knows its own.
    #[must_use]
    pub(crate) fn sealed(mut self) -> Self {
        for inbound in &self.inbounds {
            self.gates[inbound.gate.0].waits += 1;
        }
        self.inbounds
            .sort_by_key(|inbound| (inbound.from, inbound.part));
        for (at, inbound) in self.inbounds.iter().enumerate() {
            if inbound.landing == SegmentLanding::Reduce {
                self.gates[inbound.gate.0].contributions.push(at);
            }
        }
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
    pub(crate) fn find_inbound(&self, from: Rank, part: u16) -> Option<usize> {
        let key = |inbound: &PlannedReceive| (inbound.from, inbound.part);
        self.inbounds.binary_search_by_key(&(from, part), key).ok()
    }

    /// The message out with this receiver and part.
    pub(crate) fn find_outbound(&self, to: Rank, part: u16) -> Option<usize> {
        let key = |outbound: &PlannedSend| (outbound.to, outbound.part);
        self.outbounds.binary_search_by_key(&(to, part), key).ok()
    }
}
