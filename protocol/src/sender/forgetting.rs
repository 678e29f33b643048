//! Messages that end before they have arrived: cancelled by the caller, or refused by the receiver.

use super::Sender;
use crate::units::{Instant, MessageKey};
use crate::wire::Header;

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
}
