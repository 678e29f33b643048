//! Segments that came before their message was posted: kept until it is.
//!
//! The endpoint bounds how much that can be: it grants each unposted message a few hundred KiB.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Payload;
use gradwire_protocol::receiver::Placement;
use gradwire_protocol::units::{MessageKey, Rank};

/// The early segments of one message.
#[derive(Debug, Default)]
pub(crate) struct EarlySegments {
    placements: Vec<Placement>,
    /// Their payloads, one behind the other; empty if payloads are only lengths.
    bytes: Vec<u8>,
}

impl EarlySegments {
    /// The segments in the order of arrival.
    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Placement, Payload<'_>)> {
        let mut at = 0;
        self.placements.iter().map(move |placement| {
            let length = placement.length as usize;
            let payload = match self.bytes.get(at..at + length) {
                Some(bytes) => Payload::Bytes(bytes),
                None => Payload::Length(length),
            };
            at += length;
            (placement, payload)
        })
    }
}

/// All early segments.
#[derive(Debug, Default)]
pub(crate) struct EarlyStash {
    messages: BTreeMap<(Rank, MessageKey), EarlySegments>,
}

impl EarlyStash {
    /// Keeps segments.
    pub(crate) fn keep<'p>(
        &mut self,
        placement: Placement,
        parts: impl Iterator<Item = Payload<'p>>,
    ) {
        let early = self
            .messages
            .entry((placement.from, placement.key))
            .or_default();
        early.placements.push(placement);
        for payload in parts {
            let bytes = payload.bytes().unwrap_or_default();
            early.bytes.extend_from_slice(bytes);
        }
    }

    /// The early segments of a message that is posted now.
    pub(crate) fn take(&mut self, from: Rank, key: MessageKey) -> Option<EarlySegments> {
        if self.messages.is_empty() {
            return None;
        }
        self.messages.remove(&(from, key))
    }

    /// How many messages have segments here.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Forgets the segments of a lost rank.
    pub(crate) fn forget(&mut self, from: Rank) {
        self.messages.retain(|&(rank, _), _| rank != from);
    }
}
