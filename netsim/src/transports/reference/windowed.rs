//! The rules of a transport with a window for each flow, apart from how the window moves.
//!
//! A flow keeps one entropy, so that it takes one path where switches hash. The receiver
//! acknowledges every packet at once (`acknowledger`); the sender finds losses by later packets
//! that overtook them (`scoreboard`) or by a timeout (`retransmission`). Implementors of
//! [`FlowWindow`]: [`crate::transports::dctcp`], [`crate::transports::swift`].
//!
//! Left out: the handshake, delayed ACKs, a receive window, and the byte stream: a flow is a fixed
//! number of packets. A sender takes reordering by switches that spray for loss, as TCP does. There
//! is no jitter: two equal senders on one switch run in lockstep, and the one whose packets arrive
//! second sees the longer queue every time.

use std::fmt::Debug;

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

use super::acknowledger::Acknowledger;
use super::cargo::ReferenceCargo;
use super::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use super::retransmission::RoundTrip;
use super::scoreboard::Scoreboard;
use super::turns::{Turn, Turns};
use crate::engine::host::{Begin, Envelope, Load};
use crate::transports::settings::ReferenceSettings;

/// The information in an ACK.
#[derive(Clone, Copy, Debug)]
pub struct AckNews {
    /// When it arrived.
    pub(crate) now: Instant,
    /// Time from the transmission that it answers to its arrival.
    pub(crate) round_trip: Span,
    /// Transmission that it is about.
    pub(crate) number: u32,
    /// Whether that one was marked.
    pub(crate) marked: bool,
    /// Transmissions that it shows to be lost.
    pub(crate) lost: u32,
    /// Number of the next transmission.
    pub(crate) next_number: u32,
    /// Packets that were in flight before it arrived.
    pub(crate) in_flight: u32,
}

/// How many packets of a flow may be in flight.
pub trait FlowWindow: Clone + Debug {
    /// Whether one more packet may be in flight.
    fn admits(&self, in_flight: u32) -> bool;

    /// Takes note of an ACK.
    fn on_ack(&mut self, news: &AckNews);

    /// Notes a timeout: no answer has arrived for too long.
    fn on_timeout(&mut self, now: Instant, next_number: u32);

    /// Least time between two packets, if the window is below one packet.
    fn gap(&self) -> Option<Span> {
        None
    }
}

/// The rules of a transport with windows.
#[derive(Debug)]
pub struct Windowed<W> {
    /// The window of a flow that begins.
    first: W,
    least_timeout: Span,
    turns: Turns,
    receiving: Acknowledger,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct WindowedFlow<W> {
    entropy: u16,
    board: Scoreboard,
    window: W,
    round_trip: RoundTrip,
    deadline: Instant,
    /// No packet leaves before.
    next_at: Instant,
    turn: Turn,
}

impl<W: FlowWindow> WindowedFlow<W> {
    fn may_send(&self, now: Instant) -> bool {
        self.next_at <= now && self.window.admits(self.board.in_flight())
    }
}

impl<W: FlowWindow> Windowed<W> {
    /// A host whose flows begin with this window and have this minimum timeout.
    pub(crate) fn host(
        host: u32,
        settings: &ReferenceSettings,
        first: W,
        least_timeout: Span,
    ) -> FlowHost<Self> {
        let rules = Self {
            first,
            least_timeout,
            turns: Turns::default(),
            receiving: Acknowledger::default(),
        };
        FlowHost::new(host, settings, rules)
    }
}

impl<W: FlowWindow> FlowRules for Windowed<W> {
    type Flow = WindowedFlow<W>;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> WindowedFlow<W> {
        WindowedFlow {
            entropy: desk.random.next_u32() as u16,
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            window: self.first.clone(),
            round_trip: RoundTrip::new(self.least_timeout),
            deadline: desk.now,
            next_at: desk.now,
            turn: Turn::Waits,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        // The checksum of a packet that a switch has cut is wrong.
        if envelope.load != Load::Trimmed {
            self.receiving.take(desk, envelope, cargo);
        }
    }

    fn at_sender(
        &mut self,
        desk: &mut FlowDesk,
        flow: &mut WindowedFlow<W>,
        cargo: &ReferenceCargo,
    ) {
        let in_flight = flow.board.in_flight();
        if !flow.board.arrived(cargo.packet, cargo.before) {
            return;
        }
        let round_trip = desk.now.since(cargo.sent);
        flow.window.on_ack(&AckNews {
            now: desk.now,
            round_trip,
            number: cargo.number,
            marked: cargo.marked,
            lost: flow.board.overtaken(cargo.number),
            next_number: flow.board.next_number(),
            in_flight,
        });
        flow.round_trip.sample(round_trip);
        flow.deadline = desk.now + flow.round_trip.timeout();
    }

    fn is_acknowledged(flow: &WindowedFlow<W>) -> bool {
        flow.board.missing() == 0
    }

    fn line_up(&mut self, now: Instant, number: u32, flow: &mut WindowedFlow<W>) {
        if flow.board.has_packet() && flow.may_send(now) {
            self.turns.line_up(number, &mut flow.turn);
        }
    }

    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.turns.next()
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut WindowedFlow<W>) -> Option<DataDeparture> {
        flow.turn = Turn::Waits;
        if !flow.may_send(desk.now) {
            return None;
        }
        let is_idle = flow.board.in_flight() == 0;
        if is_idle {
            flow.deadline = desk.now + flow.round_trip.timeout();
        }
        let gap = flow.window.gap();
        flow.next_at = desk.now + gap.unwrap_or(Span::ZERO);
        let alarm = match gap {
            Some(_) => Some(flow.next_at.min(flow.deadline)),
            None => is_idle.then_some(flow.deadline),
        };
        Some(DataDeparture {
            packet: flow.board.send(desk.now)?,
            entropy: flow.entropy,
            urgency: 0,
            pulls: 0,
            alarm,
        })
    }

    fn time_out(
        &mut self,
        now: Instant,
        _number: u32,
        flow: &mut WindowedFlow<W>,
    ) -> Option<Instant> {
        if flow.board.in_flight() == 0 {
            flow.deadline = now + flow.round_trip.timeout();
        } else if flow.deadline <= now {
            flow.board.lose_sent_until(now);
            flow.window.on_timeout(now, flow.board.next_number());
            flow.round_trip.timed_out();
            flow.deadline = now + flow.round_trip.timeout();
        }
        match flow.next_at > now {
            true => Some(flow.deadline.min(flow.next_at)),
            false => Some(flow.deadline),
        }
    }
}
