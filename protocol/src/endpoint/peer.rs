//! One peer of an endpoint: its sender, its receiver, and when the endpoint looks at it again.

use crate::metrics::{PeerStanding, PeerTraffic};
use crate::outlook::ControlOutlook;
use crate::priority::SendTurn;
use crate::reach::{RankState, Reach};
use crate::receiver::Receiver;
use crate::rtt::Rtt;
use crate::sender::Sender;
use crate::units::{Instant, Rank};

/// The turn of a sender's next segment, kept because the endpoint compares the turns of all peers
/// for each run.
#[derive(Clone, Copy, Debug)]
pub(super) enum NextTurn {
    /// The sender has changed since it was asked.
    Unknown,
    /// The sender's answer; `None`: it has no segment to send.
    Known(Option<SendTurn>),
}

/// A peer of an endpoint.
#[derive(Debug)]
pub(super) struct EndpointPeer {
    pub(super) rank: Rank,
    pub(super) reach: Reach,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) rtt: Rtt,
    /// When a packet of it last arrived.
    pub(super) heard: Instant,
    pub(super) standing: PeerStanding,
    /// Whether the endpoint has it among its talkers.
    pub(super) talks: bool,
    /// Whether the endpoint has it among its senders.
    pub(super) sends: bool,
    pub(super) turn: NextTurn,
    /// The earliest of its times among the endpoint's deadlines.
    pub(super) armed: Option<Instant>,
    /// Kept when the endpoint keeps metrics.
    pub(super) traffic: Option<Box<PeerTraffic>>,
}

impl EndpointPeer {
    /// A peer without messages.
    pub(super) fn new(rank: Rank, common: &RankState, seed: u64) -> Self {
        let reach = common.reach(rank);
        let settings = common.settings(reach);
        Self {
            rank,
            reach,
            sender: Sender::new(rank, settings, seed),
            receiver: Receiver::new(rank, &settings.limits),
            rtt: Rtt::new(settings.gap),
            heard: Instant::START,
            standing: PeerStanding::Well,
            talks: false,
            sends: false,
            turn: NextTurn::Unknown,
            armed: None,
            traffic: None,
        }
    }

    /// Before its first answer: it should not take longer than those of other peers.
    pub(super) fn expect_first(&mut self, common: &RankState) {
        if self.rtt.is_known() || self.reach == Reach::Host {
            return;
        }
        if let Some(wait) = common.first_report_wait() {
            self.rtt.expect_first(wait);
        }
    }

    /// The turn of what is sent to it next; `None` when there is nothing.
    pub(super) fn turn(&mut self) -> Option<SendTurn> {
        if let NextTurn::Known(turn) = self.turn {
            return turn;
        }
        let turn = self.sender.next_turn();
        self.turn = NextTurn::Known(turn);
        turn
    }

    /// Whether the endpoint has to look at it at this time, one of its deadlines.
    pub(super) fn waits_for(&self, due: Instant) -> bool {
        self.armed == Some(due) && self.standing != PeerStanding::Failed
    }

    /// When the endpoint has to look at the peer.
    pub(super) fn outlook(&self, now: Instant) -> ControlOutlook {
        self.receiver.outlook(now).and(self.sender.outlook(now))
    }
}
