//! Which earlier messages have ended: a field in packets that a sender sends anyway.

use serde::{Deserialize, Serialize};

use crate::units::MessageSerial;

/// The largest number that the header has room for.
const SAID_MAX: u8 = 15;

/// Which messages have ended at their sender before the message of a packet. It has heard their
/// STOP, or cancelled them, so their receiver may forget those that are complete.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct EndedEarlier(u8);

impl EndedEarlier {
    /// Nothing is said.
    pub const NOT_SAID: Self = Self(0);

    /// For a packet of this message: all before `open` have ended. The header has room for the last
    /// 14 messages before the packet's own. If an earlier one is open, nothing is said.
    pub fn before(open: MessageSerial, message: MessageSerial) -> Self {
        let apart = message.0.checked_sub(open.0).map(|apart| apart + 1);
        let said = apart.and_then(|apart| u8::try_from(apart).ok());
        Self(said.filter(|&said| said <= SAID_MAX).unwrap_or(0))
    }

    /// The first message that it does not say to have ended; `None` if it says nothing.
    pub(crate) fn open(self, message: MessageSerial) -> Option<MessageSerial> {
        let apart = self.0.checked_sub(1)?;
        Some(MessageSerial(message.0.saturating_sub(apart.into())))
    }

    /// 4 bits.
    pub(super) fn to_bits(self) -> u8 {
        self.0
    }

    /// From 4 bits.
    pub(super) fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_first_open_message_among_the_last_fourteen() {
        let of = |open, message| {
            let said = EndedEarlier::before(MessageSerial(open), MessageSerial(message));
            let bits = EndedEarlier::from_bits(said.to_bits());
            bits.open(MessageSerial(message)).map(|open| open.0)
        };
        for open in 86..=100 {
            assert_eq!(of(open, 100), Some(open));
        }
        assert_eq!(of(85, 100), None, "there is no room");
        assert_eq!(of(101, 100), None, "its own message is open");
    }
}
