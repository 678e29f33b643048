//! How much parity a message has, how far it has been sent, and the loss by which it is chosen.
//! `sender/parity_turn.rs` has the rules.

use serde::{Deserialize, Serialize};

use crate::units::Stamp;

/// After this many packets, older ones count half.
const LOSS_MEMORY: f64 = 16_384.0;
/// Before this many packets, their loss is not known.
const LOSS_KNOWN: f64 = 4_096.0;
/// The share that lossy paths are taken to lose until then.
const LOSS_UNKNOWN: f64 = 0.001;

/// The share of packets to one peer that are lost, over the latest tens of thousands. Older ones
/// count in part, so that a share below one packet of the memory does not become none.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct LossShare {
    sent: f64,
    lost: f64,
    dropped: f64,
}

impl LossShare {
    pub(super) fn on_sent(&mut self, packets: u64) {
        self.sent += packets as f64;
        if self.sent > LOSS_MEMORY {
            self.sent /= 2.0;
            self.lost /= 2.0;
            self.dropped /= 2.0;
        }
    }

    /// Links have lost packets.
    pub(super) fn on_lost(&mut self, packets: u32) {
        self.lost += f64::from(packets);
    }

    /// A full queue has dropped packets.
    pub(super) fn on_dropped(&mut self, packets: u32) {
        self.dropped += f64::from(packets);
    }

    /// The share of all that is lost.
    pub(super) fn of_all(&self) -> f64 {
        self.share() + self.dropped / self.sent.max(1.0)
    }

    /// The share that links lose; [`LOSS_UNKNOWN`] at first. What full queues drop does not count:
    /// parity would fill these queues.
    pub(super) fn share(&self) -> f64 {
        match self.sent < LOSS_KNOWN && self.lost == 0.0 {
            true => LOSS_UNKNOWN,
            false => self.lost / self.sent.max(1.0),
        }
    }
}

/// The parity of one message.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct MessageParity {
    /// Whether it is decided how much there is.
    pub(super) is_decided: bool,
    /// The next group.
    pub(super) next: u32,
    pub(super) in_flight: u64,
    /// When its last packet was sent.
    pub(super) sent_at: Option<Stamp>,
    /// Segments of the message found lost.
    found_lost: u32,
    /// Segments that the receiver has restored, as far as it has said.
    restored: u32,
    /// Those of them that were not found lost before.
    hidden: u32,
}

impl MessageParity {
    /// Whether any was sent, so that a segment which was lost may count as arrived.
    pub(super) fn was_sent(&self) -> bool {
        self.sent_at.is_some()
    }

    pub(super) fn on_lost(&mut self) {
        self.found_lost += 1;
    }

    /// A report echoes a packet of this stamp; returns the bytes that are no longer in flight.
    pub(super) fn land(&mut self, echo: Stamp) -> u64 {
        match self.sent_at {
            Some(sent_at) if sent_at <= echo => self.land_all(),
            _ => 0,
        }
    }

    /// Nothing is in flight any more; returns the bytes that were.
    pub(super) fn land_all(&mut self) -> u64 {
        std::mem::take(&mut self.in_flight)
    }

    /// The receiver has restored this many segments, modulo 256; returns how many of them the
    /// sender has not found lost, and was not told of.
    pub(super) fn hidden_losses(&mut self, restored: u8) -> u32 {
        let news = restored.wrapping_sub(self.restored as u8);
        // An older report may come later.
        if news < 128 {
            self.restored += u32::from(news);
        }
        let hidden = self.restored.saturating_sub(self.found_lost);
        let news = hidden.saturating_sub(self.hidden);
        self.hidden += news;
        news
    }
}
