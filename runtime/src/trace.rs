//! The flight recorder of a rank: its last operations, how they ended, and the ranks and bytes that
//! unfinished ones wait for.
//!
//! - `ring` keeps the operations, `messages` the times of their messages. [`dump`] is a copy of
//!   them at one moment, as plain data.
//! - At the first failure of an operation, a peer or the job, the recorder is dumped once, into the
//!   folder that the caller named. The error names the file.
//! - When the rank leaves, its counts are written into that folder, too.
//!
//! The command's `trace show` compares dumps of several ranks.

pub mod dump;
mod messages;
mod ring;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::journal::MessageRecord;
use gradwire_collectives::operation::{Collective, Operation, OperationId, OperationProgress};
use gradwire_protocol::units::{self, Rank};

pub use dump::TraceDump;

use crate::metrics::operations;
use crate::metrics::snapshot::{RankSubject, Snapshot};
use dump::{GroupMembers, LostRank, OperationNeeds, TraceEntry, TraceState, VERSION};
use messages::MessageRing;
use ring::{FailedEnd, OperationChange, TraceNumber, TraceRing, TraceSlot};

/// Beginning of the names of files with the counts of a rank.
pub const COUNTS: &str = "counts-";

/// The state of operations that only the driver knows.
#[derive(Debug, Default)]
pub(crate) struct DriverSituation {
    needs: BTreeMap<TraceNumber, OperationProgress>,
    lost: BTreeMap<Rank, String>,
    aborted: Option<String>,
    sending: u64,
}

impl DriverSituation {
    /// The state that a communicator knows; `recorded` finds its operations in the recorder.
    pub(crate) fn new(
        communicator: &Communicator,
        recorded: impl Fn(OperationId) -> Option<RecordedOperation>,
    ) -> Self {
        let needs = communicator
            .progress()
            .filter_map(|(id, progress)| Some((recorded(id)?.0?, progress)));
        Self {
            needs: needs.collect(),
            lost: communicator.lost().clone(),
            aborted: communicator.aborted().map(str::to_owned),
            sending: communicator.endpoint().footprint().outgoing as u64,
        }
    }
}

/// An operation in the recorder; empty if the recorder is off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedOperation(Option<TraceNumber>);

/// The last operations of a rank.
#[derive(Debug)]
pub(crate) struct FlightRecorder {
    subject: RankSubject,
    entries: u32,
    ring: Option<Mutex<TraceRing>>,
    messages: Mutex<MessageRing>,
    folder: Option<PathBuf>,
    kept: Mutex<KeptTrace>,
    joined: Instant,
    joined_unix: Duration,
}

/// Where the dump of the first failure is.
#[derive(Debug)]
enum KeptTrace {
    NothingFailed,
    Unwritten(Box<TraceDump>),
    At(PathBuf),
    Nowhere,
}

impl FlightRecorder {
    /// A recorder of `entries` operations, which is off if 0. A failure is dumped into `folder`.
    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    pub(crate) fn new(subject: RankSubject, entries: u32, folder: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            subject,
            entries,
            messages: Mutex::new(MessageRing::new(entries as usize)),
            ring: (entries > 0).then(|| Mutex::new(TraceRing::new(entries as usize))),
            folder,
            kept: Mutex::new(KeptTrace::NothingFailed),
            joined: Instant::now(),
            joined_unix: unix_time(),
        })
    }

    /// An operation is submitted.
    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    pub(crate) fn submitted(&self, operation: &Operation) -> RecordedOperation {
        let ring = self.ring();
        RecordedOperation(ring.map(|mut ring| ring.push(operation, Instant::now())))
    }

    /// It is started.
    pub(crate) fn started(&self, recorded: RecordedOperation, at: Instant) {
        self.change(recorded, || OperationChange::Started(at));
    }

    /// It has completed.
    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    pub(crate) fn completed(&self, recorded: RecordedOperation) {
        self.change(recorded, || OperationChange::Completed(Instant::now()));
    }

    /// It was refused, or has failed; `unfinished` is what it still needed.
    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    pub(crate) fn failed(
        &self,
        recorded: RecordedOperation,
        error: &dyn std::error::Error,
        unfinished: Option<OperationProgress>,
    ) {
        self.change(recorded, || {
            let error = error.to_string();
            OperationChange::Failed(Instant::now(), Box::new(FailedEnd { error, unfinished }))
        });
    }

    /// Whether operations and messages are recorded at all.
    pub(crate) fn is_on(&self) -> bool {
        self.ring.is_some()
    }

    /// The driver's clock has just shown `now`.
    #[expect(clippy::disallowed_methods, reason = "a recorder notes times")]
    pub(crate) fn note_clock(&self, now: units::Instant) {
        if self.is_on() {
            self.messages().note_clock(now, Instant::now());
        }
    }

    /// Messages have ended.
    pub(crate) fn ended(&self, records: Vec<MessageRecord>) {
        if !records.is_empty() {
            self.messages().add(records);
        }
    }

    fn messages(&self) -> MutexGuard<'_, MessageRing> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, recorded: RecordedOperation, change: impl FnOnce() -> OperationChange) {
        if let (Some(number), Some(mut ring)) = (recorded.0, self.ring()) {
            ring.change(number, change());
        }
    }

    fn ring(&self) -> Option<MutexGuard<'_, TraceRing>> {
        let ring = self.ring.as_ref()?;
        Some(ring.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn kept(&self) -> MutexGuard<'_, KeptTrace> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a failure that others depend on. [`FlightRecorder::keep`] writes the operations
    /// recorded until now, unless there was an earlier failure. Returns whether it will.
    pub(crate) fn note_failure(
        &self,
        reason: &str,
        situation: impl FnOnce() -> DriverSituation,
    ) -> bool {
        let mut kept = self.kept();
        if self.folder.is_none() || !matches!(*kept, KeptTrace::NothingFailed) {
            return false;
        }
        let mut dump = self.dump(situation());
        dump.reason = Some(reason.to_owned());
        *kept = KeptTrace::Unwritten(Box::new(dump));
        true
    }

    /// Writes the dump of the first failure, if that was not done; returns the file. Blocks for as
    /// long as the file system does.
    pub(crate) fn keep(&self) -> Option<PathBuf> {
        let mut kept = self.kept();
        if let (KeptTrace::Unwritten(dump), Some(folder)) = (&*kept, &self.folder) {
            let (job, id, rank) = (&dump.job, dump.job_id, dump.rank);
            let name = format!("gradwire-{job}-{id:08x}-rank{rank}.json");
            *kept = match write(&dump.to_json(), folder, &name) {
                Ok(path) => {
                    let file = path.display();
                    let all = folder.display();
                    log::warn!("trace of this rank: {file}; see all: gradwire trace show {all}");
                    KeptTrace::At(path)
                }
                Err(error) => {
                    let folder = folder.display();
                    log::warn!("no trace of this rank: {folder}: {error}");
                    KeptTrace::Nowhere
                }
            };
        }
        match &*kept {
            KeptTrace::At(path) => Some(path.clone()),
            _ => None,
        }
    }

    /// Writes the counts of the rank, which has left its job, into the folder.
    pub(crate) fn leave(&self, counted: impl FnOnce() -> Option<Snapshot>) {
        let Some(folder) = &self.folder else {
            return;
        };
        let Some(counted) = counted() else {
            return;
        };
        let Snapshot {
            job, job_id, rank, ..
        } = &counted;
        let name = format!("{COUNTS}{job}-{job_id:08x}-rank{rank}.json");
        if let Err(error) = write(&counted.to_json(), folder, &name) {
            log::warn!("no counts of this rank: {}: {error}", folder.display());
        }
    }

    /// A dump without the state that only the driver knows.
    pub(crate) fn dump_alone(&self, why: &str) -> TraceDump {
        let mut dump = self.dump(DriverSituation::default());
        dump.incomplete = Some(why.to_owned());
        dump
    }

    /// A dump of the operations recorded until now.
    #[expect(clippy::disallowed_methods, reason = "a dump has a time")]
    pub(crate) fn dump(&self, mut situation: DriverSituation) -> TraceDump {
        let (slots, total) = self
            .ring()
            .map_or((Vec::new(), 0), |ring| (ring.slots(), ring.total()));
        let lost = situation.lost.into_iter();
        let mut groups = BTreeMap::new();
        for slot in &slots {
            let ranks = || slot.ranks.iter().map(|rank| rank.0).collect();
            groups.entry(slot.label.group).or_insert_with(ranks);
        }
        let groups = groups
            .into_iter()
            .map(|(id, ranks)| GroupMembers { id, ranks });
        let operations = slots.into_iter().map(|slot| {
            let needs = situation.needs.remove(&slot.number);
            self.entry(slot, needs)
        });
        TraceDump {
            gradwire_trace: VERSION,
            job: self.subject.job.clone(),
            job_id: self.subject.job_id,
            rank: self.subject.rank,
            world_size: self.subject.world_size,
            host: self.subject.host.clone(),
            process: std::process::id(),
            wire: self.subject.wire.to_owned(),
            reason: None,
            at_unix_s: unix_time().as_secs_f64(),
            at_us: self.since_joined(Instant::now()),
            entries: self.entries,
            operations_total: total,
            lost: lost
                .map(|(Rank(rank), reason)| LostRank { rank, reason })
                .collect(),
            aborted: situation.aborted,
            incomplete: None,
            groups: groups.collect(),
            operations: operations.collect(),
            sending: situation.sending,
            messages: self.messages().messages(self.joined),
        }
    }

    fn entry(&self, slot: TraceSlot, needs: Option<OperationProgress>) -> TraceEntry {
        let collective = slot.label.call.collective;
        let submitted_us = self.since_joined(slot.submitted);
        let state = match (&slot.failing, slot.ended, slot.started) {
            (Some(_), _, _) => TraceState::Failed,
            (None, Some(_), _) => TraceState::Completed,
            (None, None, Some(_)) => TraceState::Started,
            (None, None, None) => TraceState::Submitted,
        };
        let (error, unfinished) = slot.failing.map_or((None, None), |failing| {
            let FailedEnd { error, unfinished } = *failing;
            (Some(error), unfinished)
        });
        let named = collective.named_rank().map(|rank| rank.0);
        let (root, peer) = match collective.is_point_to_point() {
            true => (None, named),
            false => (named, None),
        };
        TraceEntry {
            number: slot.number.0,
            group: slot.label.group,
            sequence: slot.label.sequence,
            kind: operations::name(collective).to_owned(),
            root,
            peer,
            tag: tag_of(collective),
            dtype: slot.dtype.to_string(),
            reduction: collective.reduces().then(|| slot.op.to_string()),
            bytes: slot.bytes as u64,
            state,
            submitted_unix_s: (self.joined_unix + Duration::from_micros(submitted_us))
                .as_secs_f64(),
            submitted_us,
            started_us: slot.started.map(|at| self.since_joined(at)),
            ended_us: slot.ended.map(|at| self.since_joined(at)),
            error,
            needs: needs.or(unfinished).map(needs_of),
        }
    }

    fn since_joined(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.joined).as_micros() as u64
    }
}

fn tag_of(collective: Collective) -> Option<u16> {
    match collective {
        Collective::Send { tag, .. }
        | Collective::Receive { tag, .. }
        | Collective::ReceiveAny { tag } => Some(tag),
        _ => None,
    }
}

fn needs_of(progress: OperationProgress) -> OperationNeeds {
    OperationNeeds {
        ranks: progress.waits_for,
        received_bytes: progress.received,
        expected_bytes: progress.expected,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "people compare hosts by their clocks"
)]
fn unix_time() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Writes a file so that it is complete or absent. The name contains the job's run and the rank:
/// ranks of several hosts, and restarts, may share a folder.
fn write(text: &str, folder: &Path, name: &str) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(name);
    let unfinished = path.with_extension("json.part");
    let mut file = std::fs::File::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    drop(file);
    std::fs::rename(&unfinished, &path)?;
    // The error may be read from a folder other than the one in which the path was given.
    Ok(path.canonicalize().unwrap_or(path))
}
