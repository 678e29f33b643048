//! IRN: RDMA that repairs only what was lost, so that its switches need no PFC.
//!
//! Mittal et al., "Revisiting Network Support for RDMA", SIGCOMM 2018. A receiver keeps packets
//! that arrive out of order and names them in NACKs; a sender sends the holes again, has at most a
//! bandwidth-delay product in flight, and waits for one of two timeouts. `sender` and [`receiver`]
//! are machines without time and network; the authors' trace runs through the receiver.
//!
//! Packets, entropy and DCQCN are those of [`roce`](super::roce). With PFC below it timeouts are
//! RoCE's, as a pause can take any time. Left out: verbs other than writes, and Timely.

mod bitmap;
pub mod receiver;
mod sender;
pub(crate) mod timeouts;

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Instant};
use rand::Rng;

use super::reference::cargo::{CargoKind, ReferenceCargo};
use super::reference::dcqcn::{Notifications, RateRule};
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use super::reference::paced::{FlowPace, Paced};
use super::reference::scoreboard::Transmission;
use super::roce::FlightLimit;
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};
use receiver::{IrnReceiver, IrnReply};
use sender::IrnSender;
use timeouts::Timeouts;

/// The parts of IRN that differ between its variants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IrnTerms {
    /// The rule for rates.
    pub rates: RateRule,
    /// How much of a flow may be in flight.
    pub window: FlightLimit,
    /// What switches do when queues fill.
    pub fabric: FullQueues,
}

/// What switches do when queues fill.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FullQueues {
    /// They drop.
    Drop,
    /// They pause the ports that fill them (PFC).
    Pause,
}

impl IrnTerms {
    /// The paper's: no PFC, rates of the link.
    pub const PLAIN: Self = Self {
        rates: RateRule::Line,
        window: FlightLimit::RoundTrip,
        fabric: FullQueues::Drop,
    };
    /// With DCQCN.
    pub const DCQCN: Self = Self {
        rates: RateRule::Dcqcn,
        ..Self::PLAIN
    };
    /// With PFC.
    pub const PFC: Self = Self {
        fabric: FullQueues::Pause,
        ..Self::PLAIN
    };
    /// With both.
    pub const PFC_DCQCN: Self = Self {
        rates: RateRule::Dcqcn,
        ..Self::PFC
    };
    /// The ablation without BDP-FC.
    pub const NO_WINDOW: Self = Self {
        window: FlightLimit::Unlimited,
        ..Self::PLAIN
    };
}

/// The rules of IRN.
#[derive(Debug)]
pub struct Irn {
    rates: RateRule,
    /// Packets of a flow that may be in flight.
    window: u32,
    timeouts: Timeouts,
    paced: Paced,
    receiving: BTreeMap<u32, Receiving>,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct IrnFlow {
    entropy: u16,
    bytes: ByteCount,
    machine: IrnSender,
    pace: FlowPace,
    /// When it last sent, or heard of an advance.
    moved: Instant,
}

/// A flow at its receiver.
#[derive(Debug)]
struct Receiving {
    machine: IrnReceiver,
    notifications: Notifications,
}

impl Irn {
    /// A host without flows.
    pub fn host(host: u32, settings: &ReferenceSettings, terms: IrnTerms) -> FlowHost<Self> {
        let rules = Self {
            rates: terms.rates,
            window: match terms.window {
                FlightLimit::RoundTrip => settings.bandwidth_delay(),
                FlightLimit::Unlimited => u32::MAX,
            },
            timeouts: match terms.fabric {
                FullQueues::Drop => Timeouts::lossy(settings),
                FullQueues::Pause => Timeouts::paused(),
            },
            paced: Paced::default(),
            receiving: BTreeMap::new(),
        };
        FlowHost::new(host, settings, rules)
    }

    fn deadline(&self, flow: &IrnFlow) -> Instant {
        flow.moved + self.timeouts.with(flow.machine.in_flight())
    }
}

impl FlowRules for Irn {
    type Flow = IrnFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> IrnFlow {
        IrnFlow {
            entropy: desk.random.next_u32() as u16,
            bytes: begin.bytes,
            machine: IrnSender::new(desk.settings.packets(begin.bytes), self.window),
            pace: FlowPace::new(desk.now, desk.settings.rate),
            moved: desk.now,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        let flow = self.receiving.entry(cargo.flow);
        let flow = flow.or_insert_with(|| Receiving {
            machine: IrnReceiver::new(desk.settings.packets(cargo.flow_bytes)),
            notifications: Notifications::default(),
        });
        flow.notifications
            .arrived(desk, envelope, cargo, self.rates);
        let (reply, arrival) = flow.machine.take(cargo.packet);
        desk.outbox.arrived(cargo.flow, arrival);
        let kind = match reply.beyond {
            Some(_) => CargoKind::Nack,
            None => CargoKind::Ack,
        };
        let answer = ReferenceCargo {
            before: reply.before,
            ..cargo.answer(kind)
        };
        desk.outbox.answer(envelope, answer);
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut IrnFlow, cargo: &ReferenceCargo) {
        if cargo.kind == CargoKind::Congestion {
            flow.pace.notified(desk.now);
            return;
        }
        flow.machine.take(IrnReply {
            before: cargo.before,
            beyond: (cargo.kind == CargoKind::Nack).then_some(cargo.packet),
        });
        flow.moved = desk.now;
    }

    fn is_acknowledged(flow: &IrnFlow) -> bool {
        flow.machine.is_done()
    }

    fn line_up(&mut self, now: Instant, number: u32, flow: &mut IrnFlow) {
        if flow.machine.has_packet() {
            self.paced.line_up(now, number, &mut flow.pace);
        }
    }

    fn next_in_line(&mut self, now: Instant) -> Option<u32> {
        self.paced.next(now)
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut IrnFlow) -> Option<DataDeparture> {
        flow.pace.leave_line();
        let (packet, attempt) = flow.machine.send()?;
        let bytes = desk.settings.packet_bytes(flow.bytes, packet);
        flow.pace.sent(desk.now, bytes);
        flow.moved = desk.now;
        Some(DataDeparture {
            packet: Transmission {
                packet,
                number: 0,
                attempt,
            },
            entropy: flow.entropy,
            urgency: 0,
            pulls: 0,
            alarm: Some(flow.moved + self.timeouts.low),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut IrnFlow) -> Option<Instant> {
        if self.deadline(flow) <= now {
            flow.machine.time_out();
            flow.moved = now;
        }
        // By then, few packets may be in flight.
        Some(self.deadline(flow).min(now + self.timeouts.low))
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.paced.wakes_at()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{Judge, Star, StarVerdict, alone, settings};
    use super::*;
    use crate::engine::host::{Host, Load};

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Irn>> {
        let host = |host| Irn::host(host, &settings(), IrnTerms::PLAIN);
        Star::new((0..hosts).map(host).collect(), judge)
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        let mut star = star(2, Box::new(|_, _, _| StarVerdict::Pass));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn only_the_lost_packets_are_sent_again() {
        let mut lost = [50, 51, 60].to_vec();
        let once = move |_: &Envelope, cargo: &ReferenceCargo, _| {
            let at = (lost.iter()).position(|&packet| packet == cargo.packet);
            match at.filter(|_| cargo.kind == CargoKind::Data) {
                Some(at) => {
                    lost.remove(at);
                    StarVerdict::Drop
                }
                None => StarVerdict::Pass,
            }
        };
        let mut star = star(2, Box::new(once));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        let counts = (
            star.hosts[0].counts().repaired,
            star.hosts[1].counts().duplicates,
        );
        assert_eq!(counts, (3, 0));
        let late = star.acknowledged(0).since(alone(2_000_000));
        assert!(late < settings().base_rtt * 2, "late by {late}");
    }

    #[test]
    fn a_lost_end_waits_for_the_short_timeout() {
        let mut is_lost = false;
        let last = settings().packets(ByteCount::new(500_000)) - 1;
        let end = move |envelope: &Envelope, cargo: &ReferenceCargo, _| {
            let is_end = cargo.packet == last && envelope.load == Load::Data;
            match is_end && !std::mem::replace(&mut is_lost, is_end) {
                true => StarVerdict::Drop,
                false => StarVerdict::Pass,
            }
        };
        let mut star = star(2, Box::new(end));
        star.begin(0, 0, 1, 500_000);
        star.run(Instant::from_picos(u64::MAX));
        let late = star.acknowledged(0).since(alone(500_000));
        let timeouts = Timeouts::lossy(&settings());
        assert!(
            timeouts.low <= late && late <= timeouts.low + settings().base_rtt,
            "{late}"
        );
    }
}
