//! Lost segments of an operation's messages, on this rank and at its peers.

use std::collections::BTreeMap;

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::Share;

use crate::numbers::holes::Hole;
use crate::operation::{Collective, OperationOutcome};
use crate::plan::{GateId, PlannedReceive, SegmentLanding};

/// The losses of one operation so far.
#[derive(Debug)]
pub(super) struct LossRecord {
    outcome: OperationOutcome,
    /// Missing contributions per segment, by the gate that finishes their sum.
    missing: BTreeMap<GateId, Vec<u16>>,
    /// Holes of messages that are not contributions to a sum.
    unfilled: Vec<Hole>,
}

impl LossRecord {
    pub(super) fn new(collective: Collective) -> Self {
        Self {
            outcome: OperationOutcome {
                source: collective.source(),
                ..OperationOutcome::default()
            },
            missing: BTreeMap::new(),
            unfilled: Vec::new(),
        }
    }

    /// Counts the segments of a message in that is posted.
    pub(super) fn expect(&mut self, cut: Segmentation) {
        self.outcome.expected_segments += u64::from(cut.segments());
    }

    /// Counts the segments of a message out that starts.
    pub(super) fn send(&mut self, cut: Segmentation) {
        self.outcome.sent_segments += u64::from(cut.segments());
    }

    /// Notes the holes of a message in.
    pub(super) fn note(&mut self, inbound: &PlannedReceive, cut: Segmentation, holes: &Bitmap) {
        let segments = cut.segments() as usize;
        let share = Share::new(f64::from(holes.ones()) / segments as f64).unwrap_or(Share::ALL);
        self.outcome.lost_segments += u64::from(holes.ones());
        self.outcome.max_lost_share = self.outcome.max_lost_share.max(share);
        if inbound.landing == SegmentLanding::Copy {
            let hole = |segment| Hole {
                offset: inbound.region.offset + segment as usize * cut.segment_bytes() as usize,
                bytes: cut.length(segment) as usize,
            };
            self.unfilled.extend(holes.iter_ones().map(hole));
            return;
        }
        let missing = self.missing.entry(inbound.gate);
        let missing = missing.or_insert_with(|| vec![0; segments]);
        for segment in holes.iter_ones() {
            missing[segment as usize] += inbound.contributors;
        }
    }

    /// Counts the segments of a message out that its receiver accepted as lost.
    pub(super) fn miss(&mut self, missing: &Bitmap) {
        self.outcome.missed_segments += u64::from(missing.ones());
    }

    /// Missing contributions per segment of the sum that a gate finishes, if any is missing.
    pub(super) fn take_missing(&mut self, gate: GateId) -> Option<Vec<u16>> {
        self.missing.remove(&gate)
    }

    /// The outcome of the operation, and the holes in its buffer in ascending order.
    pub(super) fn into_outcome(mut self) -> (OperationOutcome, Vec<Hole>) {
        self.unfilled.sort_unstable_by_key(|hole| hole.offset);
        (self.outcome, self.unfilled)
    }
}
