//! NDP: switches cut packets instead of dropping them, receivers ask for what is to come.
//!
//! Handley et al., "Re-architecting datacenter networks and stacks for low latency and high
//! performance", SIGCOMM 2017. A flow starts with a window at line rate, unasked. A packet that
//! finds a queue full arrives as a header, which the receiver answers with a NACK; one that
//! arrives whole, with an ACK. For both it owes the sender one PULL, and sends these at the pace
//! at which its own link takes full packets, over all flows in turn. A PULL lets one packet go, a
//! lost one before a new one; a PULL that is due as a packet comes rides on its answer. Paths are
//! taken in a random order, all of them before any again (`paths`).
//!
//! The receiver owes no more PULLs than the flow has packets left, so that none is wasted on a
//! sender that has nothing to send. A timeout answers what trimming cannot: packets and headers
//! that vanish.
//!
//! Left out: returning headers to the sender when their queue is full, avoiding paths with many
//! NACKs, priority among the flows of a receiver, and the handshake.

mod paths;
mod pulls;

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::reference::alarms::{Alarm, Alarms};
use super::reference::cargo::{Cargo, Kind};
use super::reference::outbox::{Outbox, Route};
use super::reference::scoreboard::Scoreboard;
use super::reference::turns::{Turn, Turns};
use super::settings::Settings;
use crate::engine::host::{Begin, Envelope, Host, Progress};
use crate::results::outcome::TransportCounts;
use paths::Paths;
use pulls::Pulls;

/// Packets that the first window has beyond the bandwidth-delay product: two of the queues on the
/// way full (8 packets each, section 3.1), so that links stay busy when packets wait for each
/// other.
const BEYOND_BANDWIDTH_DELAY: u32 = 16;
/// A packet without an answer counts as lost after this, and ten round trips: far longer than
/// queues of 8 packets and of headers can hold it back.
const TIMEOUT: Span = Span::from_micros(100);
/// A sender that waits for a PULL sends a packet unasked after this: longer than the turn of
/// everybody else in an incast of ten thousand.
const PATIENCE: Span = Span::from_millis(4);

/// A host that speaks NDP.
#[derive(Debug)]
pub struct Ndp {
    settings: Settings,
    first_window: u32,
    timeout: Span,
    outbox: Outbox,
    random: ChaCha8Rng,
    sending: BTreeMap<u32, Sending>,
    turns: Turns,
    alarms: Alarms,
    pulls: Pulls,
    /// The latest time that was told.
    clock: Instant,
}

/// A flow at its sender.
#[derive(Debug)]
struct Sending {
    destination: u32,
    bytes: ByteCount,
    board: Scoreboard,
    paths: Paths,
    /// Packets that may be sent.
    credit: u32,
    /// PULLs that have been turned into credit.
    pulls: u32,
    /// When something last came back.
    heard: Instant,
    alarm: Alarm,
    turn: Turn,
}

impl Sending {
    fn deadline(&mut self, timeout: Span) -> Instant {
        match self.board.oldest() {
            Some(sent) => sent + timeout,
            None => self.heard + PATIENCE,
        }
    }
}

impl Ndp {
    /// A host without flows.
    pub fn new(host: u32, settings: &Settings) -> Self {
        let first_window = settings.bandwidth_delay() + BEYOND_BANDWIDTH_DELAY;
        Self {
            settings: *settings,
            first_window,
            timeout: TIMEOUT + settings.base_rtt * 10,
            outbox: Outbox::new(host, *settings),
            random: ChaCha8Rng::seed_from_u64(settings.seed ^ u64::from(host) << 32),
            sending: BTreeMap::new(),
            turns: Turns::default(),
            alarms: Alarms::default(),
            pulls: Pulls::new(first_window, settings.packet_time()),
            clock: Instant::START,
        }
    }

    fn on_data(&mut self, now: Instant, envelope: &Envelope, cargo: &Cargo) {
        let packets = self.settings.packets(cargo.flow_bytes);
        let answer = self.pulls.arrived(now, envelope, cargo, packets);
        if let Some(arrival) = answer.arrival {
            self.outbox.arrived(cargo.flow, arrival);
        }
        let reply = Cargo {
            pulls: answer.pulls,
            before: answer.before,
            ..cargo.answer(answer.kind)
        };
        self.outbox.answer(envelope, reply);
    }

    fn on_answer(&mut self, now: Instant, cargo: &Cargo) {
        let flow = cargo.flow;
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        match cargo.kind {
            Kind::Ack => {
                sending.board.arrived(cargo.packet, cargo.before);
            }
            Kind::Nack => sending.board.lose(cargo.packet),
            _ => {}
        }
        sending.heard = now;
        sending.credit += cargo.pulls.saturating_sub(sending.pulls);
        sending.pulls = sending.pulls.max(cargo.pulls);
        Self::line_up(&mut self.turns, flow, sending);
        if sending.board.missing() == 0 {
            self.sending.remove(&flow);
            self.outbox.report(Progress::Acknowledged { flow });
        }
    }

    fn line_up(turns: &mut Turns, flow: u32, sending: &mut Sending) {
        if sending.credit > 0 && sending.board.has_packet() {
            turns.line_up(flow, &mut sending.turn);
        }
    }

    fn time_out(&mut self, now: Instant, flow: u32) {
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        sending.alarm = None;
        if sending.deadline(self.timeout) <= now {
            let limit = now.as_picos().saturating_sub(self.timeout.as_picos());
            let lost = sending.board.lose_sent_until(Instant::from_picos(limit));
            sending.credit += lost.max(1);
            sending.heard = now;
            Self::line_up(&mut self.turns, flow, sending);
        }
        let deadline = sending.deadline(self.timeout);
        self.alarms
            .no_later_than(deadline, flow, &mut sending.alarm);
    }

    fn send(&mut self, now: Instant, flow: u32, cargo: &mut Cargo) -> Option<Envelope> {
        let sending = self.sending.get_mut(&flow)?;
        sending.turn = Turn::Waits;
        let sent = sending.board.send(now)?;
        sending.credit -= 1;
        self.outbox.count(sent.attempt);
        *cargo = Cargo::data(flow, sending.bytes, now, sent);
        let deadline = sending.deadline(self.timeout);
        self.alarms
            .no_later_than(deadline, flow, &mut sending.alarm);
        let entropy = sending.paths.next(&mut self.random);
        let route = Route {
            destination: sending.destination,
            entropy,
            urgency: 0,
        };
        let bytes = sending.bytes;
        Self::line_up(&mut self.turns, flow, sending);
        Some(self.outbox.data(route, bytes, sent.packet))
    }

    fn pull(&mut self, now: Instant, cargo: &mut Cargo) -> Option<Envelope> {
        let pull = self.pulls.take(now)?;
        *cargo = pull.cargo;
        let entropy = self.random.next_u32() as u16;
        let route = Route {
            destination: pull.sender,
            entropy,
            urgency: 0,
        };
        Some(self.outbox.control(route))
    }
}

impl Host for Ndp {
    type Cargo = Cargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.clock = now;
        let mut sending = Sending {
            destination: begin.destination,
            bytes: begin.bytes,
            board: Scoreboard::new(self.settings.packets(begin.bytes)),
            paths: Paths::new(&mut self.random),
            credit: self.first_window,
            pulls: 0,
            heard: now,
            alarm: None,
            turn: Turn::Waits,
        };
        Self::line_up(&mut self.turns, begin.flow, &mut sending);
        self.sending.insert(begin.flow, sending);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Cargo) {
        self.clock = now;
        match cargo.kind {
            Kind::Data => self.on_data(now, envelope, cargo),
            Kind::Ack | Kind::Nack | Kind::Pull => self.on_answer(now, cargo),
            Kind::Congestion | Kind::Probe | Kind::Alive => {}
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
        // A PULL that is due already waits for the link, not for the time.
        let pull = self.pulls.next().filter(|&at| at > self.clock);
        pull.into_iter().chain(self.alarms.next()).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut Cargo) -> Option<Envelope> {
        self.clock = now;
        let control = self
            .outbox
            .transmit(cargo)
            .or_else(|| self.pull(now, cargo));
        if control.is_some() {
            return control;
        }
        while let Some(flow) = self.turns.next() {
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

    fn star(hosts: u32, judge: Judge) -> Star<Ndp> {
        Star::new(
            (0..hosts).map(|host| Ndp::new(host, &settings())).collect(),
            judge,
        )
    }

    fn trimming(envelope: &Envelope, _: &Cargo, waiting: usize) -> Verdict {
        match envelope.load == Load::Data && waiting >= 8 {
            true => Verdict::Trim,
            false => Verdict::Pass,
        }
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        let mut star = star(2, Box::new(trimming));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn an_incast_of_seven_is_within_five_percent_of_the_link() {
        let mut star = star(8, Box::new(trimming));
        for source in 0..7 {
            star.begin(source, source as u32, 7, 1_000_000);
        }
        star.run(Instant::from_picos(u64::MAX));
        let ideal = alone(7_000_000).since(Instant::START).as_secs_f64();
        let last = (0..7)
            .map(|flow| star.acknowledged(flow))
            .max()
            .expect("seven flows");
        let took = last.since(Instant::START).as_secs_f64();
        assert!(took < 1.05 * ideal, "took {took}, ideal {ideal}");
        assert_eq!(star.hosts[7].counts().duplicates, 0);
    }

    #[test]
    fn a_packet_that_vanishes_is_sent_again_after_the_timeout() {
        let lost = |_: &Envelope, cargo: &Cargo, _| match (cargo.kind, cargo.number) {
            (Kind::Data, 9) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let mut star = star(2, Box::new(lost));
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
        let lost = move |envelope: &Envelope, cargo: &Cargo, waiting: usize| {
            pulls += usize::from(cargo.kind == Kind::Pull);
            match cargo.kind == Kind::Pull && pulls < 100 {
                true => Verdict::Drop,
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
        let mut count = 0;
        let lossy = move |envelope: &Envelope, cargo: &Cargo, waiting: usize| {
            count += 1;
            match count % 3 == 0 {
                true => Verdict::Drop,
                false => trimming(envelope, cargo, waiting),
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
