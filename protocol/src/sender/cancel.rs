//! Messages that the sender has cancelled: RESET until the receiver answers.
//!
//! 1. A cancelled message is no longer sent, repaired or probed. RESET tells its receiver at once,
//!    and again after waits that double up to [`RESET_WAIT_MAX`].
//! 2. REFUSE answers RESET. STOP answers, too, if the message was complete before RESET arrived.
//! 3. After [`RESETS_EACH`] unanswered ones only the oldest message repeats RESET. When it is
//!    answered, the next one repeats it at once, so many cancelled messages cost no more packets
//!    than one.

use serde::{Deserialize, Serialize};

use crate::priority::CONTROL;
use crate::units::{Instant, MessageId, Span};
use crate::wire::{Flags, Header, PacketKind};

/// The longest wait between two RESETs.
const RESET_WAIT_MAX: Span = Span::from_millis(1_000);
/// RESETs of a message after which only the oldest message repeats its RESET.
const RESETS_EACH: u32 = 8;

/// A message whose RESET was not answered.
#[derive(Debug, Deserialize, Serialize)]
struct CancelledMessage {
    header: Header,
    /// When RESET is due.
    at: Instant,
    said: u32,
}

/// The cancelled messages to one peer, the oldest first.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct CancelledMessages {
    messages: Vec<CancelledMessage>,
}

impl CancelledMessages {
    /// A message with this header is cancelled.
    pub(super) fn add(&mut self, header: Header) {
        self.messages.push(CancelledMessage {
            header,
            at: Instant::START,
            said: 0,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn has(&self, id: MessageId) -> bool {
        let mut messages = self.messages.iter();
        messages.any(|cancelled| cancelled.header.message == id)
    }

    /// The message that says RESET next (rule 3).
    fn next(&self) -> Option<usize> {
        let numbered = self.messages.iter().enumerate();
        let speaking = numbered.filter(|(at, message)| *at == 0 || message.said < RESETS_EACH);
        let first = speaking.min_by_key(|(_, message)| message.at);
        first.map(|(at, _)| at)
    }

    /// When the next RESET is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next().map(|at| self.messages[at].at)
    }

    /// The next RESET that is due; without an answer it is repeated after a multiple of `wait`.
    pub(super) fn poll(&mut self, now: Instant, wait: Span) -> Option<Header> {
        let next = self.next()?;
        let cancelled = &mut self.messages[next];
        if cancelled.at > now {
            return None;
        }
        let doubled = wait * (1 << cancelled.said.min(20));
        cancelled.at = now + doubled.min(RESET_WAIT_MAX);
        cancelled.said += 1;
        Some(Header {
            kind: PacketKind::Reset,
            flags: Flags::NONE,
            class: CONTROL,
            segment: 0,
            length: 0,
            sent_at: now.wire_micros().max(1),
            ..cancelled.header
        })
    }

    /// The receiver has answered; returns whether a message with this id was cancelled.
    pub(super) fn on_answer(&mut self, id: MessageId) -> bool {
        let of_id = |cancelled: &CancelledMessage| cancelled.header.message == id;
        let Some(at) = self.messages.iter().position(of_id) else {
            return false;
        };
        self.messages.remove(at);
        if at == 0
            && let Some(next) = self.messages.first_mut()
            && next.said >= RESETS_EACH
        {
            next.at = Instant::START;
        }
        true
    }
}
