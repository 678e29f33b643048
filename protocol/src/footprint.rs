//! How much an endpoint keeps. Senders and receivers add their parts.

/// How much an endpoint keeps, over all peers. It is bounded by the open messages, however many
/// there were before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EndpointFootprint {
    /// Messages to peers that have not ended.
    pub outgoing: usize,
    /// Cancelled messages whose receivers have not answered.
    pub cancelled: usize,
    /// Packets that senders remember until they are known to have arrived or to be lost.
    pub flights: usize,
    /// Messages from peers that are not closed.
    pub incoming: usize,
    /// Messages that were posted and of which no packet has arrived.
    pub posted: usize,
    /// Ranges of numbers of closed messages.
    pub closed_ranges: usize,
    /// Times at which a peer is looked at again.
    pub timers: usize,
    /// Events that the caller has not taken.
    pub events: usize,
}
