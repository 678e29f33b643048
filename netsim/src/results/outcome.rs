//! The outcome of a run: every flow, every task, every link, and all counters.
//!
//! All values are exact, and their order depends on the inputs only.
//! [`crate::results::statistics`] computes percentiles and slowdowns from them.

use derive_more::AddAssign;
use gradwire_collectives::journal::MessageRecord;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use serde::{Deserialize, Serialize};

use gradwire_fabric::topology::Device;

/// The outcome of a flow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlowOutcome {
    /// Index in the workload.
    pub flow: u32,
    /// The host that sent.
    pub source: u32,
    /// The host that received.
    pub destination: u32,
    /// Its length.
    pub bytes: ByteCount,
    /// When it began; `None` when its trigger never fired.
    pub started: Option<Instant>,
    /// When its receiver had all that it needs.
    pub received: Option<Instant>,
    /// When its sender knew that.
    pub acknowledged: Option<Instant>,
    /// Bytes whose loss its receiver accepted, within the tolerance.
    pub lost_bytes: u64,
    /// How long it would have taken alone on an idle fabric, to its receiver.
    pub ideal: Span,
}

/// The outcome of a task of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TaskOutcome {
    /// The host.
    pub host: u32,
    /// Index in the host's program.
    pub task: u32,
    /// When it started; `None` when a task before it never completed.
    pub started: Option<Instant>,
    /// When it was complete.
    pub ended: Option<Instant>,
    /// Of a collective, segments that others were to send to this host.
    pub expected_segments: u64,
    /// Of these, segments whose loss this host accepted.
    pub lost_segments: u64,
}

/// A message of a program, as one of its ends saw it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageOutcome {
    /// The host that saw it.
    pub host: u32,
    /// The other end, its key and its times.
    pub record: MessageRecord,
}

/// Packets of one class that a port queued, dropped and marked.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClassCounts {
    /// Packets that entered the queue.
    pub queued: u64,
    /// Droppable packets dropped above the threshold.
    #[serde(rename = "early")]
    pub dropped_early: u64,
    /// Packets dropped because there was no room.
    #[serde(rename = "full")]
    pub dropped_full: u64,
    /// Packets cut to their header.
    pub trimmed: u64,
    /// Protected packets marked.
    pub marked: u64,
}

impl ClassCounts {
    /// Packets that the port dropped; trimmed ones are not among them.
    pub fn dropped(&self) -> u64 {
        self.dropped_early + self.dropped_full
    }
}

/// The use of one direction of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkOutcome {
    /// Sending end.
    pub from: Device,
    /// Receiving end.
    pub to: Device,
    /// Its rate.
    pub rate: Rate,
    /// Bytes put on the wire.
    pub bytes: u64,
    /// Packets put on the wire.
    pub packets: u64,
    /// Data packets among these.
    pub data_packets: u64,
    /// Largest queue in bytes.
    pub peak_queue: u64,
    /// Time integral of the queue in byte-picoseconds; divided by the time it is the mean queue.
    pub queue_integral: u128,
    /// Packets lost on the wire at random, or because the link was down.
    pub lost: u64,
    /// Time for which its other end had paused it.
    pub paused: Span,
    /// Counters of the queue of each class.
    pub classes: Vec<ClassCounts>,
}

/// The queue of a port at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct QueueSample {
    /// When.
    pub at: Instant,
    /// Index in [`Outcome::links`].
    pub link: u32,
    /// Bytes waiting.
    pub bytes: u64,
}

/// Counters of the transports of all hosts together.
#[derive(AddAssign, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TransportCounts {
    /// Data packets sent for the first time.
    pub sent: u64,
    /// Data packets sent again.
    pub repaired: u64,
    /// Data packets that arrived more than once.
    pub duplicates: u64,
    /// Data packets whose loss receivers accepted.
    pub lost_within_tolerance: u64,
    /// Marks that receivers saw.
    pub marks: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Flows, as in the workload.
    pub flows: Vec<FlowOutcome>,
    /// Tasks by host, then index.
    pub tasks: Vec<TaskOutcome>,
    /// Messages of programs by host, then time, where a setup asks for them.
    pub messages: Vec<MessageOutcome>,
    /// Links, both directions of each: link i of the fabric is 2 i and 2 i + 1.
    pub links: Vec<LinkOutcome>,
    /// Queues over time, in order of time.
    pub samples: Vec<QueueSample>,
    /// Counters of the transports.
    pub transport: TransportCounts,
    /// Simulated time at the end.
    pub ended: Instant,
    /// Events that were worked on.
    pub events: u64,
    /// Whether the run was stopped at its time limit.
    pub timed_out: bool,
    /// Events of each thread's hosts and switches: how even the work was.
    pub events_per_thread: Vec<u64>,
    /// CPU time of each thread.
    pub cpu_per_thread: Vec<Span>,
}
