//! How a message ends at its receiver: STOP until the sender has heard it, RESET, and REFUSE.
//!
//! 1. The receiver keeps a complete message until CLOSE, RESET or a later message shows that the
//!    sender has heard of its holes (`sender/closing.rs`). It repeats STOP after waits that double
//!    up to a second. After [`STOPS_EACH`] of them only the oldest complete message repeats it.
//!    When that one is closed, the next one says it at once.
//! 2. RESET forgets the message, whether it is posted, early or has not arrived yet.
//! 3. REFUSE answers RESET. It also answers a PROBE for a message that is closed: the sender would
//!    not ask if it had heard STOP, so this receiver has refused the message.

use super::message::{ReceiveMessage, ReceiveStage};
use super::{RankResources, Receiver};
use crate::budget::Ledger;
use crate::event::EndpointEvent;
use crate::grants::TurnSegments;
use crate::priority::CONTROL;
use crate::units::{Instant, MessageKey};
use crate::wire::{Flags, Header, PacketKind};

/// STOPs of a message after which only the oldest message repeats its STOP.
const STOPS_EACH: u32 = 12;

impl Receiver {
    /// Processes CLOSE: the sender heard STOP.
    pub fn handle_close(&mut self, header: &Header, lent: &mut RankResources<'_>) {
        let mut stops_said = 0;
        if let Some(at) = self.find(header.message) {
            if self.messages[at].stage == ReceiveStage::Complete {
                stops_said = self.close_heard(at);
            } else {
                self.counters.refused += 1;
            }
        }
        stops_said = stops_said.max(self.close_earlier(header));
        self.prompt_next(stops_said, lent);
    }

    /// A message was closed that had said STOP `stops_said` times. If it had become quiet, its
    /// sender answers again only now, so the next quiet message says STOP at once.
    fn prompt_next(&mut self, stops_said: u32, lent: &RankResources<'_>) {
        if stops_said < STOPS_EACH {
            return;
        }
        let was_quiet = |next: &&mut ReceiveMessage| {
            next.stage == ReceiveStage::Complete && next.stops_said() >= STOPS_EACH
        };
        if let Some(next) = self.messages.iter_mut().find(was_quiet) {
            next.say_stop(lent.now, lent.gap);
            self.look_again();
        }
    }

    /// This packet opens a message, and reports which earlier ones have ended.
    pub(super) fn hear_ended(&mut self, header: &Header, lent: &RankResources<'_>) {
        let stops_said = self.close_earlier(header);
        self.prompt_next(stops_said, lent);
    }

    /// Forgets the complete messages that this packet reports as ended. Returns the most STOPs that
    /// one of them has said.
    fn close_earlier(&mut self, header: &Header) -> u32 {
        let (mut stops_said, mut at) = (0, 0);
        let Some(open) = header.ended.open(self.closed.serial(header.message)) else {
            return stops_said;
        };
        while let Some(message) = self.messages.get(at)
            && message.serial < open
        {
            if message.stage == ReceiveStage::Complete {
                stops_said = stops_said.max(self.close_heard(at));
            } else {
                at += 1;
            }
        }
        stops_said
    }

    /// Forgets a complete message; returns how often it has said STOP.
    fn close_heard(&mut self, at: usize) -> u32 {
        let stops_said = self.messages[at].stops_said();
        self.close(at);
        stops_said
    }

    /// The sender of a complete message seems not to have heard STOP.
    pub(super) fn on_stop_unheard(&mut self, at: usize, lent: &RankResources<'_>) {
        let is_complete = |message: &ReceiveMessage| message.stage == ReceiveStage::Complete;
        let is_oldest = self.messages.iter().position(is_complete) == Some(at);
        let message = &mut self.messages[at];
        if is_oldest || message.stops_said() < STOPS_EACH {
            message.say_stop(lent.now, lent.gap);
        } else {
            message.wait_until_heard(lent.now, lent.gap);
        }
    }

    /// Processes RESET: the sender has cancelled the message.
    pub fn handle_reset(&mut self, header: &Header, lent: &mut RankResources<'_>) {
        let serial = self.closed.serial(header.message);
        let most = lent.settings.limits.closed_ranges;
        if self.closed.ranges() >= most && !self.closed.is_closed(serial) {
            self.counters.refused += 1;
            return;
        }
        self.refuse_to(header);
        match self.find(header.message) {
            Some(at) if self.messages[at].stage == ReceiveStage::Complete => {
                self.close(at);
            }
            Some(at) => {
                let settled = self.drop_message(at, lent.ledger);
                lent.grants.settle(lent.place, settled);
                self.tell_reset(header.key);
            }
            None if self.closed.is_closed(serial) => {}
            None => {
                self.closed.close(serial);
                self.absent.take(header.key);
                if self.posted.take(header.key).is_some() {
                    self.tell_reset(header.key);
                }
            }
        }
    }

    fn tell_reset(&mut self, key: MessageKey) {
        let from = self.peer;
        self.events.push_back(EndpointEvent::Reset { from, key });
    }

    /// Gives up the message with this key, unless it is complete. Returns how many of its segments
    /// were in flight.
    pub(crate) fn refuse(&mut self, key: MessageKey, ledger: &mut Ledger) -> TurnSegments {
        self.posted.take(key);
        let is_it = |message: &ReceiveMessage| {
            message.key() == key && message.stage != ReceiveStage::Complete
        };
        let Some(at) = self.messages.iter().position(is_it) else {
            return TurnSegments::default();
        };
        let header = *self.messages[at].header();
        self.refuse_to(&header);
        self.drop_message(at, ledger)
    }

    /// Forgets a message that is not complete. Returns how many of its segments were in flight.
    fn drop_message(&mut self, at: usize, ledger: &mut Ledger) -> TurnSegments {
        let dropped = &mut self.messages[at];
        if dropped.stage == ReceiveStage::Early {
            self.early_segments -= u64::from(dropped.cut.segments());
        }
        dropped.release(ledger);
        let settled = dropped.settle();
        self.close(at);
        settled
    }

    /// No packet opens the message again.
    fn close(&mut self, at: usize) {
        self.closed.close(self.messages[at].serial);
        // Unlike `remove` this does not move the message, which is large.
        drop(self.messages.drain(at..=at));
    }

    /// Releases the holes that are reserved in the ledger: the peer is lost.
    pub(crate) fn release(&mut self, ledger: &mut Ledger) {
        for message in &mut self.messages {
            message.release(ledger);
        }
    }

    /// Whether a packet is a PROBE for a message that is closed.
    pub(super) fn is_forgotten(&self, header: &Header) -> bool {
        let serial = self.closed.serial(header.message);
        header.kind == PacketKind::Probe && self.closed.is_closed(serial)
    }

    /// Has REFUSE answer a packet.
    pub(super) fn refuse_to(&mut self, header: &Header) {
        self.answers.push_back(Header {
            kind: PacketKind::Refuse,
            flags: Flags::NONE,
            segment: 0,
            ..*header
        });
    }

    /// The next REFUSE or TRIMMED. Neither has a body.
    pub(super) fn poll_answer(&mut self, now: Instant, body: &mut Vec<u8>) -> Option<Header> {
        let answer = self.answers.pop_front()?;
        body.clear();
        Some(Header {
            class: CONTROL,
            length: 0,
            sent_at: match answer.kind {
                PacketKind::Trimmed => answer.sent_at,
                _ => now.wire_micros().max(1),
            },
            ..answer
        })
    }
}
