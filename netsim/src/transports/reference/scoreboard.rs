//! The fate of every packet of a flow, at its sender.
//!
//! Transmissions are numbered, so that a packet that was sent again and lost again is noticed like
//! any other: a transmission is lost when one that left [`REORDERING`] later has arrived (the
//! duplicate ACKs of TCP with SACK, expressed as in RFC 9002, section 6.1.1).

use std::collections::VecDeque;

use gradwire_protocol::units::Instant;

/// Later transmissions that must have arrived before one counts as lost (RFC 5681, RFC 9002).
pub(crate) const REORDERING: u32 = 3;

/// The fate of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// Not sent yet, or to be sent again; the number of earlier transmissions, up to 255.
    Waiting(u8),
    /// In flight; the number of earlier transmissions, up to 255.
    InFlight(u8),
    /// Known to have arrived.
    Arrived,
}

/// A transmission that may still be in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    sent: Instant,
    number: u32,
    packet: u32,
    attempt: u8,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Transmission {
    /// Which packet of the flow.
    pub(crate) packet: u32,
    /// Number of the transmission, counted over all packets of the flow.
    pub(crate) number: u32,
    /// Whether it was sent before.
    pub(crate) attempt: Attempt,
}

/// Whether a packet was sent before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Attempt {
    /// No.
    First,
    /// Yes.
    Again,
}

/// All packets of a flow.
#[derive(Debug)]
pub(crate) struct Scoreboard {
    fates: Box<[Fate]>,
    /// Lost packets, in the order in which their loss was noticed; some may have arrived since.
    again: VecDeque<u32>,
    /// Lost packets that have not arrived since.
    lost: u32,
    /// Packets from here on were never sent.
    fresh: u32,
    /// Packets before this one have arrived.
    floor: u32,
    flights: VecDeque<Flight>,
    in_flight: u32,
    missing: u32,
    next_number: u32,
}

impl Scoreboard {
    /// A flow before its first transmission.
    pub(crate) fn new(packets: u32) -> Self {
        Self {
            fates: vec![Fate::Waiting(0); packets as usize].into(),
            again: VecDeque::new(),
            lost: 0,
            fresh: 0,
            floor: 0,
            flights: VecDeque::new(),
            in_flight: 0,
            missing: packets,
            next_number: 0,
        }
    }

    /// Packets on their way.
    pub(crate) const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Packets not known to have arrived.
    pub(crate) const fn missing(&self) -> u32 {
        self.missing
    }

    /// Packets that were never sent.
    pub(crate) const fn unsent(&self) -> u32 {
        self.fates.len() as u32 - self.fresh
    }

    /// Lost packets that wait to be sent again.
    pub(crate) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Number of the next transmission.
    pub(crate) const fn next_number(&self) -> u32 {
        self.next_number
    }

    /// Whether a packet waits to be sent, for the first time or again.
    pub(crate) const fn has_packet(&self) -> bool {
        self.lost > 0 || self.unsent() > 0
    }

    /// The next packet to send: lost ones before new ones. It counts as in flight from `now` on.
    pub(crate) fn send(&mut self, now: Instant) -> Option<Transmission> {
        let (packet, before) = self.pick()?;
        let number = self.next_number;
        self.flights.push_back(Flight {
            sent: now,
            number,
            packet,
            attempt: before,
        });
        self.fates[packet as usize] = Fate::InFlight(before);
        self.in_flight += 1;
        self.next_number += 1;
        let attempt = if before == 0 {
            Attempt::First
        } else {
            Attempt::Again
        };
        Some(Transmission {
            packet,
            number,
            attempt,
        })
    }

    fn pick(&mut self) -> Option<(u32, u8)> {
        while let Some(packet) = self.again.pop_front() {
            if let Fate::Waiting(before) = self.fates[packet as usize] {
                self.lost -= 1;
                return Some((packet, before));
            }
        }
        let packet = self.fresh;
        self.fates.get(packet as usize)?;
        self.fresh += 1;
        Some((packet, 0))
    }

    /// Processes an answer: `packet` has arrived, and all `before` that one. Whether that is news.
    pub(crate) fn arrived(&mut self, packet: u32, before: u32) -> bool {
        let missing = self.missing;
        self.tick_off(packet);
        while self.floor < before {
            self.tick_off(self.floor);
            self.floor += 1;
        }
        self.missing < missing
    }

    fn tick_off(&mut self, packet: u32) {
        let fate = &mut self.fates[packet as usize];
        match std::mem::replace(fate, Fate::Arrived) {
            Fate::Arrived => return,
            Fate::InFlight(_) => self.in_flight -= 1,
            Fate::Waiting(_) => self.lost -= 1,
        }
        self.missing -= 1;
    }

    /// Notes that a packet is lost, so that it is sent again.
    pub(crate) fn lose(&mut self, packet: u32) {
        if let Fate::InFlight(before) = self.fates[packet as usize] {
            self.fates[packet as usize] = Fate::Waiting(before.saturating_add(1));
            self.again.push_back(packet);
            self.in_flight -= 1;
            self.lost += 1;
        }
    }

    /// Notes that transmission `number` has arrived; returns how many others this shows to be lost.
    pub(crate) fn overtaken(&mut self, number: u32) -> u32 {
        self.lose_while(|flight| flight.number + REORDERING <= number)
    }

    /// Gives up all packets sent at `limit` or before; returns how many.
    pub(crate) fn lose_sent_until(&mut self, limit: Instant) -> u32 {
        self.lose_while(|flight| flight.sent <= limit)
    }

    fn lose_while(&mut self, gone: impl Fn(&Flight) -> bool) -> u32 {
        let before = self.in_flight;
        while let Some(flight) = self.flights.front().copied() {
            if self.is_current(&flight) {
                if !gone(&flight) {
                    break;
                }
                self.lose(flight.packet);
            }
            self.flights.pop_front();
        }
        before - self.in_flight
    }

    /// When the oldest transmission that is still in flight left.
    pub(crate) fn oldest(&mut self) -> Option<Instant> {
        while let Some(flight) = self.flights.front() {
            if self.is_current(flight) {
                return Some(flight.sent);
            }
            self.flights.pop_front();
        }
        None
    }

    fn is_current(&self, flight: &Flight) -> bool {
        self.fates[flight.packet as usize] == Fate::InFlight(flight.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(picos: u64) -> Instant {
        Instant::from_picos(picos)
    }

    #[test]
    fn a_packet_is_lost_when_the_third_after_it_has_arrived() {
        let mut board = Scoreboard::new(10);
        for _ in 0..5 {
            board.send(at(0)).expect("ten packets wait");
        }
        assert_eq!((board.arrived(2, 0), board.overtaken(2)), (true, 0));
        assert_eq!((board.arrived(3, 0), board.overtaken(3)), (true, 1));
        assert_eq!((board.in_flight(), board.missing()), (2, 8));
        let again = Transmission {
            packet: 0,
            number: 5,
            attempt: Attempt::Again,
        };
        assert_eq!(board.send(at(1)), Some(again));
        assert_eq!((board.arrived(4, 0), board.overtaken(4)), (true, 1));
    }

    #[test]
    fn a_packet_lost_again_is_noticed_again() {
        let mut board = Scoreboard::new(9);
        let mut packets = Vec::new();
        for number in 0..9 {
            packets.push(board.send(at(number)).expect("packets wait").packet);
            if number == 3 || number == 7 {
                board.arrived(packets[number as usize], 0);
                board.overtaken(number as u32);
            }
        }
        assert_eq!(packets, [0, 1, 2, 3, 0, 4, 5, 6, 1]);
        assert_eq!(board.send(at(9)).map(|sent| sent.packet), Some(2));
        assert_eq!(board.send(at(9)).map(|sent| sent.packet), Some(0));
    }

    #[test]
    fn what_lost_answers_would_have_said_is_in_the_next_one() {
        let mut board = Scoreboard::new(4);
        for _ in 0..4 {
            board.send(at(0)).expect("four packets wait");
        }
        assert!(board.arrived(3, 2));
        assert_eq!((board.in_flight(), board.missing()), (1, 1));
        assert!(!board.arrived(3, 2));
    }

    #[test]
    fn a_packet_given_up_that_arrives_is_not_sent_again() {
        let mut board = Scoreboard::new(2);
        board.send(at(5)).expect("two packets wait");
        board.send(at(6)).expect("one packet waits");
        assert_eq!(board.oldest(), Some(at(5)));
        assert_eq!(board.lose_sent_until(at(5)), 1);
        assert!(board.has_packet() && board.arrived(0, 0) && !board.arrived(0, 0));
        assert!(!board.has_packet());
        assert_eq!((board.send(at(7)), board.oldest()), (None, Some(at(6))));
    }
}
