//! Counts what a driver does. Each reason to drop a datagram has a counter of its own.

use crate::seal::PacketRejection;

/// Counts of a driver's packets and system calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverCounters {
    /// Packets sent.
    pub sent_packets: u64,
    /// System calls that sent them.
    pub send_calls: u64,
    /// Packets received, without those that injected faults dropped.
    pub received_packets: u64,
    /// System calls that received them.
    pub receive_calls: u64,
    /// Datagrams that are no packet: too short, cut off, another version, kind or length.
    pub malformed_packets: u64,
    /// Packets of another job.
    pub foreign_packets: u64,
    /// Packets of another membership of this job.
    pub old_epoch_packets: u64,
    /// Packets that do not come from an address of the rank that they name.
    pub unknown_senders: u64,
    /// Packets whose tag or checksum is wrong: forged, or damaged on the way.
    pub forged_packets: u64,
    /// Sealed packets that were accepted before, and control packets too old to tell.
    pub replayed_packets: u64,
    /// Packets that the kernel dropped because a receive buffer was full: lost by this host, not
    /// by the network.
    pub kernel_drops: u64,
    /// Packets dropped by injected faults.
    pub faults_dropped: u64,
    /// Packets that the kernel refused, because its buffer was full or it had no route. They are
    /// repaired like lost ones.
    pub abandoned_packets: u64,
}

/// How many counters there are.
pub(super) const COUNTERS: usize = 13;

/// The names of the counters, in the order of [`DriverCounters::values`].
const NAMES: [&str; COUNTERS] = [
    "sent_packets",
    "send_calls",
    "received_packets",
    "receive_calls",
    "malformed_packets",
    "foreign_packets",
    "old_epoch_packets",
    "unknown_senders",
    "forged_packets",
    "replayed_packets",
    "kernel_drops",
    "faults_dropped",
    "abandoned_packets",
];

impl DriverCounters {
    /// Every count with its name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(self.values()).collect()
    }

    /// Every count, in the order of the fields.
    pub(super) fn values(&self) -> [u64; COUNTERS] {
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
        [
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
        ]
    }

    /// The counters with these [values](DriverCounters::values).
    pub(super) fn of(values: [u64; COUNTERS]) -> Self {
        let [
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
        ] = values;
        Self {
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
        }
    }

    /// Counts a datagram that was rejected.
    pub(super) fn count(&mut self, rejection: PacketRejection) {
        let counter = match rejection {
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
