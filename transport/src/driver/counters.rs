//! Counts what a driver does. Each reason to drop a datagram has a counter of its own.

use crate::seal::PacketRejection;

/// Declares [`DriverCounters`] from one list, so that its names and values cannot disagree.
macro_rules! driver_counters {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// Counts of a driver's packets and system calls.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct DriverCounters {
            $($(#[doc = $doc])+ pub $name: u64),+
        }

        /// The names of the counters, in the order of the fields.
        const NAMES: [&str; COUNTERS] = [$(stringify!($name)),+];

        /// How many counters there are.
        pub(super) const COUNTERS: usize = [$(stringify!($name)),+].len();

        impl DriverCounters {
            /// Every count, in the order of the fields.
            pub(super) fn values(&self) -> [u64; COUNTERS] {
                [$(self.$name),+]
            }

            /// The counters with these [values](DriverCounters::values).
            pub(super) fn of([$($name),+]: [u64; COUNTERS]) -> Self {
                Self { $($name),+ }
            }
        }
    };
}

driver_counters! {
    /// Packets sent.
    sent_packets,
    /// System calls that sent them.
    send_calls,
    /// Packets received, without those that injected faults dropped.
    received_packets,
    /// System calls that received them.
    receive_calls,
    /// Datagrams that are not packets: too short, cut off, another version, kind or length.
    malformed_packets,
    /// Packets of another job.
    foreign_packets,
    /// Packets of another membership of this job.
    old_epoch_packets,
    /// Packets that do not come from an address of the rank that they name.
    unknown_senders,
    /// Packets whose tag or checksum is wrong: forged, or damaged on the way.
    forged_packets,
    /// Sealed packets that were accepted before, and control packets too old to tell.
    replayed_packets,
    /// Packets that the kernel dropped because a receive buffer was full: lost by this host, not
    /// by the network.
    kernel_drops,
    /// Packets dropped by injected faults.
    faults_dropped,
    /// Packets that the kernel refused, because it had no route or a firewall forbade it. They
    /// count as lost on the path.
    abandoned_packets,
    /// Packets that this host did not send at once, because its own queue was full. The machine
    /// sends them later.
    unsent_packets,
    /// Runs that the kernel refused as one call, because of the path or the device. Their packets
    /// went one by one.
    super_packets_refused,
    /// How often the driving thread has slept, because it found no work.
    sleeps,
    /// How often others had its core while it looked for work. It looks less for some time then.
    cores_lost,
    /// How often the driving thread has left its core, because a peer that it waited for probably
    /// had it, too.
    cores_left,
}

impl DriverCounters {
    /// Every count with its name.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        NAMES.into_iter().zip(self.values()).collect()
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
