//! What a driver counts, by name: each way in which a datagram can be none of ours has its own.

use crate::seal::PacketRejection;

/// Counts of what a driver did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverCounters {
    /// Packets sent.
    pub sent_packets: u64,
    /// System calls for that.
    pub send_calls: u64,
    /// Packets received, those that faults took not counted.
    pub received_packets: u64,
    /// System calls for that.
    pub receive_calls: u64,
    /// Datagrams that are no packet: too short, cut off, another version, kind or length.
    pub malformed_packets: u64,
    /// Packets of another job.
    pub foreign_packets: u64,
    /// Packets of another membership of this job.
    pub old_epoch_packets: u64,
    /// Packets that say they are from a rank which has another address.
    pub unknown_senders: u64,
    /// Packets whose tag or checksum is wrong: forged, or damaged on the way.
    pub forged_packets: u64,
    /// Sealed packets that came before, and control packets too old to tell.
    pub replayed_packets: u64,
    /// Packets that the kernel dropped because a receive buffer was full: lost by this host, not
    /// by the network.
    pub kernel_drops: u64,
    /// Packets dropped on purpose.
    pub faults_dropped: u64,
    /// Packets that the kernel would not take, for want of room or of a route; they are repaired
    /// like lost ones.
    pub abandoned_packets: u64,
}

impl DriverCounters {
    /// Every count under its name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        // Without `..`, so that a new count cannot be forgotten here.
        let Self {
            sent_packets,
            send_calls,
            received_packets,
            receive_calls,
            malformed_packets,
            foreign_packets,
            old_epoch_packets,
            unknown_senders,
            forged_packets,
            replayed_packets,
            kernel_drops,
            faults_dropped,
            abandoned_packets,
        } = *self;
        vec![
            ("sent_packets", sent_packets),
            ("send_calls", send_calls),
            ("received_packets", received_packets),
            ("receive_calls", receive_calls),
            ("malformed_packets", malformed_packets),
            ("foreign_packets", foreign_packets),
            ("old_epoch_packets", old_epoch_packets),
            ("unknown_senders", unknown_senders),
            ("forged_packets", forged_packets),
            ("replayed_packets", replayed_packets),
            ("kernel_drops", kernel_drops),
            ("faults_dropped", faults_dropped),
            ("abandoned_packets", abandoned_packets),
        ]
    }

    /// Counts a datagram that was not taken.
    pub(super) fn count(&mut self, refused: PacketRejection) {
        let counter = match refused {
            PacketRejection::Malformed => &mut self.malformed_packets,
            PacketRejection::Foreign => &mut self.foreign_packets,
            PacketRejection::OldEpoch => &mut self.old_epoch_packets,
            PacketRejection::UnknownSender => &mut self.unknown_senders,
            PacketRejection::Forged => &mut self.forged_packets,
            PacketRejection::Replayed => &mut self.replayed_packets,
        };
        *counter += 1;
    }
}
