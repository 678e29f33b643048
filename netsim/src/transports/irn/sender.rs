//! The sender of IRN, a machine without time: replies and timeouts in, packet numbers out.
//!
//! - At most a window of packets is in flight (BDP-FC).
//! - A NACK or a timeout starts loss recovery with the first missing packet. Then the sender looks
//!   for holes: packets that are missing although a later one has arrived. It sends each once, and
//!   new packets when there is no hole left.
//! - An advance within recovery proves that the next missing packet was lost, too.
//! - Recovery ends when all packets have arrived that had been sent when it began, or sent again.

use super::bitmap::PacketBitmap;
use super::receiver::IrnReply;
use crate::transports::reference::scoreboard::Attempt;

/// A flow at its sender.
#[derive(Debug)]
pub(crate) struct IrnSender {
    packets: u32,
    window: u32,
    /// Packets before this one have arrived.
    acknowledged: u32,
    /// The first packet that was never sent.
    next: u32,
    /// Packets beyond the first missing one that have arrived.
    beyond: PacketBitmap,
    repair: Repair,
    /// The packet that is sent again next, or was last.
    repaired: u32,
    /// In loss recovery: the first packet that had not been sent when it began.
    recovers_to: Option<u32>,
}

/// What the sender does before it sends new packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Repair {
    None,
    /// It looks for the next hole.
    Looks,
    /// It sends the packet `repaired` again.
    Sends,
}

impl IrnSender {
    /// A flow of this many packets, of which a window may be in flight.
    pub(crate) fn new(packets: u32, window: u32) -> Self {
        Self {
            packets,
            window,
            acknowledged: 0,
            next: 0,
            beyond: PacketBitmap::default(),
            repair: Repair::None,
            repaired: 0,
            recovers_to: None,
        }
    }

    /// Packets between the first missing and the first unsent one.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.next - self.acknowledged
    }

    /// Whether all packets have arrived.
    pub(crate) const fn is_done(&self) -> bool {
        self.acknowledged == self.packets
    }

    /// Whether [`IrnSender::send`] has a packet.
    pub(crate) fn has_packet(&mut self) -> bool {
        self.look();
        let may_go_on = self.next < self.packets && self.in_flight() < self.window;
        self.repair == Repair::Sends || may_go_on
    }

    /// The packet to send now.
    pub(crate) fn send(&mut self) -> Option<(u32, Attempt)> {
        if !self.has_packet() {
            return None;
        }
        if self.repair == Repair::Sends {
            self.repair = Repair::Looks;
            self.recovers_to.get_or_insert(self.next);
            return Some((self.repaired, Attempt::Again));
        }
        self.next += 1;
        Some((self.next - 1, Attempt::First))
    }

    /// Takes a reply.
    pub(crate) fn take(&mut self, reply: IrnReply) {
        let advances = reply.before > self.acknowledged;
        self.acknowledged = self.acknowledged.max(reply.before);
        self.beyond.forget_before(self.acknowledged);
        if let Some(packet) = reply.beyond {
            self.note(packet);
        }
        // A repair may still be on its way beyond the packets that recovery is about.
        let ends = (self.recovers_to).map(|to| to.max(self.repaired + 1));
        if ends.is_some_and(|ends| self.acknowledged >= ends) {
            (self.recovers_to, self.repair) = (None, Repair::None);
        }
        let recovers = self.recovers_to.is_some();
        let is_behind = self.repaired < self.acknowledged
            || (self.repaired == self.acknowledged && self.repair == Repair::Sends);
        let next_is_lost = recovers && advances && is_behind;
        let first_is_lost = !recovers && reply.beyond.is_some_and(|it| it > self.acknowledged);
        if next_is_lost || (first_is_lost && self.repair == Repair::None) {
            self.repair_first();
        }
    }

    /// No reply has come for too long. Returns whether a packet was in flight.
    pub(crate) fn time_out(&mut self) -> bool {
        let any = self.in_flight() > 0;
        if any {
            self.repair_first();
        }
        any
    }

    fn repair_first(&mut self) {
        (self.repaired, self.repair) = (self.acknowledged, Repair::Sends);
    }

    /// A packet has arrived out of order.
    fn note(&mut self, packet: u32) {
        let is_farthest = packet + 1 >= self.beyond.end();
        self.beyond.add(packet);
        if self.recovers_to.is_none() {
            return;
        }
        match self.repair {
            Repair::Sends if self.repaired == packet => self.repair = Repair::Looks,
            Repair::None if is_farthest => self.repair = Repair::Looks,
            _ => {}
        }
    }

    /// Finds the next hole, if the sender looks for one.
    fn look(&mut self) {
        if self.repair == Repair::Looks {
            let from = self.acknowledged.max(self.repaired + 1);
            match self.beyond.hole_from(from) {
                Some(hole) => (self.repaired, self.repair) = (hole, Repair::Sends),
                None => self.repair = Repair::None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::receiver::IrnReceiver;
    use super::*;
    use crate::transports::reference::incoming::Arrival;

    const WINDOW: u32 = 111;

    /// A sender and a receiver, and what is on its way between them.
    struct Pair {
        random: ChaCha8Rng,
        sender: IrnSender,
        receiver: IrnReceiver,
        packets: VecDeque<u32>,
        replies: VecDeque<IrnReply>,
        lost: u32,
        repaired: u32,
        duplicates: u32,
    }

    impl Pair {
        fn new(seed: u64) -> Self {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let packets = random.random_range(1..600);
            Self {
                random,
                sender: IrnSender::new(packets, WINDOW),
                receiver: IrnReceiver::new(packets),
                packets: VecDeque::new(),
                replies: VecDeque::new(),
                lost: 0,
                repaired: 0,
                duplicates: 0,
            }
        }

        /// Lets either end go on.
        fn step(&mut self, loss: f64) {
            let may_send = self.packets.len() < WINDOW as usize && self.random.random_bool(0.5);
            if may_send && let Some((packet, attempt)) = self.sender.send() {
                assert!(self.sender.in_flight() <= WINDOW);
                self.repaired += u32::from(attempt == Attempt::Again);
                match self.random.random_bool(loss) {
                    true => self.lost += 1,
                    false => self.packets.push_back(packet),
                }
            } else if self.random.random_bool(0.5)
                && let Some(packet) = self.packets.pop_front()
            {
                let (reply, arrival) = self.receiver.take(packet);
                self.duplicates += u32::from(arrival == Arrival::Again);
                self.replies.push_back(reply);
            } else if let Some(reply) = self.replies.pop_front() {
                self.sender.take(reply);
            } else if self.packets.is_empty() && !self.sender.has_packet() {
                self.sender.time_out();
            }
        }
    }

    #[test]
    fn each_lost_packet_is_sent_again_once() {
        for seed in 0..2_000 {
            let mut pair = Pair::new(seed);
            let loss = 10_f64.powi(-1 - (seed % 4) as i32);
            while !pair.sender.is_done() {
                pair.step(loss);
            }
            let counts = (pair.repaired, pair.duplicates);
            assert_eq!(counts, (pair.lost, 0), "seed {seed}, {loss} lost");
        }
    }

    #[test]
    fn all_arrives_though_packets_and_replies_are_lost_and_reordered() {
        for seed in 0..2_000 {
            let mut pair = Pair::new(seed);
            let mut steps = 0;
            while !pair.sender.is_done() {
                pair.step(0.05);
                match pair.random.random_range(0..50) {
                    0 => pair.packets.make_contiguous().shuffle(&mut pair.random),
                    1 => pair.replies.make_contiguous().shuffle(&mut pair.random),
                    2 => drop(pair.replies.pop_front()),
                    3 => pair.packets.extend(pair.packets.front().copied()),
                    _ => {}
                }
                steps += 1;
                assert!(steps < 1_000_000, "seed {seed} does not end");
            }
        }
    }
}
