//! NSCC, the sender's congestion control of Ultra Ethernet, with REPS over switches that trim.
//!
//! Ultra Ethernet specification 1.0 (2025), section 3.6.13. A sender starts with one and a half
//! bandwidth-delay products and moves its window by marks, round trips and NACKs (`window`);
//! packets recycle the entropies that came back unmarked (`reference::reps`). Switches cut
//! packets that find a bandwidth-delay product in a queue, and mark from a fifth of that on, more
//! with depth; a receiver answers each packet: ACK, or NACK if only the header came, so the
//! sender repairs within a round trip. A timeout covers packets and headers that vanish.
//!
//! Left out: ACKs for several packets, receiver credits beside the window, and whether a packet
//! was trimmed at its last switch.

mod window;

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Instant, Span};

use super::reference::acknowledger::Acknowledger;
use super::reference::cargo::{CargoKind, ReferenceCargo};
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use super::reference::reps::RecycledPaths;
use super::reference::scoreboard::Scoreboard;
use super::reference::turns::{Turn, Turns};
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};
use window::{NsccAck, NsccTerms, NsccWindow};

/// A packet without an answer counts as lost after this, and the time of six full queues: data and
/// headers of three switches, as in htsim of the Ultra Ethernet Consortium.
const TIMEOUT: Span = Span::from_micros(15);
const QUEUES_OF_TIMEOUT: u64 = 6;

/// The rules of NSCC.
#[derive(Debug)]
pub struct Nscc {
    terms: NsccTerms,
    packet: f64,
    timeout: Span,
    turns: Turns,
    receiving: Acknowledger,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct NsccFlow {
    board: Scoreboard,
    window: NsccWindow,
    paths: RecycledPaths,
    turn: Turn,
}

/// The time after which a packet without an answer counts as lost.
pub(crate) fn timeout(settings: &ReferenceSettings) -> Span {
    let queue = settings.packet_time() * u64::from(settings.bandwidth_delay());
    TIMEOUT + queue * QUEUES_OF_TIMEOUT
}

impl Nscc {
    /// A host without flows.
    pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Self> {
        let rules = Self {
            terms: NsccTerms::of(settings),
            packet: settings.full_packet_bytes().get() as f64,
            timeout: timeout(settings),
            turns: Turns::default(),
            receiving: Acknowledger::default(),
        };
        FlowHost::new(host, settings, rules)
    }

    fn bytes(&self, packets: u32) -> f64 {
        f64::from(packets) * self.packet
    }
}

impl FlowRules for Nscc {
    type Flow = NsccFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> NsccFlow {
        NsccFlow {
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            window: NsccWindow::new(desk.now, self.terms),
            paths: RecycledPaths::new(&mut desk.random),
            turn: Turn::Waits,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        self.receiving.take(desk, envelope, cargo);
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut NsccFlow, cargo: &ReferenceCargo) {
        let (now, round_trip) = (desk.now, desk.now.since(cargo.sent));
        let (missing, in_flight) = (flow.board.missing(), flow.board.in_flight());
        if cargo.kind == CargoKind::Nack {
            flow.board.lose(cargo.packet);
            let left = flow.board.in_flight();
            if left < in_flight {
                flow.window.on_nack(now, round_trip, self.bytes(left));
            }
            return;
        }
        flow.board.arrived(cargo.packet, cargo.before);
        if !cargo.marked {
            flow.paths.good(now, cargo.entropy);
        }
        let ack = NsccAck {
            bytes: self.bytes(missing - flow.board.missing()),
            ecn: if cargo.marked { Ecn::Ce } else { Ecn::Ect },
            round_trip,
            in_flight: self.bytes(flow.board.in_flight()),
        };
        flow.window.on_ack(now, &ack);
    }

    fn is_acknowledged(flow: &NsccFlow) -> bool {
        flow.board.missing() == 0
    }

    fn line_up(&mut self, _now: Instant, number: u32, flow: &mut NsccFlow) {
        let in_flight = self.bytes(flow.board.in_flight());
        if flow.board.has_packet() && flow.window.admits(in_flight) {
            self.turns.line_up(number, &mut flow.turn);
        }
    }

    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.turns.next()
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut NsccFlow) -> Option<DataDeparture> {
        flow.turn = Turn::Waits;
        if !flow.window.admits(self.bytes(flow.board.in_flight())) {
            return None;
        }
        Some(DataDeparture {
            packet: flow.board.send(desk.now)?,
            entropy: flow.paths.next(&mut desk.random),
            urgency: 0,
            pulls: 0,
            alarm: Some(desk.now + self.timeout),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut NsccFlow) -> Option<Instant> {
        let limit = now.as_picos().saturating_sub(self.timeout.as_picos());
        let lost = flow.board.lose_sent_until(Instant::from_picos(limit));
        if lost > 0 {
            flow.window.lose(lost);
            flow.paths.timed_out(now);
        }
        Some(flow.board.oldest()? + self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing, losing_third, settings,
    };
    use super::*;
    use crate::engine::host::{Host, Load};

    /// Queues of the star that trim hold a round trip.
    const QUEUE: usize = 14;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Nscc>> {
        let host = |host| Nscc::host(host, &settings());
        Star::new((0..hosts).map(host).collect(), judge)
    }

    fn trimming(envelope: &Envelope, _: &ReferenceCargo, waiting: usize) -> StarVerdict {
        match (envelope.load, waiting) {
            (Load::Data, QUEUE..) => StarVerdict::Trim,
            (Load::Data, 7..) => StarVerdict::Mark,
            _ => StarVerdict::Pass,
        }
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, Box::new(trimming)).assert_closed_form();
    }

    #[test]
    fn an_incast_is_near_the_time_of_its_link() {
        star(8, Box::new(trimming)).assert_incast();
    }

    #[test]
    fn a_packet_that_vanishes_is_sent_again_after_the_timeout() {
        let mut star = star(2, losing(9));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        let late = star.acknowledged(0).since(alone(40_860));
        let timeout = star.hosts[0].rules.timeout;
        assert!(late <= timeout, "late by {late}");
    }

    #[test]
    fn everything_arrives_when_every_third_packet_vanishes() {
        star(3, losing_third(Box::new(trimming))).assert_two_arrive();
    }
}
