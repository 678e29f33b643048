//! Execution traces of MLCommons Chakra (`.et`, `.json`), one per rank.
//!
//! Format: protocol buffers, each with its length in front: first `GlobalMetadata`, then the
//! operations, as in `schema/protobuf/et_def.proto` of mlcommons/chakra (Sridharan et al., arXiv
//! 2305.14516); or the same as JSON (`json`). Each operation becomes a task:
//!
//! | operation | task |
//! |---|---|
//! | computation, metadata | computes for its duration, on a unit for the CPU or one for the GPU |
//! | memory load and store | takes no time |
//! | collective with `comm_type` | that collective of `comm_size` bytes |
//! | collective of the CPU | computes for its duration; it only starts the one on the GPU |
//! | send, receive | `comm_size` bytes to `comm_dst` or from `comm_src` with `comm_tag` |
//!
//! `comm_size` counts a rank's input (`comm_size` of `pytorch_node.py` there), so the output of an
//! all-gather is as many times larger as the group has ranks.
//!
//! An operation waits for the end of its data dependencies. It does not wait for its control
//! dependencies, which are its callers: in recorded traces a caller may wait for its callee. The
//! feeder of mlcommons/chakra (`src/feeder/et_feeder.cpp`) does the same. Collectives of a group
//! start in the order of their ids, as far as dependencies allow. `pg_name` names a group among the
//! process groups that the trace lists; if the trace lists none, the group is all ranks that use
//! the name. No name, or `0`, means all ranks. `involved_dim`, where given, must be true for all
//! dimensions.

mod groups;
mod json;
mod model;
mod schema;

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Span};

use crate::fault::TextError;
use crate::order::in_order;
use crate::workload::{CollectiveKind, Program, Task, Work, Workload};
use groups::ProcessGroups;
use schema::{OperationKind, TraceOperation};

/// Unit of operations of the CPU.
const CPU: u16 = 0;
/// Unit of computations of the GPU.
const GPU: u16 = 1;

impl Workload {
    /// Reads the traces of all ranks, in their order; rank `i` runs on host `i`.
    ///
    /// # Errors
    /// [`TextError`] names the rank and the faulty operation.
    pub fn from_chakra(traces: &[Vec<u8>]) -> Result<Self, TextError> {
        let ranks = u32::try_from(traces.len()).unwrap_or(0);
        if ranks == 0 {
            let given = traces.len();
            return Err(TextError::Whole(format!(
                "{given} traces: give one for every rank, at least one"
            )));
        }
        let all: Vec<Vec<TraceOperation>> = (0..)
            .zip(traces)
            .map(|(rank, trace)| read(rank, trace))
            .collect::<Result<_, _>>()?;
        let groups = ProcessGroups::new(&all)?;
        let programs = (0..).zip(all).map(|(rank, entries)| {
            let reader = Reader {
                rank,
                ranks,
                groups: &groups,
            };
            reader.program(entries)
        });
        Ok(Self {
            programs: programs.collect::<Result<_, _>>()?,
            groups: groups.members,
            ..Self::default()
        })
    }
}

/// Reads the operations of a rank's trace, in either form.
fn read(rank: u32, trace: &[u8]) -> Result<Vec<TraceOperation>, TextError> {
    match json::text(trace) {
        Some(text) => json::read(rank, text),
        None => schema::read(rank, trace),
    }
}

/// Makes a program of a trace.
struct Reader<'a> {
    rank: u32,
    ranks: u32,
    groups: &'a ProcessGroups,
}

impl Reader<'_> {
    fn program(&self, mut entries: Vec<TraceOperation>) -> Result<Program, TextError> {
        entries.sort_by_key(|entry| entry.id);
        let mut places = BTreeMap::new();
        for (place, entry) in (0..).zip(&entries) {
            if places.insert(entry.id, place).is_some() {
                return Err(self.wrong(entry, "another operation has this id"));
            }
        }
        let mut tasks = Vec::with_capacity(entries.len());
        for entry in &entries {
            let after = self.places(entry, &places)?;
            tasks.push(Task::new(&entry.name, self.work(entry)?, after));
        }
        let mut tasks = in_order(tasks).map_err(|stuck| {
            self.wrong(
                &entries[stuck],
                "it waits for itself through its dependencies",
            )
        })?;
        let mut latest: BTreeMap<u32, u32> = BTreeMap::new();
        for (place, task) in (0..).zip(&mut tasks) {
            if let Work::Collective { group, .. } = task.work {
                task.after_start.extend(latest.insert(group, place));
            }
        }
        Ok(Program {
            host: self.rank,
            tasks,
        })
    }

    fn places(
        &self,
        entry: &TraceOperation,
        places: &BTreeMap<u64, u32>,
    ) -> Result<Vec<u32>, TextError> {
        let place = |id: &u64| {
            let place = places.get(id).copied();
            place.ok_or_else(|| {
                self.wrong(
                    entry,
                    format!("it depends on operation {id}, which the trace lacks"),
                )
            })
        };
        entry.data.iter().map(place).collect()
    }

    fn work(&self, entry: &TraceOperation) -> Result<Work, TextError> {
        let unit = if entry.flag("is_cpu_op") == Some(false) {
            GPU
        } else {
            CPU
        };
        let compute = |span| Ok(Work::Compute { span, unit });
        let duration = Span::from_micros(entry.duration);
        match entry.kind() {
            OperationKind::Invalid => Err(self.wrong(entry, "its type is not valid or not known")),
            OperationKind::Metadata | OperationKind::Compute => compute(duration),
            OperationKind::Load | OperationKind::Store => compute(Span::ZERO),
            OperationKind::Send => self.message(entry),
            OperationKind::Receive => self.message(entry),
            OperationKind::Collective => match entry.number("comm_type") {
                Some(kind) => self.collective(entry, kind),
                None if unit == CPU => compute(duration),
                None => Err(self.wrong(entry, "a collective needs the attribute `comm_type`")),
            },
        }
    }

    fn collective(&self, entry: &TraceOperation, kind: u64) -> Result<Work, TextError> {
        let root = entry.number("root").unwrap_or(0) as u32;
        let kind = match kind {
            0 => CollectiveKind::AllReduce,
            1 => CollectiveKind::Reduce { root },
            2 => CollectiveKind::AllGather,
            5 => CollectiveKind::Broadcast { root },
            6 => CollectiveKind::AllToAll,
            7 | 8 => CollectiveKind::ReduceScatter,
            9 => CollectiveKind::Barrier,
            other => {
                let what = format!(
                    "comm_type {other}: allowed are 0 (all-reduce), 1 (reduce), 2 (all-gather), 5 \
                     (broadcast), 6 (all-to-all), 7 and 8 (reduce-scatter) and 9 (barrier)"
                );
                return Err(self.wrong(entry, what));
            }
        };
        if entry.flags("involved_dim").contains(&false) {
            let what = "involved_dim leaves a dimension out; name a process group instead";
            return Err(self.wrong(entry, what));
        }
        let bytes = entry.number("comm_size").unwrap_or(0);
        if bytes == 0 && kind != CollectiveKind::Barrier {
            return Err(self.wrong(entry, "a collective needs `comm_size` of 1 byte or more"));
        }
        let Some(group) = self.groups.of(entry) else {
            let span = Span::ZERO;
            return Ok(Work::Compute { span, unit: GPU });
        };
        let parts = match kind {
            CollectiveKind::AllGather => self.groups.members[group as usize].len() as u64,
            _ => 1,
        };
        Ok(Work::Collective {
            kind,
            group,
            bytes: ByteCount::new(bytes.saturating_mul(parts)),
            layers: Vec::new(),
        })
    }

    fn message(&self, entry: &TraceOperation) -> Result<Work, TextError> {
        let sends = entry.kind() == OperationKind::Send;
        let key = if sends { "comm_dst" } else { "comm_src" };
        let peer = entry
            .number(key)
            .filter(|&peer| peer < u64::from(self.ranks));
        let peer = peer.filter(|&peer| peer != u64::from(self.rank));
        let Some(peer) = peer else {
            let what = format!("`{key}` must be another rank of 0 to {}", self.ranks - 1);
            return Err(self.wrong(entry, what));
        };
        let peer = peer as u32;
        let bytes = ByteCount::new(entry.number("comm_size").unwrap_or(0).max(1));
        let tag = entry.number("comm_tag").unwrap_or(0) as u32;
        Ok(if sends {
            Work::Send {
                to: peer,
                bytes,
                tag,
            }
        } else {
            Work::Receive {
                from: peer,
                bytes,
                tag,
            }
        })
    }

    fn wrong(&self, entry: &TraceOperation, what: impl Into<String>) -> TextError {
        let TraceOperation { id, name, .. } = entry;
        let (rank, what) = (self.rank, what.into());
        TextError::Whole(format!("rank {rank}, operation {id} (`{name}`): {what}"))
    }
}
