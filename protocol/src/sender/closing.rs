//! Tells the receiver which messages have ended, so that it can forget them: until then it keeps
//! them, and says STOP again after a while.
//!
//! 1. The packets of a message say which earlier ones had ended when it began ([`EndedEarlier`]).
//!    So a message that others follow soon needs no CLOSE: a small one takes two packets, not
//!    three.
//! 2. A message that no other has named for half a gap gets a CLOSE, which names earlier ones, too.
//!    The receiver would say STOP again after two gaps (`receiver/ending.rs`).
//! 3. At most [`UNNAMED_MAX`] ended messages wait. With one more, CLOSE leaves at once, since the
//!    receiver searches all messages that it keeps.
//! 4. A STOP that comes again is answered by CLOSE at once. A CLOSE that this host did not send
//!    leaves again at once.

use serde::{Deserialize, Serialize};

use crate::priority::CONTROL;
use crate::rtt::Rtt;
use crate::units::{Instant, MessageSerial, Span};
use crate::wire::{EndedEarlier, Flags, Header, PacketKind};

/// The maximum number of ended messages that wait until another packet names them.
const UNNAMED_MAX: usize = 8;

/// Messages that have ended, and that no packet has named yet, in the order in which they ended.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct DueCloses(Vec<DueClose>);

/// A CLOSE, unless another packet names its message before.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct DueClose {
    at: Instant,
    serial: MessageSerial,
    header: Header,
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

    /// A message that has ended needs a CLOSE at once: `packet` is its STOP, which has come again,
    /// or a CLOSE that this host did not send.
    pub(super) fn again(&mut self, now: Instant, serial: MessageSerial, packet: &Header) {
        self.0.retain(|close| close.serial != serial);
        self.add(now, serial, close_of(packet, now));
    }

    fn add(&mut self, at: Instant, serial: MessageSerial, header: Header) {
        if self.0.is_empty() {
            // Most pairs have one message at a time.
            self.0.reserve_exact(1);
        }
        self.0.push(DueClose { at, serial, header });
    }

    /// When the next CLOSE leaves.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.0.len() > UNNAMED_MAX {
            true => Some(Instant::START),
            false => self.0.iter().map(|close| close.at).min(),
        }
    }

    /// A packet has named all messages before this one.
    pub(super) fn drop_before(&mut self, serial: MessageSerial) {
        self.0.retain(|close| close.serial >= serial);
    }

    /// The next CLOSE, if it is time. All messages before `open` have ended.
    pub(super) fn poll(&mut self, now: Instant, open: MessageSerial) -> Option<Header> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        let earlier = self.0.iter().filter(|close| close.serial < open);
        if let Some(&last) = earlier.max_by_key(|close| close.serial) {
            self.drop_before(open);
            let ended = EndedEarlier::before(last.serial, last.serial);
            return Some(Header {
                ended,
                ..last.header
            });
        }
        let first = (0..self.0.len()).min_by_key(|&at| self.0[at].at)?;
        Some(self.0.remove(first).header)
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

    /// These messages have ended; their CLOSE is due from `at` on, each a microsecond later.
    fn due_closes(serials: &[u64], at: Instant) -> DueCloses {
        let mut due = DueCloses::default();
        for (micros, &serial) in (0..).zip(serials) {
            let (serial, close) = close(serial);
            due.add(at + Span::from_micros(micros), serial, close);
        }
        due
    }

    #[test]
    fn one_close_names_all_messages_before_the_first_open_one() {
        let at = |micros| Instant::START + Span::from_micros(micros);
        let mut due = due_closes(&[3, 6, 1, 5], at(500));
        let mut said = |now| {
            let close = due.poll(now, MessageSerial(4))?;
            let serial = MessageSerial(u64::from(close.message.0));
            Some((serial.0, close.ended.open(serial).map(|open| open.0)))
        };
        assert_eq!(said(at(499)), None, "too early");
        assert_eq!(said(at(500)), Some((3, Some(3))), "1 and 3");
        assert_eq!(said(at(500)), None, "6 waits on");
        assert_eq!(said(at(501)), Some((6, None)));
        assert_eq!(said(at(600)), Some((5, None)));
        assert_eq!(due.due(), None);
    }

    #[test]
    fn nine_messages_do_not_wait() {
        let at = Instant::START + Span::from_micros(500);
        assert_eq!(due_closes(&[1, 2, 3, 4, 5, 6, 7, 8], at).due(), Some(at));
        let mut due = due_closes(&[1, 2, 3, 4, 5, 6, 7, 8, 9], at);
        let first = due.poll(Instant::START, MessageSerial(1));
        assert_eq!(first.map(|close| close.message.0), Some(1));
        assert_eq!(due.poll(Instant::START, MessageSerial(1)), None);
        assert_eq!(due.due(), Some(at + Span::from_micros(1)));
    }

    #[test]
    fn a_stop_that_comes_again_is_answered_once() {
        let at = Instant::START + Span::from_micros(500);
        let mut due = due_closes(&[2], at);
        let (serial, stop) = close(2);
        due.again(Instant::START, serial, &stop);
        assert!(due.poll(Instant::START, MessageSerial(1)).is_some());
        assert_eq!(due.due(), None);
    }
}
