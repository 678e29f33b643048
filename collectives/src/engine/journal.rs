//! When messages came and went, for a recorder. A journal that is not asked for costs nothing.

use gradwire_protocol::units::{Instant, MessageKey, Rank};

/// The end of a message that a rank has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MessageSide {
    /// It sent the message.
    Sent,
    /// It received the message.
    Received,
}

/// A message as one of its ends saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageRecord {
    /// The end that saw it.
    pub side: MessageSide,
    /// The other end.
    pub peer: Rank,
    /// Its key, equal at both ends.
    pub key: MessageKey,
    /// Its length.
    pub bytes: u32,
    /// When the first packet left or arrived here.
    pub first: Instant,
    /// When all was acknowledged, or had arrived.
    pub last: Instant,
}

/// The messages since the last look.
#[derive(Debug, Default)]
pub(crate) struct MessageJournal(Option<Vec<MessageRecord>>);

impl MessageJournal {
    /// Keeps messages from now on.
    pub(crate) fn open(&mut self) {
        self.0.get_or_insert_default();
    }

    pub(crate) fn note(&mut self, record: impl FnOnce() -> Option<MessageRecord>) {
        if let Some(records) = &mut self.0 {
            records.extend(record());
        }
    }

    pub(crate) fn take(&mut self) -> Vec<MessageRecord> {
        self.0.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
