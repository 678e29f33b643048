//! pFabric: switches serve the flow with the least left to send, hosts hardly react.
//!
//! Alizadeh et al., "pFabric: Minimal Near-Optimal Datacenter Transport", SIGCOMM 2013. A packet's
//! urgency is the number of packets that its flow has left; a switch that is full drops the least
//! urgent. Flows start at line rate. The receiver acknowledges every packet by itself; the only
//! sign of loss is a timeout of a few round trips, after which the window restarts; after five in a
//! row the flow only sends probes until one is answered (section 4.3). Entropies are random per
//! packet.
//!
//! Left out: the handshake. The switch decides which packet of a flow is served first, and which is
//! dropped ([`crate::engine::port`]).

use std::collections::{BTreeSet, VecDeque};

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

use super::reference::acknowledger::Acknowledger;
use super::reference::cargo::{CargoKind, ReferenceCargo};
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules, SendingFlows};
use super::reference::outbox::{DATA, Route};
use super::reference::scoreboard::Scoreboard;
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};

/// Round trips after which a packet without an answer counts as lost (section 5.1: 45 us where a
/// round trip takes 14.6 us).
const TIMEOUT_ROUND_TRIPS: u64 = 3;
/// Timeouts in a row after which a flow only probes (section 4.3).
const PROBE_AFTER: u32 = 5;

/// The rules of pFabric.
#[derive(Debug)]
pub struct PFabric {
    timeout: Span,
    /// Flows that may send now, the least left first.
    ready: BTreeSet<(u32, u32)>,
    /// Flows that are to send a probe.
    probes: VecDeque<u32>,
    receiving: Acknowledger,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct PFabricFlow {
    board: Scoreboard,
    window: f64,
    slow_start_below: f64,
    /// Timeouts since something came back.
    timeouts: u32,
    last_timeout: Instant,
    /// Its entry among the flows that may send: the packets that it had left then.
    listed: Option<u32>,
}

impl PFabricFlow {
    fn may_send(&self) -> bool {
        let room = f64::from(self.board.in_flight()) + 1.0 <= self.window;
        self.timeouts < PROBE_AFTER && room && self.board.has_packet()
    }

    fn deadline(&mut self, timeout: Span) -> Option<Instant> {
        if self.timeouts >= PROBE_AFTER {
            return Some(self.last_timeout + timeout);
        }
        let oldest = self.board.oldest()?;
        Some(oldest.max(self.last_timeout) + timeout)
    }

    /// Slow start, then one packet more per round trip; at most a quarter above the window that
    /// keeps the link busy (the authors' simulations: 15 packets where that is 12).
    fn grow(&mut self, bandwidth_delay: u32) {
        let slow_start = self.window < self.slow_start_below;
        self.window += if slow_start { 1.0 } else { 1.0 / self.window };
        self.window = self.window.min(f64::from(bandwidth_delay) * 1.25);
    }
}

impl PFabric {
    /// A host without flows.
    pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Self> {
        let rules = Self {
            timeout: settings.base_rtt * TIMEOUT_ROUND_TRIPS,
            ready: BTreeSet::new(),
            probes: VecDeque::new(),
            receiving: Acknowledger::default(),
        };
        FlowHost::new(host, settings, rules)
    }
}

impl FlowRules for PFabric {
    type Flow = PFabricFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> PFabricFlow {
        PFabricFlow {
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            window: f64::from(desk.settings.bandwidth_delay()),
            slow_start_below: f64::INFINITY,
            timeouts: 0,
            last_timeout: desk.now,
            listed: None,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        if cargo.kind == CargoKind::Probe {
            desk.outbox.answer(envelope, cargo.answer(CargoKind::Alive));
        } else {
            self.receiving.take(desk, envelope, cargo);
        }
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut PFabricFlow, cargo: &ReferenceCargo) {
        flow.timeouts = 0;
        if cargo.kind == CargoKind::Ack && flow.board.arrived(cargo.packet, cargo.before) {
            flow.grow(desk.settings.bandwidth_delay());
        }
    }

    fn is_acknowledged(flow: &PFabricFlow) -> bool {
        flow.board.missing() == 0
    }

    /// Updates a flow's entry among those that may send.
    fn line_up(&mut self, _now: Instant, number: u32, flow: &mut PFabricFlow) {
        let left = flow.may_send().then(|| flow.board.missing());
        if left != flow.listed {
            if let Some(listed) = flow.listed {
                self.ready.remove(&(listed, number));
            }
            self.ready.extend(left.map(|left| (left, number)));
            flow.listed = left;
        }
    }

    /// The flow stays in line: [`Self::line_up`] takes it out when it may no longer send.
    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.ready.first().map(|&(_, number)| number)
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut PFabricFlow) -> Option<DataDeparture> {
        Some(DataDeparture {
            packet: flow.board.send(desk.now)?,
            entropy: desk.random.next_u32() as u16,
            urgency: flow.board.missing(),
            pulls: 0,
            alarm: flow.deadline(self.timeout),
        })
    }

    fn time_out(&mut self, now: Instant, number: u32, flow: &mut PFabricFlow) -> Option<Instant> {
        let deadline = flow.deadline(self.timeout);
        if deadline.is_some_and(|deadline| deadline <= now) {
            let limit = now.as_picos().saturating_sub(self.timeout.as_picos());
            flow.board.lose_sent_until(Instant::from_picos(limit));
            flow.slow_start_below = (flow.window / 2.0).max(2.0);
            flow.window = 1.0;
            flow.timeouts += 1;
            flow.last_timeout = now;
            if flow.timeouts >= PROBE_AFTER {
                self.probes.push_back(number);
            }
        }
        flow.deadline(self.timeout)
    }

    /// A probe queues where data does: it tests whether data would get through.
    fn transmit_ahead(
        &mut self,
        desk: &mut FlowDesk,
        flows: &SendingFlows<PFabricFlow>,
        cargo: &mut ReferenceCargo,
    ) -> Option<Envelope> {
        let mut known = std::iter::from_fn(|| self.probes.pop_front());
        let (number, flow) = known.find_map(|number| Some((number, flows.get(&number)?)))?;
        *cargo = ReferenceCargo {
            kind: CargoKind::Probe,
            flow: number,
            ..ReferenceCargo::default()
        };
        let route = Route {
            destination: flow.destination,
            entropy: desk.random.next_u32() as u16,
            urgency: flow.state.board.missing(),
        };
        Some(Envelope {
            dscp: DATA,
            ..desk.outbox.control(route)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing, losing_data, passing, settings,
    };
    use super::*;
    use crate::engine::host::Host;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<PFabric>> {
        Star::new(
            (0..hosts)
                .map(|host| PFabric::host(host, &settings()))
                .collect(),
            judge,
        )
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, passing()).assert_closed_form();
    }

    #[test]
    fn a_short_flow_passes_a_long_one() {
        let mut star = star(3, passing());
        star.begin(0, 0, 2, 2_000_000);
        star.run(Instant::from_picos(50_000_000));
        star.begin(1, 1, 2, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        let took = star.acknowledged(1).since(Instant::from_picos(50_000_000));
        let ideal = alone(40_860).since(Instant::START);
        // One packet of the long flow may be on the wire when the first of the short one arrives.
        assert!(
            took <= ideal + settings().packet_time(),
            "took {took}, ideal {ideal}"
        );
    }

    #[test]
    fn a_lost_packet_is_sent_again_after_three_round_trips() {
        let mut star = star(2, losing(9));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        let late = star.acknowledged(0).since(alone(40_860));
        assert!(late <= settings().base_rtt * 3, "late by {late}");
    }

    #[test]
    fn after_five_timeouts_a_flow_probes_until_it_is_answered() {
        let heals = Instant::from_picos(200_000_000);
        let broken = move |_: &Envelope, cargo: &ReferenceCargo, _| match cargo.kind {
            CargoKind::Data if cargo.sent < heals => StarVerdict::Drop,
            _ => StarVerdict::Pass,
        };
        let mut star = star(2, Box::new(broken));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        star.acknowledged(0);
        let counts = star.hosts[0].counts();
        assert!(counts.repaired < 40, "{counts:?}");
    }

    #[test]
    fn everything_arrives_when_every_third_data_packet_is_lost() {
        star(3, losing_data(3)).assert_two_arrive();
    }
}
