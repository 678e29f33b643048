//! pFabric: switches serve the flow with the least left to send, hosts do next to nothing.
//!
//! Alizadeh et al., "pFabric: Minimal Near-Optimal Datacenter Transport", SIGCOMM 2013. A packet's
//! urgency is what its flow has left; a switch that is full drops the least urgent. Flows start at
//! line rate. Every packet is acknowledged by itself; the only sign of loss is a timeout of a few
//! round trips, after which the window starts anew; after five in a row the flow only sends probes
//! until one is answered (section 4.3). Entropies are random per packet.
//!
//! Left out: the handshake. Which packet of a flow is served first, and which is dropped, is the
//! switch's matter ([`crate::engine::port`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::reference::alarms::{Alarm, Alarms};
use super::reference::cargo::{Cargo, Kind};
use super::reference::incoming::Incoming;
use super::reference::outbox::{DATA, Outbox, Route};
use super::reference::scoreboard::Scoreboard;
use super::settings::Settings;
use crate::engine::host::{Begin, Envelope, Host, Progress};
use crate::results::outcome::TransportCounts;

/// Round trips after which a packet without an answer counts as lost (section 5.1: 45 us where a
/// round trip takes 14.6 us).
const TIMEOUT_ROUND_TRIPS: u64 = 3;
/// Timeouts in a row after which a flow only probes (section 4.3).
const PROBE_AFTER: u32 = 5;

/// A host that speaks pFabric.
#[derive(Debug)]
pub struct PFabric {
    settings: Settings,
    timeout: Span,
    outbox: Outbox,
    random: ChaCha8Rng,
    sending: BTreeMap<u32, Sending>,
    /// Flows that may send now, the least left first.
    ready: BTreeSet<(u32, u32)>,
    /// Flows that are to send a probe.
    probes: VecDeque<u32>,
    alarms: Alarms,
    receiving: BTreeMap<u32, Incoming>,
}

/// A flow at its sender.
#[derive(Debug)]
struct Sending {
    destination: u32,
    bytes: ByteCount,
    board: Scoreboard,
    window: f64,
    slow_start_below: f64,
    /// Timeouts since something came back.
    timeouts: u32,
    last_timeout: Instant,
    alarm: Alarm,
    /// What it has left according to the set of flows that may send, if it is in there.
    listed: Option<u32>,
}

impl Sending {
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

    /// Slow start, then one packet more per round trip; no further than a quarter above what keeps
    /// the link busy (the authors' simulations: 15 packets where that is 12).
    fn grow(&mut self, bandwidth_delay: u32) {
        let slow_start = self.window < self.slow_start_below;
        self.window += if slow_start { 1.0 } else { 1.0 / self.window };
        self.window = self.window.min(f64::from(bandwidth_delay) * 1.25);
    }
}

impl PFabric {
    /// A host without flows.
    pub fn new(host: u32, settings: &Settings) -> Self {
        Self {
            settings: *settings,
            timeout: settings.base_rtt * TIMEOUT_ROUND_TRIPS,
            outbox: Outbox::new(host, *settings),
            random: ChaCha8Rng::seed_from_u64(settings.seed ^ u64::from(host) << 32),
            sending: BTreeMap::new(),
            ready: BTreeSet::new(),
            probes: VecDeque::new(),
            alarms: Alarms::default(),
            receiving: BTreeMap::new(),
        }
    }

    fn on_data(&mut self, envelope: &Envelope, cargo: &Cargo) {
        let packets = self.settings.packets(cargo.flow_bytes);
        let incoming = self
            .receiving
            .entry(cargo.flow)
            .or_insert_with(|| Incoming::new(packets));
        self.outbox.arrived(cargo.flow, incoming.take(cargo.packet));
        let before = incoming.before();
        let ack = Cargo {
            before,
            ..cargo.answer(Kind::Ack)
        };
        self.outbox.answer(envelope, ack);
    }

    fn on_ack(&mut self, cargo: &Cargo) {
        let flow = cargo.flow;
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        sending.timeouts = 0;
        if cargo.kind == Kind::Ack && sending.board.arrived(cargo.packet, cargo.before) {
            sending.grow(self.settings.bandwidth_delay());
        }
        Self::list(&mut self.ready, flow, sending);
        if sending.board.missing() == 0 {
            self.sending.remove(&flow);
            self.outbox.report(Progress::Acknowledged { flow });
        }
    }

    /// Brings a flow's entry among those that may send up to date.
    fn list(ready: &mut BTreeSet<(u32, u32)>, flow: u32, sending: &mut Sending) {
        let left = sending.may_send().then(|| sending.board.missing());
        if left != sending.listed {
            if let Some(listed) = sending.listed {
                ready.remove(&(listed, flow));
            }
            ready.extend(left.map(|left| (left, flow)));
            sending.listed = left;
        }
    }

    fn time_out(&mut self, now: Instant, flow: u32) {
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        sending.alarm = None;
        if sending
            .deadline(self.timeout)
            .is_some_and(|deadline| deadline <= now)
        {
            let limit = now.as_picos().saturating_sub(self.timeout.as_picos());
            sending.board.lose_sent_until(Instant::from_picos(limit));
            sending.slow_start_below = (sending.window / 2.0).max(2.0);
            sending.window = 1.0;
            sending.timeouts += 1;
            sending.last_timeout = now;
            if sending.timeouts >= PROBE_AFTER {
                self.probes.push_back(flow);
            }
            Self::list(&mut self.ready, flow, sending);
        }
        if let Some(deadline) = sending.deadline(self.timeout) {
            self.alarms
                .no_later_than(deadline, flow, &mut sending.alarm);
        }
    }

    fn send(&mut self, now: Instant, flow: u32, cargo: &mut Cargo) -> Option<Envelope> {
        let sending = self.sending.get_mut(&flow)?;
        let sent = sending.board.send(now)?;
        self.outbox.count(sent.attempt);
        *cargo = Cargo::data(flow, sending.bytes, now, sent);
        if let Some(deadline) = sending.deadline(self.timeout) {
            self.alarms
                .no_later_than(deadline, flow, &mut sending.alarm);
        }
        let entropy = self.random.next_u32() as u16;
        let urgency = sending.board.missing();
        let route = Route {
            destination: sending.destination,
            entropy,
            urgency,
        };
        let bytes = sending.bytes;
        Self::list(&mut self.ready, flow, sending);
        Some(self.outbox.data(route, bytes, sent.packet))
    }

    /// A probe queues where data does: it is to find out whether data would come through.
    fn probe(&mut self, flow: u32, cargo: &mut Cargo) -> Option<Envelope> {
        let sending = self.sending.get(&flow)?;
        let entropy = self.random.next_u32() as u16;
        let urgency = sending.board.missing();
        *cargo = Cargo {
            kind: Kind::Probe,
            flow,
            ..Cargo::default()
        };
        let route = Route {
            destination: sending.destination,
            entropy,
            urgency,
        };
        Some(Envelope {
            dscp: DATA,
            ..self.outbox.control(route)
        })
    }
}

impl Host for PFabric {
    type Cargo = Cargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        let mut sending = Sending {
            destination: begin.destination,
            bytes: begin.bytes,
            board: Scoreboard::new(self.settings.packets(begin.bytes)),
            window: f64::from(self.settings.bandwidth_delay()),
            slow_start_below: f64::INFINITY,
            timeouts: 0,
            last_timeout: now,
            alarm: None,
            listed: None,
        };
        Self::list(&mut self.ready, begin.flow, &mut sending);
        self.sending.insert(begin.flow, sending);
    }

    fn receive(&mut self, _now: Instant, envelope: &Envelope, cargo: &mut Cargo) {
        match cargo.kind {
            Kind::Data => self.on_data(envelope, cargo),
            Kind::Probe => self.outbox.answer(envelope, cargo.answer(Kind::Alive)),
            Kind::Ack | Kind::Alive => self.on_ack(cargo),
            Kind::Nack | Kind::Pull | Kind::Congestion => {}
        }
    }

    fn wake(&mut self, now: Instant) {
        while let Some(flow) = {
            let alarm = |flow| Some(self.sending.get(&flow)?.alarm);
            self.alarms.take_due(now, alarm)
        } {
            self.time_out(now, flow);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.alarms.next()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut Cargo) -> Option<Envelope> {
        if let Some(answer) = self.outbox.transmit(cargo) {
            return Some(answer);
        }
        while let Some(flow) = self.probes.pop_front() {
            if let Some(probe) = self.probe(flow, cargo) {
                return Some(probe);
            }
        }
        let &(_, flow) = self.ready.first()?;
        self.send(now, flow, cargo)
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

    fn star(hosts: u32, judge: Judge) -> Star<PFabric> {
        Star::new(
            (0..hosts)
                .map(|host| PFabric::new(host, &settings()))
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
    fn a_short_flow_passes_a_long_one() {
        let mut star = star(3, Box::new(|_, _, _| Verdict::Pass));
        star.begin(0, 0, 2, 2_000_000);
        star.run(Instant::from_picos(50_000_000));
        star.begin(1, 1, 2, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        let took = star.acknowledged(1).since(Instant::from_picos(50_000_000));
        let ideal = alone(40_860).since(Instant::START);
        // One packet of the long flow may be on the wire when the first of the short one comes.
        assert!(
            took <= ideal + settings().packet_time(),
            "took {took}, ideal {ideal}"
        );
    }

    #[test]
    fn a_lost_packet_is_sent_again_after_three_round_trips() {
        let lost = |_: &Envelope, cargo: &Cargo, _| match (cargo.kind, cargo.number) {
            (Kind::Data, 9) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let mut star = star(2, Box::new(lost));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        let late = star.acknowledged(0).since(alone(40_860));
        assert!(late <= settings().base_rtt * 3, "late by {late}");
    }

    #[test]
    fn after_five_timeouts_a_flow_probes_until_it_is_answered() {
        let heals = Instant::from_picos(200_000_000);
        let broken = move |_: &Envelope, cargo: &Cargo, _| match cargo.kind {
            Kind::Data if cargo.sent < heals => Verdict::Drop,
            _ => Verdict::Pass,
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
        let mut count = 0;
        let lossy = move |envelope: &Envelope, _: &Cargo, _| {
            count += usize::from(envelope.load == Load::Data);
            match envelope.load == Load::Data && count % 3 == 0 {
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
