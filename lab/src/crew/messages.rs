//! The protocol between launcher and rank: one JSON object a line, on the rank's standard input and
//! output. The script for Gloo speaks it, too.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::kind::PerfCollective;

/// From the launcher to a rank.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum ToRank {
    /// Who you are; open your sockets.
    Open(Open),
    /// Meet the others.
    Join {
        /// Where rank 0 listens.
        rendezvous: String,
    },
    /// Measure.
    Round(Round),
    /// Do many all-reduces at once.
    Buckets(BucketsRound),
    /// Leave and end.
    End {},
}

/// The identity of a rank, and its job.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Open {
    /// Its rank.
    pub rank: u16,
    /// How many there are.
    pub world: u16,
    /// The secret that they share.
    pub token: String,
    /// The job, as TOML.
    pub job: String,
    /// The local address that the others can reach.
    pub bind: IpAddr,
}

/// Some collectives of one size.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Round {
    /// Which collective.
    pub kind: PerfCollective,
    /// Size of the tensor.
    pub bytes: u64,
    /// How many times.
    pub iterations: u32,
}

/// All-reduces that are on their way at once, one per layer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct BucketsRound {
    /// How many.
    pub count: u16,
    /// Size of each.
    pub bytes: u64,
    /// How much the transport knows of their layers.
    pub layering: Layering,
}

/// How much the transport knows of the layers of tensors.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Layering {
    /// Which layer each belongs to.
    Known,
    /// Not even that there are layers.
    Unknown,
}

/// From a rank to the launcher.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum FromRank {
    /// The sockets are open.
    Opened {
        /// Where rank 0 listens; empty on other ranks.
        rendezvous: String,
    },
    /// All ranks have met.
    Joined {
        /// The wire that carries packets: "udp", "uring", "shm"; rivals report "tcp" or a word of
        /// their own.
        wire: String,
    },
    /// The answer to a round, or to buckets.
    Measured(Measured),
    /// Something went wrong; the rank ends.
    Failed {
        /// The reason, in one line.
        message: String,
        /// The exit code that goes with it.
        exit: u8,
    },
}

/// The measurement of one rank in a round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Measured {
    /// Duration of each iteration; of buckets when each was complete, layer by layer.
    pub times_us: Vec<f64>,
    /// Of each barrier when this rank came and when it left, by the clock of this machine.
    pub barrier_ns: Vec<(u64, u64)>,
    /// Elements that no subset of the ranks' values explains.
    pub wrong_elements: u64,
    /// Elements that are not the sum over all ranks; with error feedback, those whose results so
    /// far are not.
    pub estimated_elements: u64,
    /// Of each iteration a hash of the result; 0 when it is the exact sum.
    pub hashes: Vec<u64>,
    /// Segments sent, each counted once.
    pub sent_segments: u64,
    /// Segments that stayed missing.
    pub lost_segments: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// Lost segments as the loss budget counts them.
    pub ledger_lost_segments: u64,
    /// Lost segments as the messages of the operations count them.
    pub operations_lost_segments: u64,
    /// The largest share that one message lacked.
    pub max_lost_share: f64,
    /// Payload bytes of a full packet.
    pub segment_bytes: u64,
    /// Packets dropped on purpose.
    pub faults_dropped: u64,
    /// Packets that the kernel dropped because a socket was full.
    pub kernel_drops: u64,
    /// Resident set of the process at the end.
    pub resident_bytes: u64,
}
