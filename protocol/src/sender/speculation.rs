//! The segments of one message that leave without a grant (`sender/speculating.rs`).

use std::ops::Range;

use crate::bitmap::Bitmap;

/// The segments of a message that were sent without a grant.
#[derive(Debug)]
pub(super) struct Speculation {
    /// Segments, in sending order, that may be sent so.
    pub(super) until: u32,
    /// Those that were sent so, and have not been found lost.
    sent: Bitmap,
    /// How many were lost.
    pub(super) lost: u32,
}

impl Speculation {
    /// Of a message of `segments`, of which `until` may be sent so.
    pub(super) fn new(until: u32, segments: u32) -> Self {
        let most = if until == 0 { 0 } else { segments };
        Self {
            until: until.min(segments),
            sent: Bitmap::new(most),
            lost: 0,
        }
    }

    /// Segments are sent without a grant.
    pub(super) fn on_sent(&mut self, segments: Range<u32>) {
        self.sent.insert_range(segments);
    }

    /// A segment is sent again, as any other.
    pub(super) fn on_repair(&mut self, segment: u32) {
        self.sent.remove(segment);
    }

    /// A segment is lost; returns whether it was sent without a grant.
    pub(super) fn on_lost(&mut self, segment: u32) -> bool {
        let was_sent = self.sent.remove(segment);
        self.lost += u32::from(was_sent);
        was_sent
    }

    /// Whether a segment was sent without a grant.
    pub(super) fn has(&self, segment: u32) -> bool {
        self.sent.has(segment)
    }

    /// Whether some of them are not among those that have arrived.
    pub(super) fn is_in_doubt(&self, acked: &Bitmap) -> bool {
        self.sent.iter_ones().any(|segment| !acked.has(segment))
    }
}
