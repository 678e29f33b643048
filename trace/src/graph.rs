//! The tasks of a run and their order, as a workload that the replayer and the simulator run.
//!
//! The simulator's traces name the tasks that each task waits for. Those of real ranks do not;
//! there the order follows from times, as PyTorch's DDP works:
//!
//! - A computation follows the one before it on its rank. A pause between them belongs to the later
//!   one, apart from the time in which it waits for communication.
//! - A collective begins after the last computation that had ended when it was submitted.
//! - The update of a step, or without one the first forward pass of the next step, waits for all
//!   collectives that were submitted before it.

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Layer, Span};
use gradwire_workloads::check::WorkloadError;
use gradwire_workloads::training::{StepEnds, Worker};
use gradwire_workloads::workload::{CollectiveKind, Program, Task, Work, Workload};

use crate::event::{Category, OperationArgs, TraceEvent};
use crate::run::TracedRun;

/// The unit that computes.
const COMPUTE: u16 = 0;
/// A submission may be noted this much before the end of the computation that caused it.
const NOTED_EARLY_US: f64 = 20.0;

/// Why a run has no graph.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// A collective that a replay does not know.
    #[error(
        "rank {rank} has a {kind:?}: a replay knows all_reduce, reduce_scatter, all_gather, \
         all_to_all, broadcast, reduce and barrier; record steps without it"
    )]
    Kind {
        /// The rank.
        rank: u32,
        /// The collective.
        kind: String,
    },
    /// Too little to replay.
    #[error(
        "the trace has the forward passes of {passes} steps: a replay needs two or more, between \
         whose ends an iteration is measured"
    )]
    Steps {
        /// How many.
        passes: usize,
    },
    /// Ranks whose collectives differ.
    #[error(
        "rank {rank} has {given} collectives of group {group}, rank {other} has {wanted}: the \
         recordings begin or end at different steps; record the same steps on all ranks"
    )]
    Uneven {
        /// The group.
        group: u32,
        /// The rank.
        rank: u32,
        /// How many it has.
        given: usize,
        /// The rank it is compared with.
        other: u32,
        /// How many that one has.
        wanted: usize,
    },
    /// A task that waits for one behind it.
    #[error(
        "task {task} of rank {rank} waits for a later one: the trace was changed; record again"
    )]
    Order {
        /// The rank.
        rank: u32,
        /// The task.
        task: u32,
    },
    /// Forward passes whose steps do not follow each other.
    #[error(
        "the forward pass of an earlier step ends after that of a later one on rank {rank}: the \
         trace was changed; record again"
    )]
    StepOrder {
        /// The rank.
        rank: u32,
    },
    /// Tasks that cannot run.
    #[error("{0}; the trace was changed, or its files are of different recordings: record again")]
    Tasks(WorkloadError),
}

/// The programs of a run.
///
/// # Errors
/// [`GraphError`] names the rank.
pub fn workload(run: &TracedRun) -> Result<Workload, GraphError> {
    let mut programs = Vec::new();
    for rank in 0..run.head.world_size {
        let events = run.events.iter().filter(|event| event.args.rank == rank);
        let events: Vec<&TraceEvent> = events.filter(|one| one.args.message.is_none()).collect();
        let known = events.iter().all(|event| event.args.id.is_some());
        let tasks = match known {
            true => told(rank, events)?,
            false => inferred(&events)?,
        };
        programs.push(Program { host: rank, tasks });
    }
    let most = run.head.groups.keys().max().map_or(0, |most| most + 1);
    let groups: Vec<Vec<u32>> = (0..most)
        .map(|group| run.head.groups.get(&group).cloned().unwrap_or_default())
        .collect();
    check_even(&programs, &groups)?;
    level(&mut programs);
    let workers = programs.iter().filter_map(|one| worker(one).transpose());
    let workers = workers.collect::<Result<Vec<_>, _>>()?;
    let passes = workers.iter().map(|worker| worker.forward_ends.len()).min();
    let passes = passes.unwrap_or_default();
    if passes < 2 {
        return Err(GraphError::Steps { passes });
    }
    let workers = workers.into_iter().map(|mut worker| {
        worker.forward_ends.truncate(passes);
        worker
    });
    let workload = Workload {
        name: run.head.job.clone(),
        layer_count: run.head.layers.len() as u16,
        step_ends: vec![StepEnds {
            name: run.head.job.clone(),
            groups: 0..groups.len() as u32,
            steps: passes as u32 - 1,
            layers: run.head.layers.clone(),
            workers: workers.collect(),
        }],
        programs,
        groups,
        ..Workload::default()
    };
    let checked = workload.check(run.head.world_size);
    checked.map_err(GraphError::Tasks).map(|()| workload)
}

/// The tasks of a rank whose events name those that they wait for.
fn told(rank: u32, mut events: Vec<&TraceEvent>) -> Result<Vec<Task>, GraphError> {
    events.sort_by_key(|event| event.args.id);
    let tasks = (0..).zip(events).map(|(number, event)| {
        let args = &event.args;
        let later = args
            .after
            .iter()
            .chain(&args.after_start)
            .any(|&before| before >= number);
        if later || args.id != Some(number) {
            return Err(GraphError::Order { rank, task: number });
        }
        let mut task = task(event, event.dur)?;
        task.after.clone_from(&args.after);
        task.after_start.clone_from(&args.after_start);
        Ok(task)
    });
    tasks.collect()
}

/// The tasks of a rank whose order follows from times.
fn inferred(events: &[&TraceEvent]) -> Result<Vec<Task>, GraphError> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut computed: Vec<(u32, f64)> = Vec::new();
    let mut open: Vec<(u32, f64)> = Vec::new();
    for event in events {
        let number = tasks.len() as u32;
        if !event.computes() {
            let ended = computed.iter().rev();
            let mut ended = ended.skip_while(|(_, end)| *end > event.ts + NOTED_EARLY_US);
            let cause = ended.next().map(|(task, _)| *task);
            let mut task = task(event, event.dur)?;
            task.after.extend(cause);
            tasks.push(task);
            open.push((number, event.end()));
            continue;
        }
        let before = computed.last().copied();
        let begins_step = event.cat == Category::Update
            || (event.cat == Category::Forward && is_new_step(events, event));
        let waits: Vec<(u32, f64)> = match begins_step {
            true => std::mem::take(&mut open),
            false => Vec::new(),
        };
        let last = waits
            .iter()
            .map(|(_, end)| *end)
            .filter(|end| *end <= event.end());
        let free = last
            .chain(before.map(|(_, end)| end))
            .fold(f64::MIN, f64::max);
        let pause = if free == f64::MIN {
            0.0
        } else {
            (event.ts - free).max(0.0)
        };
        let mut task = task(event, event.dur + pause)?;
        task.after.extend(before.map(|(task, _)| task));
        task.after.extend(waits.iter().map(|(task, _)| *task));
        tasks.push(task);
        computed.push((number, event.end()));
    }
    Ok(tasks)
}

/// Whether no computation of an event's step is an update before it, and it is its step's first.
fn is_new_step(events: &[&TraceEvent], event: &TraceEvent) -> bool {
    let mut earlier = events
        .iter()
        .filter(|one| one.computes() && one.ts < event.ts);
    let last = earlier.next_back();
    last.is_some_and(|last| last.args.step != event.args.step && last.cat != Category::Update)
}

fn task(event: &TraceEvent, took_us: f64) -> Result<Task, GraphError> {
    let word = match event.cat {
        Category::Forward => "forward ",
        Category::Backward => "backward ",
        Category::Update => "update ",
        Category::Comm => "",
    };
    // Without bytes only a barrier tells the other ranks something.
    let operation = (event.args.operation.as_ref())
        .filter(|operation| operation.bytes > 0 || operation.kind == "barrier");
    let work = match operation {
        Some(operation) => collective(event.args.rank, operation)?,
        None => Work::Compute {
            span: Span::from_picos((took_us * 1e6).round().max(0.0) as u64),
            unit: COMPUTE,
        },
    };
    let subject = event.subject();
    let subject = match event.cat {
        Category::Comm => subject.rsplit_once('.').map_or(subject, |(name, _)| name),
        _ => subject,
    };
    Ok(Task {
        step: event.args.step,
        ..Task::new(format!("{word}{subject}"), work, Vec::new())
    })
}

fn collective(rank: u32, operation: &OperationArgs) -> Result<Work, GraphError> {
    let root = operation.root.unwrap_or_default();
    let kind = match &*operation.kind {
        "all_reduce" => CollectiveKind::AllReduce,
        "reduce_scatter" => CollectiveKind::ReduceScatter,
        "all_gather" => CollectiveKind::AllGather,
        "all_to_all" => CollectiveKind::AllToAll,
        "broadcast" => CollectiveKind::Broadcast { root },
        "reduce" => CollectiveKind::Reduce { root },
        "barrier" => CollectiveKind::Barrier,
        _ => {
            let kind = operation.kind.clone();
            return Err(GraphError::Kind { rank, kind });
        }
    };
    let layers = operation.layers.iter();
    Ok(Work::Collective {
        kind,
        group: operation.group,
        bytes: ByteCount::new(operation.bytes),
        layers: layers.map(|&(at, layer)| (at, Layer(layer))).collect(),
    })
}

/// The name of a kind in a trace; its root beside it.
pub fn kind_name(kind: CollectiveKind) -> (&'static str, Option<u32>) {
    match kind {
        CollectiveKind::AllReduce => ("all_reduce", None),
        CollectiveKind::ReduceScatter => ("reduce_scatter", None),
        CollectiveKind::AllGather => ("all_gather", None),
        CollectiveKind::AllToAll => ("all_to_all", None),
        CollectiveKind::Broadcast { root } => ("broadcast", Some(root)),
        CollectiveKind::Reduce { root } => ("reduce", Some(root)),
        CollectiveKind::Barrier => ("barrier", None),
    }
}

/// A rank that computes, with the last forward task of each of its steps.
///
/// # Errors
/// [`GraphError::StepOrder`] when the pass of an earlier step ends after that of a later one.
fn worker(program: &Program) -> Result<Option<Worker>, GraphError> {
    let mut ends: BTreeMap<u32, u32> = BTreeMap::new();
    for (number, task) in (0..).zip(&program.tasks) {
        let computes = matches!(task.work, Work::Compute { .. });
        if computes && task.name.starts_with("forward ") {
            ends.insert(task.step, number);
        }
    }
    let forward_ends: Vec<u32> = ends.into_values().collect();
    let (Some(&first), Some(&last)) = (forward_ends.first(), forward_ends.last()) else {
        return Ok(None);
    };
    if !forward_ends.is_sorted() {
        let rank = program.host;
        return Err(GraphError::StepOrder { rank });
    }
    let (first, last) = (first as usize, last as usize);
    // Iterations begin where the first forward pass ends.
    let spans = program.tasks[first + 1..=last]
        .iter()
        .map(|task| match task.work {
            Work::Compute { span, .. } => span,
            _ => Span::ZERO,
        });
    let compute = spans.fold(Span::ZERO, |sum, span| sum + span);
    Ok(Some(Worker {
        host: program.host,
        compute: compute.divided(forward_ends.len().max(2) as u64 - 1),
        forward_ends,
    }))
}

/// Gives the parts of an all-to-all, which may be cut unevenly, the length that its first rank has.
fn level(programs: &mut [Program]) {
    let mut lengths: BTreeMap<(u32, u32), ByteCount> = BTreeMap::new();
    for program in programs {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for task in &mut program.tasks {
            let Work::Collective {
                kind, group, bytes, ..
            } = &mut task.work
            else {
                continue;
            };
            let number = counts.entry(*group).or_default();
            *number += 1;
            if *kind == CollectiveKind::AllToAll {
                *bytes = *lengths.entry((*group, *number)).or_insert(*bytes);
            }
        }
    }
}

fn check_even(programs: &[Program], groups: &[Vec<u32>]) -> Result<(), GraphError> {
    for (group, ranks) in (0..).zip(groups) {
        let count = |rank: u32| {
            let tasks = programs.iter().filter(|program| program.host == rank);
            let works = tasks
                .flat_map(|program| &program.tasks)
                .map(|task| &task.work);
            let own = works
                .filter(|work| matches!(work, Work::Collective { group: of, .. } if *of == group));
            own.count()
        };
        let Some(&other) = ranks.first() else {
            continue;
        };
        let wanted = count(other);
        let uneven = ranks.iter().find(|&&rank| count(rank) != wanted);
        if let Some(&rank) = uneven {
            let given = count(rank);
            return Err(GraphError::Uneven {
                group,
                rank,
                given,
                other,
                wanted,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventArgs, TraceHead};

    /// A rank whose forward passes are of these steps, one after the other.
    fn run(steps: &[u32]) -> TracedRun {
        let event = |(id, &step): (u32, &u32)| {
            let times = (f64::from(id), f64::from(id) + 1.0);
            let args = EventArgs {
                step,
                id: Some(id),
                ..EventArgs::default()
            };
            TraceEvent::new(Category::Forward, "conv1", times, args)
        };
        TracedRun {
            head: TraceHead {
                world_size: 1,
                ranks: BTreeMap::from([(0, "host0".to_owned())]),
                groups: BTreeMap::from([(0, vec![0])]),
                ..TraceHead::default()
            },
            events: (0..).zip(steps).map(event).collect(),
        }
    }

    #[test]
    fn passes_that_go_back_are_refused() {
        assert!(workload(&run(&[0, 1, 2])).is_ok());
        let error = workload(&run(&[2, 1, 0])).map(drop);
        assert_eq!(error, Err(GraphError::StepOrder { rank: 0 }));
    }
}
