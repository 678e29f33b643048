//! Workloads of one line: `permutation:2MB`, `incast:127x2MB`, `ring:64MiB`.
//!
//! [`FORMS`] has all of them.
//!
//! A training step is `step:MODEL:HOW`, the model one of [`crate::model::NAMES`] or a table of the
//! caller's; how is `ddp` (buckets), `tensors` (an all-reduce for each) or `ps=8` (servers on the
//! first 8 hosts). After it, separated by commas: `steps=3` (as without it; first to third),
//! `slow=1.5` (the last worker computes 1.5 times as long), `update=all` (forward waits for all
//! updates and not only for those of its layer), `stale=1` (a worker may be a step ahead of its
//! updates; `stale=any`: it never waits for others), `team=2` (two workers in a row sum their
//! gradients first), `algorithm=ring`, `part=1MiB` or `part=whole` (how
//! gradients are cut for servers), `scale=16` (a 16th of all sizes and times).
//!
//! `@hosts=0-63` or `@hosts=0,4,8-11` after any of them puts it on these hosts only.

mod flows;
mod notation;
mod rounds;
mod step;

use crate::arrivals::{Arrivals, ArrivalsError, DrawLimits};
use crate::model::{Model, UnknownModel};
use crate::words::did_you_mean;
use crate::workload::{Hosts, Workload};

/// Errors of a one-line workload.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is unknown.
    #[error("`{given}` is not a workload{nearest}; known are {}", examples())]
    Unknown {
        /// The line, as given.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
    },
    /// The pattern is written wrongly.
    #[error("`{given}`: {what}; write it like `{example}`")]
    Form {
        /// The line, as given.
        given: String,
        /// The fault.
        what: String,
        /// A correct line.
        example: &'static str,
    },
    /// The hosts do not suit it.
    #[error("`{given}`{fault}")]
    Hosts {
        /// The line, as given.
        given: String,
        /// The fault, behind a blank or a colon.
        fault: String,
    },
    /// The model is unknown.
    #[error(transparent)]
    Model(#[from] UnknownModel),
    /// The arrivals are faulty.
    #[error(transparent)]
    Arrivals(#[from] ArrivalsError),
}

/// A kind of one-line workload.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadForm {
    /// The word before the colon.
    pub name: &'static str,
    /// A correct line.
    pub example: &'static str,
    /// The workload that the example is.
    pub meaning: &'static str,
}

const fn form(name: &'static str, example: &'static str, meaning: &'static str) -> WorkloadForm {
    WorkloadForm {
        name,
        example,
        meaning,
    }
}

const POISSON: &str = "poisson";
const STEP: &str = "step";

/// All kinds of one-line workloads.
pub const FORMS: [WorkloadForm; 11] = [
    form("one", "one:2MB", "a flow from the first host to the last"),
    form(
        "permutation",
        "permutation:2MB",
        "every host sends to one and receives from one, drawn by the seed",
    ),
    form(
        "incast",
        "incast:127x2MB",
        "127 drawn hosts send to one; to host 0 when all others send",
    ),
    form(
        "all-to-all",
        "all-to-all:200KB",
        "a flow per ordered pair; ,parallel=8: at most 8 at a time per host",
    ),
    form(
        "all-reduce",
        "all-reduce:64MiB",
        "an all-reduce of all hosts, by the job's algorithm; x10 behind it: ten in a row",
    ),
    form("ring", "ring:64MiB", "the same around a ring"),
    form(
        "halving-doubling",
        "halving-doubling:64MiB",
        "the same by recursive halving and doubling",
    ),
    form(
        "direct",
        "direct:64MiB",
        "the same with each shard straight to its owner",
    ),
    form(
        "ps",
        "ps:8@64MiB",
        "a parameter-server round: the first 8 hosts hold an 8th each; x10: ten",
    ),
    form(
        STEP,
        "step:vgg16:ddp,steps=3",
        "steps of training a model: ddp (buckets), tensors (one by one), ps=8 (servers), \
         gossip=ring (pairs average models), summa=4x4x2 (matrices sharded over rows, columns and \
         layers of hosts), megatron=32 (split over all) or plan=2d-11tr-1s (each block in a way of \
         its own)",
    ),
    form(
        POISSON,
        "poisson:websearch@0.6:10ms",
        "flows that arrive at random for 10 ms and load host links to 60 %",
    ),
];

impl Workload {
    /// Reads a one-line workload for all of `hosts`, and draws from `seed`.
    ///
    /// # Errors
    /// [`PatternError`] names the fault and shows a correct line.
    pub fn from_pattern(text: &str, hosts: Hosts, seed: u64) -> Result<Self, PatternError> {
        Self::from_pattern_with(text, hosts, seed, &[])
    }

    /// Like [`Self::from_pattern`], without more flows than the limits allow.
    ///
    /// # Errors
    /// [`PatternError`] names the fault and shows a correct line.
    pub fn from_pattern_within(
        text: &str,
        hosts: Hosts,
        seed: u64,
        limits: DrawLimits,
    ) -> Result<Self, PatternError> {
        let models = &[];
        Self::of_line(PatternLine {
            text,
            hosts,
            seed,
            models,
            limits,
        })
    }

    /// Like [`Self::from_pattern`], with the caller's models in addition to the named ones.
    ///
    /// # Errors
    /// [`PatternError`] names the fault and shows a correct line.
    pub fn from_pattern_with(
        text: &str,
        hosts: Hosts,
        seed: u64,
        models: &[Model],
    ) -> Result<Self, PatternError> {
        Self::of_line(PatternLine {
            text,
            hosts,
            seed,
            models,
            limits: DrawLimits::default(),
        })
    }

    fn of_line(line: PatternLine<'_>) -> Result<Self, PatternError> {
        let (text, hosts) = (line.text, line.hosts);
        let (pattern, placed) = match text.rsplit_once("@hosts=") {
            Some((pattern, list)) => (pattern, Some(listed(text, list, hosts)?)),
            None => (text, None),
        };
        let count = placed
            .as_ref()
            .map_or(hosts.count, |list| list.len() as u32);
        let line = PatternLine {
            hosts: Hosts { count, ..hosts },
            ..line
        };
        let mut workload = line.workload(pattern.trim())?;
        if let Some(list) = placed {
            workload = workload
                .on_hosts(&list)
                .map_err(|error| line.hosts_fault(format!(": {error}")))?;
        }
        text.clone_into(&mut workload.name);
        for job in &mut workload.step_ends {
            text.clone_into(&mut job.name);
        }
        Ok(workload)
    }

    /// Returns the model that a one-line workload of training steps names.
    pub fn model_of(text: &str) -> Option<&str> {
        let (name, rest) = text.split_once(':')?;
        (name.trim() == STEP).then(|| step::model_of(rest))
    }
}

/// A line and the hosts that it is read for.
struct PatternLine<'a> {
    /// The whole line, for messages.
    text: &'a str,
    hosts: Hosts,
    seed: u64,
    models: &'a [Model],
    limits: DrawLimits,
}

impl PatternLine<'_> {
    fn workload(&self, pattern: &str) -> Result<Workload, PatternError> {
        let (name, rest) = pattern.split_once(':').unwrap_or((pattern, ""));
        let (name, rest) = (name.trim(), rest.trim());
        match name {
            "one" => self.one(rest),
            "permutation" => self.permutation(rest),
            "incast" => self.incast(rest),
            "all-to-all" => self.all_to_all(rest),
            "all-reduce" | "ring" | "halving-doubling" | "direct" => self.all_reduce(name, rest),
            "ps" => self.parameter_servers(rest),
            STEP => self.step(rest),
            POISSON => {
                let arrivals = Arrivals::from_pattern(rest)?;
                Ok(arrivals.flows_within(self.hosts, self.seed, self.limits)?)
            }
            _ => Err(PatternError::Unknown {
                given: self.text.to_owned(),
                nearest: did_you_mean(name, names()),
            }),
        }
    }

    fn form(&self, name: &str, what: impl Into<String>) -> PatternError {
        let known = FORMS.iter().find(|known| known.name == name);
        PatternError::Form {
            given: self.text.to_owned(),
            what: what.into(),
            example: known.unwrap_or(&FORMS[0]).example,
        }
    }

    fn needs_hosts(&self, needed: u64) -> Result<(), PatternError> {
        if u64::from(self.hosts.count) >= needed {
            return Ok(());
        }
        let hosts = self.hosts.count;
        Err(self.hosts_fault(format!(" needs {needed} hosts or more; there are {hosts}")))
    }

    fn hosts_fault(&self, fault: String) -> PatternError {
        let given = self.text.to_owned();
        PatternError::Hosts { given, fault }
    }
}

fn listed(text: &str, list: &str, hosts: Hosts) -> Result<Vec<u32>, PatternError> {
    let given = || text.to_owned();
    let list = notation::hosts(list).ok_or_else(|| PatternError::Form {
        given: given(),
        what: format!("`{list}` is not a list of hosts"),
        example: "permutation:2MB@hosts=0-63,72",
    })?;
    match list.iter().find(|&&host| host >= hosts.count) {
        None => Ok(list),
        Some(host) => Err(PatternError::Hosts {
            given: given(),
            fault: format!(
                ": host {host}; there are hosts 0 to {}",
                hosts.count.saturating_sub(1)
            ),
        }),
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|form| form.name)
}

fn examples() -> String {
    FORMS.map(|form| form.example).join(", ")
}
