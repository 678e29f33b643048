//! The reasons for which a datagram is rejected.

/// Why a datagram was dropped. The sender never receives an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PacketRejection {
    /// Too short, cut off, of another version or kind, or not as long as its header says.
    #[error("not a complete packet of this version")]
    Malformed,
    /// A packet of another job.
    #[error("a packet of another job")]
    Foreign,
    /// A packet of another membership of this job.
    #[error("a packet of another epoch of this job")]
    OldEpoch,
    /// Its source address is not an address of the rank that its header names.
    #[error("not from the address of the rank that it names")]
    UnknownSender,
    /// Its tag or checksum is wrong: it was forged, or damaged on the way.
    #[error("its tag or checksum is wrong")]
    Forged,
    /// It was accepted before, or is a control packet too old to tell.
    #[error("accepted before")]
    Replayed,
}
