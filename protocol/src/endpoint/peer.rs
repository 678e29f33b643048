//! One peer of an endpoint: its sender, its receiver, and when the endpoint looks at it again.

use serde::{Deserialize, Serialize};

use super::peers::PeerWork;
use crate::metrics::{PeerStanding, PeerTraffic};
use crate::outlook::ControlOutlook;
use crate::priority::SendTurn;
use crate::reach::{RankState, Reach};
use crate::receiver::Receiver;
use crate::rtt::Rtt;
use crate::sender::Sender;
use crate::units::{Instant, Rank};

/// The turn of a sender's next segment, kept because the send queue reads those of many peers for a
/// run.
#[derive(Clone, Copy, Debug)]
pub(super) enum NextTurn {
    /// The sender has changed since it was asked.
    Unknown,
    /// The sender's answer; `None`: it has no segment to send.
    Known(Option<SendTurn>),
}

/// What an endpoint reads of a peer for every run.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerEntry {
    pub(super) rank: Rank,
    pub(super) reach: Reach,
    pub(super) standing: PeerStanding,
    /// Whether the endpoint has it among its talkers.
    pub(super) talks: bool,
    /// Whether the endpoint has it among its senders.
    pub(super) sends: bool,
    pub(super) turn: NextTurn,
    /// When a packet of it last arrived.
    pub(super) heard: Instant,
    /// The earliest of its times among the endpoint's deadlines.
    pub(super) armed: Option<Instant>,
}

impl PeerEntry {
    /// The entry of a peer without messages.
    pub(super) fn new(rank: Rank, common: &RankState) -> Self {
        Self {
            rank,
            reach: common.reach(rank),
            standing: PeerStanding::Well,
            talks: false,
            sends: false,
            turn: NextTurn::Unknown,
            heard: Instant::START,
            armed: None,
        }
    }

    /// Whether the endpoint has to look at it at this time, one of its deadlines.
    pub(super) fn waits_for(&self, due: Instant) -> bool {
        self.armed == Some(due) && self.standing != PeerStanding::Failed
    }
}

/// The state of a peer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct EndpointPeer {
    /// As in the entry.
    pub(super) rank: Rank,
    /// As in the entry.
    pub(super) reach: Reach,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    pub(super) rtt: Rtt,
    /// Kept while the endpoint keeps metrics; it packs no peer then.
    #[serde(skip)]
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

    /// Whether messages to or from it have not ended.
    pub(super) fn work(&self) -> PeerWork {
        PeerWork {
            sends: self.sender.is_busy(),
            receives: self.receiver.is_waiting(),
        }
    }

    /// When the endpoint has to look at the peer.
    pub(super) fn outlook(&self, now: Instant) -> ControlOutlook {
        self.receiver.outlook(now).and(self.sender.outlook(now))
    }
}
