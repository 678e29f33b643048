//! A workload: flows between hosts, and programs that ranks run.
//!
//! Every transport carries flows. Programs are the tasks of a training job's ranks; their
//! collectives run through `gradwire_collectives`.

use std::fmt;

use gradwire_fabric::fitting::SendPattern;
use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::priority::UrgencyUnit;
use gradwire_protocol::units::{ByteCount, Instant, Layer, Rate, Span};

use crate::training::step_ends::StepEnds;

/// The hosts of a workload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hosts {
    /// Their number.
    pub count: u32,
    /// Rate of each host's link; only loads refer to it.
    pub rate: Rate,
}

/// Bytes from one host to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flow {
    /// The host that sends.
    pub source: u32,
    /// The host that receives; another one.
    pub destination: u32,
    /// Its bytes, at least one.
    pub bytes: ByteCount,
    /// Its start.
    pub start: Start,
    /// The trigger that is told when everything is acknowledged.
    pub when_sent: Option<TriggerId>,
    /// The trigger that is told when everything has arrived.
    pub when_received: Option<TriggerId>,
    /// Layer of the model, which decides its class where `layer_count` is not zero.
    pub layer: Layer,
}

/// The start of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// At a time.
    At(Instant),
    /// When a trigger fires.
    On(TriggerId),
}

/// Index of a trigger in [`Workload::triggers`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TriggerId(pub u32);

/// Starts flows when other flows end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trigger {
    /// Fires the first time that it is told.
    Once,
    /// Starts the next waiting flow each time that it is told.
    Each,
    /// Fires when it was told this often.
    Barrier(u32),
}

/// The program of one rank: tasks that wait for each other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Program {
    /// The host that runs it.
    pub host: u32,
    /// Its tasks; a task waits for tasks before it in this list only.
    pub tasks: Vec<Task>,
}

/// A piece of a program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Task {
    /// Its name in results; may be empty.
    pub name: String,
    /// Its work.
    pub work: Work,
    /// The tasks that must be complete before, as indices in the same program.
    pub after: Vec<u32>,
    /// The tasks that must have started before, as indices in the same program.
    pub after_start: Vec<u32>,
    /// Its training step, whose loss budget a collective spends; 0 without steps.
    pub step: u32,
}

/// The work of a task.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Work {
    /// Keeps a unit of the rank busy; tasks of one unit run one at a time, in the order in which
    /// they become ready.
    Compute {
        /// The duration.
        span: Span,
        /// The unit, such as a GPU's compute stream.
        unit: u16,
    },
    /// Takes part in a collective. The n-th collective of a group in one program meets the n-th in
    /// all others, whichever starts first.
    Collective {
        /// The collective.
        kind: CollectiveKind,
        /// Index of the group in [`Workload::groups`].
        group: u32,
        /// Bytes of the whole tensor: the tensor of an all-reduce, the input of a reduce-scatter,
        /// the output of an all-gather, all that one rank sends in an all-to-all.
        bytes: ByteCount,
        /// The first byte of each layer of the model, ascending; empty where unknown.
        layers: Vec<(u64, Layer)>,
    },
    /// Sends to a host; the n-th send of a pair and tag meets the n-th receive.
    Send {
        /// The receiving host.
        to: u32,
        /// Its bytes, at least one.
        bytes: ByteCount,
        /// Distinguishes the messages of a pair.
        tag: u32,
    },
    /// Receives from a host.
    Receive {
        /// The sending host.
        from: u32,
        /// Its bytes.
        bytes: ByteCount,
        /// Distinguishes the messages of a pair.
        tag: u32,
    },
}

/// The kind of a collective, and its algorithm if there is a choice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum CollectiveKind {
    /// As the job's `collectives.algorithm` says.
    AllReduce,
    /// Each rank ends with its block of the sum.
    ReduceScatter,
    /// Each rank ends with all blocks.
    AllGather,
    /// Each rank sends a block to every other.
    AllToAll,
    /// From the n-th rank of the group.
    Broadcast {
        /// Position in the group.
        root: u32,
    },
    /// To the n-th rank of the group.
    Reduce {
        /// Position in the group.
        root: u32,
    },
    /// No rank continues before all have arrived.
    Barrier,
}

/// Everything that a run carries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Workload {
    /// Its name: the one-line form or a file's name.
    pub name: String,
    /// Flows between hosts.
    pub flows: Vec<Flow>,
    /// Triggers that start waiting flows.
    pub triggers: Vec<Trigger>,
    /// Programs, at most one per host.
    pub programs: Vec<Program>,
    /// Hosts of each group, in the agreed order.
    pub groups: Vec<Vec<u32>>,
    /// Number of layers of the model of its flows and tasks; 0 when it is unknown.
    pub layer_count: u16,
    /// The algorithm of its all-reduces; `None` leaves it to the job.
    pub algorithm: Option<ReduceAlgorithm>,
    /// The steps of each of its training jobs.
    pub step_ends: Vec<StepEnds>,
    /// The end of a run.
    pub over: Over,
}

/// The end of a run, before its time limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Over {
    /// All flows and programs have ended.
    #[default]
    WithEverything,
    /// All programs and this many flows, the first ones, have ended; the others are cut off.
    WithForeground(u32),
}

impl Workload {
    /// Returns the number of layers of the model of a group's tasks; 0 when it is unknown.
    pub fn layers_of(&self, group: u32) -> u16 {
        let mut jobs = self.step_ends.iter();
        let job = jobs.find(|job| job.groups.contains(&group));
        job.map_or(self.layer_count, |job| job.layers.len() as u16)
    }

    /// Returns the pattern of simultaneous senders, to which a job's defaults are fitted.
    pub fn send_pattern(&self) -> SendPattern {
        match (self.has_roots(), self.programs.is_empty()) {
            (true, _) => SendPattern::ToRoots,
            (false, false) => SendPattern::InTurns,
            (false, true) => SendPattern::Unannounced,
        }
    }

    /// Whether any program has a collective with many senders to one rank, or messages of which an
    /// unknown number meet.
    fn has_roots(&self) -> bool {
        let mut tasks = self.programs.iter().flat_map(|program| &program.tasks);
        tasks.any(|task| match task.work {
            Work::Collective { kind, .. } => matches!(kind, CollectiveKind::Reduce { .. }),
            Work::Send { .. } => true,
            Work::Compute { .. } | Work::Receive { .. } => false,
        })
    }
}

impl Flow {
    /// Makes a flow that begins at once and tells no trigger.
    pub fn new(source: u32, destination: u32, bytes: ByteCount) -> Self {
        Self {
            source,
            destination,
            bytes,
            start: Start::At(Instant::START),
            when_sent: None,
            when_received: None,
            layer: Layer(0),
        }
    }
}

impl Task {
    /// Makes a task that waits for the tasks of `after`.
    pub fn new(name: impl Into<String>, work: Work, after: Vec<u32>) -> Self {
        Self {
            name: name.into(),
            work,
            after,
            after_start: Vec::new(),
            step: 0,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once => write!(f, "once"),
            Self::Each => write!(f, "one flow each time"),
            Self::Barrier(often) => write!(f, "when told {often} times"),
        }
    }
}

impl CollectiveKind {
    /// Whether it is as urgent as its layer or as that layer's class. Where messages have one order
    /// at both ends, the results of roots have that of their receivers.
    pub const fn urgency_unit(self) -> UrgencyUnit {
        match self {
            Self::Reduce { .. } => UrgencyUnit::Class,
            _ => UrgencyUnit::Layer,
        }
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word: &str = self.into();
        match self {
            Self::Broadcast { root } => write!(f, "{word} from {root}"),
            Self::Reduce { root } => write!(f, "{word} to {root}"),
            _ => f.write_str(word),
        }
    }
}
