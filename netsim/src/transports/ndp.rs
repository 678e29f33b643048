//! NDP: switches cut packets instead of dropping them, receivers request each further packet.
//!
//! Handley et al., "Re-architecting datacenter networks and stacks for low latency and high
//! performance", SIGCOMM 2017. A flow starts with a window at line rate, unasked. A packet that
//! finds a queue full arrives as a header, which the receiver answers with a NACK; one that arrives
//! whole, with an ACK. For both it owes the sender one PULL, and sends these at the pace at which
//! its own link takes full packets, over all flows in turn. A PULL lets the sender send one packet,
//! a lost one before a new one; a PULL that is due when a packet arrives is part of its answer. A
//! sender takes its paths in a random order, all of them before any again (`paths`).
//!
//! The receiver owes no more PULLs than the flow has packets left, so that each PULL finds a packet
//! at its sender. A timeout handles losses that trimming cannot prevent: packets and headers that
//! vanish.
//!
//! Left out: returning headers to the sender when their queue is full, avoiding paths with many
//! NACKs, priority among the flows of a receiver, and the handshake.

mod paths;
mod pulls;

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

use super::reference::cargo::{CargoKind, ReferenceCargo};
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules, SendingFlows};
use super::reference::outbox::Route;
use super::reference::scoreboard::Scoreboard;
use super::reference::turns::{Turn, Turns};
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};
use paths::PathOrder;
use pulls::Pulls;

/// Packets that the first window has beyond the bandwidth-delay product: two full queues on the
/// path (8 packets each, section 3.1), so that links stay busy when packets wait for each other.
const BEYOND_BANDWIDTH_DELAY: u32 = 16;
/// A packet without an answer counts as lost after this time plus ten round trips: far longer than
/// queues of 8 packets and of headers can hold it back.
const TIMEOUT: Span = Span::from_micros(100);
/// A sender that waits for a PULL sends a packet unasked after this time: longer than a full
/// rotation in an incast of ten thousand.
const PATIENCE: Span = Span::from_millis(4);

/// The rules of NDP.
#[derive(Debug)]
pub struct Ndp {
    first_window: u32,
    timeout: Span,
    turns: Turns,
    pulls: Pulls,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct NdpFlow {
    board: Scoreboard,
    paths: PathOrder,
    /// Packets that may be sent.
    credit: u32,
    /// PULLs that have been turned into credit.
    pulls: u32,
    /// When something last came back.
    heard: Instant,
    turn: Turn,
}

impl NdpFlow {
    fn deadline(&mut self, timeout: Span) -> Instant {
        match self.board.oldest() {
            Some(sent) => sent + timeout,
            None => self.heard + PATIENCE,
        }
    }
}

impl Ndp {
    /// A host without flows.
    pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Self> {
        let first_window = settings.bandwidth_delay() + BEYOND_BANDWIDTH_DELAY;
        let rules = Self {
            first_window,
            timeout: TIMEOUT + settings.base_rtt * 10,
            turns: Turns::default(),
            pulls: Pulls::new(first_window, settings.packet_time()),
        };
        FlowHost::new(host, settings, rules)
    }
}

impl FlowRules for Ndp {
    type Flow = NdpFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> NdpFlow {
        NdpFlow {
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            paths: PathOrder::new(&mut desk.random),
            credit: self.first_window,
            pulls: 0,
            heard: desk.now,
            turn: Turn::Waits,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        let packets = desk.settings.packets(cargo.flow_bytes);
        let answer = self.pulls.arrived(desk.now, envelope, cargo, packets);
        if let Some(arrival) = answer.arrival {
            desk.outbox.arrived(cargo.flow, arrival);
        }
        let reply = ReferenceCargo {
            pulls: answer.pulls,
            before: answer.before,
            ..cargo.answer(answer.kind)
        };
        desk.outbox.answer(envelope, reply);
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut NdpFlow, cargo: &ReferenceCargo) {
        match cargo.kind {
            CargoKind::Ack => {
                flow.board.arrived(cargo.packet, cargo.before);
            }
            CargoKind::Nack => flow.board.lose(cargo.packet),
            _ => {}
        }
        flow.heard = desk.now;
        flow.credit += cargo.pulls.saturating_sub(flow.pulls);
        flow.pulls = flow.pulls.max(cargo.pulls);
    }

    fn is_acknowledged(flow: &NdpFlow) -> bool {
        flow.board.missing() == 0
    }

    fn line_up(&mut self, _now: Instant, number: u32, flow: &mut NdpFlow) {
        if flow.credit > 0 && flow.board.has_packet() {
            self.turns.line_up(number, &mut flow.turn);
        }
    }

    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.turns.next()
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut NdpFlow) -> Option<DataDeparture> {
        flow.turn = Turn::Waits;
        let packet = flow.board.send(desk.now)?;
        flow.credit -= 1;
        Some(DataDeparture {
            packet,
            entropy: flow.paths.next(&mut desk.random),
            urgency: 0,
            alarm: Some(flow.deadline(self.timeout)),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut NdpFlow) -> Option<Instant> {
        if flow.deadline(self.timeout) <= now {
            let limit = now.as_picos().saturating_sub(self.timeout.as_picos());
            let lost = flow.board.lose_sent_until(Instant::from_picos(limit));
            flow.credit += lost.max(1);
            flow.heard = now;
        }
        Some(flow.deadline(self.timeout))
    }

    /// The PULL that is due.
    fn transmit_ahead(
        &mut self,
        desk: &mut FlowDesk,
        _flows: &SendingFlows<NdpFlow>,
        cargo: &mut ReferenceCargo,
    ) -> Option<Envelope> {
        let pull = self.pulls.take(desk.now)?;
        *cargo = pull.cargo;
        let route = Route {
            destination: pull.sender,
            entropy: desk.random.next_u32() as u16,
            urgency: 0,
        };
        Some(desk.outbox.control(route))
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.pulls.next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing, losing_third, settings,
    };
    use super::*;
    use crate::engine::host::{Host, Load};

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Ndp>> {
        Star::new(
            (0..hosts)
                .map(|host| Ndp::host(host, &settings()))
                .collect(),
            judge,
        )
    }

    fn trimming(envelope: &Envelope, _: &ReferenceCargo, waiting: usize) -> StarVerdict {
        match envelope.load == Load::Data && waiting >= 8 {
            true => StarVerdict::Trim,
            false => StarVerdict::Pass,
        }
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, Box::new(trimming)).assert_closed_form();
    }

    #[test]
    fn an_incast_of_seven_is_within_five_percent_of_the_link() {
        star(8, Box::new(trimming)).assert_incast();
    }

    #[test]
    fn a_packet_that_vanishes_is_sent_again_after_the_timeout() {
        let mut star = star(2, losing(9));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        let late = star.acknowledged(0).since(alone(40_860));
        assert!(late <= TIMEOUT + settings().base_rtt * 10, "late by {late}");
    }

    #[test]
    fn a_flow_goes_on_when_all_pulls_but_the_late_ones_vanish() {
        let heals = TIMEOUT * 20;
        let mut pulls = 0;
        let lost = move |envelope: &Envelope, cargo: &ReferenceCargo, waiting: usize| {
            pulls += usize::from(cargo.kind == CargoKind::Pull);
            match cargo.kind == CargoKind::Pull && pulls < 100 {
                true => StarVerdict::Drop,
                false => trimming(envelope, cargo, waiting),
            }
        };
        let mut star = star(2, Box::new(lost));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert!(star.acknowledged(0).since(Instant::START) < PATIENCE + heals);
        assert_eq!(star.hosts[1].counts().duplicates, 0);
    }

    #[test]
    fn everything_arrives_when_every_third_packet_vanishes() {
        star(3, losing_third(Box::new(trimming))).assert_two_arrive();
    }
}
