//! Every parameter of a job, its default and its range: the one home of what `job.toml` can say.
//!
//! [`Job::from_toml`] parses and checks once; behind it all values are valid. The list of keys is
//! in `job/keys.rs`, the notation of values (`"64KiB"`, `"2ms"`, `"10%"`) in [`notation`]. What
//! class and protection follow from a job is decided in [`crate::priority`].

mod keys;
pub mod notation;

use std::collections::BTreeMap;

use crate::priority::{Policy, SendOrder, UntaggedTraffic};
use crate::units::{ByteCount, Dscp, Rank, Share, Span};
use crate::wire::{HEADER_BYTES, TAG_BYTES};

pub use keys::{CHUNKS, describe};

/// A resolved job: what all ranks of a job must agree on.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the job, for people.
    pub name: String,
    /// Share of a gradient message that may be missing; nothing means lossless.
    pub tolerance: Share,
    /// What stands in for missing elements.
    pub holes: HoleFilling,
    /// How packets are protected.
    pub security: PacketSecurity,
    /// Sockets, windows and timers.
    pub transport: TransportKeys,
    /// What is protected from loss.
    pub loss: LossKeys,
    /// Classes and their DSCPs.
    pub priority: PriorityKeys,
    /// Choice of algorithms.
    pub collectives: CollectivesKeys,
    /// Who may watch.
    pub metrics: MetricsKeys,
    /// What is remembered of operations.
    pub trace: TraceKeys,
    /// Loss and disorder made on purpose, for tests and demos.
    pub faults: FaultKeys,
}

/// What stands in for elements that did not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoleFilling {
    /// The sum of those that arrived, scaled up by world size over contributors: unbiased.
    Rescale,
    /// Zero.
    Zero,
    /// The element of the same tensor in the step before.
    Previous,
    /// Zero now; the sender adds what was missing to the next step: delayed, not lost.
    ErrorFeedback,
}

/// Largest IP packet that a path carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mtu {
    /// The least of the interfaces between the ranks.
    Auto,
    /// This many bytes, IP and UDP headers included.
    Bytes(u32),
}

/// What all peers together may have on their way to one rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrantWindow {
    /// Any amount: only each sender's own window bounds it.
    Unlimited,
    /// This many bytes; the receiver grants messages in turn.
    Bytes(ByteCount),
}

/// Which packets are dropped on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DropFrom {
    /// Any.
    All,
    /// DATA that switches may drop early, because it may be missing: sent as not-ECT.
    Droppable,
}

/// Whether packets carry a CRC-32.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// Header and payload are covered.
    On,
    /// Only what the network checks is checked.
    Off,
}

/// What carries packets between ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WireChoice {
    /// Shared memory between ranks of one host, UDP between hosts.
    Auto,
    /// UDP, also between ranks of one host.
    Udp,
    /// UDP by io_uring, also between ranks of one host.
    Uring,
    /// Shared memory; all ranks are on one host.
    SharedMemory,
    /// Unreliable datagrams of an RDMA device, also between ranks of one host.
    Rdma,
}

/// What a rank's driver does while it has nothing to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdleMode {
    /// Looks for packets all the time: a core per rank.
    Busy,
    /// Looks for some microseconds, then sleeps until a packet comes.
    Adaptive,
    /// Sleeps at once.
    Block,
}

/// How packets are protected from whoever can reach the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PacketSecurity {
    /// Every packet is encrypted and authenticated, AES-128-GCM.
    Aead,
    /// Not at all: whoever reaches the network can read, forge and replay packets.
    None,
}

impl PacketSecurity {
    /// Bytes that stand behind the payload of every packet.
    pub const fn tag_bytes(self) -> u32 {
        match self {
            Self::Aead => TAG_BYTES as u32,
            Self::None => 0,
        }
    }
}

/// How an all-reduce or a reduce-scatter is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReduceAlgorithm {
    /// Direct where loss is tolerated, else by size and world.
    Auto,
    /// Each rank sends each shard straight to its owner.
    Direct,
    /// Around the ring of ranks; lossless.
    Ring,
    /// In pairs of ranks at halved, then doubled distances; lossless. A reduce-scatter is done as
    /// by [`ReduceAlgorithm::Auto`].
    HalvingDoubling,
    /// Within each host, then between hosts, then within each host again. A reduce-scatter, and a
    /// group without ranks that share a host or on one host only, is done as by
    /// [`ReduceAlgorithm::Auto`].
    Hierarchical,
}

/// An entry of `collectives.table`: the algorithm of all groups and tensors up to a size, for jobs
/// that leave the algorithm open. Written as `"4 256KiB direct"`; see [`notation::choice`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AlgorithmChoice {
    /// The most ranks of a group; at least 2.
    pub world: u16,
    /// The longest tensor.
    pub bytes: ByteCount,
    /// What is taken; not [`ReduceAlgorithm::Auto`].
    pub algorithm: ReduceAlgorithm,
}

/// Sockets, windows and timers.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportKeys {
    /// What carries packets.
    pub wire: WireChoice,
    /// The RDMA devices of every host, which its ranks take in turn; none: whichever has the
    /// rank's address.
    pub rdma_device: Vec<String>,
    /// Which GID of its device a rank uses; `None`: one of RoCE v2 with the rank's address.
    pub rdma_gid: Option<u8>,
    /// What a driver does without work.
    pub idle: IdleMode,
    /// Largest IP packet.
    pub mtu: Mtu,
    /// Most bytes in flight to one peer.
    pub window: ByteCount,
    /// Bytes in flight to one peer at first.
    pub initial_window: ByteCount,
    /// Bytes of a message that may be sent before its receiver has posted it.
    pub unscheduled: ByteCount,
    /// Bytes that all peers together may have on their way to one rank.
    pub grant_window: GrantWindow,
    /// Paths per peer: UDP source ports.
    pub entropies: u8,
    /// Packets sent in a row over one path.
    pub spray_burst: u16,
    /// Quiet time after which missing segments count as lost.
    pub gap: Span,
    /// Queueing delay above which the window shrinks.
    pub delay_target: Span,
    /// A peer that owes an answer and is silent for this long is lost.
    pub peer_timeout: Span,
    /// Whether packets carry a CRC-32.
    pub checksum: Checksum,
}

/// What is protected from loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LossKeys {
    /// Smaller messages are always lossless.
    pub min_message: ByteCount,
    /// Share of a message's segments, those of largest magnitude, that must arrive.
    pub protected_share: Share,
    /// Share of the layers, counted from the back, that must arrive.
    pub protected_back_layers: Share,
    /// Share of a step's bytes that may be missing; `None` adds no bound to the messages' own.
    pub step_tolerance: Option<Share>,
    /// Tolerances of groups of layers, the front first: the layers are cut into as many groups of
    /// equal count. Empty: [`Job::tolerance`] for all. At most 16.
    pub layer_tolerances: Vec<Share>,
    /// What caps the tolerance of every message in a job's first step and in each step after one in
    /// which the gradients changed by [`LossKeys::tight_change`]; `None`: nothing does.
    pub tight_tolerance: Option<Share>,
    /// How much the norm of the summed gradients differs from the step before, as a share of that,
    /// when training is in another phase (DBLP, arXiv 2605.01989, after Accordion, MLSys 2021).
    pub tight_change: Share,
    /// What contributions to a sum that may lose go through.
    pub transform: GradientTransform,
}

/// What contributions to a sum go through, so that a lost segment is not a hole of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GradientTransform {
    /// Nothing: a lost segment is a contribution that is missing there.
    None,
    /// A randomised Hadamard transform over groups of segments, undone where the sum is finished
    /// (as in OptiReduce, NSDI 2025): a lost segment takes a little from each of its group.
    Hadamard,
}

/// Classes and their DSCPs.
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityKeys {
    /// DSCP of each class, highest first; index 0 is the class of control packets.
    pub dscps: Vec<Dscp>,
    /// DSCP of each data class's droppable packets; empty: that of their class.
    pub droppable_dscps: Vec<Dscp>,
    /// Whether the last class is left to packets of other programs.
    pub untagged: UntaggedTraffic,
}

/// Choice of algorithms.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectivesKeys {
    /// How an all-reduce or a reduce-scatter is done.
    pub algorithm: ReduceAlgorithm,
    /// What [`ReduceAlgorithm::Auto`] takes where no loss is tolerated: the first entry that
    /// matches and can be done, else its own rule.
    pub table: Vec<AlgorithmChoice>,
    /// Bytes of a tensor that are reduced at a time.
    pub chunk: ByteCount,
    /// Trials by which a job finds its chunk and its credit in its first steps; 0: none.
    pub tuning: u16,
    /// Which gradients leave first.
    pub order: SendOrder,
    /// Bytes of a rank's gradient messages that are on their way at once; zero: any number.
    pub credit: ByteCount,
}

/// Where ranks tell what they have counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricsKeys {
    /// TCP port of a host's first rank, the next rank's is one more; 0: nowhere.
    pub port: u16,
    /// Who may ask.
    pub bind: MetricsAccess,
}

/// What a rank remembers of its operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceKeys {
    /// How many it remembers, the last ones; 0: none.
    pub entries: u32,
}

/// Who may ask a rank what it has counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricsAccess {
    /// Processes of the same host.
    Loopback,
    /// Whoever reaches the host.
    Any,
}

/// Loss and disorder made on purpose; every share is of the packets that arrive at a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultKeys {
    /// Seed of all draws.
    pub seed: u64,
    /// Packets dropped.
    pub drop: Share,
    /// Of which packets they are.
    pub drop_from: DropFrom,
    /// Mean length of a run of dropped packets.
    pub burst: f64,
    /// Packets that arrive twice.
    pub duplicate: Share,
    /// Packets that arrive after later ones.
    pub reorder: Share,
    /// Time by which every packet is late.
    pub delay: Span,
    /// Packets of which a bit is flipped.
    pub corrupt: Share,
    /// Pairs (from, to) between which nothing arrives.
    pub one_way: Vec<(Rank, Rank)>,
}

impl FaultKeys {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        let shares = [self.drop, self.duplicate, self.reorder, self.corrupt];
        let harmless = shares.iter().all(|share| share.is_none());
        !(harmless && self.delay == Span::ZERO && self.one_way.is_empty())
    }
}

/// Why a `job.toml` is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JobError {
    /// The text is not TOML.
    #[error("line {line}: {message}")]
    Syntax {
        /// Line of the text, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// No such key.
    #[error("unknown key `{key}` in {table}{}; known keys are {known}", nearest_text(.nearest))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// `[table]` that it stands in, or "the root table".
        table: String,
        /// The known key that is spelt most alike, if any is.
        nearest: Option<String>,
        /// All keys of the table.
        known: String,
    },
    /// A value of the wrong kind or outside its range.
    #[error("{key} = {given}: allowed are {allowed}")]
    Value {
        /// Dotted key.
        key: String,
        /// The value as written.
        given: String,
        /// What may be written.
        allowed: String,
    },
    /// Two values that exclude each other.
    #[error("{key} = {given} contradicts {other_key} = {other}: {rule}")]
    Conflict {
        /// Dotted key.
        key: &'static str,
        /// Its value.
        given: String,
        /// The key that it contradicts.
        other_key: &'static str,
        /// That key's value.
        other: String,
        /// What must hold.
        rule: &'static str,
    },
}

fn nearest_text(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |key| format!(" (did you mean `{key}`?)"))
}

impl Job {
    /// Reads a job. Keys that are not written have the values of [`Job::default`].
    ///
    /// # Errors
    /// [`JobError`] names the first thing that is wrong, and what would be right.
    pub fn from_toml(text: &str) -> Result<Self, JobError> {
        let table = text
            .parse::<toml::Table>()
            .map_err(|error| JobError::Syntax {
                line: error.span().map_or(1, |span| line_of(text, span.start)),
                message: error.message().replace('\n', ", "),
            })?;
        let mut job = Self::default();
        keys::read(&mut job, &table)?;
        job.checked()
    }

    /// The job, if its values agree with each other; for jobs that were changed after reading.
    ///
    /// # Errors
    /// [`JobError::Conflict`] names both values.
    pub fn checked(self) -> Result<Self, JobError> {
        keys::check_together(&self)?;
        Ok(self)
    }

    /// All values under their dotted keys, in the notation of `job.toml`.
    pub fn flat(&self) -> BTreeMap<String, String> {
        keys::KEYS
            .iter()
            .map(|key| (key.name.to_owned(), (key.show)(self)))
            .collect()
    }

    /// The job as a `job.toml` that says everything.
    pub fn to_toml(&self) -> String {
        keys::write(self, |_| String::new())
    }

    /// Like [`Job::to_toml`], with `# default` behind every value that is the default.
    pub fn to_annotated_toml(&self) -> String {
        let default = Self::default();
        keys::write(self, |key| {
            let same = (key.show)(self) == (key.show)(&default);
            if same {
                "  # default".to_owned()
            } else {
                String::new()
            }
        })
    }

    /// The most that may be missing of any gradient message: of one whose layers are known, its
    /// layers' tolerances say how much of that.
    pub fn greatest_tolerance(&self) -> Share {
        let layers = self.loss.layer_tolerances.iter().copied();
        layers.fold(self.tolerance, Share::max)
    }

    /// What the job says about classes, protection and tolerance.
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
        }
    }

    /// Bytes of each packet that are no payload: its header, and its tag if it is sealed. Headers
    /// of IP and UDP come on top.
    pub const fn packet_overhead(&self) -> u32 {
        HEADER_BYTES as u32 + self.security.tag_bytes()
    }

    /// What whoever starts the job is to be told about its security, if anything.
    pub fn security_warning(&self) -> Option<String> {
        let open = self.security == PacketSecurity::None;
        open.then(|| {
            format!(
                "security = \"none\": whoever reaches this network can read, forge and replay the \
                 packets of job {}",
                self.name
            )
        })
    }

    /// The job with `bytes` as MTU if it leaves the MTU open.
    #[must_use]
    pub fn with_mtu(mut self, bytes: u32) -> Self {
        if self.transport.mtu == Mtu::Auto {
            self.transport.mtu = Mtu::Bytes(bytes);
        }
        self
    }
}

fn line_of(text: &str, byte: usize) -> usize {
    1 + text
        .bytes()
        .take(byte)
        .filter(|&byte| byte == b'\n')
        .count()
}

impl Default for Job {
    fn default() -> Self {
        Self {
            name: "job".to_owned(),
            tolerance: Share::NONE,
            holes: HoleFilling::Rescale,
            security: PacketSecurity::Aead,
            transport: TransportKeys::default(),
            loss: LossKeys::default(),
            priority: PriorityKeys::default(),
            collectives: CollectivesKeys {
                algorithm: ReduceAlgorithm::Auto,
                table: Vec::new(),
                chunk: ByteCount::mib(4),
                tuning: 0,
                order: SendOrder::Layers,
                credit: ByteCount::new(0),
            },
            metrics: MetricsKeys {
                port: 0,
                bind: MetricsAccess::Loopback,
            },
            trace: TraceKeys { entries: 1_000 },
            faults: FaultKeys::default(),
        }
    }
}

impl Default for TransportKeys {
    fn default() -> Self {
        Self {
            wire: WireChoice::Auto,
            rdma_device: Vec::new(),
            rdma_gid: None,
            idle: IdleMode::Adaptive,
            mtu: Mtu::Auto,
            window: ByteCount::mib(1),
            initial_window: ByteCount::kib(256),
            unscheduled: ByteCount::kib(256),
            grant_window: GrantWindow::Unlimited,
            entropies: 8,
            spray_burst: 46,
            gap: Span::from_millis(1),
            delay_target: Span::from_millis(10),
            peer_timeout: Span::from_millis(8_000),
            checksum: Checksum::On,
        }
    }
}

impl Default for LossKeys {
    fn default() -> Self {
        let tenth = Share::new(0.1).expect("a tenth lies between 0 and 1");
        Self {
            min_message: ByteCount::kib(16),
            protected_share: tenth,
            protected_back_layers: tenth,
            step_tolerance: None,
            layer_tolerances: Vec::new(),
            tight_tolerance: None,
            tight_change: Share::new(0.5).expect("a half lies between 0 and 1"),
            transform: GradientTransform::None,
        }
    }
}

impl Default for PriorityKeys {
    /// CS5 for control, then AF41, AF31, AF21, AF11, CS1 and best effort.
    fn default() -> Self {
        Self {
            dscps: [40, 34, 26, 18, 10, 8, 0].map(Dscp).to_vec(),
            droppable_dscps: Vec::new(),
            untagged: UntaggedTraffic::Shares,
        }
    }
}

impl Default for FaultKeys {
    fn default() -> Self {
        Self {
            seed: 0,
            drop: Share::NONE,
            drop_from: DropFrom::All,
            burst: 1.0,
            duplicate: Share::NONE,
            reorder: Share::NONE,
            delay: Span::ZERO,
            corrupt: Share::NONE,
            one_way: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert_eq!(job.transport.window, ByteCount::mib(2));
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
    fn a_tolerance_above_one_names_the_allowed_range() {
        let expected = "tolerance = 1.5: allowed are 0 to 1, or \"0%\" to \"100%\"";
        assert_eq!(refusal("tolerance = 1.5"), expected);
        assert!(refusal("tolerance = \"150%\"").starts_with("tolerance = \"150%\": allowed"));
    }

    #[test]
    fn more_groups_of_layers_than_sixteen_are_refused() {
        let list = ["0.1"; 17].join(", ");
        let message = refusal(&format!("[loss]\nlayer_tolerances = [{list}]"));
        let allowed = "allowed are up to 16 shares such as [\"5%\", 0.01]";
        assert!(message.ends_with(allowed), "{message}");
        let message = refusal("[loss]\nlayer_tolerances = [2]");
        assert_eq!(message, format!("loss.layer_tolerances = [2]: {allowed}"));
        assert!(refusal("[loss]\nlayer_tolerances = 0.1").ends_with(allowed));
    }

    #[test]
    fn a_misspelt_key_names_its_table_and_the_known_keys() {
        let message = refusal("[transport]\nwindw = \"1MiB\"");
        assert!(message.starts_with(
            "unknown key `windw` in [transport] (did you mean `window`?); known keys are wire, "
        ));
        assert!(refusal("tolerence = 0").contains("the root table (did you mean `tolerance`?)"));
        assert!(refusal("[transprt]\n").contains("did you mean `transport`?"));
        assert!(refusal("zzz = 1").contains("the root table; known keys are name, tolerance"));
    }

    #[test]
    fn a_wrong_entry_of_the_table_of_algorithms_tells_what_an_entry_is() {
        for wrong in [
            "4 direct",
            "1 4KiB ring",
            "4 4KB ring",
            "4 4KiB auto",
            "4 4KiB ring x",
        ] {
            let message = refusal(&format!("[collectives]\ntable = [\"{wrong}\"]"));
            let start = format!("collectives.table = [\"{wrong}\"]: allowed are entries ");
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
        let message = refusal("[transport]\ninitial_window = \"2MiB\"");
        assert_eq!(
            message,
            "transport.initial_window = \"2MiB\" contradicts transport.window = \"1MiB\": \
             the first must not be larger"
        );
        assert!(refusal("[priority]\ndscps = [0, 0]").contains("control packets"));
    }

    #[test]
    fn a_value_where_a_table_belongs_is_refused() {
        assert_eq!(refusal("loss = 3"), "loss = 3: allowed are a table, [loss]");
        assert!(refusal("[name]").starts_with("name = {}: allowed are"));
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
            key in 0..keys::KEYS.len(),
            value in prop_oneof![
                any::<i64>().prop_map(|n| n.to_string()),
                any::<f64>().prop_map(|n| format!("{n:?}").to_lowercase()),
                "\\PC*".prop_map(|text| format!("{text:?}")),
                "[0-9.]{1,22}(B|KiB|G|%|ms|us|ps|s)".prop_map(|text| format!("{text:?}")),
                Just("[\"1->2\", 3]".to_owned()),
            ],
        ) {
            if let Ok(job) = Job::from_toml(&format!("{} = {value}", keys::KEYS[key].name)) {
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
            job.transport.window = ByteCount::new(window);
            job.transport.gap = Span::from_picos(gap);
            job.faults.burst = burst;
            let choice = |(world, bytes, algorithm): (u16, u64, usize)| AlgorithmChoice {
                world,
                bytes: ByteCount::new(bytes),
                algorithm: notation::ALGORITHMS[algorithm].1,
            };
            job.collectives.table = choices.into_iter().map(choice).collect();
            job.faults.one_way = pairs.into_iter().map(|(a, b)| (Rank(a), Rank(b))).collect();
            prop_assert_eq!(Job::from_toml(&job.to_toml()), Ok(job));
        }
    }
}
