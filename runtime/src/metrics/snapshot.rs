//! Everything that a rank has counted, as it was at one moment: plain data, read back from the
//! JSON that it is written to.
//!
//! Counts only grow while a rank runs; rates are differences of two snapshots. Bytes are those of
//! packets with gradwire's header and without those of IP and UDP.

use std::collections::BTreeMap;

use gradwire_protocol::job::Job;
use gradwire_protocol::metrics::{
    ClassCounters, EndpointMetrics, OrderTrust, PeerMetrics, PeerStanding, TimeHistogram,
};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Class, Span};
use gradwire_transport::control::RosterPeer;
use serde::{Deserialize, Serialize};

/// Upper bounds of the buckets of a [`TimeSpread`], in microseconds.
const BOUNDS_US: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// The counts of the driver that are not rejected packets; every other one is.
const DRIVER_COUNTS: [&str; 12] = [
    "sent_packets",
    "send_calls",
    "received_packets",
    "receive_calls",
    "kernel_drops",
    "faults_dropped",
    "abandoned_packets",
    "unsent_packets",
    "super_packets_refused",
    "sleeps",
    "cores_lost",
    "cores_left",
];

/// Everything that a rank has counted.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Snapshot {
    /// Name of the job.
    pub job: String,
    /// Number of this run of the job.
    pub job_id: u32,
    /// The rank.
    pub rank: u16,
    /// How many ranks the job has.
    pub world_size: u16,
    /// The host that it runs on.
    pub host: String,
    /// The wire that carries its packets: "udp", "shm", or "shm+udp".
    pub wire: String,
    /// Seconds since it joined the job.
    pub uptime_s: f64,
    /// The job's tolerance, a share.
    pub tolerance: f64,
    /// Segments and losses of lossy messages.
    pub loss: LossTotals,
    /// Gradient messages that waited for credit before they left.
    pub held_messages: u64,
    /// Elements that error feedback owed and dropped, because they were not finite or their tensor
    /// changed.
    pub dropped_residual_elements: u64,
    /// Counters of the driver, by name.
    pub driver: BTreeMap<String, u64>,
    /// Refused packets, by reason.
    pub refused_packets: BTreeMap<String, u64>,
    /// The peers with which there was traffic, by rank.
    pub peers: Vec<PeerSnapshot>,
    /// How long messages took until their receiver had all of them that it needs, by class.
    pub messages: Vec<MessageTimes>,
    /// How long operations took, by collective.
    pub operations: Vec<OperationTimes>,
}

/// Segments and losses of lossy messages: the ledger of all steps.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LossTotals {
    /// Bytes of messages that might lose some.
    pub owed_bytes: u64,
    /// Bytes of these that the tolerance allowed to be lost.
    pub allowed_bytes: u64,
    /// Bytes that were accepted as lost.
    pub lost_bytes: u64,
    /// Segments that were accepted as lost.
    pub lost_segments: u64,
}

/// The traffic with one peer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PeerSnapshot {
    /// The peer.
    pub rank: u16,
    /// "well", "silent" or "lost".
    pub standing: String,
    /// Bytes in flight to it.
    pub in_flight_bytes: u64,
    /// Bytes that may be in flight to it.
    pub window_bytes: u64,
    /// The smoothed round trip in microseconds; `None` before the first.
    pub round_trip_us: Option<f64>,
    /// Segments sent for the first time.
    pub sent_segments: u64,
    /// Segments found lost on their way to it.
    pub found_lost_segments: u64,
    /// Probes sent.
    pub probes: u64,
    /// How often the path to it lost most packets for seconds.
    pub path_failures: u64,
    /// How often marks from it were ignored from then on, since all packets come marked.
    pub false_marks: u64,
    /// Control packets received from it without the ECT that they left with.
    pub cleared_ecn: u64,
    /// CE marks that it reported.
    pub echoed_marks: u64,
    /// Parity packets sent to it.
    pub parity_packets: u64,
    /// Segments received for the first time.
    pub received_segments: u64,
    /// Of these, lost segments that parity has restored.
    pub restored_segments: u64,
    /// Segments received again.
    pub duplicate_segments: u64,
    /// Segments that were accepted as lost: holes within the tolerance.
    pub lost_segments: u64,
    /// Of these, segments that were given up when patience ended (`collectives.patience`).
    pub given_up_segments: u64,
    /// Segments received after their message was complete without them.
    pub late_segments: u64,
    /// Packets that a later packet of their path had overtaken.
    pub overtaken_packets: u64,
    /// Whether its packets keep their order on each path: "kept", "unproven" or "broken".
    pub order: String,
    /// The traffic by class, highest class first.
    pub classes: Vec<ClassTraffic>,
    /// Round trips.
    pub round_trips: TimeSpread,
}

/// The traffic of one class with one peer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ClassTraffic {
    /// The class; 0 is that of control packets.
    pub class: u8,
    /// Packets sent, including repairs.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Segments sent again.
    pub repaired_segments: u64,
    /// Segments sent that the peer accepted as lost.
    pub missed_segments: u64,
    /// Packets received, including duplicates.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Data packets received with CE.
    pub marks: u64,
}

/// How long messages of one class took.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MessageTimes {
    /// The highest class of the messages' segments.
    pub class: u8,
    /// The times.
    pub times: TimeSpread,
}

/// How long operations took.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct OperationTimes {
    /// Which collective.
    pub collective: String,
    /// How many failed; their times are not counted.
    pub failed: u64,
    /// The times of the others.
    pub times: TimeSpread,
}

/// How times are spread. Quantiles are two digits exact.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TimeSpread {
    /// How many times there are.
    pub count: u64,
    /// Their sum in microseconds.
    pub sum_us: f64,
    /// Half of them are not longer.
    pub p50_us: u64,
    /// Nine in ten are not longer.
    pub p90_us: u64,
    /// Ninety-nine in a hundred are not longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// How many are not longer than a bound in microseconds: (bound, count), the shortest first.
    pub buckets: Vec<(u64, u64)>,
}

/// The part of a snapshot that does not change while a rank runs.
#[derive(Clone, Debug)]
pub(crate) struct RankSubject {
    pub(crate) job: String,
    pub(crate) job_id: u32,
    pub(crate) rank: u16,
    pub(crate) world_size: u16,
    pub(crate) host: String,
    pub(crate) wire: &'static str,
    pub(crate) tolerance: f64,
}

impl RankSubject {
    /// A rank of a job that travels over `wire`, with the roster of all ranks.
    pub(crate) fn new(
        job: &Job,
        identity: Identity,
        roster: &[RosterPeer],
        wire: &'static str,
    ) -> Self {
        let own = roster.get(usize::from(identity.rank.0));
        Self {
            job: job.name.clone(),
            job_id: identity.job.0,
            rank: identity.rank.0,
            world_size: identity.world_size,
            host: own.map_or_else(String::new, |own| own.host.clone()),
            wire,
            tolerance: job.tolerance.get(),
        }
    }
}

impl Snapshot {
    pub(crate) fn new(subject: &RankSubject, counted: &EndpointMetrics) -> Self {
        let refused: u64 = counted.peers.iter().map(|peer| peer.receiver.refused).sum();
        let (foreign, ledger) = (counted.counters.foreign, counted.ledger);
        Self {
            job: subject.job.clone(),
            job_id: subject.job_id,
            rank: subject.rank,
            world_size: subject.world_size,
            host: subject.host.clone(),
            wire: subject.wire.to_owned(),
            tolerance: subject.tolerance,
            loss: LossTotals {
                owed_bytes: ledger.owed_bytes,
                allowed_bytes: ledger.allowed_bytes,
                lost_bytes: ledger.lost_bytes,
                lost_segments: ledger.lost_segments,
            },
            refused_packets: [("unexpected", foreign), ("contradictory", refused)]
                .map(|(why, count)| (why.to_owned(), count))
                .into(),
            peers: counted.peers.iter().map(PeerSnapshot::new).collect(),
            messages: (counted.messages.iter())
                .map(|(class, times)| MessageTimes {
                    class: class.0,
                    times: TimeSpread::new(times),
                })
                .collect(),
            ..Self::default()
        }
    }

    /// Adds the driver's counters. Names that are not known here are reasons for refused packets.
    pub(crate) fn add_driver(&mut self, named: &[(&'static str, u64)]) {
        for &(name, count) in named {
            let group = match DRIVER_COUNTS.contains(&name) {
                true => &mut self.driver,
                false => &mut self.refused_packets,
            };
            let name = match DRIVER_COUNTS.contains(&name) {
                true => name,
                false => name.trim_end_matches("_packets"),
            };
            group.insert(name.to_owned(), count);
        }
    }

    /// The snapshot as one JSON object on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a snapshot is plain data with finite numbers")
    }

    /// The traffic of all classes with all peers.
    pub fn traffic(&self) -> ClassTraffic {
        let peers = self.peers.iter().map(PeerSnapshot::traffic);
        peers.fold(ClassTraffic::default(), ClassTraffic::plus)
    }

    /// Operations that have ended well.
    pub fn operations_done(&self) -> u64 {
        let counts = self.operations.iter();
        counts.map(|operation| operation.times.count).sum()
    }
}

impl PeerSnapshot {
    fn new(peer: &PeerMetrics) -> Self {
        let (sender, receiver) = (peer.sender, peer.receiver);
        let traffic = peer.traffic.as_deref();
        let classes = traffic.into_iter().flat_map(|traffic| traffic.classes());
        Self {
            rank: peer.rank.0,
            standing: match peer.standing {
                PeerStanding::Well => "well",
                PeerStanding::Silent => "silent",
                PeerStanding::Failed => "lost",
            }
            .to_owned(),
            in_flight_bytes: peer.in_flight.get(),
            window_bytes: peer.window.get(),
            round_trip_us: peer.round_trip.map(|span| span.as_secs_f64() * 1e6),
            sent_segments: sender.sent_segments,
            found_lost_segments: sender.found_lost,
            probes: sender.probes,
            path_failures: sender.path_failures,
            false_marks: sender.false_marks,
            cleared_ecn: peer.receiver.cleared_ecn,
            echoed_marks: sender.marks,
            received_segments: receiver.received_segments,
            duplicate_segments: receiver.duplicate_segments,
            lost_segments: receiver.lost_segments,
            given_up_segments: receiver.given_up_segments,
            restored_segments: receiver.restored_segments,
            parity_packets: sender.parity_packets,
            late_segments: receiver.late_segments,
            overtaken_packets: receiver.overtaken,
            order: match peer.order {
                OrderTrust::Kept => "kept",
                OrderTrust::Unproven => "unproven",
                OrderTrust::Broken => "broken",
            }
            .to_owned(),
            classes: classes
                .map(|(class, counters)| ClassTraffic::new(class, counters))
                .collect(),
            round_trips: traffic.map_or_else(TimeSpread::default, |traffic| {
                TimeSpread::new(&traffic.round_trips)
            }),
        }
    }

    /// The traffic of all classes.
    pub fn traffic(&self) -> ClassTraffic {
        let classes = self.classes.iter().copied();
        classes.fold(ClassTraffic::default(), ClassTraffic::plus)
    }
}

impl ClassTraffic {
    fn new(class: Class, counters: &ClassCounters) -> Self {
        Self {
            class: class.0,
            sent_packets: counters.sent_packets,
            sent_bytes: counters.sent_bytes,
            repaired_segments: counters.repaired_segments,
            missed_segments: counters.missed_segments,
            received_packets: counters.received_packets,
            received_bytes: counters.received_bytes,
            marks: counters.marks,
        }
    }

    /// The sum of both, without a class.
    #[must_use]
    fn plus(self, other: Self) -> Self {
        Self {
            class: 0,
            sent_packets: self.sent_packets + other.sent_packets,
            sent_bytes: self.sent_bytes + other.sent_bytes,
            repaired_segments: self.repaired_segments + other.repaired_segments,
            missed_segments: self.missed_segments + other.missed_segments,
            received_packets: self.received_packets + other.received_packets,
            received_bytes: self.received_bytes + other.received_bytes,
            marks: self.marks + other.marks,
        }
    }
}

impl TimeSpread {
    pub(crate) fn new(times: &TimeHistogram) -> Self {
        let us = |quantile| times.quantile(quantile).as_micros();
        let buckets = BOUNDS_US.map(|bound| (bound, times.up_to(Span::from_micros(bound))));
        Self {
            count: times.count(),
            sum_us: times.sum().as_secs_f64() * 1e6,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            max_us: us(1.0),
            buckets: buckets.to_vec(),
        }
    }
}
