//! The segments of one message that leave without a grant (`sender/speculating.rs`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;

/// The segments of a message that were sent without a grant.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Speculation {
    /// Segments, in sending order, that may be sent so.
    pub(super) until: u32,
    /// Those that were sent so, of which nothing is known.
    in_doubt: Bitmap,
    /// How many were lost.
    pub(super) lost: u32,
}

impl Speculation {
    /// Of a message of `segments`, of which `until` may be sent so.
    pub(super) fn new(until: u32, segments: u32) -> Self {
        let most = if until == 0 { 0 } else { segments };
        Self {
            until: until.min(segments),
            in_doubt: Bitmap::new(most),
            lost: 0,
        }
    }

    /// Segments are sent without a grant.
    pub(super) fn on_sent(&mut self, segments: Range<u32>) {
        self.in_doubt.insert_range(segments);
    }

    /// A segment is sent again, as any other.
    pub(super) fn on_repair(&mut self, segment: u32) {
        self.in_doubt.remove(segment);
    }

    /// A segment is lost; returns whether it was sent without a grant.
    pub(super) fn on_lost(&mut self, segment: u32) -> bool {
        let was_sent = self.in_doubt.remove(segment);
        self.lost += u32::from(was_sent);
        was_sent
    }

    /// Whether a segment was sent without a grant, and nothing is known of it.
    pub(super) fn has(&self, segment: u32) -> bool {
        self.in_doubt.has(segment)
    }

    /// Segments have arrived.
    pub(super) fn on_acked(&mut self, segments: Range<u32>) {
        if self.in_doubt.ones() > 0 {
            self.in_doubt.remove_range(segments);
        }
    }

    /// How many were sent of which nothing is known.
    pub(super) fn in_doubt(&self) -> u32 {
        self.in_doubt.ones()
    }
}
