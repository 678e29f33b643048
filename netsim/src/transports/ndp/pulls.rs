//! The receiving side of NDP: the packets of each flow that have arrived, and the PULLs owed.

use std::collections::BTreeMap;

use gradwire_protocol::units::{Instant, Span};

use crate::engine::host::{Envelope, Load};
use crate::transports::reference::cargo::{CargoKind, ReferenceCargo};
use crate::transports::reference::incoming::{Arrival, IncomingFlow};
use crate::transports::reference::turns::{Turn, Turns};

/// Flows to a host, and the queue of its PULLs.
#[derive(Debug)]
pub(crate) struct Pulls {
    first_window: u32,
    /// Time between PULLs: that of a full packet on the host's link.
    gap: Span,
    /// No PULL leaves before.
    earliest: Instant,
    flows: BTreeMap<u32, Receiving>,
    turns: Turns,
}

/// A flow at its receiver.
#[derive(Debug)]
struct Receiving {
    incoming: IncomingFlow,
    sender: u32,
    /// Packets that its sender still has to send, including trimmed ones once more.
    needed: u32,
    /// Packets that its sender may send, including PULLs that wait.
    allowed: u32,
    owed: u32,
    sent: u32,
    turn: Turn,
}

/// The answer to a data packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullAnswer {
    /// ACK or NACK.
    pub(crate) kind: CargoKind,
    /// What the packet showed; `None` if it was trimmed.
    pub(crate) arrival: Option<Arrival>,
    /// Every packet before this one has arrived.
    pub(crate) before: u32,
    /// PULLs sent for the flow so far.
    pub(crate) pulls: u32,
}

/// A PULL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    /// The sender that it goes to.
    pub(crate) sender: u32,
    /// Its header fields.
    pub(crate) cargo: ReferenceCargo,
}

impl Pulls {
    /// No flows yet; senders start with `first_window` packets.
    pub(crate) fn new(first_window: u32, gap: Span) -> Self {
        Self {
            first_window,
            gap,
            earliest: Instant::START,
            flows: BTreeMap::new(),
            turns: Turns::default(),
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
        let receiving = self.flows.entry(cargo.flow).or_insert_with(|| Receiving {
            incoming: IncomingFlow::new(packets),
            sender: envelope.source,
            needed: packets,
            allowed: self.first_window,
            owed: 0,
            sent: 0,
            turn: Turn::Waits,
        });
        let cut = envelope.load == Load::Trimmed && receiving.incoming.lacks(cargo.packet);
        receiving.needed += u32::from(cut);
        let arrival = (!cut).then(|| receiving.incoming.take(cargo.packet));
        if receiving.incoming.missing() == 0 {
            receiving.owed = 0;
        } else if receiving.allowed < receiving.needed {
            receiving.allowed += 1;
            if self.turns.is_empty() && now >= self.earliest {
                receiving.sent += 1;
                self.earliest = after(self.earliest, self.gap, now);
            } else {
                receiving.owed += 1;
                self.turns.line_up(cargo.flow, &mut receiving.turn);
            }
        }
        let kind = if cut { CargoKind::Nack } else { CargoKind::Ack };
        PullAnswer {
            kind,
            arrival,
            before: receiving.incoming.before(),
            pulls: receiving.sent,
        }
    }

    /// The PULL that is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Pull> {
        if now < self.earliest {
            return None;
        }
        while let Some(flow) = self.turns.next() {
            let receiving = self.flows.get_mut(&flow)?;
            receiving.turn = Turn::Waits;
            if receiving.owed == 0 {
                continue;
            }
            receiving.owed -= 1;
            receiving.sent += 1;
            if receiving.owed > 0 {
                self.turns.line_up(flow, &mut receiving.turn);
            }
            self.earliest = after(self.earliest, self.gap, now);
            let pulls = receiving.sent;
            let cargo = ReferenceCargo {
                kind: CargoKind::Pull,
                flow,
                pulls,
                ..ReferenceCargo::default()
            };
            return Some(Pull {
                sender: receiving.sender,
                cargo,
            });
        }
        None
    }

    /// When the next PULL may leave, if there is one.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.turns.is_empty()).then_some(self.earliest)
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
