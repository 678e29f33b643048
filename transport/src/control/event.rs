//! Events that the control plane reports to its owner.

use std::net::SocketAddr;

use gradwire_protocol::units::Rank;

use super::refusal::JoinRefusal;

/// Something happened to another rank. The control plane's thread raises it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ControlEvent {
    /// A peer died, hangs, or cannot be reached.
    PeerLost {
        /// The lost rank.
        rank: Rank,
        /// How it was noticed.
        reason: String,
    },
    /// A peer has left properly: it sends nothing new, and its silence is no failure.
    PeerLeft {
        /// The rank that left.
        rank: Rank,
    },
    /// A rank ended the job: another one, or this one because it was stopped for too long.
    Aborted {
        /// The rank that aborted.
        rank: Rank,
        /// The reason it gave.
        reason: String,
    },
    /// Another rank asks this one a question; reply with
    /// [`ControlSender::answer`](super::ControlSender::answer).
    Asked {
        /// The rank that asks.
        rank: Rank,
        /// Its question.
        question: String,
    },
    /// Another rank answers a question that this one asked with
    /// [`ControlSender::ask`](super::ControlSender::ask).
    Answered {
        /// The rank that answers.
        rank: Rank,
        /// Its answer.
        answer: String,
    },
    /// Rank 0 refused a process. Only rank 0 hears of it.
    Refused {
        /// The address of the refused process.
        from: SocketAddr,
        /// The reason that rank 0 gave it.
        refusal: JoinRefusal,
    },
}

/// Receives events. It must return soon and must not call the blocking methods of
/// [`ControlPlane`](super::ControlPlane): until it returns the control plane does no other work,
/// keep-alives included.
pub type OnEvent = Box<dyn Fn(ControlEvent) + Send>;
