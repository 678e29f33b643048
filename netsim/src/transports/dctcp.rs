//! DCTCP: a window that shrinks by as much as the share of marked packets asks for.
//!
//! Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; constants of RFC 8257. Every packet is
//! acknowledged at once, its mark repeated in the ACK; losses are found by what overtook them
//! (`reference::scoreboard`) or by a timeout (`rtt`). A flow keeps one entropy, so that it takes
//! one path where switches hash.
//!
//! Left out: the handshake, delayed ACKs, a receive window, and the byte stream: a flow is a fixed
//! number of packets. Reordering by switches that spray is taken for loss, as TCP does. Nothing
//! jitters: two equal senders on one switch run in lockstep, and the one whose packets come second
//! sees the longer queue every time.

mod rtt;
mod window;

use std::collections::BTreeMap;

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Instant, Span};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::reference::alarms::{Alarm, Alarms};
use super::reference::cargo::{Cargo, Kind};
use super::reference::incoming::Incoming;
use super::reference::outbox::{Outbox, Route};
use super::reference::scoreboard::Scoreboard;
use super::reference::turns::{Turn, Turns};
use super::settings::Settings;
use crate::engine::host::{Begin, Envelope, Host, Progress};
use crate::results::outcome::TransportCounts;
use rtt::{LEAST, LEAST_OF_PAPER, RoundTrip};
use window::{News, Window};

/// A host that speaks DCTCP.
#[derive(Debug)]
pub struct Dctcp {
    settings: Settings,
    least_timeout: Span,
    first_window: u32,
    outbox: Outbox,
    random: ChaCha8Rng,
    sending: BTreeMap<u32, Sending>,
    turns: Turns,
    alarms: Alarms,
    receiving: BTreeMap<u32, Incoming>,
}

/// A flow at its sender.
#[derive(Debug)]
struct Sending {
    route: Route,
    bytes: ByteCount,
    board: Scoreboard,
    window: Window,
    round_trip: RoundTrip,
    deadline: Instant,
    alarm: Alarm,
    turn: Turn,
}

impl Dctcp {
    /// A host without flows. Windows start with a bandwidth-delay product, as those of DCTCP do in
    /// the evaluation of pFabric, and those of all transports here: what is compared is not how
    /// carefully they start.
    pub fn new(host: u32, settings: &Settings) -> Self {
        Self {
            settings: *settings,
            least_timeout: LEAST,
            first_window: settings.bandwidth_delay(),
            outbox: Outbox::new(host, *settings),
            random: ChaCha8Rng::seed_from_u64(settings.seed ^ u64::from(host) << 32),
            sending: BTreeMap::new(),
            turns: Turns::default(),
            alarms: Alarms::default(),
            receiving: BTreeMap::new(),
        }
    }

    /// The same with the least timeout of DCTCP's paper.
    pub fn of_paper(host: u32, settings: &Settings) -> Self {
        Self {
            least_timeout: LEAST_OF_PAPER,
            ..Self::new(host, settings)
        }
    }

    /// The same with windows that start with so many packets; TCP of today starts with 10
    /// (RFC 6928).
    pub fn with_first_window(self, packets: u32) -> Self {
        Self {
            first_window: packets,
            ..self
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
        let marked = envelope.ecn == Ecn::Ce;
        self.outbox.counts.marks += u64::from(marked);
        self.outbox.answer(
            envelope,
            Cargo {
                marked,
                before,
                ..cargo.answer(Kind::Ack)
            },
        );
    }

    fn on_ack(&mut self, now: Instant, cargo: &Cargo) {
        let flow = cargo.flow;
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        let in_flight = sending.board.in_flight();
        if !sending.board.arrived(cargo.packet, cargo.before) {
            return;
        }
        if sending.board.missing() == 0 {
            self.sending.remove(&flow);
            self.outbox.report(Progress::Acknowledged { flow });
            return;
        }
        sending.window.on_ack(&News {
            number: cargo.number,
            marked: cargo.marked,
            lost: sending.board.overtaken(cargo.number),
            next_number: sending.board.next_number(),
            in_flight,
        });
        sending.round_trip.sample(now.since(cargo.sent));
        sending.deadline = now + sending.round_trip.timeout();
        Self::line_up(&mut self.turns, flow, sending);
    }

    fn line_up(turns: &mut Turns, flow: u32, sending: &mut Sending) {
        if sending.board.has_packet() && sending.window.admits(sending.board.in_flight()) {
            turns.line_up(flow, &mut sending.turn);
        }
    }

    fn time_out(&mut self, now: Instant, flow: u32) {
        let Some(sending) = self.sending.get_mut(&flow) else {
            return;
        };
        sending.alarm = None;
        if sending.board.in_flight() == 0 {
            sending.deadline = now + sending.round_trip.timeout();
        } else if sending.deadline <= now {
            sending.board.lose_sent_until(now);
            sending.window.on_timeout(sending.board.next_number());
            sending.round_trip.timed_out();
            sending.deadline = now + sending.round_trip.timeout();
            Self::line_up(&mut self.turns, flow, sending);
        }
        self.alarms
            .no_later_than(sending.deadline, flow, &mut sending.alarm);
    }

    fn send(&mut self, now: Instant, flow: u32, cargo: &mut Cargo) -> Option<Envelope> {
        let sending = self.sending.get_mut(&flow)?;
        sending.turn = Turn::Waits;
        if !sending.window.admits(sending.board.in_flight()) {
            return None;
        }
        if sending.board.in_flight() == 0 {
            sending.deadline = now + sending.round_trip.timeout();
            self.alarms
                .no_later_than(sending.deadline, flow, &mut sending.alarm);
        }
        let sent = sending.board.send(now)?;
        self.outbox.count(sent.attempt);
        *cargo = Cargo::data(flow, sending.bytes, now, sent);
        let (route, bytes) = (sending.route, sending.bytes);
        Self::line_up(&mut self.turns, flow, sending);
        Some(self.outbox.data(route, bytes, sent.packet))
    }
}

impl Host for Dctcp {
    type Cargo = Cargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        let entropy = self.random.next_u32() as u16;
        let mut sending = Sending {
            route: Route {
                destination: begin.destination,
                entropy,
                urgency: 0,
            },
            bytes: begin.bytes,
            board: Scoreboard::new(self.settings.packets(begin.bytes)),
            window: Window::new(self.first_window),
            round_trip: RoundTrip::new(self.least_timeout),
            deadline: now,
            alarm: None,
            turn: Turn::Waits,
        };
        Self::line_up(&mut self.turns, begin.flow, &mut sending);
        self.sending.insert(begin.flow, sending);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut Cargo) {
        match cargo.kind {
            Kind::Data => self.on_data(envelope, cargo),
            Kind::Ack => self.on_ack(now, cargo),
            Kind::Nack | Kind::Pull | Kind::Congestion | Kind::Probe | Kind::Alive => {}
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

    fn star(hosts: u32, judge: Judge) -> Star<Dctcp> {
        star_of(Dctcp::new, hosts, judge)
    }

    fn star_of(new: fn(u32, &Settings) -> Dctcp, hosts: u32, judge: Judge) -> Star<Dctcp> {
        let hosts = (0..hosts).map(|host| new(host, &settings()));
        Star::new(hosts.collect(), judge)
    }

    fn marking(above: usize) -> Judge {
        Box::new(move |_, _, waiting| match waiting > above {
            true => Verdict::Mark,
            false => Verdict::Pass,
        })
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        let mut star = star(2, Box::new(|_, _, _| Verdict::Pass));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn a_lost_packet_is_sent_again_within_a_round_trip() {
        let lost = |_: &Envelope, cargo: &Cargo, _| match (cargo.kind, cargo.number) {
            (Kind::Data, 50) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        let mut star = star(2, Box::new(lost));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        assert_eq!(star.hosts[1].counts().duplicates, 0);
        let late = star.acknowledged(0).since(alone(2_000_000));
        assert!(late < settings().base_rtt * 3, "late by {late}");
    }

    #[test]
    fn lost_acks_are_not_taken_for_lost_packets() {
        let mut count = 0;
        let lossy = move |_: &Envelope, cargo: &Cargo, _| {
            count += usize::from(cargo.kind == Kind::Ack);
            match cargo.kind == Kind::Ack && count % 3 == 0 {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        };
        let mut star = star(2, Box::new(lossy));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 0);
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn a_lost_end_costs_a_timeout() {
        let lost = |_: &Envelope, cargo: &Cargo, _| match (cargo.kind, cargo.number) {
            (Kind::Data, 9) => Verdict::Drop,
            _ => Verdict::Pass,
        };
        type New = fn(u32, &Settings) -> Dctcp;
        let kinds: [(New, Span); 2] = [(Dctcp::new, LEAST), (Dctcp::of_paper, LEAST_OF_PAPER)];
        for (new, least) in kinds {
            let mut star = star_of(new, 2, Box::new(lost));
            star.begin(0, 0, 1, 40_860);
            star.run(Instant::from_picos(u64::MAX));
            assert_eq!(star.hosts[0].counts().repaired, 1);
            let took = star.acknowledged(0).since(Instant::START);
            assert!(took > least, "took {took}");
            assert!(took < least * 2, "took {took}");
        }
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

    #[test]
    fn two_flows_share_a_link_and_its_queue_stays_near_the_threshold() {
        let mut star = star(3, marking(20));
        star.begin(0, 0, 2, 20_000_000);
        star.begin(1, 1, 2, 20_000_000);
        star.run(Instant::from_picos(u64::MAX));
        let both = alone(40_000_000).since(Instant::START).as_secs_f64();
        for flow in [0, 1] {
            let took = star.acknowledged(flow).since(Instant::START).as_secs_f64();
            assert!(
                (took / both - 1.0).abs() < 0.05,
                "flow {flow}: {took} of {both}"
            );
        }
        assert_eq!(
            star.hosts
                .iter()
                .map(|host| host.counts().repaired)
                .sum::<u64>(),
            0
        );
    }
}
