//! The receiving side of transports whose receivers pull: the packets of each flow that have
//! arrived, and the PULLs owed.
//!
//! - The receiver sends PULLs at the pace at which its own link takes the packets that they allow,
//!   over all flows in turn.
//! - `PullDemand` says for how many packets: one for each that arrives (NDP), or as many as the
//!   sender asks for on its packets (EQDS, RCCC).
//! - With `PullDemand::Asked` a trimmed packet is pulled ahead of all else if
//!   `RepairOrder::First` holds; and when no flow has demand, idle flows get up to a window in
//!   advance.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Instant, Span};

use super::cargo::{CargoKind, ReferenceCargo};
use super::incoming::{Arrival, IncomingFlow};
use super::turns::{Turn, Turns};
use crate::engine::host::{Envelope, Load};

/// For how many packets a receiver sends PULLs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PullDemand {
    /// One for each packet that arrives, whole or trimmed, but none that its sender lacks.
    Arrivals,
    /// As many as the sender asks for.
    Asked,
}

/// When PULLs for trimmed packets leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RepairOrder {
    /// In the turn of their flow.
    InTurn,
    /// Before those for new packets.
    First,
}

/// How a receiver pulls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PullTerms {
    /// For how many packets.
    pub(crate) demand: PullDemand,
    /// When those for trimmed packets leave.
    pub(crate) repairs: RepairOrder,
    /// Packets that a sender may send unasked; as many may idle flows get in advance.
    pub(crate) window: u32,
    /// Packets that a PULL allows at most, at least one.
    pub(crate) packets: u32,
    /// Time between PULLs for each packet that they allow.
    pub(crate) gap: Span,
}

/// Flows to a host, and the queue of its PULLs.
#[derive(Debug)]
pub(crate) struct Pulls {
    terms: PullTerms,
    /// No PULL leaves before.
    earliest: Instant,
    flows: BTreeMap<u32, Receiving>,
    repairs: Turns,
    turns: Turns,
    idle: Turns,
}

/// A flow at its receiver.
#[derive(Debug)]
struct Receiving {
    incoming: IncomingFlow,
    sender: u32,
    /// Packets that its sender still has to send, including trimmed ones once more.
    needed: u32,
    /// Packets for which its sender is to get PULLs, and those for which it got them.
    wanted: u32,
    sent: u32,
    /// Trimmed packets to be pulled before all else.
    repairs: u32,
    repair_turn: Turn,
    turn: Turn,
    idle_turn: Turn,
}

/// The answer to a data packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullAnswer {
    /// What the packet showed; `None` if it was trimmed.
    pub(crate) arrival: Option<Arrival>,
    /// The ACK or NACK.
    pub(crate) cargo: ReferenceCargo,
}

/// A PULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    /// The sender that it goes to.
    pub(crate) sender: u32,
    /// Its header fields.
    pub(crate) cargo: ReferenceCargo,
}

impl Receiving {
    fn new(sender: u32, packets: u32) -> Self {
        Self {
            incoming: IncomingFlow::new(packets),
            sender,
            needed: packets,
            wanted: 0,
            sent: 0,
            repairs: 0,
            repair_turn: Turn::Waits,
            turn: Turn::Waits,
            idle_turn: Turn::Waits,
        }
    }

    fn owed(&self) -> u32 {
        self.wanted.saturating_sub(self.sent)
    }

    /// Packets allowed in advance of any demand.
    fn in_advance(&self) -> u32 {
        self.sent.saturating_sub(self.wanted)
    }
}

impl Pulls {
    /// No flows yet.
    pub(crate) fn new(terms: PullTerms) -> Self {
        Self {
            terms,
            earliest: Instant::START,
            flows: BTreeMap::new(),
            repairs: Turns::default(),
            turns: Turns::default(),
            idle: Turns::default(),
        }
    }

    /// Accepts a data packet, whole or trimmed, of a flow of `packets` packets.
    pub(crate) fn arrived(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        cargo: &ReferenceCargo,
        packets: u32,
    ) -> PullAnswer {
        let receiving = self.flows.entry(cargo.flow);
        let receiving = receiving.or_insert_with(|| Receiving::new(envelope.source, packets));
        let cut = envelope.load == Load::Trimmed && receiving.incoming.lacks(cargo.packet);
        let arrival = (!cut).then(|| receiving.incoming.take(cargo.packet));
        let kind = if cut { CargoKind::Nack } else { CargoKind::Ack };
        if receiving.incoming.missing() == 0 {
            (receiving.wanted, receiving.repairs) = (receiving.sent, 0);
        } else if self.terms.demand == PullDemand::Asked {
            self.ask(cargo, kind);
        } else {
            receiving.needed += u32::from(cut);
            if self.terms.window + receiving.wanted < receiving.needed {
                receiving.wanted += 1;
                if self.turns.is_empty() && now >= self.earliest {
                    receiving.sent += 1;
                    self.earliest = after(self.earliest, self.terms.gap, now);
                } else {
                    self.turns.line_up(cargo.flow, &mut receiving.turn);
                }
            }
        }
        let receiving = &self.flows[&cargo.flow];
        let cargo = ReferenceCargo {
            marked: envelope.ecn == Ecn::Ce,
            pulls: receiving.sent,
            before: receiving.incoming.before(),
            ..cargo.answer(kind)
        };
        PullAnswer { arrival, cargo }
    }

    /// Notes what the sender of a packet asks for; `answer` is what the packet gets.
    fn ask(&mut self, cargo: &ReferenceCargo, answer: CargoKind) {
        let Some(receiving) = self.flows.get_mut(&cargo.flow) else {
            return;
        };
        let cut = answer == CargoKind::Nack;
        receiving.wanted = receiving.wanted.max(cargo.pulls);
        if cut && self.terms.repairs == RepairOrder::First {
            receiving.repairs += 1;
            self.repairs.line_up(cargo.flow, &mut receiving.repair_turn);
        }
        if receiving.owed() > 0 {
            self.turns.line_up(cargo.flow, &mut receiving.turn);
        } else if cut || receiving.in_advance() < self.terms.window {
            self.idle.line_up(cargo.flow, &mut receiving.idle_turn);
        }
    }

    /// The PULL that is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Pull> {
        if now < self.earliest {
            return None;
        }
        let (flow, packets) = self.next_turn()?;
        let receiving = self.flows.get_mut(&flow)?;
        receiving.sent += packets;
        self.earliest = after(self.earliest, self.terms.gap * u64::from(packets), now);
        let cargo = ReferenceCargo {
            kind: CargoKind::Pull,
            flow,
            pulls: receiving.sent,
            ..ReferenceCargo::default()
        };
        Some(Pull {
            sender: receiving.sender,
            cargo,
        })
    }

    /// The flow whose turn it is, and how many packets it may send.
    fn next_turn(&mut self) -> Option<(u32, u32)> {
        let most = self.terms.packets;
        while let Some(flow) = self.repairs.next() {
            let receiving = self.flows.get_mut(&flow)?;
            receiving.repair_turn = Turn::Waits;
            let packets = receiving.repairs.min(most);
            receiving.repairs -= packets;
            if receiving.repairs > 0 {
                self.repairs.line_up(flow, &mut receiving.repair_turn);
            }
            if packets > 0 {
                return Some((flow, packets));
            }
        }
        while let Some(flow) = self.turns.next() {
            let receiving = self.flows.get_mut(&flow)?;
            receiving.turn = Turn::Waits;
            let packets = receiving.owed().min(most);
            if receiving.owed() > packets {
                self.turns.line_up(flow, &mut receiving.turn);
            } else if self.terms.demand == PullDemand::Asked && receiving.incoming.missing() > 0 {
                self.idle.line_up(flow, &mut receiving.idle_turn);
            }
            if packets > 0 {
                return Some((flow, packets));
            }
        }
        while let Some(flow) = self.idle.next() {
            let receiving = self.flows.get_mut(&flow)?;
            receiving.idle_turn = Turn::Waits;
            if receiving.incoming.missing() == 0 || receiving.in_advance() > self.terms.window {
                continue;
            }
            if receiving.in_advance() + most < self.terms.window {
                self.idle.line_up(flow, &mut receiving.idle_turn);
            }
            return Some((flow, most));
        }
        None
    }

    /// When the next PULL may leave, if there is one.
    pub(crate) fn next(&self) -> Option<Instant> {
        let queues = [&self.repairs, &self.turns, &self.idle];
        let waits = queues.into_iter().any(|queue| !queue.is_empty());
        waits.then_some(self.earliest)
    }
}

/// When the next PULL may leave after one that was due at `due` and left now. Packets on the link
/// delay PULLs, which must not slow their pace.
fn after(due: Instant, gap: Span, now: Instant) -> Instant {
    if now.since(due) < gap * 2 {
        due + gap
    } else {
        now + gap
    }
}
