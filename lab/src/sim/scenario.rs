//! The parameters of a simulation: a [`Scenario`] can be typed, or stand in a plan of a sweep.
//!
//! [`Scenario::load`] reads the files that it names and makes the setup of the simulator;
//! [`Scenario::run`] runs that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use gradwire_fabric::fitting;
use gradwire_fabric::settings;
use gradwire_netsim::engine::parallel::Glance;
use gradwire_netsim::results::outcome::{Outcome, TaskOutcome};
use gradwire_netsim::setup::{Division, JournalMode, Setup, Transport};
use gradwire_netsim::simulation;
use gradwire_protocol::job::{Job, notation};
use gradwire_protocol::units::{ByteCount, Instant, Share, Span};
use gradwire_workloads::workload::Workload;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cost::{self, Meter};
use super::room;
use super::summary::Summary;
use crate::error::LabError;
use crate::{files, job_file, values};

/// Sets the draws of a background apart from those of the workload.
const BACKGROUND_SEED: u64 = 0x6261_636b_6772_6f75;

/// One simulation, as typed or as a cell of a sweep.
#[derive(Args, Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The fabric: a shape such as fat-tree:k=16@100G, or a file: fabric.toml, .topo of htsim, .txt
    /// of HPCC.
    pub fabric: String,
    /// The workload: a pattern such as permutation:2MB, training steps such as step:vgg16:ddp or
    /// step:mine.csv:ps=8 (see `gradwire model`), or a file: .cm of htsim, .goal, .txt of SimAI or
    /// ASTRA-sim, NAME.0.et of Chakra, with NAME.1.et and so on in the same folder. Several
    /// workloads, with " + " between them, run in parallel; each job of training steps is measured
    /// by itself.
    pub workload: String,
    /// Another workload, which loads the fabric but is in no percentile; several with " + " between
    /// them. With training steps, its flows are cut off when the last step has ended.
    #[arg(long, value_name = "WORKLOAD")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
    /// The transport of the flows: gradwire, dctcp, dctcp-10ms (with timeouts of at least 10 ms),
    /// dctcp-classes (training jobs before other traffic), pias, swift, pfabric, ndp, eqds
    /// (credits of receivers), nscc or rccc (Ultra Ethernet's window or credits, with REPS and
    /// trimming), roce (with PFC and DCQCN), roce-pfc (without DCQCN), irn,
    /// irn-dcqcn, irn-pfc or irn-pfc-dcqcn, irn-go-back-n or irn-no-window (ablations), or
    /// switchml, atp, atp-servers (without aggregators), netreduce: switches sum the all-reduces
    /// whose collectives.algorithm is auto. Flows of a background ride DCTCP beside gradwire,
    /// unless --background-transport says otherwise. All
    /// but gradwire take only collectives.algorithm, chunk, order and credit from the job: each
    /// message of a collective is a flow. With credit 0, the default, a flow begins as soon as it
    /// may, and order has no effect. With a credit, order = layers is ByteScheduler, and order =
    /// arrival first come, first served.
    #[arg(long, default_value_t = default_transport())]
    #[serde(default = "default_transport")]
    pub transport: String,
    /// The transport of the background, if it is another one: any but gradwire and those whose
    /// switches sum. Switches serve the workload's transport.
    #[arg(long, value_name = "NAME", requires = "background")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_transport: Option<String>,
    /// The job file; by default GRADWIRE_JOB, else a job fitted to the fabric.
    #[arg(long, value_name = "FILE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<PathBuf>,
    /// Share of a message that may be missing, such as 10% or 0.1.
    #[arg(long, value_parser = values::share, value_name = "SHARE")]
    #[serde(default, with = "shares", skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Share>,
    /// A key of the job and its value, such as transport.window=1MiB; may be repeated.
    #[arg(long, value_parser = assignment, value_name = "KEY=VALUE")]
    #[serde(default, with = "assignments", skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<(String, String)>,
    /// How switches choose among equal paths: ecmp, random or adaptive; by default as the fabric
    /// says, else ecmp.
    #[arg(long, value_name = "HOW")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Whether gradwire's switches cut packets to their headers where a queue is long: on or off;
    /// by default as the fabric says, else off.
    #[arg(long, value_name = "WHETHER")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<String>,
    /// Seed of all draws.
    #[arg(long, default_value_t = DEFAULT_SEED, value_parser = values::seed)]
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Threads of one simulation; any number gives the same bytes.
    #[arg(long, default_value_t = DEFAULT_THREADS, value_parser = threads)]
    #[serde(default = "default_threads")]
    pub threads: usize,
    /// The most memory that the flows and hosts of a run may take, such as 400M; by default as much
    /// as is free. Hosts that would take more pack what they know of peers that they did not use
    /// lately: the results are the same, and the run takes two to four times as long.
    // It depends on the machine, so files of scenarios do not have it.
    #[arg(long, value_parser = values::size, value_name = "BYTES")]
    #[serde(skip)]
    pub memory: Option<ByteCount>,
    /// Simulated time after which a run is stopped.
    #[arg(long, default_value = "10s", value_parser = values::span_ps, value_name = "SPAN")]
    #[serde(default = "default_limit", with = "spans")]
    pub limit: Span,
}

const DEFAULT_TRANSPORT: &str = "gradwire";
const DEFAULT_SEED: u64 = 1;
const DEFAULT_THREADS: usize = 1;

fn default_transport() -> String {
    DEFAULT_TRANSPORT.to_owned()
}

fn default_seed() -> u64 {
    DEFAULT_SEED
}

fn default_threads() -> usize {
    DEFAULT_THREADS
}

fn default_limit() -> Span {
    Span::from_millis(10_000)
}

/// A scenario with everything that it names.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The simulator's input.
    pub setup: Setup,
    /// Each workload that runs side by side with others, as typed, and its flows.
    pub groups: Vec<(String, usize)>,
    /// Flows of the workload; those behind them are of the background.
    pub flows: usize,
    /// By host, tasks of the workload; those behind them are of the background.
    pub tasks: BTreeMap<u32, usize>,
}

impl Loaded {
    /// Flows and tasks that must end.
    pub fn total(&self) -> u64 {
        let workload = &self.setup.workload;
        let tasks = tasks_by_host(workload).into_values();
        (workload.flows.len() + tasks.sum::<usize>()) as u64
    }

    /// How the tasks of the workload went, without those of a background.
    pub fn own_tasks(&self, outcome: &Outcome) -> Vec<TaskOutcome> {
        let own = |task: &&TaskOutcome| {
            let tasks = self.tasks.get(&task.host);
            tasks.is_some_and(|&tasks| (task.task as usize) < tasks)
        };
        outcome.tasks.iter().filter(own).copied().collect()
    }
}

fn tasks_by_host(workload: &Workload) -> BTreeMap<u32, usize> {
    let programs = workload.programs.iter();
    let tasks = programs.map(|program| (program.host, program.tasks.len()));
    tasks.collect()
}

impl Scenario {
    /// A scenario of a fabric and a workload, with defaults for everything else.
    pub fn new(fabric: &str, workload: &str) -> Self {
        Self {
            fabric: fabric.to_owned(),
            workload: workload.to_owned(),
            background: None,
            transport: default_transport(),
            background_transport: None,
            job: None,
            tolerance: None,
            set: Vec::new(),
            balance: None,
            trim: None,
            seed: DEFAULT_SEED,
            threads: DEFAULT_THREADS,
            memory: None,
            limit: default_limit(),
        }
    }

    /// Reads the files that the scenario names and makes its setup.
    ///
    /// # Errors
    /// [`LabError`] names the file, its line where there is one, and the values that are allowed.
    pub fn load(&self) -> Result<Loaded, LabError> {
        let transport: Transport = self.transport.parse().map_err(usage)?;
        let background = self.background_transport.as_ref();
        let background: Option<Transport> = background
            .map(|name| name.parse().map_err(usage))
            .transpose()?;
        let (job, written) = self.job()?;
        let mut fabric = files::fabric(&self.fabric)?;
        if let Some(text) = &self.balance {
            let balance = settings::balance(text);
            let allowed = || format!("--balance {text}: allowed are ecmp, random and adaptive");
            fabric.balance = Some(balance.ok_or_else(|| LabError::Usage(allowed()))?);
        }
        if let Some(text) = &self.trim {
            let allowed = || LabError::Usage(format!("--trim {text}: allowed are on and off"));
            fabric.trimming = settings::trimming(text).ok_or_else(allowed)?;
        }
        let room = room::Room::new(self.memory);
        let limits = room.draw_limits(self.limit);
        let drawn = files::workload(&self.workload, &mut fabric, self.seed, limits)?;
        let (mut workload, groups) = drawn;
        let (flows, tasks) = (workload.flows.len(), tasks_by_host(&workload));
        for (number, text) in (1..).zip(self.backgrounds()) {
            let seed = self.seed ^ BACKGROUND_SEED.wrapping_mul(number);
            let (background, _) = files::workload(text, &mut fabric, seed, limits)?;
            workload = workload.with_background(background);
        }
        let mut setup = Setup {
            job: fitting::fitted(&job, &written, &fabric, workload.send_pattern()),
            fabric,
            workload,
            transport,
            background,
            seed: self.seed,
            limit: Instant::START + self.limit,
            threads: self.threads,
            division: Division::default(),
            awake_peers: usize::MAX,
            sample_every: None,
            journal: JournalMode::Off,
            clock: cost::thread_cpu,
        };
        setup.awake_peers = room.awake_peers(&setup)?;
        Ok(Loaded {
            setup,
            groups,
            flows,
            tasks,
        })
    }

    /// The workloads of the background, one by one.
    pub fn backgrounds(&self) -> impl Iterator<Item = &str> {
        self.background.iter().flat_map(|text| files::beside(text))
    }

    /// Runs a loaded scenario. A run that was stopped at its limit is no error here: its summary
    /// says so, and [`Summary::unfinished`] makes an error of it.
    ///
    /// # Errors
    /// [`LabError`] when the setup makes no sense. Then nothing was simulated.
    pub fn run(
        &self,
        loaded: &Loaded,
        watch: &mut dyn FnMut(Glance),
    ) -> Result<(Outcome, Summary), LabError> {
        let meter = Meter::start(self.threads);
        let outcome = simulation::run(&loaded.setup, watch).map_err(usage)?;
        let cost = meter.stop();
        let summary = Summary::new(self, loaded, &outcome, &cost);
        Ok((outcome, summary))
    }

    /// The arguments of `sim report` for this scenario, with these transports if there are any.
    /// Defaults are left out.
    pub fn words(&self, transports: &[String]) -> Vec<String> {
        let plain = Self::new(&self.fabric, &self.workload);
        let mut words = vec![self.fabric.clone(), self.workload.clone()];
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        if let Some(background) = &self.background {
            add("--background", background.clone());
        }
        match transports {
            [] if self.transport == plain.transport => {}
            [] => add("--transport", self.transport.clone()),
            several => add("--transports", several.join(",")),
        }
        if let Some(name) = &self.background_transport {
            add("--background-transport", name.clone());
        }
        if let Some(job) = &self.job {
            add("--job", job.display().to_string());
        }
        if let Some(tolerance) = self.tolerance {
            add("--tolerance", notation::show_share(tolerance));
        }
        for (key, value) in &self.set {
            add("--set", format!("{key}={value}"));
        }
        if let Some(balance) = &self.balance {
            add("--balance", balance.clone());
        }
        if let Some(trim) = &self.trim {
            add("--trim", trim.clone());
        }
        if self.seed != plain.seed {
            add("--seed", self.seed.to_string());
        }
        if self.threads != plain.threads {
            add("--threads", self.threads.to_string());
        }
        if let Some(memory) = self.memory {
            add("--memory", memory.to_string());
        }
        if self.limit != plain.limit {
            add("--limit", notation::show_span(self.limit));
        }
        words
    }

    /// The job, and the keys that somebody wrote.
    fn job(&self) -> Result<(Job, BTreeSet<String>), LabError> {
        let path = self.job.clone();
        let text = path
            .as_deref()
            .map_or_else(|| Ok(String::new()), files::text)?;
        // Read by itself first, so that a mistake in the file is reported with its line.
        let (job, mut written) = Job::with_written_keys(&text).map_err(|source| LabError::Job {
            path: path.unwrap_or_default(),
            source: Box::new(source),
        })?;
        let tolerance = self.tolerance.map(notation::show_share);
        let tolerance = tolerance.iter().map(|text| ("tolerance", &**text));
        let set = self.set.iter().map(|(key, text)| (&**key, &**text));
        let set: Vec<(&str, &str)> = tolerance.chain(set).collect();
        written.extend(set.iter().map(|(key, _)| (*key).to_owned()));
        let open = OPEN.into_iter().filter(|(key, _)| !written.contains(*key));
        let job = job_file::with_values(job, set.into_iter().chain(open))?;
        Ok((job, written))
    }
}

/// Keys that are fitted to the fabric unless the user writes them. The values here stand in until
/// then, chosen so that they contradict nothing that a user may write.
const OPEN: [(&str, &str); 3] = [
    ("transport.window", "1GiB"),
    ("transport.initial_window", "16KiB"),
    ("transport.unscheduled", "16KiB"),
];

fn usage(error: impl Display) -> LabError {
    LabError::Usage(error.to_string())
}

fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=64).contains(count));
    count.ok_or_else(|| "allowed are 1 to 64".to_owned())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let pair = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty());
    let pair = pair.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
    pair.ok_or_else(|| "allowed is KEY=VALUE, such as transport.window=1MiB".to_owned())
}

mod shares {
    //! An optional share in the notation of a job.

    use super::{Deserialize, Deserializer, Serializer, Share, notation};

    pub(super) fn serialize<S: Serializer>(
        share: &Option<Share>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match share {
            Some(share) => to.serialize_str(&notation::show_share(*share)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Share>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Number(f64),
        }
        let share = match Option::<Written>::deserialize(from)? {
            None => return Ok(None),
            Some(Written::Number(number)) => Share::new(number),
            Some(Written::Text(text)) => notation::share(&text),
        };
        let allowed = || serde::de::Error::custom("allowed are 0 to 1, or \"0%\" to \"100%\"");
        share.map(Some).ok_or_else(allowed)
    }
}

mod spans {
    //! A length of time in the notation of a job.

    use super::{Deserialize, Deserializer, Serializer, Span, notation, values};

    pub(super) fn serialize<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&notation::show_span(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        values::span_ps(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

mod assignments {
    //! Keys and values as a map; numbers and booleans are taken as they are written.

    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serializer};

    type Assignments = Vec<(String, String)>;

    pub(super) fn serialize<S: Serializer>(set: &Assignments, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(set.iter().map(|(key, value)| (key, value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Assignments, D::Error> {
        let map = BTreeMap::<String, serde_json::Value>::deserialize(from)?;
        let text = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(map
            .into_iter()
            .map(|(key, value)| (key, text(value)))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_reads_back_what_it_writes() {
        let scenario = Scenario {
            tolerance: Share::new(0.1),
            set: vec![("transport.window".to_owned(), "1MiB".to_owned())],
            limit: Span::from_millis(20),
            ..Scenario::new("single:4@25G", "permutation:2MB")
        };
        let text = serde_json::to_string(&scenario).expect("it can be written");
        assert!(text.contains(r#""tolerance":"10%""#) && text.contains(r#""limit":"20ms""#));
        let back: Scenario = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(back, scenario);
    }

    #[test]
    fn several_workloads_load_the_fabric_at_once() {
        let alone = |background: &str| {
            let scenario = Scenario {
                background: Some(background.to_owned()),
                ..Scenario::new("single:8@25G", "one:2MB")
            };
            let loaded = scenario.load().expect("it makes sense");
            loaded.setup.workload.flows.len() - loaded.flows
        };
        assert_eq!(alone("incast:3x64KB"), 3);
        assert_eq!(alone("incast:3x64KB + permutation:1MB"), 11);
    }

    #[test]
    fn a_scenario_needs_a_fabric_and_a_workload_only() {
        let text = r#"{"fabric": "single:4@25G", "workload": "permutation:2MB"}"#;
        let read: Scenario = serde_json::from_str(text).expect("it is complete");
        assert_eq!(read, Scenario::new("single:4@25G", "permutation:2MB"));
        let typo = r#"{"fabric": "a", "workload": "b", "tolerence": "10%"}"#;
        let error = serde_json::from_str::<Scenario>(typo).expect_err("a typo");
        assert!(error.to_string().contains("tolerence"), "{error}");
    }

    #[test]
    fn set_keys_are_in_the_job() {
        let scenario = Scenario {
            tolerance: Share::new(0.1),
            set: vec![
                ("transport.window".to_owned(), "2MiB".to_owned()),
                ("transport.entropies".to_owned(), "4".to_owned()),
            ],
            ..Scenario::new("single:4@25G", "permutation:2MB")
        };
        let (job, written) = scenario.job().expect("the keys exist");
        assert_eq!(job.flat()["transport.window"], "\"2MiB\"");
        assert_eq!(job.transport.entropies, 4);
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        assert_eq!(
            written,
            ["tolerance", "transport.entropies", "transport.window"]
        );
    }

    #[test]
    fn open_keys_contradict_no_written_key() {
        for (key, value) in [
            ("transport.window", "64KiB"),
            ("transport.initial_window", "4MiB"),
            ("transport.unscheduled", "4MiB"),
        ] {
            let scenario = Scenario {
                set: vec![(key.to_owned(), value.to_owned())],
                ..Scenario::new("single:4@25G", "permutation:2MB")
            };
            let (job, _) = scenario.job().expect("one key alone contradicts nothing");
            assert_eq!(job.flat()[key], format!("\"{value}\""));
        }
    }

    #[test]
    fn a_key_that_a_job_lacks_is_refused() {
        let scenario = Scenario {
            set: vec![("transport.windw".to_owned(), "2MiB".to_owned())],
            ..Scenario::new("single:4@25G", "permutation:2MB")
        };
        let said = scenario.job().expect_err("a typo").to_string();
        assert!(said.contains("did you mean `window`?"), "{said}");
    }
}
