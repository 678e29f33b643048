//! Messages that end: once they have arrived, cancelled by the caller, or refused by the receiver.

use super::message::SendMessage;
use super::{Sender, SentMessage};
use crate::units::{Instant, MessageKey};
use crate::wire::{Flags, Header, PacketKind};

impl Sender {
    /// Cancels the open message with this key, if there is one: its bytes may be reused at once,
    /// and its receiver is told until it answers.
    pub fn cancel(&mut self, key: MessageKey) {
        let newest = (self.messages.iter().rev()).find(|(_, sending)| sending.key() == key);
        let Some(at) = newest.map(|(at, _)| at) else {
            return;
        };
        let header = self.forget(at, |sending| sending.template(Instant::START));
        self.cancelled.add(header);
    }

    /// Processes REFUSE: the receiver has forgotten the message, and accepts no more of it.
    pub fn handle_refuse(&mut self, now: Instant, header: &Header) {
        self.on_heard(now);
        if self.cancelled.on_answer(header.message) {
            return;
        }
        if let Some(at) = self.position(header.message) {
            let key = self.forget(at, |sending| sending.key());
            self.refused.push(key);
        }
    }

    /// A message that the receiver has refused since the last call.
    pub fn take_refused(&mut self) -> Option<MessageKey> {
        self.refused.pop()
    }

    /// Nothing of the message at `at` is in flight any more.
    fn land_all(&mut self, at: usize) {
        let sending = &mut self.messages[at];
        for path in sending.paths_in_flight() {
            self.spray.on_gone(path, 1);
        }
        self.in_flight -= sending.land_all();
    }

    /// After the STOP of a receiver that has lost patience nothing is in flight.
    pub(super) fn land_late(&mut self, at: usize, report: &Header) {
        if report.kind == PacketKind::Stop && report.flags.has(Flags::LATE) {
            self.land_all(at);
        }
    }

    /// Forgets a message; `rest` receives the parts that are still needed.
    fn forget<R>(&mut self, at: usize, rest: impl FnOnce(&mut SendMessage) -> R) -> R {
        self.land_all(at);
        let sending = &mut self.messages[at];
        self.unscheduled -= sending.release();
        let (rest, serial) = (rest(sending), sending.serial);
        self.messages.remove(at, serial);
        rest
    }

    /// Once per message; inlined it would make the loops of every report slower.
    #[inline(never)]
    pub(super) fn end(&mut self, at: usize, now: Instant) {
        let sent = self.forget(at, |sending| SentMessage {
            key: sending.key(),
            message: sending.id(),
            missing: sending.take_missing(),
            took: now - sending.begun,
            bytes: sending.cut.bytes(),
            first: sending.first_sent.unwrap_or(sending.begun),
            tags: std::mem::take(&mut sending.tags),
        });
        if self.sent.is_empty() {
            // Most peers have one message at a time, and the caller takes it soon.
            self.sent.reserve_exact(1);
        }
        self.sent.push_back(sent);
    }
}
