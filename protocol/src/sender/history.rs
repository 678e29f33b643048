//! How the paths to a peer have performed lately: whether they have lost or marked packets, and
//! whether they keep order.
//!
//! A message that tolerates loss costs more than a lossless one: its magnitudes are measured, and
//! its segments leave out of order. It gains only where packets are dropped. So no tolerance is
//! used once 65,536 packets were neither lost nor marked. A mark counts, since a switch that marks
//! others drops droppable packets in their place. Where packets are only lost, a tolerance must pay
//! ([`super::worth`]).

use serde::{Deserialize, Serialize};

use crate::wire::SegmentReport;

/// Whether the paths to the peer have lost packets recently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PathRecord {
    /// None of many.
    Clean,
    /// None of few, on paths that keep order or may not.
    Unproven(HoleJudge),
    /// Some.
    Lossy,
}

/// The word on which a receiver accepts a hole.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum HoleJudge {
    /// The sender's, or a gap.
    #[default]
    Sender,
    /// The paths', which may keep order.
    Paths,
}

impl HoleJudge {
    /// As a report says.
    pub(super) fn of(report: &SegmentReport) -> Self {
        match report.keeps_order {
            true => Self::Paths,
            false => Self::Sender,
        }
    }
}

/// Why a message may gain by a tolerance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ToleranceNeed {
    /// It does not: the paths are clean.
    None,
    /// They have dropped packets lately, or carried few.
    Drops,
    /// They have marked packets lately.
    Marks,
}

/// What is known of the paths to one peer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PathHistory {
    /// Who judges holes, by the last report.
    pub(super) judge: HoleJudge,
    /// Packets until the paths count as clean.
    lossy_for: u64,
    /// Packets until the paths are proven clean.
    unproven_for: u64,
    /// Packets until losses no longer make a tolerance useful.
    eventful_for: u64,
    /// Packets until no mark is remembered.
    marked_for: u64,
    /// As many after a loss, and at the start.
    clean_packets: u64,
}

impl PathHistory {
    /// Of paths that have carried nothing. Those that lose a packet count as clean again after
    /// `clean_packets`.
    pub(super) fn new(clean_packets: u64) -> Self {
        Self {
            judge: HoleJudge::default(),
            lossy_for: 0,
            unproven_for: clean_packets,
            eventful_for: clean_packets,
            marked_for: 0,
            clean_packets,
        }
    }

    /// This many packets leave.
    pub(super) fn on_sent(&mut self, packets: u64) {
        for left in [
            &mut self.lossy_for,
            &mut self.unproven_for,
            &mut self.eventful_for,
            &mut self.marked_for,
        ] {
            *left = left.saturating_sub(packets);
        }
    }

    /// A packet is lost.
    pub(super) fn on_loss(&mut self) {
        self.lossy_for = self.clean_packets;
        self.eventful_for = self.clean_packets;
    }

    /// So many packets came marked.
    pub(super) fn on_marks(&mut self, marks: u32) {
        if marks > 0 {
            self.marked_for = self.clean_packets;
        }
    }

    /// Paths to another peer have lost packets.
    pub(super) fn expect_loss(&mut self) {
        self.lossy_for = self.lossy_for.max(self.unproven_for);
    }

    /// How the paths have performed recently.
    pub(super) fn record(&self) -> PathRecord {
        match (self.lossy_for, self.unproven_for) {
            (0, 0) => PathRecord::Clean,
            (0, _) => PathRecord::Unproven(self.judge),
            _ => PathRecord::Lossy,
        }
    }

    /// Why a message may gain by a tolerance.
    pub(super) fn need_of_tolerance(&self) -> ToleranceNeed {
        match (self.marked_for, self.eventful_for) {
            (0, 0) => ToleranceNeed::None,
            (0, _) => ToleranceNeed::Drops,
            _ => ToleranceNeed::Marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_of_use_until_nothing_was_lost_or_marked_for_long() {
        let mut history = PathHistory::new(100);
        let events: [fn(&mut PathHistory); 3] = [
            |_| {},
            |history| history.on_loss(),
            |history| history.on_marks(1),
        ];
        let needs = [
            ToleranceNeed::Drops,
            ToleranceNeed::Drops,
            ToleranceNeed::Marks,
        ];
        for (event, need) in events.into_iter().zip(needs) {
            event(&mut history);
            history.on_sent(99);
            assert_eq!(history.need_of_tolerance(), need);
            history.on_sent(1);
            assert_eq!(history.need_of_tolerance(), ToleranceNeed::None);
        }
        history.on_marks(0);
        history.expect_loss();
        assert_eq!(history.need_of_tolerance(), ToleranceNeed::None);
        assert_eq!(history.record(), PathRecord::Clean);
    }
}
