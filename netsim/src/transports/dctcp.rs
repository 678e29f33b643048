//! DCTCP: a window that shrinks in proportion to the share of marked packets.
//!
//! Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; constants of RFC 8257. Every packet is
//! acknowledged at once, its mark repeated in the ACK; losses are found by later packets that
//! overtook them (`reference::scoreboard`) or by a timeout (`rtt`). A flow keeps one entropy, so
//! that it takes one path where switches hash.
//!
//! Left out: the handshake, delayed ACKs, a receive window, and the byte stream: a flow is a fixed
//! number of packets. A sender takes reordering by switches that spray for loss, as TCP does. There
//! is no jitter: two equal senders on one switch run in lockstep, and the one whose packets arrive
//! second sees the longer queue every time.

mod rtt;
mod window;

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

use super::reference::acknowledger::Acknowledger;
use super::reference::cargo::ReferenceCargo;
use super::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use super::reference::scoreboard::Scoreboard;
use super::reference::turns::{Turn, Turns};
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope};
use rtt::{LEAST, LEAST_OF_PAPER, RoundTrip};
use window::{AckNews, Window};

/// The rules of DCTCP.
#[derive(Debug)]
pub struct Dctcp {
    least_timeout: Span,
    first_window: u32,
    turns: Turns,
    receiving: Acknowledger,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct DctcpFlow {
    entropy: u16,
    board: Scoreboard,
    window: Window,
    round_trip: RoundTrip,
    deadline: Instant,
    turn: Turn,
}

impl Dctcp {
    /// A host without flows. Windows start with a bandwidth-delay product, as those of DCTCP do in
    /// the evaluation of pFabric, and as those of all transports here: the comparison is not about
    /// how carefully they start.
    pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Self> {
        FlowHost::new(host, settings, Self::new(settings, LEAST))
    }

    /// The same with the minimum timeout of DCTCP's paper.
    pub fn host_of_paper(host: u32, settings: &ReferenceSettings) -> FlowHost<Self> {
        FlowHost::new(host, settings, Self::new(settings, LEAST_OF_PAPER))
    }

    fn new(settings: &ReferenceSettings, least_timeout: Span) -> Self {
        Self {
            least_timeout,
            first_window: settings.bandwidth_delay(),
            turns: Turns::default(),
            receiving: Acknowledger::default(),
        }
    }
}

impl FlowRules for Dctcp {
    type Flow = DctcpFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> DctcpFlow {
        DctcpFlow {
            entropy: desk.random.next_u32() as u16,
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            window: Window::new(self.first_window),
            round_trip: RoundTrip::new(self.least_timeout),
            deadline: desk.now,
            turn: Turn::Waits,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        self.receiving.take(desk, envelope, cargo);
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut DctcpFlow, cargo: &ReferenceCargo) {
        let in_flight = flow.board.in_flight();
        if !flow.board.arrived(cargo.packet, cargo.before) {
            return;
        }
        flow.window.on_ack(&AckNews {
            number: cargo.number,
            marked: cargo.marked,
            lost: flow.board.overtaken(cargo.number),
            next_number: flow.board.next_number(),
            in_flight,
        });
        flow.round_trip.sample(desk.now.since(cargo.sent));
        flow.deadline = desk.now + flow.round_trip.timeout();
    }

    fn is_acknowledged(flow: &DctcpFlow) -> bool {
        flow.board.missing() == 0
    }

    fn line_up(&mut self, _now: Instant, number: u32, flow: &mut DctcpFlow) {
        if flow.board.has_packet() && flow.window.admits(flow.board.in_flight()) {
            self.turns.line_up(number, &mut flow.turn);
        }
    }

    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.turns.next()
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut DctcpFlow) -> Option<DataDeparture> {
        flow.turn = Turn::Waits;
        if !flow.window.admits(flow.board.in_flight()) {
            return None;
        }
        let is_idle = flow.board.in_flight() == 0;
        if is_idle {
            flow.deadline = desk.now + flow.round_trip.timeout();
        }
        Some(DataDeparture {
            packet: flow.board.send(desk.now)?,
            entropy: flow.entropy,
            urgency: 0,
            alarm: is_idle.then_some(flow.deadline),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut DctcpFlow) -> Option<Instant> {
        if flow.board.in_flight() == 0 {
            flow.deadline = now + flow.round_trip.timeout();
        } else if flow.deadline <= now {
            flow.board.lose_sent_until(now);
            flow.window.on_timeout(flow.board.next_number());
            flow.round_trip.timed_out();
            flow.deadline = now + flow.round_trip.timeout();
        }
        Some(flow.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{Judge, Star, StarVerdict, alone, settings};
    use super::*;
    use crate::engine::host::{Host, Load};
    use crate::transports::reference::cargo::CargoKind;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Dctcp>> {
        star_of(Dctcp::host, hosts, judge)
    }

    fn star_of(
        new: fn(u32, &ReferenceSettings) -> FlowHost<Dctcp>,
        hosts: u32,
        judge: Judge,
    ) -> Star<FlowHost<Dctcp>> {
        let hosts = (0..hosts).map(|host| new(host, &settings()));
        Star::new(hosts.collect(), judge)
    }

    fn marking(above: usize) -> Judge {
        Box::new(move |_, _, waiting| match waiting > above {
            true => StarVerdict::Mark,
            false => StarVerdict::Pass,
        })
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        let mut star = star(2, Box::new(|_, _, _| StarVerdict::Pass));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn a_lost_packet_is_sent_again_within_a_round_trip() {
        let lost = |_: &Envelope, cargo: &ReferenceCargo, _| match (cargo.kind, cargo.number) {
            (CargoKind::Data, 50) => StarVerdict::Drop,
            _ => StarVerdict::Pass,
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
        let lossy = move |_: &Envelope, cargo: &ReferenceCargo, _| {
            count += usize::from(cargo.kind == CargoKind::Ack);
            match cargo.kind == CargoKind::Ack && count % 3 == 0 {
                true => StarVerdict::Drop,
                false => StarVerdict::Pass,
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
        let lost = |_: &Envelope, cargo: &ReferenceCargo, _| match (cargo.kind, cargo.number) {
            (CargoKind::Data, 9) => StarVerdict::Drop,
            _ => StarVerdict::Pass,
        };
        type New = fn(u32, &ReferenceSettings) -> FlowHost<Dctcp>;
        let kinds: [(New, Span); 2] =
            [(Dctcp::host, LEAST), (Dctcp::host_of_paper, LEAST_OF_PAPER)];
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
        let lossy = move |envelope: &Envelope, _: &ReferenceCargo, _| {
            count += usize::from(envelope.load == Load::Data);
            match envelope.load == Load::Data && count % 3 == 0 {
                true => StarVerdict::Drop,
                false => StarVerdict::Pass,
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
