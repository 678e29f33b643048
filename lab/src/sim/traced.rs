//! The trace of a simulated run: a file for each host that runs a program, as ranks write them.

use std::collections::BTreeMap;
use std::path::Path;

use gradwire_collectives::journal::MessageSide;
use gradwire_netsim::results::outcome::{MessageOutcome, Outcome};
use gradwire_netsim::setup::JournalMode;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::Instant;
use gradwire_trace::event::{
    Category, EventArgs, MessageArgs, OperationArgs, Trace, TraceEvent, TraceHead, VERSION,
};
use gradwire_trace::graph::kind_name;
use gradwire_workloads::workload::{Program, Task, Work, Workload};

use super::scenario::{Loaded, Scenario};
use super::summary::Summary;
use crate::error::LabError;
use crate::output::WholeFile;

/// The traces of a run by rank.
pub type RankTraces = BTreeMap<u32, Trace>;

/// Checks that a scenario can be traced, and lets its run keep messages.
///
/// # Errors
/// [`LabError::Usage`] when it runs no programs on gradwire.
pub fn prepare(scenario: &Scenario, loaded: &mut Loaded) -> Result<(), LabError> {
    let Workload {
        programs, flows, ..
    } = &loaded.setup.workload;
    if programs.is_empty() || !flows.is_empty() || scenario.transport != "gradwire" {
        let message = "--trace: only training steps on gradwire have a trace, such as \
                       step:vgg16:ddp without --background";
        return Err(LabError::Usage(message.to_owned()));
    }
    loaded.setup.journal = JournalMode::Messages;
    Ok(())
}

/// The traces of a run.
pub fn traces(loaded: &Loaded, outcome: &Outcome, summary: &Summary) -> RankTraces {
    let workload = &loaded.setup.workload;
    let hosts = workload.programs.iter().map(|program| program.host).max();
    let world_size = hosts.map_or(0, |last| last + 1);
    let head = head(loaded, summary, world_size);
    let ranks = (0..world_size).map(|rank| {
        let program = workload
            .programs
            .iter()
            .find(|program| program.host == rank);
        let mut events = program.map_or_else(Vec::new, |program| tasks(program, outcome));
        let names = program.map_or_else(BTreeMap::new, names);
        let own = outcome
            .messages
            .iter()
            .filter(|message| message.host == rank);
        events.extend(own.map(|message| self::message(message, &names)));
        for event in &mut events {
            event.pid = format!("host{rank}.rank{rank}");
        }
        let mut gradwire = head.clone();
        gradwire.ranks = BTreeMap::from([(rank, format!("host{rank}"))]);
        (rank, Trace { gradwire, events })
    });
    ranks.collect()
}

/// Writes traces into a folder, which is made.
///
/// # Errors
/// [`LabError::System`] names the file and the system's reason.
pub fn write(traces: &RankTraces, folder: &Path) -> Result<(), LabError> {
    let refused = || LabError::system(format!("cannot make the folder {}", folder.display()));
    std::fs::create_dir_all(folder).map_err(refused())?;
    for (rank, trace) in traces {
        let file = WholeFile::create(&folder.join(format!("events-rank{rank}.json")))?;
        file.keep(trace.to_json().as_bytes())?;
    }
    Ok(())
}

fn head(loaded: &Loaded, summary: &Summary, world_size: u32) -> TraceHead {
    let workload = &loaded.setup.workload;
    let groups = (0..).zip(&workload.groups);
    let layers = workload.step_ends.first().map(|ends| ends.layers.clone());
    let mut keys = summary.job.clone();
    if let Some(algorithm) = workload.algorithm {
        let name: &str = algorithm.into();
        keys.insert("collectives.algorithm".to_owned(), format!("\"{name}\""));
    }
    TraceHead {
        events: VERSION,
        job: summary.workload.clone(),
        run: summary.seed as u32,
        world_size,
        ranks: BTreeMap::new(),
        groups: groups.map(|(id, ranks)| (id, ranks.clone())).collect(),
        layers: layers.unwrap_or_default(),
        keys,
        gbps: Some(loaded.setup.fabric.host_rate().as_bits_per_second() as f64 / 1e9),
    }
}

/// The job of a trace: its keys over the defaults.
///
/// # Errors
/// [`LabError::Options`] when the keys contradict each other.
pub fn job(head: &TraceHead) -> Result<Job, LabError> {
    let lines = head
        .keys
        .iter()
        .map(|(key, value)| format!("{key} = {value}\n"));
    let text: String = lines.collect();
    let job =
        Job::with_written_keys(&text).map_err(|source| LabError::Options(Box::new(source)))?;
    Ok(job.0)
}

fn micros(at: Instant) -> f64 {
    at.as_picos() as f64 / 1e6
}

fn tasks(program: &Program, outcome: &Outcome) -> Vec<TraceEvent> {
    let host = program.host;
    let events = (0..).zip(&program.tasks).filter_map(|(number, task)| {
        let found = (outcome.tasks)
            .binary_search_by_key(&(host, number), |one| (one.host, one.task))
            .ok()?;
        let ended = &outcome.tasks[found];
        let times = (micros(ended.started?), micros(ended.ended?));
        Some(event((host, number), task, times))
    });
    events.collect()
}

fn event((rank, id): (u32, u32), task: &Task, times: (f64, f64)) -> TraceEvent {
    let mut args = EventArgs {
        rank,
        step: task.step,
        id: Some(id),
        after: task.after.clone(),
        after_start: task.after_start.clone(),
        ..EventArgs::default()
    };
    match &task.work {
        Work::Collective {
            kind,
            group,
            bytes,
            layers,
        } => {
            let (word, root) = kind_name(*kind);
            args.operation = Some(OperationArgs {
                kind: word.to_owned(),
                group: *group,
                bytes: bytes.get(),
                root,
                layers: layers.iter().map(|&(at, layer)| (at, layer.0)).collect(),
            });
            let name = format!("{}.{}", task.name, word.to_uppercase());
            TraceEvent::new(Category::Comm, &name, times, args)
        }
        _ => {
            let (cat, name) = match task.name.split_once(' ') {
                Some(("forward", name)) => (Category::Forward, name),
                Some(("backward", name)) => (Category::Backward, name),
                _ => (Category::Update, &*task.name),
            };
            TraceEvent::new(cat, name, times, args)
        }
    }
}

/// The name and step of each collective of a program, by group and its number among the group's.
fn names(program: &Program) -> BTreeMap<(u32, u32), (&str, u32)> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for task in &program.tasks {
        if let Work::Collective { group, .. } = task.work {
            let count = counts.entry(group).or_default();
            *count += 1;
            names.insert((group, *count), (&*task.name, task.step));
        }
    }
    names
}

fn message(one: &MessageOutcome, names: &BTreeMap<(u32, u32), (&str, u32)>) -> TraceEvent {
    let record = &one.record;
    let (group, sequence, part) = record.key.parts();
    let peer = u32::from(record.peer.0);
    let (word, (from, to)) = match record.side {
        MessageSide::Sent => ("SEND", (one.host, peer)),
        MessageSide::Received => ("RECV", (peer, one.host)),
    };
    let named = names.get(&(u32::from(group), sequence));
    let (name, step) = named.copied().unwrap_or(("message", 0));
    let args = EventArgs {
        rank: one.host,
        step,
        message: Some(MessageArgs {
            group,
            sequence,
            part,
            from,
            to,
            bytes: record.bytes,
        }),
        ..EventArgs::default()
    };
    let name = format!("{name}.{word}~>{from}_{to}_{part}");
    TraceEvent::new(
        Category::Comm,
        &name,
        (micros(record.first), micros(record.last)),
        args,
    )
}

#[cfg(test)]
mod tests {
    use gradwire_netsim::fluid::FluidExtent;
    use gradwire_trace::graph;
    use gradwire_trace::network::TracedNetwork;
    use gradwire_trace::replay::{Scene, measured, replay};
    use gradwire_trace::run::TracedRun;

    use super::*;

    /// Traces of a scenario, written and read back.
    fn traced(workload: &str) -> (Workload, TracedRun) {
        let scenario = Scenario::new("single:4@10G", workload);
        let mut loaded = scenario.load().expect("both exist");
        prepare(&scenario, &mut loaded).expect("it has programs");
        let (outcome, summary) = scenario
            .run(&loaded, &mut |_| {})
            .expect("they fit each other");
        let files = traces(&loaded, &outcome, &summary).into_values();
        let files = files.map(|trace| Trace::from_json(&trace.to_json()).expect("just written"));
        let run = TracedRun::of(files.collect()).expect("all ranks are there");
        (loaded.setup.workload, run)
    }

    #[test]
    fn a_trace_gives_back_the_programs_and_their_time() {
        for how in ["ps=1", "ddp,algorithm=ring"] {
            let (workload, run) = traced(&format!("step:alexnet:{how},scale=50,steps=2"));
            let read = graph::workload(&run).expect("it has steps");
            let tasks = |of: &Workload| {
                let tasks = of.programs.iter().flat_map(|program| &program.tasks);
                tasks
                    .map(|task| (task.name.clone(), task.after.clone(), task.step))
                    .collect::<Vec<_>>()
            };
            assert_eq!(tasks(&read), tasks(&workload));
            if how.starts_with("ps") {
                // A replay shares links ideally, which servers on slow links are far from.
                continue;
            }
            let scene = Scene {
                job: job(&run.head).expect("it was a job"),
                network: TracedNetwork::of(&run),
                extent: FluidExtent::Whole,
                workload: read,
            };
            let predicted = replay(&scene).expect("it is small").iteration_us();
            let real = measured(&run).iter().sum::<f64>() / 2.0;
            assert!(
                (predicted / real - 1.0).abs() < 0.1,
                "{how}: {predicted} for {real} us"
            );
        }
    }

    #[test]
    fn flows_have_no_trace() {
        let scenario = Scenario::new("single:4@10G", "permutation:10KB");
        let mut loaded = scenario.load().expect("both exist");
        let error = prepare(&scenario, &mut loaded).expect_err("they run no program");
        assert!(error.to_string().contains("only training steps"), "{error}");
    }
}
