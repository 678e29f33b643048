//! The counters of a sender.

use derive_more::AddAssign;
use serde::{Deserialize, Serialize};

/// Counts of a sender.
#[derive(AddAssign, Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct SenderCounters {
    /// Segments sent for the first time.
    pub sent_segments: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// PROBE packets.
    pub probes: u64,
    /// CE marks that receivers reported.
    pub marks: u64,
    /// Segments found lost.
    pub found_lost: u64,
    /// Segments of which the receiver got only the header.
    pub trimmed_segments: u64,
    /// How often the path lost most packets for seconds.
    pub path_failures: u64,
    /// How often marks were ignored from then on, since the path marks everything.
    pub false_marks: u64,
    /// PARITY packets.
    pub parity_packets: u64,
}
