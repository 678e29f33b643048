//! The lost segments of one message: which are sent again, and which stay holes.
//!
//! 1. A lost segment that must arrive is queued ([`RepairState::queue`]).
//! 2. One that may be missing becomes a hole ([`RepairState::leave`]). While there are more holes
//!    than the message tolerates, the most needed of them is queued instead. As many as the last
//!    round trip is likely to lose are kept for it ([`holes_to_keep`]): a repair before the end
//!    delays nothing, one behind the end takes a round trip.
//! 3. Once the receiver has chosen its holes by BITMAP, the sender leaves no more of them.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;
use crate::priority::{RepairNeed, SendAttempt};

/// A message keeps its expected losses, and this many of their standard deviations more.
const DEVIATIONS_KEPT: f64 = 2.0;

/// How many holes a message keeps for the last of its segments, as many as are `in_flight` now,
/// on paths that lose this share of packets.
pub(super) fn holes_to_keep(share: f64, in_flight: u32) -> u32 {
    let expected = share * f64::from(in_flight);
    (expected + DEVIATIONS_KEPT * expected.sqrt()).ceil() as u32
}

/// Who decides which segments of a message stay missing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
enum HoleChooser {
    /// The sender, within the message's tolerance.
    Sender,
    /// The receiver: it has sent a BITMAP, and needs every segment that it did not accept there.
    Receiver,
}

/// The lost segments of a message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RepairState {
    /// To be sent again, in this order. Segments that arrive meanwhile are skipped.
    queue: VecDeque<u32>,
    queued: Bitmap,
    /// Whether it has segments that this host took back, which are not lost.
    has_unsent: bool,
    /// Lost, neither acknowledged nor queued.
    holes: Bitmap,
    /// Every segment that ever became a hole, the most needed first. Those that are no longer holes
    /// are skipped.
    by_need: BinaryHeap<(RepairNeed, u32)>,
    chooser: HoleChooser,
}

impl RepairState {
    /// The state of a message of `segments`, none of them lost.
    pub(super) fn new(segments: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            queued: Bitmap::new(segments),
            has_unsent: false,
            holes: Bitmap::new(segments),
            by_need: BinaryHeap::new(),
            chooser: HoleChooser::Sender,
        }
    }

    /// Whether no segment is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// The segments that are lost and not to be repaired.
    pub(super) fn holes(&self) -> &Bitmap {
        &self.holes
    }

    /// The first segment of the queue, if any; it may have arrived.
    pub(super) fn front(&self) -> Option<u32> {
        self.queue.front().copied()
    }

    /// Takes the first segment from the queue.
    pub(super) fn pop(&mut self) {
        if let Some(segment) = self.queue.pop_front() {
            self.queued.remove(segment);
            self.has_unsent &= !self.queue.is_empty();
        }
    }

    /// The queue has segments that this host took back.
    pub(super) fn on_unsent(&mut self) {
        self.has_unsent = !self.queue.is_empty();
    }

    /// Whether the first segment of the queue is sent again or, as far as is known, for the first
    /// time.
    pub(super) fn attempt(&self) -> SendAttempt {
        match self.has_unsent {
            true => SendAttempt::First,
            false => SendAttempt::Again,
        }
    }

    /// Segments have arrived.
    pub(super) fn on_acked(&mut self, segments: Range<u32>) {
        self.holes.remove_range(segments);
    }

    /// Queues a segment, unless it has arrived or is queued already.
    pub(super) fn queue(&mut self, segment: u32, acked: &Bitmap) {
        self.holes.remove(segment);
        if !acked.has(segment) && self.queued.insert(segment) {
            self.queue.push_back(segment);
        }
    }

    /// Leaves a lost segment as a hole. If there are more than `tolerated` holes, the most needed
    /// are queued.
    pub(super) fn leave(&mut self, segment: u32, need: RepairNeed, tolerated: u32, acked: &Bitmap) {
        if self.holes.insert(segment) {
            self.by_need.push((need, segment));
        }
        while self.holes.ones() > tolerated {
            let (_, most) = self.by_need.pop().expect("every hole was pushed");
            if self.holes.has(most) {
                self.queue(most, acked);
            }
        }
    }

    /// A BITMAP has arrived: the receiver has chosen its holes.
    pub(super) fn on_chosen(&mut self) {
        self.chooser = HoleChooser::Receiver;
    }

    /// Whether the sender may still leave holes.
    pub(super) fn may_leave(&self) -> bool {
        self.chooser == HoleChooser::Sender
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_took_back_is_no_repair() {
        let (mut repair, acked) = (RepairState::new(8), Bitmap::new(8));
        repair.queue(3, &acked);
        assert_eq!(repair.attempt(), SendAttempt::Again);
        repair.queue(4, &acked);
        repair.on_unsent();
        assert_eq!(repair.attempt(), SendAttempt::First);
        repair.pop();
        repair.pop();
        repair.queue(5, &acked);
        assert_eq!(repair.attempt(), SendAttempt::Again);
    }
}
