//! Packets on their way, in the order of arrival. Of packets that arrive together, the one that was
//! sent first comes first.

use std::collections::BTreeMap;

use gradwire_protocol::units::Instant;

/// Packets on their way.
#[derive(Debug)]
pub(crate) struct ArrivalQueue<T> {
    /// By time of arrival and order of sending.
    packets: BTreeMap<(Instant, u64), T>,
    sent: u64,
}

impl<T> ArrivalQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            packets: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Sends a packet that arrives at `at`.
    pub(crate) fn push(&mut self, at: Instant, packet: T) {
        self.sent += 1;
        self.packets.insert((at, self.sent), packet);
    }

    /// When the next packet arrives.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.packets.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the packet that arrives next.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.packets.pop_first().map(|(_, packet)| packet)
    }
}
