//! The receiver of IRN, a machine without time: a packet in, one reply out.
//!
//! - The next packet moves the cumulative number past itself and past all that follow it already.
//! - A packet beyond it is kept, and answered by a NACK that names it: a selective acknowledgement.
//! - A packet from before is answered by an ACK.

use super::bitmap::PacketBitmap;
use crate::transports::reference::incoming::Arrival;

/// A reply to a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct IrnReply {
    /// Every packet before this one has arrived.
    pub(crate) before: u32,
    /// Of a NACK: the packet that arrived out of order.
    pub(crate) beyond: Option<u32>,
}

/// A flow at its receiver.
#[derive(Debug)]
pub(crate) struct IrnReceiver {
    packets: u32,
    expected: u32,
    beyond: PacketBitmap,
}

impl IrnReceiver {
    /// A flow of so many packets, before the first.
    pub(crate) fn new(packets: u32) -> Self {
        Self {
            packets,
            expected: 0,
            beyond: PacketBitmap::default(),
        }
    }

    /// Takes a packet.
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
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    /// Lines of a trace of the authors' simulator: an incast of 50 flows of 2,807 packets.
    const LINES: usize = 140_361;

    /// For each packet: whether a NACK answers it, the cumulative number, and the packet.
    fn answers(input: &str) -> impl Iterator<Item = String> {
        let mut flows: BTreeMap<&str, IrnReceiver> = BTreeMap::new();
        input.lines().skip(1).map(move |line| {
            let words: Vec<&str> = line.split(' ').collect();
            let packet = words[2].parse().expect("a packet number");
            let flow = flows.entry(words[0]);
            let flow = flow.or_insert_with(|| IrnReceiver::new(u32::MAX));
            let reply = flow.take(packet).0;
            let nack = u8::from(reply.beyond.is_some());
            format!("{nack} {} {packet} 0 0", reply.before)
        })
    }

    #[test]
    fn every_reply_is_that_of_the_authors_hardware() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/irn");
        let read = |name| std::fs::read_to_string(folder.join(name));
        let (Ok(input), Ok(output)) = (read("in.txt"), read("out.txt")) else {
            println!("skipped: the trace is not in {}", folder.display());
            return;
        };
        let differing = answers(&input).zip(output.lines());
        let differing = differing.filter(|(ours, theirs)| ours != theirs);
        assert_eq!(differing.count(), 0, "lines that differ");
        assert_eq!(
            (answers(&input).count(), output.lines().count()),
            (LINES, LINES)
        );
    }

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
