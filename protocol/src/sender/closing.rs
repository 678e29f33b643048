//! Which ended messages the receiver has yet to hear of: until then it keeps them, and says STOP
//! again after a while.
//!
//! 1. The packets of a message say which earlier ones had ended when it began ([`EndedEarlier`]).
//!    So a message that others follow soon needs no CLOSE: a small one takes two packets, not
//!    three.
//! 2. A message that no other has named for half a gap gets a CLOSE, which names earlier ones, too.
//!    The receiver would say STOP again after two gaps (`receiver/ending.rs`).
//! 3. Nor do more than [`UNNAMED_MAX`] messages wait, since their receiver searches them.
//! 4. A STOP that comes again is answered by CLOSE at once.

use crate::outlook::earlier;
use crate::priority::CONTROL;
use crate::rtt::Rtt;
use crate::units::{Instant, MessageSerial, Span};
use crate::wire::{EndedEarlier, Flags, Header, PacketKind};

/// Ended messages that wait to be named.
const UNNAMED_MAX: usize = 8;

/// Messages that have ended, and that no packet has named yet.
#[derive(Debug, Default)]
pub(super) struct DueCloses {
    /// In the order in which they ended: the number and the CLOSE of each.
    closes: Vec<(MessageSerial, Header)>,
    /// When the first CLOSE leaves.
    at: Option<Instant>,
}

impl DueCloses {
    /// The message with this number has ended by this STOP.
    pub(super) fn on_ended(
        &mut self,
        now: Instant,
        serial: MessageSerial,
        stop: &Header,
        gap: Span,
    ) {
        self.add(now + Rtt::reaction(gap), serial, close_of(stop, now));
    }

    /// A message that ended long ago needs a CLOSE at once: this is its STOP, which has come again,
    /// or a CLOSE that the host did not send.
    pub(super) fn again(&mut self, now: Instant, serial: MessageSerial, packet: &Header) {
        self.add(Instant::START, serial, close_of(packet, now));
    }

    /// A CLOSE leaves at this time.
    fn add(&mut self, at: Instant, serial: MessageSerial, close: Header) {
        if self.closes.is_empty() {
            // Most pairs have one message at a time.
            self.closes.reserve_exact(1);
        }
        self.closes.push((serial, close));
        let at = match self.closes.len() > UNNAMED_MAX {
            true => Instant::START,
            false => at,
        };
        self.at = earlier(self.at, Some(at));
    }

    /// When a CLOSE leaves.
    pub(super) fn due(&self) -> Option<Instant> {
        self.at
    }

    /// A packet has named all messages before this one.
    pub(super) fn drop_before(&mut self, serial: MessageSerial) {
        self.closes.retain(|&(ended, _)| ended >= serial);
        if self.closes.is_empty() {
            self.at = None;
        }
    }

    /// The next CLOSE, if it is time. All messages before `open` have ended.
    pub(super) fn poll(&mut self, now: Instant, open: MessageSerial) -> Option<Header> {
        if self.at.is_none_or(|at| at > now) {
            return None;
        }
        let before = self.closes.iter().filter(|&&(ended, _)| ended < open);
        let Some(&(last, close)) = before.max_by_key(|&&(ended, _)| ended) else {
            let (_, close) = self.closes.pop()?;
            self.drop_before(MessageSerial(0));
            return Some(close);
        };
        self.drop_before(open);
        let ended = EndedEarlier::before(last, last);
        Some(Header { ended, ..close })
    }
}

/// The CLOSE of the message of this packet.
fn close_of(packet: &Header, now: Instant) -> Header {
    Header {
        kind: PacketKind::Close,
        flags: Flags::NONE,
        class: CONTROL,
        ended: EndedEarlier::NOT_SAID,
        length: 0,
        sent_at: now.wire_micros(),
        ..*packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::Sender;
    use crate::sender::tests::{request, settings};
    use crate::units::{MessageId, Rank};

    /// The CLOSE of a message, before it says anything of earlier ones.
    fn close(serial: u64) -> (MessageSerial, Header) {
        let (settings, serial) = (settings(), MessageSerial(serial));
        let mut sender = Sender::new(Rank(1), &settings, 1);
        sender.send(Instant::START, request(&settings, 1), &settings);
        let header = sender.messages[0].template(Instant::START);
        let message = MessageId(serial.0 as u32);
        (serial, Header { message, ..header })
    }

    fn due_closes(serials: &[u64], at: Instant) -> DueCloses {
        let mut due = DueCloses::default();
        for &serial in serials {
            let (serial, close) = close(serial);
            due.add(at, serial, close);
        }
        due
    }

    #[test]
    fn one_close_names_all_messages_before_the_first_open_one() {
        let at = Instant::START + Span::from_micros(500);
        let mut due = due_closes(&[3, 6, 1, 5], at);
        assert_eq!(
            due.poll(Instant::START, MessageSerial(4)),
            None,
            "too early"
        );
        let mut said = Vec::new();
        while let Some(close) = due.poll(at, MessageSerial(4)) {
            let serial = MessageSerial(u64::from(close.message.0));
            said.push((serial.0, close.ended.open(serial).map(|open| open.0)));
        }
        assert_eq!(said, [(3, Some(3)), (5, None), (6, None)]);
        assert_eq!(due.due(), None);
    }

    #[test]
    fn nine_messages_do_not_wait() {
        let at = Instant::START + Span::from_micros(500);
        assert_eq!(due_closes(&[1, 2, 3, 4, 5, 6, 7, 8], at).due(), Some(at));
        let due = due_closes(&[1, 2, 3, 4, 5, 6, 7, 8, 9], at).due();
        assert_eq!(due, Some(Instant::START));
    }
}
