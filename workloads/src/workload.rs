//! What is to be carried: flows between hosts, and programs that ranks run.
//!
//! Flows are carried by every transport. Programs are what ranks of a training job do; their
//! collectives run through `gradwire_collectives`.

use std::fmt;

use gradwire_fabric::fitting::SendPattern;
use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{ByteCount, Instant, Layer, Rate, Span};

use crate::training::StepEnds;

/// The hosts that a workload is made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hosts {
    /// How many.
    pub count: u32,
    /// Rate of the link of each; only a load is measured by it.
    pub rate: Rate,
}

/// Bytes from one host to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flow {
    /// The host that sends.
    pub source: u32,
    /// The host that receives; another one.
    pub destination: u32,
    /// How much; at least one byte.
    pub bytes: ByteCount,
    /// When it begins.
    pub start: Start,
    /// The trigger that is told when everything is acknowledged.
    pub when_sent: Option<TriggerId>,
    /// The trigger that is told when everything has arrived.
    pub when_received: Option<TriggerId>,
    /// Layer of the model, which decides its class where `layer_count` is not zero.
    pub layer: Layer,
}

/// When a flow begins.
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

/// What starts flows when other flows end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trigger {
    /// Fires the first time that it is told.
    Once,
    /// Starts the next waiting flow each time that it is told.
    Each,
    /// Fires when it was told this often.
    Barrier(u32),
}

/// What one rank does: tasks that wait for each other.
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
    /// What it is called in results; may be empty.
    pub name: String,
    /// What is done.
    pub work: Work,
    /// The tasks that must be complete before, as indices in the same program.
    pub after: Vec<u32>,
    /// The tasks that must have started before, as indices in the same program.
    pub after_start: Vec<u32>,
    /// The training step that it is part of, whose loss budget a collective spends; 0 where there
    /// are no steps.
    pub step: u32,
}

/// What a task does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Work {
    /// Keeps a unit of the rank busy; tasks of one unit run one at a time, in the order in which
    /// they become ready.
    Compute {
        /// For how long.
        span: Span,
        /// Which unit, such as a GPU's compute stream.
        unit: u16,
    },
    /// Takes part in a collective. The n-th collective of a group in one program meets the n-th in
    /// all others, whichever starts first.
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// Index of the group in [`Workload::groups`].
        group: u32,
        /// Bytes of the whole tensor: what an all-reduce reduces, what a reduce-scatter takes in,
        /// what an all-gather puts out, what a rank sends in an all-to-all to all together.
        bytes: ByteCount,
        /// From which byte on which layer of the model, in ascending order of bytes; empty where
        /// that is not known.
        layers: Vec<(u64, Layer)>,
    },
    /// Sends to a host; the n-th send of a pair and tag meets the n-th receive.
    Send {
        /// The receiving host.
        to: u32,
        /// How much; at least one byte.
        bytes: ByteCount,
        /// Tells messages of a pair apart.
        tag: u32,
    },
    /// Receives from a host.
    Receive {
        /// The sending host.
        from: u32,
        /// How much.
        bytes: ByteCount,
        /// Tells messages of a pair apart.
        tag: u32,
    },
}

/// Which collective, and how where it can be chosen.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
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
    /// Nobody goes on before everybody is here.
    Barrier,
}

/// Everything that a run carries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Workload {
    /// What it is called: the one-line form or a file's name.
    pub name: String,
    /// Flows between hosts.
    pub flows: Vec<Flow>,
    /// What starts flows that wait.
    pub triggers: Vec<Trigger>,
    /// Programs, at most one per host.
    pub programs: Vec<Program>,
    /// Hosts of each group, in the order that all agree on.
    pub groups: Vec<Vec<u32>>,
    /// Layers of the model that flows and tasks belong to; 0 when they are not known.
    pub layer_count: u16,
    /// The algorithm of its all-reduces; `None` leaves it to the job.
    pub algorithm: Option<ReduceAlgorithm>,
    /// Where the steps of each training job in it begin and end.
    pub step_ends: Vec<StepEnds>,
    /// When a run of it is over.
    pub over: Over,
}

/// When a run is over, before its time limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Over {
    /// When everything has ended.
    #[default]
    WithEverything,
    /// When all programs have ended and so many flows, the first ones; others are cut off.
    WithForeground(u32),
}

impl Workload {
    /// Layers of the model that a group's tasks belong to; 0 when they are not known.
    pub fn layers_of(&self, group: u32) -> u16 {
        let mut jobs = self.step_ends.iter();
        let job = jobs.find(|job| job.groups.contains(&group));
        job.map_or(self.layer_count, |job| job.layers.len() as u16)
    }

    /// Who sends to whom at the same time, to which a job's defaults are fitted.
    pub fn send_pattern(&self) -> SendPattern {
        match (self.has_roots(), self.programs.is_empty()) {
            (true, _) => SendPattern::ToRoots,
            (false, false) => SendPattern::InTurns,
            (false, true) => SendPattern::Unannounced,
        }
    }

    /// Whether any program has a collective in which many send to one, or messages of which nobody
    /// knows how many meet.
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
    /// A flow that begins at once and tells nobody.
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
    /// A task that waits for the tasks of `after` to be complete.
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

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce => write!(f, "all-reduce"),
            Self::ReduceScatter => write!(f, "reduce-scatter"),
            Self::AllGather => write!(f, "all-gather"),
            Self::AllToAll => write!(f, "all-to-all"),
            Self::Broadcast { root } => write!(f, "broadcast from {root}"),
            Self::Reduce { root } => write!(f, "reduce to {root}"),
            Self::Barrier => write!(f, "barrier"),
        }
    }
}
