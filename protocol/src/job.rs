//! Every parameter of a job. The table below is the one home of a key: its sentence, type, default
//! and range are one row, from which `job.toml` is read, checked, printed and described.
//!
//! - [`Job::from_toml`] reads and checks once; after that all values are valid.
//! - `job/values.rs` has the types of values that only jobs have, `job/formats.rs` how values are
//!   written in TOML, [`notation`] how sizes, shares and times are written anywhere, and [`form`]
//!   as much of that as an editor checks.
//! - [`spanned`] reads TOML so that errors name the line; [`spelling`] suggests the nearest word.
//!   Files that describe fabrics are read with both, too.
//!
//! The class and protection that follow from a job are decided in [`crate::priority`].

pub mod form;
mod formats;
mod keys;
pub mod notation;
pub mod redundancy;
pub mod spanned;
pub mod spelling;
mod values;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use crate::parity::ParityRule;
use crate::priority::{EarlyDrop, Policy, SendOrder, UntaggedTraffic};
use crate::units::{ByteCount, Dscp, Rank, Share, Span};
use crate::wire::HEADER_BYTES;

use formats::{
    AnyShare, CHOICE, CODE, DEVICES, DSCP, Decimal, KeyFormat, List, NAME, ON_OFF, PAIR, SOCKET,
    Size, Time, UNTAGGED, one_of, or, whole,
};
use keys::{JobKey, job_key, job_keys};
use spanned::{TomlError, TomlProblem};

pub use redundancy::{RedundancyFamily, RedundancyTerms};
pub use values::{
    AlgorithmChoice, Checksum, CodecName, CodecTerms, DropFrom, GradientTransform, GrantWindow,
    HoleFilling, IdleMode, MetricsAccess, Mtu, PacketCipher, PacketOrder, PacketSecurity,
    QueueSignal, ReduceAlgorithm, SendWindow, SumOrder, ToleranceUse, WireChoice,
};

/// The sizes that `collectives.chunk` may have.
pub const CHUNKS: RangeInclusive<ByteCount> = ByteCount::kib(64)..=GIB;

/// Shorter messages are lossless if `loss.min_message` is "auto".
const MIN_LOSSY_MESSAGE: ByteCount = ByteCount::kib(16);

const GIB: ByteCount = ByteCount::mib(1024);
const ANY_COUNT: RangeInclusive<usize> = 0..=usize::MAX;

// A row is the sentence that users read, then `key: type = default, format and range;`.
job_keys! {
    /// A resolved job: the values on which all ranks of a job must agree.
    pub struct Job {
        /// Name of the job in logs and metrics.
        name: String = "job".to_owned(), NAME;
        /// Share of a gradient message that may be missing; 0% is lossless.
        tolerance: Share = Share::NONE, AnyShare;
        /// Replaces missing elements: by the scaled sum of those that arrived, by zero, by the last
        /// step's value, or by zero now while the sender adds them to its next step.
        holes: HoleFilling = HoleFilling::Rescale, one_of();
        /// Protects packets: "aead" encrypts and authenticates them with keys of this job; "none"
        /// does neither.
        security: PacketSecurity = PacketSecurity::Aead, one_of();
        /// Encrypts and authenticates packets where security is "aead". "aegis" is AEGIS-128X4
        /// where all processors have VAES and AVX-512, else AEGIS-128X2. Without VAES, AES-128-GCM
        /// takes three to seven times as long; NIST has approved only that one.
        cipher: PacketCipher = PacketCipher::Aegis, one_of();
    }

    /// Sockets, windows and timers.
    [transport] pub struct TransportKeys {
        /// Carries packets; "auto" is shared memory within a host and UDP between hosts.
        wire: WireChoice = WireChoice::Auto, one_of();
        /// RDMA devices of each host, which its ranks take in turn; "auto" is the one that has the
        /// rank's address.
        rdma_device: Vec<String> = Vec::new(), DEVICES;
        /// Index in the device's table of GIDs; "auto" is a RoCE v2 GID of the rank's address.
        rdma_gid: Option<u8> = None, or("auto", whole(0..=255));
        /// How a rank waits for packets: it spins, spins for some microseconds and then sleeps, or
        /// sleeps at once; "adaptive" sleeps at once while ranks or others want its core.
        idle: IdleMode = IdleMode::Adaptive, one_of();
        /// Largest IP packet in bytes; "auto" is the smallest MTU of the ranks' interfaces.
        mtu: Mtu = Mtu::Auto, or("auto", whole(576..=65_535));
        /// Maximum bytes in flight to one peer; "auto" is 1 MiB for each millisecond of the path's
        /// round trip, at least 1 MiB and at most 64 MiB.
        window: SendWindow = SendWindow::AUTO, or("auto", Size(ByteCount::kib(64)..=GIB));
        /// Bytes in flight to one peer at first, before any acknowledgement.
        initial_window: ByteCount = ByteCount::kib(256), Size(ByteCount::kib(16)..=GIB);
        /// Bytes of a message that may be sent before its receiver is ready; with a grant_window,
        /// bytes of all messages to one rank. Grows with an automatic window.
        unscheduled: ByteCount = ByteCount::kib(256), Size(ByteCount::new(1)..=GIB);
        /// Bytes with which the message of a rank that sends no other may begin although its
        /// receiver grants segments, at most three quarters of it, as packets that long queues
        /// drop; for switches that drop Not-ECT packets early, where messages come unexpected.
        speculative: ByteCount = ByteCount::new(0), Size(ByteCount::new(0)..=GIB);
        /// Maximum bytes that all peers together may have in flight to one rank; "auto" is
        /// unlimited for up to four peers on other hosts, and otherwise as many as one of them
        /// alone may have.
        grant_window: Option<GrantWindow> = None,
            or("auto", or::<_, GrantWindow>("unlimited", Size(ByteCount::kib(16)..=GIB)));
        /// Paths per peer: UDP source ports over which packets are sprayed.
        entropies: u8 = 8, whole(1..=64);
        /// Packets in a row over one path; fewer spread better, more cost less processor time.
        spray_burst: u16 = 46, whole(1..=64);
        /// Whether packets of one source port keep their order: "kept" where switches hash, "auto"
        /// after thousands have. A loss within the tolerance then needs no quiet time.
        order: PacketOrder = PacketOrder::Auto, one_of();
        /// Packets behind a message that restore lost ones of its end without a round trip, as a
        /// share of the packets that they cover; "auto" follows the measured loss where that pays.
        parity: ParityRule = ParityRule::Auto, or("auto", or::<_, Option<Share>>("none", AnyShare));
        /// Quiet time after which missing segments count as lost.
        gap: Span = Span::from_millis(1), Time(Span::from_micros(10)..=Span::from_millis(1_000));
        /// How long queues on the paths show: "marks" where switches mark packets before they drop
        /// any, so that a loss is that of a link; "auto" finds out by the first mark.
        queues: QueueSignal = QueueSignal::Auto, one_of();
        /// Queueing delay above which the window shrinks; on a long path half of its round trip, if
        /// that is more.
        delay_target: Span = Span::from_millis(10),
            Time(Span::from_micros(10)..=Span::from_millis(10_000));
        /// A peer that owes an answer and is silent for this long counts as dead; one whose process
        /// has ended does within a second.
        peer_timeout: Span = Span::from_millis(60_000),
            Time(Span::from_millis(100)..=Span::from_millis(3_600_000));
        /// Whether packets that are not encrypted carry a CRC-32.
        checksum: Checksum = Checksum::On, ON_OFF;
    }

    /// Protection from loss.
    [loss] pub struct LossKeys {
        /// Smaller messages are always lossless; "auto" stands for 16 KiB, and keeps lossless those
        /// that would gain no time by a tolerance, and tensors that one step reduces: up to 64 KiB,
        /// divided by the number of other ranks.
        min_message: Option<ByteCount> = None, or("auto", Size(ByteCount::new(0)..=GIB));
        /// Share of a message's segments that must arrive: the stretches of largest magnitude.
        protected_share: Share = share(0.1), AnyShare;
        /// Share of the layers, counted from the back, that must arrive.
        protected_back_layers: Share = share(0.1), AnyShare;
        /// Share of a step's bytes that may be missing; "auto" adds no bound to those of its
        /// messages.
        step_tolerance: Option<Share> = None, or("auto", AnyShare);
        /// Tolerances of groups of layers, front layers first; the layers are cut into groups of
        /// equal count. An empty list is `tolerance` for all layers.
        layer_tolerances: Vec<Share> = Vec::new(), List {
            entry: AnyShare,
            count: 0..=16,
            allowed: "up to 16 shares such as [\"5%\", 0.01]",
        };
        /// Caps the tolerance in a job's first step and after each step with a change of phase;
        /// "auto" is no cap.
        tight_tolerance: Option<Share> = None, or("auto", AnyShare);
        /// Change of the gradients' norm from step to step, as a share of the earlier norm, that
        /// counts as a change of phase.
        // DBLP, arXiv 2605.01989, after Accordion, MLSys 2021.
        tight_change: Share = share(0.5), AnyShare;
        /// Whether switches drop segments that may be missing where they mark others ("on"), or
        /// only when they are full.
        early_drop: EarlyDrop = EarlyDrop::On, one_of();
        /// Spreads the values of each segment over many, so that a lost one takes a little from
        /// each; for gradients in which a few elements matter most.
        transform: GradientTransform = GradientTransform::None, one_of();
    }

    /// Classes and their DSCPs.
    [priority] pub struct PriorityKeys {
        /// DSCP of each class, highest first; the first is for control packets.
        // CS5 for control, then AF41, AF31, AF21, AF11, CS1 and best effort.
        dscps: Vec<Dscp> = [40, 34, 26, 18, 10, 8, 0].map(Dscp).to_vec(), List {
            entry: DSCP,
            count: 2..=8,
            allowed: "2 to 8 numbers from 0 to 63, in brackets",
        };
        /// DSCP of each data class's droppable packets, for switches that cannot distinguish them
        /// by ECN.
        droppable_dscps: Vec<Dscp> = Vec::new(), List {
            entry: DSCP,
            count: 0..=8,
            allowed: "0 to 8 numbers from 0 to 63, in brackets",
        };
        /// Packets of other programs share the last class with layers, or have it alone: "below"
        /// all layers, or with a share of each link, such as "30%".
        untagged: UntaggedTraffic = UntaggedTraffic::Shares, UNTAGGED;
    }

    /// Choice and schedule of collectives.
    [collectives] pub struct CollectivesKeys {
        /// Algorithm of all-reduce and reduce-scatter; `gradwire perf tune` measures which is
        /// fastest.
        algorithm: ReduceAlgorithm = ReduceAlgorithm::Auto, one_of();
        /// Address of the `gradwire aggregate` that sums for the algorithm "in-network", such as
        /// "10.0.0.9:4700".
        aggregator: Option<SocketAddr> = None, or("none", SOCKET);
        /// Algorithm that "auto" chooses up to a number of ranks and a size; the first entry that
        /// matches counts.
        table: Vec<AlgorithmChoice> = Vec::new(), List {
            entry: CHOICE,
            count: ANY_COUNT,
            allowed: "entries such as [\"4 256KiB direct\"]: most ranks from 2, most bytes, and an \
                      algorithm other than \"auto\"",
        };
        /// Share of the ranks' bandwidth that the network carries while all send to all: "100%"
        /// where its core is not oversubscribed. From 90% on, reductions of one chunk, of two among
        /// more than 32 ranks, are direct: that is faster there, and tolerances apply to them.
        core: Option<Share> = None, or("auto", AnyShare);
        /// Longest round trip between ranks: groups of up to 8, and others if core is known, reduce
        /// directly where a ring would wait longer for its steps than its bytes take. "auto" is by
        /// how much the ranks differ in their distance from rank 0, if that is 5 ms or more.
        round_trip: Option<Span> = None,
            or("auto", Time(Span::ZERO..=Span::from_millis(10_000)));
        /// Bytes of a tensor that are reduced at a time.
        chunk: ByteCount = ByteCount::mib(4), Size(CHUNKS);
        /// Order in which the values of more than two ranks are summed: "rank" gives equal bits for
        /// equal inputs, and copies the values that arrive early; "arrival" saves these copies.
        sums: SumOrder = SumOrder::Rank, one_of();
        /// Shorter form of gradients between hosts: 1, 2 or 8 bits per value, or the largest values
        /// alone. The rest of each value is added in the next step.
        codec: CodecName = CodecName::None, one_of();
        /// Share of the values that the codec "topk" sends.
        codec_share: Share = share(0.01), AnyShare;
        /// Shorter tensors leave as they are; `gradwire tune codec` finds the length from which
        /// encoding pays.
        codec_min: ByteCount = ByteCount::kib(256), Size(ByteCount::new(0)..=GIB);
        /// With error feedback: how many times as long as usual a rank waits for contributions that
        /// it tolerates to be missing. Their senders add later ones to the next step.
        patience: Option<f64> = None, or("endless", Decimal(1.0..=100.0));
        /// Which gradients leave first: those of front layers, or those that are ready first.
        order: SendOrder = SendOrder::Layers, one_of();
        /// Bytes of gradients of a rank that are in flight at once, so that later ones of front
        /// layers can overtake; 0 is no bound.
        credit: ByteCount = ByteCount::new(0), Size(ByteCount::new(0)..=GIB);
        /// Trials by which the first steps under DDP's hook find chunk and credit; 0 is off.
        tuning: u16 = 0, whole(0..=1000);
    }

    /// Parameter servers, `gradwire.ps`.
    [servers] pub struct ServerKeys {
        /// Code by which servers keep each other's parameters and optimizer state, so that a lost
        /// server can be replaced: any k of the n servers hold everything, and d of them rebuild
        /// one.
        redundancy: Option<RedundancyTerms> = None, or("none", CODE);
        /// Updates from one snapshot that is encoded to the next; workers keep the gradients of up
        /// to twice as many steps.
        snapshot_every: u32 = 8, whole(1..=10_000);
    }

    /// Export of counters.
    [metrics] pub struct MetricsKeys {
        /// TCP port of a host's first rank for Prometheus and `gradwire top`, the next rank's is
        /// one more; 0 is off.
        port: u16 = 0, whole(0..=65_535);
        /// Who may ask for metrics: processes of the same host, or everyone who reaches it.
        bind: MetricsAccess = MetricsAccess::Loopback, one_of();
    }

    /// The flight recorder.
    [trace] pub struct TraceKeys {
        /// Latest operations that the flight recorder of a rank keeps; 0 is off.
        entries: u32 = 1_000, whole(0..=1_000_000);
    }

    /// Loss and disorder made on purpose, for tests and demonstrations. Shares are of the packets
    /// that arrive at a rank.
    [faults] pub struct FaultKeys {
        /// Seed of all draws; the same seed gives the same faults.
        seed: u64 = 0, whole(0..=i64::MAX as u64);
        /// Share of packets that are dropped.
        drop: Share = Share::NONE, AnyShare;
        /// Which packets are dropped: any, or only those whose segment may be missing.
        drop_from: DropFrom = DropFrom::All, one_of();
        /// Mean length of a run of dropped packets.
        burst: f64 = 1.0, Decimal(1.0..=1000.0);
        /// Share of packets that arrive twice.
        duplicate: Share = Share::NONE, AnyShare;
        /// Share of packets that later ones overtake.
        reorder: Share = Share::NONE, AnyShare;
        /// Delay added to every packet.
        delay: Span = Span::ZERO, Time(Span::ZERO..=Span::from_millis(10_000));
        /// Share of packets with a flipped bit.
        corrupt: Share = Share::NONE, AnyShare;
        /// Pairs of ranks, from and to, between which no packet arrives.
        one_way: Vec<(Rank, Rank)> = Vec::new(), List {
            entry: PAIR,
            count: ANY_COUNT,
            allowed: "pairs of ranks such as [\"0->1\"]",
        };
    }
}

fn share(value: f64) -> Share {
    Share::new(value).expect("defaults lie between 0 and 1")
}

impl FaultKeys {
    /// Whether the job asks for any fault.
    pub fn any(&self) -> bool {
        let shares = [self.drop, self.duplicate, self.reorder, self.corrupt];
        let harmless = shares.iter().all(|share| share.is_none());
        !(harmless && self.delay == Span::ZERO && self.one_way.is_empty())
    }
}

/// Why a job is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JobError {
    /// A line of a `job.toml` is wrong.
    #[error(transparent)]
    File(#[from] TomlError),
    /// A single value is wrong, as an option gave it.
    #[error(transparent)]
    Value(#[from] TomlProblem),
    /// Two values exclude each other.
    #[error("{key} = {given} contradicts {other_key} = {other}: {rule}")]
    Conflict {
        /// The key, with its table in front.
        key: &'static str,
        /// Its value.
        given: String,
        /// The key that it contradicts.
        other_key: &'static str,
        /// That key's value.
        other: String,
        /// The rule that is broken.
        rule: &'static str,
    },
}

/// The name, sentence and allowed values of each key.
pub fn describe() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    KEYS.iter()
        .map(|key| (key.name, key.sentence, (key.allowed)()))
}

/// The form of a `job.toml`, from which editors learn its keys.
pub fn file_form() -> Vec<form::FormKey> {
    keys::form()
}

impl Job {
    /// Reads a job. Keys that are not written have the values of [`Job::default`].
    ///
    /// # Errors
    /// [`JobError`] names a wrong line, and the values or keys that are allowed there.
    pub fn from_toml(text: &str) -> Result<Self, JobError> {
        Self::with_written_keys(text).map(|(job, _)| job)
    }

    /// As [`Job::from_toml`], with the names of the keys that are written.
    ///
    /// # Errors
    /// As [`Job::from_toml`].
    pub fn with_written_keys(text: &str) -> Result<(Self, BTreeSet<String>), JobError> {
        let mut job = Self::default();
        let written = keys::read(&mut job, text)?;
        Ok((job.checked()?, written))
    }

    /// Sets one value under a key, `transport.gap` for example: as TOML where `text` is TOML, else
    /// as a string. [`Job::checked`] says whether it agrees with the other values.
    ///
    /// # Errors
    /// [`JobError::Value`] names the known keys, or the allowed values.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), JobError> {
        Ok(keys::set(self, key, text)?)
    }

    /// The job, if its values agree with each other; for jobs that were changed after reading.
    ///
    /// # Errors
    /// [`JobError::Conflict`] names both values.
    pub fn checked(self) -> Result<Self, JobError> {
        let (transport, priority) = (&self.transport, &self.priority);
        let (dscps, droppable) = (&priority.dscps, &priority.droppable_dscps);
        let paired = droppable.is_empty() || droppable.len() == dscps.len() - 1;
        let (window, dscps_key) = ("transport.window", "priority.dscps");
        let (codec, algorithm) = (self.collectives.codec, self.collectives.algorithm);
        let sums_at_owner = !matches!(
            algorithm,
            ReduceAlgorithm::Ring | ReduceAlgorithm::HalvingDoubling
        );
        let rules = [
            (
                transport.initial_window <= transport.window.short(),
                ("transport.initial_window", window),
                "the first must not be larger, nor than 1 MiB where that is \"auto\"",
            ),
            (
                transport.unscheduled <= transport.window.short(),
                ("transport.unscheduled", window),
                "the first must not be larger, nor than 1 MiB where that is \"auto\"",
            ),
            (
                !dscps[1..].contains(&dscps[0]),
                (dscps_key, dscps_key),
                "control packets need a DSCP of their own, the first of the list",
            ),
            (
                priority.untagged == UntaggedTraffic::Shares || dscps.len() >= 3,
                ("priority.untagged", dscps_key),
                "three are needed: for control packets, for layers, for others",
            ),
            (
                paired && !droppable.iter().any(|dscp| dscps.contains(dscp)),
                ("priority.droppable_dscps", dscps_key),
                "write one for each class but the first, each different from those",
            ),
            (
                codec == CodecName::None || sums_at_owner,
                ("collectives.codec", "collectives.algorithm"),
                "this algorithm would encode partial sums again and again; write \"direct\", \
                 \"hierarchical\" or \"auto\"",
            ),
            (
                algorithm != ReduceAlgorithm::InNetwork || self.collectives.aggregator.is_some(),
                ("collectives.algorithm", "collectives.aggregator"),
                "start `gradwire aggregate`, and write the address that it prints",
            ),
            (
                codec == CodecName::None || self.loss.transform == GradientTransform::None,
                ("collectives.codec", "loss.transform"),
                "a transform spreads values over segments, and a codec is not linear; use one",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, ..)| !holds);
        broken.map_or(Ok(()), |(_, (key, other_key), rule)| {
            let [given, other] = [key, other_key].map(|key| self.shown(key));
            Err(JobError::Conflict {
                key,
                given,
                other_key,
                other,
                rule,
            })
        })?;
        Ok(self)
    }

    /// A value in the notation of `job.toml`.
    fn shown(&self, name: &str) -> String {
        let key = KEYS.iter().find(|key| key.name == name);
        (key.expect("rules are about known keys").show)(self)
    }

    /// All values under their dotted keys, in the notation of `job.toml`.
    pub fn flat(&self) -> BTreeMap<String, String> {
        KEYS.iter()
            .map(|key| (key.name.to_owned(), (key.show)(self)))
            .collect()
    }

    /// The job as a `job.toml` with every key.
    pub fn to_toml(&self) -> String {
        keys::write(self, |_| "")
    }

    /// Like [`Job::to_toml`], with `# default` behind every default value.
    pub fn to_annotated_toml(&self) -> String {
        let default = Self::default();
        keys::write(self, |key| match (key.show)(self) == (key.show)(&default) {
            true => "  # default",
            false => "",
        })
    }

    /// The largest share that may be missing of any gradient message. The tolerances of a
    /// message's layers, where they are known, say how much of that it may use.
    pub fn greatest_tolerance(&self) -> Share {
        let layers = self.loss.layer_tolerances.iter().copied();
        layers.fold(self.tolerance, Share::max)
    }

    /// Shorter messages are lossless whatever the tolerance.
    pub fn min_lossy_message(&self) -> ByteCount {
        self.loss.min_message.unwrap_or(MIN_LOSSY_MESSAGE)
    }

    /// Which longer messages use their tolerance.
    pub fn tolerance_use(&self) -> ToleranceUse {
        match self.loss.min_message {
            Some(_) => ToleranceUse::Always,
            None => ToleranceUse::WhereItPays,
        }
    }

    /// How the job encodes gradients between hosts.
    pub fn codec(&self) -> CodecTerms {
        CodecTerms {
            name: self.collectives.codec,
            share: self.collectives.codec_share,
            min_tensor: self.collectives.codec_min,
        }
    }

    /// The part of the job that decides class, protection and tolerance.
    pub fn policy(&self) -> Policy {
        Policy {
            tolerance: self.tolerance,
            layer_tolerances: self.loss.layer_tolerances.clone(),
            dscps: self.priority.dscps.clone(),
            droppable_dscps: self.priority.droppable_dscps.clone(),
            protected_share: self.loss.protected_share,
            protected_back_layers: self.loss.protected_back_layers,
            order: self.collectives.order,
            untagged: self.priority.untagged,
            early_drop: self.loss.early_drop,
        }
    }

    /// Bytes of each packet in addition to its payload: the header, and the tag of a sealed packet.
    /// The headers of IP and UDP come on top.
    pub const fn packet_overhead(&self) -> u32 {
        HEADER_BYTES as u32 + self.security.tag_bytes()
    }

    /// What protects packets on a network: the cipher's name, or "none".
    pub fn protection(&self) -> &'static str {
        match self.security {
            PacketSecurity::Aead => self.cipher.into(),
            PacketSecurity::None => "none",
        }
    }

    /// The warning for the person who starts a job without security.
    pub fn security_warning(&self) -> Option<String> {
        let open = self.security == PacketSecurity::None;
        open.then(|| {
            format!(
                "security = \"none\": anyone who reaches this network can read, forge and \
                 replay the packets of job {}",
                self.name
            )
        })
    }

    /// The job, with `bytes` as its MTU if the MTU is [`Mtu::Auto`].
    #[must_use]
    pub fn with_mtu(mut self, bytes: u32) -> Self {
        if self.transport.mtu == Mtu::Auto {
            self.transport.mtu = Mtu::Bytes(bytes);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use strum::VariantNames;

    use super::*;

    fn refusal(text: &str) -> String {
        Job::from_toml(text)
            .expect_err("the job is wrong")
            .to_string()
    }

    #[test]
    fn an_empty_job_is_the_default_job() {
        assert_eq!(Job::from_toml(""), Ok(Job::default()));
    }

    #[test]
    fn every_notation_is_read() {
        let text = "tolerance = \"10%\"\nholes = \"error-feedback\"\n[transport]\nmtu = 9000\n\
                    window = \"2M\"\ngap = \"1.5ms\"\nchecksum = false\n[loss]\n\
                    step_tolerance = 0.05\nlayer_tolerances = [\"5%\", 0.01, 0]\n\
                    tight_tolerance = \"1%\"\ntransform = \"hadamard\"\n\
                    [faults]\none_way = [\"0->1\"]\nburst = 3";
        let job = Job::from_toml(text).expect("the job is right");
        assert_eq!(job.tolerance, Share::new(0.1).expect("a share"));
        assert_eq!(job.holes, HoleFilling::ErrorFeedback);
        assert_eq!(job.transport.mtu, Mtu::Bytes(9000));
        assert_eq!(job.transport.window, SendWindow::Bytes(ByteCount::mib(2)));
        assert_eq!(job.transport.gap, Span::from_micros(1500));
        assert_eq!(job.transport.checksum, Checksum::Off);
        assert_eq!(job.loss.step_tolerance, Share::new(0.05));
        let layers = [0.05, 0.01, 0.0].map(|share| Share::new(share).expect("a share"));
        assert_eq!(job.loss.layer_tolerances, layers);
        assert_eq!(job.loss.tight_tolerance, Share::new(0.01));
        assert_eq!(job.loss.transform, GradientTransform::Hadamard);
        assert_eq!(
            job.flat()["loss.layer_tolerances"],
            "[\"5%\", \"1%\", \"0%\"]"
        );
        assert_eq!(job.faults.one_way, [(Rank(0), Rank(1))]);
        assert_eq!(job.flat()["faults.burst"], "3.0");
    }

    #[test]
    fn others_have_a_word_or_whole_percents() {
        let untagged = |text: &str| {
            let job = Job::from_toml(&format!("[priority]\nuntagged = {text}"))?;
            Ok::<_, JobError>((
                job.priority.untagged,
                job.flat()["priority.untagged"].clone(),
            ))
        };
        let weighted = |share| UntaggedTraffic::Weighted(Share::new(share).expect("a share"));
        for (text, value, shown) in [
            ("\"share\"", UntaggedTraffic::Shares, "\"share\""),
            ("\"below\"", UntaggedTraffic::Below, "\"below\""),
            ("\"30%\"", weighted(0.3), "\"30%\""),
            ("0.07", weighted(0.07), "\"7%\""),
        ] {
            assert_eq!(untagged(text), Ok((value, shown.to_owned())));
        }
        for wrong in ["\"0%\"", "\"91%\"", "\"2.5%\"", "\"above\"", "30"] {
            let message = untagged(wrong).expect_err("not allowed").to_string();
            let allowed = "allowed are \"share\", \"below\", or \"1%\" to \"90%\"";
            assert!(message.contains(allowed), "{message}");
        }
        let message = refusal("[priority]\ndscps = [40, 34]\nuntagged = \"30%\"");
        assert!(message.contains("three are needed"), "{message}");
    }

    #[test]
    fn a_tolerance_above_one_names_the_allowed_range() {
        let expected = "line 1: tolerance = 1.5: allowed are 0 to 1, or \"0%\" to \"100%\"";
        assert_eq!(refusal("tolerance = 1.5"), expected);
        assert!(
            refusal("tolerance = \"150%\"").starts_with("line 1: tolerance = \"150%\": allowed")
        );
    }

    #[test]
    fn more_than_sixteen_groups_of_layers_are_refused() {
        let list = ["0.1"; 17].join(", ");
        let message = refusal(&format!("[loss]\nlayer_tolerances = [{list}]"));
        let allowed = "allowed are up to 16 shares such as [\"5%\", 0.01]";
        assert!(message.ends_with(allowed), "{message}");
        let message = refusal("[loss]\nlayer_tolerances = [2]");
        assert_eq!(
            message,
            format!("line 2: loss.layer_tolerances = [2]: {allowed}")
        );
        assert!(refusal("[loss]\nlayer_tolerances = 0.1").ends_with(allowed));
    }

    #[test]
    fn a_misspelt_key_names_its_table_and_the_known_keys() {
        let message = refusal("[transport]\nwindw = \"1MiB\"");
        assert!(message.starts_with(
            "line 2: unknown key `windw` in [transport] (did you mean `window`?); \
             known keys are wire, "
        ));
        assert!(refusal("tolerence = 0").contains("the root table (did you mean `tolerance`?)"));
        assert!(refusal("[transprt]\n").contains("did you mean `transport`?"));
        assert!(refusal("zzz = 1").contains("the root table; known keys are name, tolerance"));
    }

    #[test]
    fn a_wrong_entry_of_the_table_shows_an_example() {
        for wrong in [
            "4 direct",
            "1 4KiB ring",
            "4 4KB ring",
            "4 4KiB auto",
            "4 4KiB ring x",
        ] {
            let message = refusal(&format!("[collectives]\ntable = [\"{wrong}\"]"));
            let start = format!("line 2: collectives.table = [\"{wrong}\"]: allowed are entries ");
            assert!(message.starts_with(&start), "{message}");
            assert!(message.contains("\"4 256KiB direct\""), "{message}");
        }
        assert!(refusal("[collectives]\ntable = \"4 4KiB ring\"").contains("allowed are entries"));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        assert!(refusal("name = \"a\"\n\ntolerance = =\n").starts_with("line 3: "));
    }

    #[test]
    fn values_that_exclude_each_other_are_refused() {
        let message = refusal("[transport]\nwindow = \"1MiB\"\ninitial_window = \"2MiB\"");
        assert_eq!(
            message,
            "transport.initial_window = \"2MiB\" contradicts transport.window = \"1MiB\": \
             the first must not be larger, nor than 1 MiB where that is \"auto\""
        );
        assert!(refusal("[priority]\ndscps = [0, 0]").contains("control packets"));
    }

    #[test]
    fn a_value_where_a_table_belongs_is_refused() {
        let message = "line 1: loss = 3: allowed are a table, [loss]";
        assert_eq!(refusal("loss = 3"), message);
        assert!(refusal("\n[name]").starts_with("line 2: name = [name]: allowed are"));
    }

    #[test]
    fn a_value_of_an_option_is_refused_without_a_line() {
        let mut job = Job::default();
        job.set("transport.wire", "udp").expect("a known word");
        job.set("transport.entropies", "4").expect("a number");
        assert_eq!(job.transport.wire, WireChoice::Udp);
        assert_eq!(job.transport.entropies, 4);
        let mut said = |key, text| job.set(key, text).expect_err("wrong").to_string();
        assert!(said("transport.wire", "tcp").starts_with("transport.wire = \"tcp\": allowed"));
        assert!(said("transport.windw", "1").starts_with("unknown key `windw` in [transport] ("));
        assert!(said("transprt.gap", "1").contains("did you mean `transport`?"));
        assert!(said("transport", "1").starts_with("transport = 1: allowed are a table"));
    }

    #[test]
    fn an_annotated_job_marks_its_defaults() {
        let job = Job {
            tolerance: Share::ALL,
            ..Job::default()
        };
        let text = job.to_annotated_toml();
        assert!(text.contains("tolerance = \"100%\"\n"));
        assert!(text.contains("mtu = \"auto\"  # default\n"));
        assert_eq!(Job::from_toml(&text), Ok(job));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "\\PC*") {
            let _ = Job::from_toml(&text);
        }

        #[test]
        fn arbitrary_values_never_panic(
            key in 0..KEYS.len(),
            value in prop_oneof![
                any::<i64>().prop_map(|n| n.to_string()),
                any::<f64>().prop_map(|n| format!("{n:?}").to_lowercase()),
                "\\PC*".prop_map(|text| format!("{text:?}")),
                "[0-9.]{1,22}(B|KiB|G|%|ms|us|ps|s)".prop_map(|text| format!("{text:?}")),
                Just("[\"1->2\", 3]".to_owned()),
            ],
        ) {
            if let Ok(job) = Job::from_toml(&format!("{} = {value}", KEYS[key].name)) {
                prop_assert_eq!(Job::from_toml(&job.to_toml()), Ok(job));
            }
        }

        #[test]
        fn a_written_job_reads_back_equal(
            tolerance in 0.0..=1.0_f64,
            window in 262_144..1_000_000_000_u64,
            gap in 10_000_000..1_000_000_000_000_u64,
            burst in 1.0..1000.0_f64,
            pairs in proptest::collection::vec((0..9_u16, 10..20_u16), 0..5),
            choices in proptest::collection::vec((2..=u16::MAX, any::<u64>(), 1..5_usize), 0..5),
        ) {
            let tolerance = Share::new(tolerance).expect("between 0 and 1");
            let mut job = Job { tolerance, ..Job::default() };
            job.transport.window = SendWindow::Bytes(ByteCount::new(window));
            job.transport.gap = Span::from_picos(gap);
            job.faults.burst = burst;
            let choice = |(world, bytes, algorithm): (u16, u64, usize)| AlgorithmChoice {
                world,
                bytes: ByteCount::new(bytes),
                algorithm: ReduceAlgorithm::VARIANTS[algorithm].parse().expect("a name"),
            };
            job.collectives.table = choices.into_iter().map(choice).collect();
            job.faults.one_way = pairs.into_iter().map(|(a, b)| (Rank(a), Rank(b))).collect();
            prop_assert_eq!(Job::from_toml(&job.to_toml()), Ok(job));
        }
    }
}
