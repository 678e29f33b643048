//! The messages of one peer that are closed: a late packet of such a message does not open it
//! again.
//!
//! 1. Ids of 32 bits are extended to the number nearest to the highest one seen so far. The first
//!    one seen counts as it is.
//! 2. Closed numbers are kept as ranges. They merge as soon as the message between them is closed,
//!    so memory is bounded by the messages that are open or have not arrived yet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{MessageId, MessageSerial};

/// The numbers of closed messages.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct ClosedMessages {
    /// The highest number seen.
    newest: Option<MessageSerial>,
    /// First number of each range, and the number after its last.
    ranges: BTreeMap<u64, u64>,
}

impl ClosedMessages {
    /// The highest number seen; before the first, the number that it would have with this id.
    pub(super) fn newest(&self, id: MessageId) -> MessageSerial {
        self.newest.unwrap_or_else(|| MessageSerial::first(id))
    }

    /// The number of a message that is not open.
    pub(super) fn serial(&self, id: MessageId) -> MessageSerial {
        self.newest(id).nearest(id)
    }

    /// A message has this number.
    pub(super) fn on_open(&mut self, serial: MessageSerial) {
        self.newest = self.newest.max(Some(serial));
    }

    pub(super) fn is_closed(&self, serial: MessageSerial) -> bool {
        if Some(serial) > self.newest {
            return false; // as for nearly all
        }
        let range = self.ranges.range(..=serial.0).next_back();
        range.is_some_and(|(_, &end)| serial.0 < end)
    }

    /// A message is closed. Each one is closed once.
    pub(super) fn close(&mut self, MessageSerial(serial): MessageSerial) {
        self.on_open(MessageSerial(serial));
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() == serial
        {
            *last.get_mut() = serial + 1;
            return;
        }
        let end = self.ranges.remove(&(serial + 1)).unwrap_or(serial + 1);
        match self.ranges.range_mut(..=serial).next_back() {
            Some((_, before)) if *before == serial => *before = end,
            _ => {
                self.ranges.insert(serial, end);
            }
        }
    }

    /// How many ranges are kept.
    pub(super) fn ranges(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_remember_each_closed_number(
            first in prop::sample::select(vec![0, 1, (1 << 31) - 30, u32::MAX - 30, u32::MAX]),
            order in Just((0..60_u32).collect::<Vec<u32>>()).prop_shuffle(),
            closed in 0..60_usize,
        ) {
            let mut messages = ClosedMessages::default();
            let id = |n: u32| MessageId(first.wrapping_add(n));
            let mut known = BTreeSet::new();
            for &n in order.iter().take(closed) {
                messages.close(messages.serial(id(n)));
                known.insert(n);
            }
            for n in 0..60 {
                let is_closed = messages.is_closed(messages.serial(id(n)));
                prop_assert_eq!(is_closed, known.contains(&n), "{}", n);
            }
            let gaps = known.iter().filter(|&&n| !known.contains(&(n + 1))).count();
            prop_assert_eq!(messages.ranges(), gaps);
        }
    }

    #[test]
    fn numbers_go_on_where_ids_wrap() {
        let mut messages = ClosedMessages::default();
        for n in 0..u64::from(u32::MAX) * 3 / 1_000_000 {
            let id = MessageId((n * 1_000_000) as u32);
            let serial = messages.serial(id);
            assert_eq!(serial.0, (1 << 32) + n * 1_000_000);
            messages.close(serial);
        }
    }
}
