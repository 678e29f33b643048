//! When a message is probed, and how much its receiver was told by PROBE.

use crate::units::{Instant, Span};

/// The longest wait between two probes, unless [`GAPS_UNANSWERED`] gaps of the job are shorter.
pub(super) const PROBE_WAIT_MAX: Span = Span::from_millis(20);
/// The longest wait between two probes, in gaps of the job.
pub(super) const GAPS_UNANSWERED: u64 = 32;

/// How far the receiver knows about a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SendStage {
    /// It has an unscheduled start, which waits for the window. The receiver need not know of it.
    Unsent,
    /// It has no unscheduled start: its first PROBE has to announce it.
    Unannounced,
    /// A PROBE has announced it, and it waits for its first grant.
    Announced,
    /// Some of its segments were sent.
    Sending,
    /// A PROBE has said that all of it was sent, and no segment was sent since.
    SaidAllSent,
}

/// The probes of one message.
#[derive(Debug)]
pub(super) struct ProbeState {
    pub(super) stage: SendStage,
    /// When the next one is due.
    pub(super) at: Instant,
    /// Probes since the last report.
    pub(super) unanswered: u32,
    /// When the first of those was sent.
    pub(super) asked: Instant,
    /// How many holes the last one named.
    pub(super) holes_told: u32,
    /// Whether the caller knows that the message stands still.
    pub(super) told_still: bool,
}

impl ProbeState {
    /// The probes of a message that begins now in this stage.
    pub(super) fn new(stage: SendStage, now: Instant, at: Instant) -> Self {
        Self {
            stage,
            at,
            unanswered: 0,
            asked: now,
            holes_told: 0,
            told_still: false,
        }
    }

    /// A probe goes out that names so many holes; the next one is due at `next`.
    pub(super) fn on_probe(&mut self, now: Instant, next: Instant, holes: u32) {
        if self.stage == SendStage::Unannounced {
            self.stage = SendStage::Announced;
        }
        if self.unanswered == 0 {
            self.asked = now;
        }
        self.unanswered += 1;
        self.at = next;
        self.holes_told = holes;
    }
}
