//! The files of one run together, and its messages with what both of their ends saw.

use std::collections::BTreeMap;

use crate::event::{MessageArgs, Trace, TraceEvent, TraceHead};

/// The events of all ranks of a run.
#[derive(Clone, Debug)]
pub struct TracedRun {
    /// The run; its ranks are those of all files.
    pub head: TraceHead,
    /// The events, by rank, then begin.
    pub events: Vec<TraceEvent>,
}

/// A message with the times of both of its ends, each by its own clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchedMessage {
    /// What it is.
    pub message: MessageArgs,
    /// The step in which it was sent.
    pub step: u32,
    /// When its first packet left, and when its sender knew that all had arrived.
    pub sent: (f64, f64),
    /// When its first packet arrived, and when all had.
    pub received: (f64, f64),
}

/// Why files are not one run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RunError {
    /// No file.
    #[error("no trace was given: name the files of all ranks, or their folder")]
    Nothing,
    /// A file of another run.
    #[error(
        "it is of run {run:08x} of job {job}, but the files before it are of run {other:08x}: give \
         the files of one run"
    )]
    OtherRun {
        /// The job.
        job: String,
        /// The run of this file.
        run: u32,
        /// The run of the others.
        other: u32,
    },
    /// A rank twice.
    #[error("it has events of rank {rank}, like a file before it: give only one of them")]
    Twice {
        /// The rank.
        rank: u32,
    },
    /// Ranks without a file.
    #[error(
        "no events of {}: the run has {world_size} ranks; give the files of all of them",
        named(ranks)
    )]
    Missing {
        /// The ranks.
        ranks: Vec<u32>,
        /// How many there should be.
        world_size: u32,
    },
}

fn named(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more = if ranks.len() > 8 { ", ..." } else { "" };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}{more}", list.join(", "))
}

impl TracedRun {
    /// Puts the files of a run together.
    ///
    /// # Errors
    /// [`RunError`], with the index of the file that does not fit, if it is one file.
    pub fn of(files: Vec<Trace>) -> Result<Self, (Option<usize>, RunError)> {
        let mut files = files.into_iter().enumerate();
        let (_, first) = files.next().ok_or((None, RunError::Nothing))?;
        let mut run = Self {
            head: first.gradwire,
            events: first.events,
        };
        for (index, file) in files {
            run.add(file).map_err(|error| (Some(index), error))?;
        }
        let world_size = run.head.world_size;
        let missing = (0..world_size).filter(|rank| !run.head.ranks.contains_key(rank));
        let ranks: Vec<u32> = missing.collect();
        if !ranks.is_empty() {
            return Err((None, RunError::Missing { ranks, world_size }));
        }
        run.sort();
        Ok(run)
    }

    fn add(&mut self, file: Trace) -> Result<(), RunError> {
        let Trace { gradwire, events } = file;
        if (&gradwire.job, gradwire.run) != (&self.head.job, self.head.run) {
            let (job, run, other) = (gradwire.job, gradwire.run, self.head.run);
            return Err(RunError::OtherRun { job, run, other });
        }
        for (rank, host) in gradwire.ranks {
            if self.head.ranks.insert(rank, host).is_some() {
                return Err(RunError::Twice { rank });
            }
        }
        self.head.groups.extend(gradwire.groups);
        self.events.extend(events);
        Ok(())
    }

    fn sort(&mut self) {
        self.events.sort_by(|one, other| {
            let ranks = one.args.rank.cmp(&other.args.rank);
            ranks.then(one.ts.total_cmp(&other.ts))
        });
    }

    /// The messages of which both ends were recorded.
    pub fn messages(&self) -> Vec<MatchedMessage> {
        let mut ends: BTreeMap<MessageArgs, [Option<&TraceEvent>; 2]> = BTreeMap::new();
        for event in &self.events {
            let Some(message) = event.args.message else {
                continue;
            };
            let side = usize::from(event.args.rank != message.from);
            ends.entry(message).or_default()[side] = Some(event);
        }
        let matched = ends.into_iter().filter_map(|(message, [sent, received])| {
            let (sent, received) = (sent?, received?);
            Some(MatchedMessage {
                message,
                step: sent.args.step,
                sent: (sent.ts, sent.end()),
                received: (received.ts, received.end()),
            })
        });
        matched.collect()
    }

    /// The host of a rank.
    pub fn host(&self, rank: u32) -> &str {
        self.head.ranks.get(&rank).map_or("", |host| host)
    }

    /// Moves the events of each rank by a time that depends on the rank and the event's begin.
    pub fn shift(&mut self, by: impl Fn(u32, f64) -> f64) {
        for event in &mut self.events {
            let end = event.end();
            let end = end + by(event.args.rank, end);
            event.ts += by(event.args.rank, event.ts);
            event.dur = (end - event.ts).max(0.0);
        }
        self.sort();
    }
}
