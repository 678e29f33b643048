//! RoCE: packets in order or not at all, at a rate that congestion notifications set.
//!
//! The reliable connection of InfiniBand over Ethernet: a receiver accepts only the next packet. At
//! the first one out of order it sends a NACK with the one that it expects, and the sender goes
//! back to that one (go-back-N). Rates follow DCQCN (`reference::dcqcn`), or are that of the link.
//! Each flow is a queue pair with one entropy and a rate of its own, and packets are paced at that
//! rate.
//!
//! Switches prevent loss by PFC: the simulator does not ask a paused host for packets. Without PFC
//! a lost retransmission or a lost end waits for the timeout. [`RoceTerms::IRN_GO_BACK`] is the
//! ablation of IRN: its window and its timeout, but go-back-N.
//!
//! Left out: verbs, and coalesced ACKs: every packet is acknowledged.

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::Rng;

use super::irn::timeouts::Timeouts;
use super::reference::cargo::{CargoKind, ReferenceCargo};
use super::reference::dcqcn::{Notifications, RateRule};
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use super::reference::incoming::Arrival;
use super::reference::paced::{FlowPace, Paced};
use super::reference::scoreboard::{Attempt, Transmission};
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};

/// Time without progress after which everything is sent again: Local ACK Timeout 10, which is
/// 4.096 us x 2^10 (InfiniBand, section 9.7.6). Long enough for a paused fabric.
pub(crate) const TIMEOUT: Span = Span::from_nanos(4_194_304);

/// The parts of RoCE that differ between the transports of that kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RoceTerms {
    /// The rule for rates.
    pub rates: RateRule,
    /// How much of a flow may be in flight.
    pub window: FlightLimit,
}

/// How much of a flow may be in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlightLimit {
    /// A bandwidth-delay product (BDP-FC of IRN); timeouts are those of IRN without PFC.
    RoundTrip,
    /// Everything; timeouts suit a fabric that pauses.
    Unlimited,
}

impl RoceTerms {
    /// RoCE as it is deployed, between switches with PFC.
    pub const DCQCN: Self = Self {
        rates: RateRule::Dcqcn,
        window: FlightLimit::Unlimited,
    };
    /// PFC alone.
    pub const PFC: Self = Self {
        rates: RateRule::Line,
        window: FlightLimit::Unlimited,
    };
    /// IRN with go-back-N instead of selective repeat.
    pub const IRN_GO_BACK: Self = Self {
        rates: RateRule::Line,
        window: FlightLimit::RoundTrip,
    };
}

/// The rules of RoCE.
#[derive(Debug)]
pub struct Roce {
    rates: RateRule,
    /// Packets of a flow that may be in flight.
    window: u32,
    timeout: Span,
    paced: Paced,
    receiving: BTreeMap<u32, RoceReceiver>,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct RoceFlow {
    entropy: u16,
    bytes: ByteCount,
    packets: u32,
    /// Packets before this one have arrived.
    acknowledged: u32,
    /// The packet to send next, and the first that was never sent.
    next: u32,
    fresh: u32,
    pace: FlowPace,
    deadline: Instant,
}

/// A flow at its receiver.
#[derive(Debug)]
struct RoceReceiver {
    expected: u32,
    gap: Gap,
    notifications: Notifications,
}

/// Whether the receiver has reported a packet out of order to the sender.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gap {
    Untold,
    Told,
}

impl Roce {
    /// A host without flows.
    pub fn host(host: u32, settings: &ReferenceSettings, terms: RoceTerms) -> FlowHost<Self> {
        FlowHost::new(host, settings, Self::rules(settings, terms))
    }

    /// The rules of a host without flows.
    pub(crate) fn rules(settings: &ReferenceSettings, terms: RoceTerms) -> Self {
        let (window, timeout) = match terms.window {
            FlightLimit::RoundTrip => (settings.bandwidth_delay(), Timeouts::lossy(settings).high),
            FlightLimit::Unlimited => (u32::MAX, TIMEOUT),
        };
        Self {
            rates: terms.rates,
            window,
            timeout,
            paced: Paced::default(),
            receiving: BTreeMap::new(),
        }
    }

    /// Packets of a flow that have arrived in order at this host.
    pub(crate) fn received(&self, flow: u32) -> u32 {
        self.receiving.get(&flow).map_or(0, |flow| flow.expected)
    }
}

impl RoceFlow {
    /// The packet that it sends next.
    pub(crate) const fn next_packet(&self) -> u32 {
        self.next
    }
}

impl FlowRules for Roce {
    type Flow = RoceFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> RoceFlow {
        RoceFlow {
            entropy: desk.random.next_u32() as u16,
            bytes: begin.bytes,
            packets: desk.settings.packets(begin.bytes),
            acknowledged: 0,
            next: 0,
            fresh: 0,
            pace: FlowPace::new(desk.now, desk.settings.rate),
            deadline: desk.now,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        let fresh = RoceReceiver {
            expected: 0,
            gap: Gap::Untold,
            notifications: Notifications::default(),
        };
        let flow = self.receiving.entry(cargo.flow).or_insert(fresh);
        flow.notifications
            .arrived(desk, envelope, cargo, self.rates);
        let answer = |kind, packet| ReferenceCargo {
            packet,
            ..cargo.answer(kind)
        };
        if cargo.packet > flow.expected {
            if flow.gap == Gap::Untold {
                flow.gap = Gap::Told;
                let nack = answer(CargoKind::Nack, flow.expected);
                desk.outbox.answer(envelope, nack);
            }
            return;
        }
        if cargo.packet < flow.expected {
            desk.outbox.arrived(cargo.flow, Arrival::Again);
        } else {
            flow.expected += 1;
            flow.gap = Gap::Untold;
            if flow.expected == desk.settings.packets(cargo.flow_bytes) {
                desk.outbox.arrived(cargo.flow, Arrival::Last);
            }
        }
        let ack = answer(CargoKind::Ack, flow.expected);
        desk.outbox.answer(envelope, ack);
    }

    /// ACK and NACK both name the first packet that is missing; a NACK sends the sender back to it.
    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut RoceFlow, cargo: &ReferenceCargo) {
        if cargo.kind == CargoKind::Congestion {
            flow.pace.notified(desk.now);
            return;
        }
        if cargo.packet > flow.acknowledged {
            flow.acknowledged = cargo.packet;
            flow.next = flow.next.max(cargo.packet);
            flow.deadline = desk.now + self.timeout;
        }
        if cargo.kind == CargoKind::Nack && cargo.packet == flow.acknowledged {
            flow.next = cargo.packet;
        }
    }

    fn is_acknowledged(flow: &RoceFlow) -> bool {
        flow.acknowledged == flow.packets
    }

    fn line_up(&mut self, now: Instant, number: u32, flow: &mut RoceFlow) {
        let in_flight = flow.next - flow.acknowledged;
        if flow.next < flow.packets && in_flight < self.window {
            self.paced.line_up(now, number, &mut flow.pace);
        }
    }

    fn next_in_line(&mut self, now: Instant) -> Option<u32> {
        self.paced.next(now)
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut RoceFlow) -> Option<DataDeparture> {
        flow.pace.leave_line();
        let packet = flow.next;
        if packet >= flow.packets {
            return None;
        }
        flow.next += 1;
        let attempt = if packet < flow.fresh {
            Attempt::Again
        } else {
            Attempt::First
        };
        flow.fresh = flow.fresh.max(flow.next);
        let bytes = desk.settings.packet_bytes(flow.bytes, packet);
        flow.pace.sent(desk.now, bytes);
        flow.deadline = desk.now + self.timeout;
        Some(DataDeparture {
            packet: Transmission {
                packet,
                number: 0,
                attempt,
            },
            entropy: flow.entropy,
            urgency: 0,
            pulls: 0,
            alarm: Some(flow.deadline),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut RoceFlow) -> Option<Instant> {
        if flow.deadline <= now {
            flow.deadline = now + self.timeout;
            flow.next = flow.acknowledged;
        }
        Some(flow.deadline)
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.paced.wakes_at()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing_data, passing, settings,
    };
    use super::*;
    use crate::engine::host::Host;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Roce>> {
        Star::new(
            (0..hosts)
                .map(|host| Roce::host(host, &settings(), RoceTerms::DCQCN))
                .collect(),
            judge,
        )
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, passing()).assert_closed_form();
    }

    #[test]
    fn a_lost_packet_makes_the_sender_go_back_a_round_trip() {
        let mut lost = 0;
        let once = move |_: &Envelope, cargo: &ReferenceCargo, _| {
            lost += usize::from(cargo.kind == CargoKind::Data && cargo.packet == 50);
            match lost == 1 && cargo.packet == 50 && cargo.kind == CargoKind::Data {
                true => StarVerdict::Drop,
                false => StarVerdict::Pass,
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
        let marking = |_: &Envelope, _: &ReferenceCargo, waiting| match waiting > 40 {
            true => StarVerdict::Mark,
            false => StarVerdict::Pass,
        };
        let mut star = star(3, Box::new(marking));
        star.begin(0, 0, 2, 100_000_000);
        star.run(Instant::from_picos(1_000_000_000));
        star.begin(1, 1, 2, 100_000_000);
        star.run(Instant::from_picos(9_000_000_000));
        let shares = [0, 1].map(|flow| star.hosts[2].rules.receiving[&flow].expected);
        star.run(Instant::from_picos(12_000_000_000));
        let later = [0, 1].map(|flow| star.hosts[2].rules.receiving[&flow].expected);
        let moved = [later[0] - shares[0], later[1] - shares[1]].map(f64::from);
        let share = moved[0] / (moved[0] + moved[1]);
        assert!((share - 0.5).abs() < 0.05, "one has {share} of the link");
    }

    #[test]
    fn everything_arrives_when_every_tenth_data_packet_is_lost() {
        star(3, losing_data(10)).assert_two_arrive();
    }
}
