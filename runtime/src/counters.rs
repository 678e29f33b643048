//! The counters of a rank, from all layers.

use std::ops::Sub;

use gradwire_protocol::endpoint::Endpoint;
use gradwire_transport::driver::DriverCounters;

/// The counts of a rank since it was opened. A segment is the payload of one packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RankCounters {
    /// Segments sent for the first time.
    pub sent_segments: u64,
    /// Segments that stayed missing, within the tolerance.
    pub lost_segments: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// Segments that arrived for the first time.
    pub received_segments: u64,
    /// Bytes of all packets sent, headers included, but not those of IP and UDP.
    pub sent_bytes: u64,
    /// Bytes of all packets received, likewise.
    pub received_bytes: u64,
    /// Lost segments as the loss budget counts them.
    pub ledger_lost_segments: u64,
    /// Datagrams that are not packets: too short, cut off, another version, kind or length.
    pub malformed_packets: u64,
    /// Packets of another job.
    pub foreign_packets: u64,
    /// Packets of another membership of this job.
    pub old_epoch_packets: u64,
    /// Packets that say they are from a rank which has another address.
    pub unknown_senders: u64,
    /// Packets whose tag or checksum is wrong: forged, or damaged on the way.
    pub forged_packets: u64,
    /// Sealed packets that were accepted before, and control packets too old to tell.
    pub replayed_packets: u64,
    /// Packets dropped on purpose.
    pub faults_dropped: u64,
    /// Packets that the kernel dropped because a socket was full.
    pub kernel_drops: u64,
}

impl RankCounters {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let (counters, carried) = (endpoint.counters(), endpoint.carried_bytes());
        Self {
            sent_segments: counters.sender.sent_segments,
            lost_segments: counters.receiver.lost_segments,
            repaired_segments: counters.sender.repaired_segments,
            received_segments: counters.receiver.received_segments,
            sent_bytes: carried.sent,
            received_bytes: carried.received,
            ledger_lost_segments: endpoint.ledger().total().lost_segments,
            ..Self::default()
        }
    }

    #[must_use]
    pub(crate) fn with_driver(mut self, driver: DriverCounters) -> Self {
        self.malformed_packets = driver.malformed_packets;
        self.foreign_packets = driver.foreign_packets;
        self.old_epoch_packets = driver.old_epoch_packets;
        self.unknown_senders = driver.unknown_senders;
        self.forged_packets = driver.forged_packets;
        self.replayed_packets = driver.replayed_packets;
        self.faults_dropped = driver.faults_dropped;
        self.kernel_drops = driver.kernel_drops;
        self
    }
}

impl Sub for RankCounters {
    type Output = Self;
    /// The counts since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            sent_segments: self.sent_segments - earlier.sent_segments,
            lost_segments: self.lost_segments - earlier.lost_segments,
            repaired_segments: self.repaired_segments - earlier.repaired_segments,
            received_segments: self.received_segments - earlier.received_segments,
            sent_bytes: self.sent_bytes - earlier.sent_bytes,
            received_bytes: self.received_bytes - earlier.received_bytes,
            ledger_lost_segments: self.ledger_lost_segments - earlier.ledger_lost_segments,
            malformed_packets: self.malformed_packets - earlier.malformed_packets,
            foreign_packets: self.foreign_packets - earlier.foreign_packets,
            old_epoch_packets: self.old_epoch_packets - earlier.old_epoch_packets,
            unknown_senders: self.unknown_senders - earlier.unknown_senders,
            forged_packets: self.forged_packets - earlier.forged_packets,
            replayed_packets: self.replayed_packets - earlier.replayed_packets,
            faults_dropped: self.faults_dropped - earlier.faults_dropped,
            kernel_drops: self.kernel_drops - earlier.kernel_drops,
        }
    }
}
