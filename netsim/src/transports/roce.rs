//! RoCE: packets in order or not at all, at a rate that congestion notifications set.
//!
//! The reliable connection of InfiniBand over Ethernet: a receiver takes the next packet only. At
//! the first one out of order it sends a NACK with the one that it expects, and the sender goes
//! back to that one (go-back-N). Rates follow DCQCN (`rate`): a receiver that sees marks sends a
//! notification (CNP), at most one in 50 us and flow. Each flow is a queue pair with one entropy
//! and a rate of its own, and packets are paced at that rate.
//!
//! Loss is meant to be prevented by PFC, which is the switches' matter: a host that is paused is
//! not asked for packets. Without PFC a lost retransmission or a lost end waits for the timeout.
//!
//! Left out: a window, verbs, and coalesced ACKs: every packet is acknowledged. Switches here mark
//! above one depth where DCQCN's mark with a probability that grows with it, so notifications come
//! to all flows of a burst at once.

mod rate;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::reference::alarms::{Alarm, Alarms};
use super::reference::cargo::{Cargo, Kind};
use super::reference::incoming::Arrival;
use super::reference::outbox::{Outbox, Route};
use super::reference::scoreboard::Attempt;
use super::reference::turns::Turn;
use super::settings::Settings;
use crate::engine::host::{Begin, Envelope, Host, Progress};
use crate::results::outcome::TransportCounts;
use rate::FlowRate;

/// Least time between notifications of a flow (DCQCN, section 3.1).
const NOTIFICATION_GAP: Span = Span::from_micros(50);
/// Time without progress after which everything is sent again: Local ACK Timeout 10, which is
/// 4.096 us x 2^10 (InfiniBand, section 9.7.6). Long enough for a paused fabric.
const TIMEOUT: Span = Span::from_nanos(4_194_304);

/// A host that speaks RoCE.
#[derive(Debug)]
pub struct Roce {
    settings: Settings,
    outbox: Outbox,
    random: ChaCha8Rng,
    sending: BTreeMap<u32, Sending>,
    /// Flows that have packets to send, by the time at which their rate lets them.
    paced: BinaryHeap<Reverse<(Instant, u32)>>,
    alarms: Alarms,
    receiving: BTreeMap<u32, Receiving>,
    /// The latest time that was told.
    clock: Instant,
}

/// A flow at its sender.
#[derive(Debug)]
struct Sending {
    route: Route,
    bytes: ByteCount,
    packets: u32,
    /// Packets before this one have arrived.
    acknowledged: u32,
    /// The packet to send next, and the first that was never sent.
    next: u32,
    fresh: u32,
    rate: FlowRate,
    next_at: Instant,
    deadline: Instant,
    alarm: Alarm,
    /// Whether it is among the paced flows.
    turn: Turn,
}

/// A flow at its receiver.
#[derive(Debug)]
struct Receiving {
    expected: u32,
    gap: Gap,
    last_notification: Option<Instant>,
}

/// Whether the sender was told that a packet is out of order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gap {
    Untold,
    Told,
}

impl Roce {
    /// A host without flows.
    pub fn new(host: u32, settings: &Settings) -> Self {
        Self {
            settings: *settings,
            outbox: Outbox::new(host, *settings),
            random: ChaCha8Rng::seed_from_u64(settings.seed ^ u64::from(host) << 32),
            sending: BTreeMap::new(),
            paced: BinaryHeap::new(),
            alarms: Alarms::default(),
            receiving: BTreeMap::new(),
            clock: Instant::START,
        }
    }

    fn on_data(&mut self, now: Instant, envelope: &Envelope, cargo: &Cargo) {
        let fresh = Receiving {
            expected: 0,
            gap: Gap::Untold,
            last_notification: None,
        };
        let receiving = self.receiving.entry(cargo.flow).or_insert(fresh);
        if envelope.ecn == Ecn::Ce {
            self.outbox.counts.marks += 1;
            let last = receiving.last_notification;
            if last.is_none_or(|last| now.since(last) >= NOTIFICATION_GAP) {
                receiving.last_notification = Some(now);
                self.outbox.answer(envelope, cargo.answer(Kind::Congestion));
            }
        }
        if cargo.packet > receiving.expected {
            if receiving.gap == Gap::Untold {
                receiving.gap = Gap::Told;
                let packet = receiving.expected;
                self.outbox.answer(
                    envelope,
                    Cargo {
                        packet,
                        ..cargo.answer(Kind::Nack)
                    },
                );
            }
            return;
        }
        if cargo.packet < receiving.expected {
            self.outbox.arrived(cargo.flow, Arrival::Again);
        } else {
            receiving.expected += 1;
            receiving.gap = Gap::Untold;
            if receiving.expected == self.settings.packets(cargo.flow_bytes) {
                self.outbox.arrived(cargo.flow, Arrival::Last);
            }
        }
        let packet = receiving.expected;
        self.outbox.answer(
            envelope,
            Cargo {
                packet,
                ..cargo.answer(Kind::Ack)
            },
        );
    }

    /// ACK and NACK both say what has arrived; a NACK also where to go back to.
    fn on_answer(&mut self, now: Instant, cargo: &Cargo) {
        let flow = cargo.flow;
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        if cargo.packet > sending.acknowledged {
            sending.acknowledged = cargo.packet;
            sending.next = sending.next.max(cargo.packet);
            sending.deadline = now + TIMEOUT;
        }
        if cargo.kind == Kind::Nack && cargo.packet == sending.acknowledged {
            sending.next = cargo.packet;
            Self::pace(&mut self.paced, now, flow, sending);
        }
        if sending.acknowledged == sending.packets {
            self.sending.remove(&flow);
            self.outbox.report(Progress::Acknowledged { flow });
        }
    }

    fn pace(
        paced: &mut BinaryHeap<Reverse<(Instant, u32)>>,
        now: Instant,
        flow: u32,
        sending: &mut Sending,
    ) {
        if sending.turn == Turn::Waits && sending.next < sending.packets {
            sending.turn = Turn::Comes;
            sending.next_at = sending.next_at.max(now);
            paced.push(Reverse((sending.next_at, flow)));
        }
    }

    fn time_out(&mut self, now: Instant, flow: u32) {
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        sending.alarm = None;
        if sending.deadline <= now {
            sending.deadline = now + TIMEOUT;
            sending.next = sending.acknowledged;
            Self::pace(&mut self.paced, now, flow, sending);
        }
        self.alarms
            .no_later_than(sending.deadline, flow, &mut sending.alarm);
    }

    fn send(&mut self, now: Instant, flow: u32, cargo: &mut Cargo) -> Option<Envelope> {
        let sending = self.sending.get_mut(&flow)?;
        sending.turn = Turn::Waits;
        let packet = sending.next;
        if packet >= sending.packets {
            return None;
        }
        sending.next += 1;
        let attempt = if packet < sending.fresh {
            Attempt::Again
        } else {
            Attempt::First
        };
        sending.fresh = sending.fresh.max(sending.next);
        self.outbox.count(attempt);
        *cargo = Cargo {
            flow,
            packet,
            flow_bytes: sending.bytes,
            sent: now,
            ..Cargo::default()
        };
        let envelope = self.outbox.data(sending.route, sending.bytes, packet);
        sending.next_at = now + sending.rate.sent(now, envelope.bytes);
        sending.deadline = now + TIMEOUT;
        self.alarms
            .no_later_than(sending.deadline, flow, &mut sending.alarm);
        Self::pace(&mut self.paced, now, flow, sending);
        Some(envelope)
    }
}

impl Host for Roce {
    type Cargo = Cargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.clock = now;
        let entropy = self.random.next_u32() as u16;
        let mut sending = Sending {
            route: Route {
                destination: begin.destination,
                entropy,
                urgency: 0,
            },
            bytes: begin.bytes,
            packets: self.settings.packets(begin.bytes),
            acknowledged: 0,
            next: 0,
            fresh: 0,
            rate: FlowRate::new(self.settings.rate),
            next_at: now,
            deadline: now,
            alarm: None,
            turn: Turn::Waits,
        };
        Self::pace(&mut self.paced, now, begin.flow, &mut sending);
        self.sending.insert(begin.flow, sending);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Cargo) {
        self.clock = now;
        match cargo.kind {
            Kind::Data => self.on_data(now, envelope, cargo),
            Kind::Ack | Kind::Nack => self.on_answer(now, cargo),
            Kind::Congestion => {
                if let Some(sending) = self.sending.get_mut(&cargo.flow) {
                    sending.rate.notified(now);
                }
            }
            Kind::Pull | Kind::Probe | Kind::Alive => {}
        }
    }

    fn wake(&mut self, now: Instant) {
        self.clock = now;
        while let Some(flow) = {
            let alarm = |flow| Some(self.sending.get(&flow)?.alarm);
            self.alarms.take_due(now, alarm)
        } {
            self.time_out(now, flow);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        // A flow whose time has come already waits for the link, not for the time.
        let paced = self.paced.peek().map(|Reverse((at, _))| *at);
        let paced = paced.filter(|&at| at > self.clock);
        paced.into_iter().chain(self.alarms.next()).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut Cargo) -> Option<Envelope> {
        self.clock = now;
        if let Some(answer) = self.outbox.transmit(cargo) {
            return Some(answer);
        }
        while self.paced.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, flow))) = self.paced.pop() else {
                break;
            };
            if let Some(envelope) = self.send(now, flow, cargo) {
                return Some(envelope);
            }
        }
        None
    }

    fn progress(&mut self) -> Option<Progress> {
        self.outbox.progress()
    }

    fn counts(&self) -> TransportCounts {
        self.outbox.counts
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{Judge, Star, Verdict, alone, settings};
    use super::*;
    use crate::engine::host::Load;

    fn star(hosts: u32, judge: Judge) -> Star<Roce> {
        Star::new(
            (0..hosts)
                .map(|host| Roce::new(host, &settings()))
                .collect(),
            judge,
        )
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        let mut star = star(2, Box::new(|_, _, _| Verdict::Pass));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn a_lost_packet_makes_the_sender_go_back_a_round_trip() {
        let mut lost = 0;
        let once = move |_: &Envelope, cargo: &Cargo, _| {
            lost += usize::from(cargo.kind == Kind::Data && cargo.packet == 50);
            match lost == 1 && cargo.packet == 50 && cargo.kind == Kind::Data {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        };
        let mut star = star(2, Box::new(once));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        let back = u64::from(settings().bandwidth_delay());
        let repaired = star.hosts[0].counts().repaired;
        assert!(
            (back..=back + 2).contains(&repaired),
            "{repaired} packets again"
        );
        assert_eq!(star.hosts[1].counts().duplicates, 0);
        let late = star.acknowledged(0).since(alone(2_000_000));
        assert!(late < settings().base_rtt * 2, "late by {late}");
    }

    #[test]
    fn two_flows_that_are_marked_come_to_share_the_link() {
        let marking = |_: &Envelope, _: &Cargo, waiting| match waiting > 40 {
            true => Verdict::Mark,
            false => Verdict::Pass,
        };
        let mut star = star(3, Box::new(marking));
        star.begin(0, 0, 2, 100_000_000);
        star.run(Instant::from_picos(1_000_000_000));
        star.begin(1, 1, 2, 100_000_000);
        star.run(Instant::from_picos(9_000_000_000));
        let shares = [0, 1].map(|flow| star.hosts[2].receiving[&flow].expected);
        star.run(Instant::from_picos(12_000_000_000));
        let later = [0, 1].map(|flow| star.hosts[2].receiving[&flow].expected);
        let moved = [later[0] - shares[0], later[1] - shares[1]].map(f64::from);
        let share = moved[0] / (moved[0] + moved[1]);
        assert!((share - 0.5).abs() < 0.05, "one has {share} of the link");
    }

    #[test]
    fn everything_arrives_when_every_tenth_data_packet_is_lost() {
        let mut count = 0;
        let lossy = move |envelope: &Envelope, _: &Cargo, _| {
            count += usize::from(envelope.load == Load::Data);
            match envelope.load == Load::Data && count % 10 == 0 {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        };
        let mut star = star(3, Box::new(lossy));
        star.begin(0, 0, 2, 500_000);
        star.begin(1, 1, 2, 500_000);
        star.run(Instant::from_picos(u64::MAX));
        star.acknowledged(0);
        star.acknowledged(1);
    }
}
