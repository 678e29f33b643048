//! The counters of a receiver.

use derive_more::AddAssign;
use serde::{Deserialize, Serialize};

/// Counts of a receiver.
#[derive(AddAssign, Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReceiverCounters {
    /// Distinct segments that arrived.
    pub received_segments: u64,
    /// Of those, segments that were lost and that parity has restored.
    pub restored_segments: u64,
    /// Segments that arrived again.
    pub duplicate_segments: u64,
    /// Segments accepted as lost.
    pub lost_segments: u64,
    /// Of those, segments that were given up when patience ended, and not known as lost.
    pub given_up_segments: u64,
    /// Segments that arrived after their message was completed without them.
    pub late_segments: u64,
    /// Segments of which only the header arrived, since a switch cut their packets.
    pub trimmed_segments: u64,
    /// DATA packets that arrived with CE.
    pub marks: u64,
    /// Packets that contradict their message or come in excess.
    pub refused: u64,
    /// Control packets that came without the ECT that they left with.
    pub cleared_ecn: u64,
    /// DATA and PROBE packets that a later packet of their path has overtaken.
    pub overtaken: u64,
    /// Grants that were reported again, since none of their segments came.
    pub repeated_grants: u64,
}
