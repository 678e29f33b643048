//! The rules of transports whose receivers pull: a first window leaves unasked, and each further
//! packet needs a credit that a PULL brings.
//!
//! A packet that finds a queue full arrives as a header, which the receiver answers with a NACK;
//! one that arrives whole, with an ACK. A sender repeats lost packets before it sends new ones.
//! `pulls` has the receiver. Implementors of `PulledTerms`: [`crate::transports::ndp`],
//! [`crate::transports::eqds`], [`crate::transports::rccc`].
//!
//! If a sender asks for credits (`PullDemand::Asked`), each of its packets says up to how many:
//! those that it got, and for what is left to send, at most a window, the unused ones off. The
//! first answer ends the first window: what is left of that is void.
//!
//! A timeout handles losses that trimming cannot prevent: packets and headers that vanish. Then a
//! sender repeats packets without credits, and a sender without anything in flight sends one.

use gradwire_protocol::units::{Instant, Span};
use rand::Rng;

use super::cargo::{CargoKind, ReferenceCargo};
use super::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules, SendingFlows};
use super::outbox::Route;
use super::path_order::PathOrder;
use super::pulls::{PullDemand, PullTerms, Pulls, RepairOrder};
use super::reps::RecycledPaths;
use super::scoreboard::Scoreboard;
use super::turns::{Turn, Turns};
use crate::engine::host::{Begin, Envelope};
use crate::transports::settings::ReferenceSettings;

/// A sender that waits for a PULL sends a packet unasked after this time: longer than a full
/// rotation in an incast of ten thousand.
pub(crate) const PATIENCE: Span = Span::from_millis(4);

/// What one such transport has of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PulledTerms {
    /// How its receivers pull.
    pub(crate) pulls: PullTerms,
    /// How its senders choose paths.
    pub(crate) paths: PathRule,
    /// A packet without an answer counts as lost after this time.
    pub(crate) timeout: Span,
}

/// How a sender chooses the path of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PathRule {
    /// All paths in a random order, then all again in a new one.
    Shuffled,
    /// The same, but a path on which a packet was trimmed sits out its next turn.
    Spared,
    /// Paths that came back unmarked, the oldest first; without one, a random path (REPS).
    Recycled,
}

/// The rules of a transport with PULLs.
#[derive(Debug)]
pub struct Pulled {
    terms: PulledTerms,
    turns: Turns,
    pulls: Pulls,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct PulledFlow {
    board: Scoreboard,
    paths: FlowPaths,
    /// Packets that may be sent.
    credit: u32,
    /// PULLs that have been turned into credit.
    pulls: u32,
    stage: Stage,
    /// When something last came back.
    heard: Instant,
    turn: Turn,
}

/// Whether a sender has heard of its receiver.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// It has not: the credit is the first window.
    Unasked,
    /// It has.
    Asked,
}

/// The paths of a flow, by the rule.
#[derive(Debug)]
enum FlowPaths {
    Ordered(PathOrder),
    Recycled(RecycledPaths),
}

impl PulledFlow {
    fn deadline(&mut self, timeout: Span) -> Instant {
        match self.board.oldest() {
            Some(sent) => sent + timeout,
            None => self.heard + PATIENCE,
        }
    }
}

impl Pulled {
    /// A host without flows.
    pub(crate) fn host(
        host: u32,
        settings: &ReferenceSettings,
        terms: PulledTerms,
    ) -> FlowHost<Self> {
        let rules = Self {
            terms,
            turns: Turns::default(),
            pulls: Pulls::new(terms.pulls),
        };
        FlowHost::new(host, settings, rules)
    }

    /// Up to how many packets PULLs may allow in all, as the packet that has just left says.
    fn asked(&self, flow: &PulledFlow) -> u32 {
        let PullTerms {
            demand,
            repairs,
            window,
            ..
        } = self.terms.pulls;
        if demand == PullDemand::Arrivals {
            return 0;
        }
        let again = match repairs {
            RepairOrder::First => 0,
            RepairOrder::InTurn => flow.board.lost(),
        };
        let left = flow.board.unsent() + again;
        // Even if credits are left: else the receiver of a short flow would learn of nothing.
        let least = u32::from(flow.stage == Stage::Unasked && left > 0);
        flow.pulls + left.min(window).saturating_sub(flow.credit).max(least)
    }

    /// Turns the PULLs that an answer tells of into credit.
    fn take_credit(&self, flow: &mut PulledFlow, pulls: u32) {
        let is_asked = self.terms.pulls.demand == PullDemand::Asked;
        if is_asked && flow.stage == Stage::Unasked {
            flow.credit = 0;
        }
        flow.stage = Stage::Asked;
        flow.credit += pulls.saturating_sub(flow.pulls);
        flow.pulls = flow.pulls.max(pulls);
        if is_asked {
            flow.credit = flow.credit.min(self.terms.pulls.window);
        }
    }
}

impl FlowRules for Pulled {
    type Flow = PulledFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> PulledFlow {
        PulledFlow {
            board: Scoreboard::new(desk.settings.packets(begin.bytes)),
            paths: match self.terms.paths {
                PathRule::Shuffled | PathRule::Spared => {
                    FlowPaths::Ordered(PathOrder::new(&mut desk.random))
                }
                PathRule::Recycled => FlowPaths::Recycled(RecycledPaths::new(&mut desk.random)),
            },
            credit: self.terms.pulls.window,
            pulls: 0,
            stage: Stage::Unasked,
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
        desk.outbox.counts.marks += u64::from(answer.cargo.marked);
        desk.outbox.answer(envelope, answer.cargo);
    }

    fn at_sender(&mut self, desk: &mut FlowDesk, flow: &mut PulledFlow, cargo: &ReferenceCargo) {
        match (cargo.kind, &mut flow.paths) {
            (CargoKind::Ack, FlowPaths::Recycled(paths)) if !cargo.marked => {
                paths.good(desk.now, cargo.entropy);
            }
            (CargoKind::Nack, FlowPaths::Ordered(paths))
                if self.terms.paths == PathRule::Spared =>
            {
                paths.spare(cargo.entropy);
            }
            _ => {}
        }
        match cargo.kind {
            CargoKind::Ack => {
                flow.board.arrived(cargo.packet, cargo.before);
            }
            CargoKind::Nack => flow.board.lose(cargo.packet),
            _ => {}
        }
        flow.heard = desk.now;
        self.take_credit(flow, cargo.pulls);
    }

    fn is_acknowledged(flow: &PulledFlow) -> bool {
        flow.board.missing() == 0
    }

    fn line_up(&mut self, _now: Instant, number: u32, flow: &mut PulledFlow) {
        if flow.credit > 0 && flow.board.has_packet() {
            self.turns.line_up(number, &mut flow.turn);
        }
    }

    fn next_in_line(&mut self, _now: Instant) -> Option<u32> {
        self.turns.next()
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut PulledFlow) -> Option<DataDeparture> {
        flow.turn = Turn::Waits;
        if flow.credit == 0 {
            // The first answer made void what was left of the first window.
            return None;
        }
        let packet = flow.board.send(desk.now)?;
        flow.credit -= 1;
        Some(DataDeparture {
            packet,
            entropy: match &mut flow.paths {
                FlowPaths::Ordered(paths) => paths.next(&mut desk.random),
                FlowPaths::Recycled(paths) => paths.next(&mut desk.random),
            },
            urgency: 0,
            pulls: self.asked(flow),
            alarm: Some(flow.deadline(self.terms.timeout)),
        })
    }

    fn time_out(&mut self, now: Instant, _number: u32, flow: &mut PulledFlow) -> Option<Instant> {
        let timeout = self.terms.timeout;
        if flow.deadline(timeout) <= now {
            let limit = now.as_picos().saturating_sub(timeout.as_picos());
            let lost = flow.board.lose_sent_until(Instant::from_picos(limit));
            if let FlowPaths::Recycled(paths) = &mut flow.paths
                && lost > 0
            {
                paths.timed_out(now);
            }
            flow.credit += lost.max(1);
            flow.heard = now;
        }
        Some(flow.deadline(timeout))
    }

    /// The PULL that is due.
    fn transmit_ahead(
        &mut self,
        desk: &mut FlowDesk,
        _flows: &SendingFlows<PulledFlow>,
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
