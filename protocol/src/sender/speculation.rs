//! Segments that leave before their receiver grants any, as packets that long queues drop first
//! (Aeolus, Hu et al., SIGCOMM 2020).
//!
//! 1. A message announces itself, and then `transport.speculative` of its bytes leave as Not-ECT
//!    packets. Where the path is free they arrive a round trip earlier than granted ones. Where many
//!    ranks send to one, switches drop most of them, and granted packets find short queues. A rank
//!    that sends to others already does not speculate: its packets would wait for its own link.
//! 2. Behind the last of them a PROBE marks each path, so that their losses are known as soon as
//!    its queue is empty (`sender/tail.rs`).
//! 3. One that is lost was sent without a grant, so its repair waits for one. That is no loss of
//!    the path, and takes nothing of the message's tolerance.
//! 4. Receivers need not know: a grant counts segments, and those that have arrived unasked have
//!    used up as many of them.

use std::ops::Range;

use super::Sender;
use super::flight::SegmentFlight;
use super::message::{SendMessage, SendProgress, UnscheduledStart};
use crate::bitmap::Bitmap;
use crate::message::SendRequest;
use crate::settings::EndpointSettings;
use crate::units::Instant;

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
        if self.lost < self.sent.len() {
            self.sent.remove(segment);
        }
    }

    /// A segment is lost; returns whether it was sent without a grant.
    fn on_lost(&mut self, segment: u32) -> bool {
        let was_sent = self.sent.remove(segment);
        self.lost += u32::from(was_sent);
        was_sent
    }

    fn has(&self, segment: u32) -> bool {
        self.sent.has(segment)
    }
}

impl SendMessage {
    /// Whether a segment was sent without a grant.
    pub(super) fn has_speculated_with(&self, segment: u32) -> bool {
        self.progress.speculation.has(segment)
    }

    /// Whether all that may be sent without a grant was sent, and more than is granted.
    fn is_ahead(&self) -> bool {
        let until = self.progress.speculation.until;
        self.sent() == until && until > self.granted()
    }

    /// Whether no more may be sent for now, and segments that were sent without a grant may be
    /// lost.
    pub(super) fn is_in_doubt(&self) -> bool {
        let SendProgress {
            speculation, acked, ..
        } = &self.progress;
        speculation.until > 0
            && (self.all_sent() || self.is_ahead())
            && speculation.sent.iter_ones().any(|segment| !acked.has(segment))
    }
}

impl Sender {
    /// Takes a message of a rank that sends no other: it may begin without a grant.
    pub(crate) fn send_alone(
        &mut self,
        now: Instant,
        request: SendRequest,
        settings: &EndpointSettings,
    ) {
        let speculative = settings.speculative_segments();
        let is_small = request.bytes <= settings.segment_bytes;
        // The segments of several classes are not sent in their order.
        if speculative == 0 || is_small || request.tags.lanes().len() > 1 {
            return self.send(now, request, settings);
        }
        let start = UnscheduledStart {
            speculative,
            ..UnscheduledStart::default()
        };
        self.open(now, request, settings, start);
    }

    /// A current flight of the message at `at` is lost; if it was sent without a grant, its segment
    /// waits for one.
    pub(super) fn lose_speculative(&mut self, at: usize, flight: &SegmentFlight) -> bool {
        let sending = &mut self.messages[at];
        if !sending.progress.speculation.on_lost(flight.segment) {
            return false;
        }
        self.in_flight -= sending.land(flight.segment);
        sending.wait_for_grant_of(flight.segment);
        self.spray.on_dropped(flight.entropy);
        true
    }
}
