//! The receiver of IRN, a machine without time: a packet in, one reply out.
//!
//! - The next packet moves the cumulative number past itself and past all that follow it already.
//! - A packet beyond it is kept, and answered by a NACK that names it: a selective acknowledgement.
//! - A packet from before is answered by an ACK.

use super::bitmap::PacketBitmap;
use crate::transports::reference::incoming::Arrival;

/// A reply to a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IrnReply {
    /// Every packet before this one has arrived.
    pub before: u32,
    /// Of a NACK: the packet that arrived out of order.
    pub beyond: Option<u32>,
}

/// A flow at its receiver.
#[derive(Debug)]
pub struct IrnReceiver {
    packets: u32,
    expected: u32,
    beyond: PacketBitmap,
}

impl IrnReceiver {
    /// A flow of this many packets, before the first.
    pub fn new(packets: u32) -> Self {
        Self {
            packets,
            expected: 0,
            beyond: PacketBitmap::default(),
        }
    }

    /// Takes a packet; returns the reply to it.
    pub fn reply(&mut self, packet: u32) -> IrnReply {
        self.take(packet).0
    }

    /// Takes a packet; returns also what it changes.
    pub(crate) fn take(&mut self, packet: u32) -> (IrnReply, Arrival) {
        let is_new = packet >= self.expected && !self.beyond.has(packet);
        if packet >= self.expected {
            self.beyond.add(packet);
        }
        if packet == self.expected {
            self.expected = self.beyond.missing_from(packet);
            self.beyond.forget_before(self.expected);
        }
        let arrival = match is_new {
            true if self.expected == self.packets => Arrival::Last,
            true => Arrival::New,
            false => Arrival::Again,
        };
        let reply = IrnReply {
            before: self.expected,
            beyond: (packet > self.expected).then_some(packet),
        };
        (reply, arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_tell_holes_and_the_last_packet() {
        let mut receiver = IrnReceiver::new(4);
        let mut take = |packet| {
            let (reply, arrival) = receiver.take(packet);
            (reply.before, reply.beyond, arrival)
        };
        assert_eq!(take(0), (1, None, Arrival::New));
        assert_eq!(take(2), (1, Some(2), Arrival::New));
        assert_eq!(take(2), (1, Some(2), Arrival::Again));
        assert_eq!(take(3), (1, Some(3), Arrival::New));
        assert_eq!(take(1), (4, None, Arrival::Last));
        assert_eq!(take(1), (4, None, Arrival::Again));
    }
}
