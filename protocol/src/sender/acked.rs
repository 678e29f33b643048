//! How much a report shows as arrived.

use crate::congestion::Feedback;
use crate::units::ByteCount;

/// The segments that a report has newly shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NewlyAcked {
    /// Bytes that were in flight until then.
    pub(super) bytes: u64,
    /// Segments that were not known to have arrived before.
    pub(super) segments: u32,
}

impl NewlyAcked {
    /// What a report that shows them, and new CE marks, says to congestion control.
    pub(super) fn feedback(self, marks: u32, in_flight: ByteCount) -> Feedback {
        Feedback {
            acked: ByteCount::new(self.bytes),
            segments: self.segments,
            marks,
            in_flight,
            ..Feedback::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.segments += other.segments;
    }
}
