//! The numbers of one run, for programs: one JSON object, the same keys every time.
//!
//! Times are microseconds, rates Gb/s (10^9 bits per second), unless the name says otherwise.
//! Percentiles are of flows that ended; `finished` says how many those are.

use std::collections::BTreeMap;

use gradwire_netsim::results::outcome::{ClassCounts, FlowOutcome, Outcome, TaskOutcome};
use gradwire_netsim::results::statistics::{self, Goodput, NamedTasks, Spread, micros, rounded};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Instant, Span};
use serde::{Deserialize, Serialize};

use super::cost::RunCost;
use super::scenario::{Loaded, Scenario};
use super::training::TrainingSummary;
use crate::error::LabError;

/// Names of tasks that a summary has at most; those that took longest in all.
const NAMES_MAX: usize = 64;

/// The numbers of one run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// The fabric as typed.
    pub fabric: String,
    /// The workload as typed.
    pub workload: String,
    /// The background as typed.
    pub background: Option<String>,
    /// The transport.
    pub transport: String,
    /// Keys of the job that differ from its default, in the notation of `job.toml`.
    pub job: BTreeMap<String, String>,
    /// Seed of all draws.
    pub seed: u64,
    /// Always true: no number here was measured on a network.
    pub simulated: bool,
    /// Threads of the simulation.
    pub threads: usize,
    /// Hosts of the fabric.
    pub hosts: u32,
    /// Flows of the workload.
    pub flows: usize,
    /// How many of these ended.
    pub finished: usize,
    /// Flows of the background.
    pub background_flows: usize,
    /// How many of these ended.
    pub background_finished: usize,
    /// `fct_us` of the background: on gradwire and DCTCP its flows ride DCTCP.
    pub background_fct_us: Option<Spread>,
    /// `slowdown` of the background.
    pub background_slowdown: Option<Spread>,
    /// From a flow's start until its receiver is complete.
    pub fct_us: Option<Spread>,
    /// From a flow's start until its sender knows so.
    pub fct_acked_us: Option<Spread>,
    /// `fct_us` over the time that the flow takes alone on an idle fabric.
    pub slowdown: Option<Spread>,
    /// Rate of all flows of the workload together, first start to last end.
    pub goodput_gbps: f64,
    /// The same for the mean receiving host.
    pub goodput_per_receiver_gbps: f64,
    /// Flows of each workload of the run, if several run side by side.
    pub groups: Vec<FlowGroup>,
    /// Tasks of programs, where there are any.
    pub tasks: Option<TaskSummary>,
    /// Steps of each training job of the workload.
    pub training: Vec<TrainingSummary>,
    /// From the first start to the last end of all flows and tasks of the workload.
    pub makespan_us: f64,
    /// Counts of packets at ports by class, highest class first.
    pub drops: Vec<ClassDrops>,
    /// Packets that were marked and arrived, as receivers counted them.
    pub marks: u64,
    /// Data packets sent for the first time.
    pub sent: u64,
    /// Data packets sent again.
    pub retransmissions: u64,
    /// Data packets that arrived more than once.
    pub duplicates: u64,
    /// Data packets that receivers did without.
    pub lost_within_tolerance: u64,
    /// Bytes of flows that receivers did without.
    pub lost_bytes: u64,
    /// Largest queue of a port, by the places that the link leads from and to.
    pub queue_peak_bytes: BTreeMap<String, u64>,
    /// Mean share of the time from the first start to the last end, those of a background too, for
    /// which links sent, by places.
    pub utilisation: BTreeMap<String, f64>,
    /// Packets lost on wires: at random, or because a link was down.
    pub links_lost: u64,
    /// Data packets put on a wire, once for every wire.
    pub data_packet_hops: u64,
    /// Packets put on a wire, once for every wire.
    pub packet_hops: u64,
    /// Events that the simulator worked on.
    pub events: u64,
    /// Those of each thread.
    pub events_per_thread: Vec<u64>,
    /// User CPU seconds of the run, its set-up included.
    pub cpu_s: f64,
    /// User CPU seconds of each thread while events were worked on.
    pub cpu_per_thread_s: Vec<f64>,
    /// Seconds of the run.
    pub wall_s: f64,
    /// Most memory that the process had resident since it started.
    pub peak_rss_bytes: u64,
    /// Whether the run was stopped at its time limit.
    pub timed_out: bool,
    /// Simulated time at the end.
    pub ended_us: f64,
    /// Hash of every flow's and task's times: equal runs have equal digests.
    pub digest: String,
}

/// Counts of packets of one class at ports.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClassDrops {
    /// The class, 0 = highest.
    pub class: usize,
    /// Its packets, once for every port.
    #[serde(flatten)]
    pub counts: ClassCounts,
}

/// The flows of one workload of several.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FlowGroup {
    /// The workload as typed.
    pub workload: String,
    /// How many.
    pub flows: usize,
    /// How many ended.
    pub finished: usize,
    /// From a flow's start until its receiver is complete.
    pub fct_us: Option<Spread>,
    /// `fct_us` over the time that the flow takes alone on an idle fabric.
    pub slowdown: Option<Spread>,
}

impl FlowGroup {
    /// Those of each workload with flows; empty unless several have some.
    fn of(loaded: &Loaded, flows: &[FlowOutcome]) -> Vec<Self> {
        let mut rest = flows;
        let groups = loaded.groups.iter().map(|(workload, count)| {
            let (own, others) = rest.split_at(*count);
            rest = others;
            Self {
                workload: workload.clone(),
                flows: own.len(),
                finished: finished(own),
                fct_us: times(own, statistics::completion),
                slowdown: slowdown(own),
            }
        });
        let groups: Vec<Self> = groups.filter(|group| group.flows > 0).collect();
        match groups.len() {
            0 | 1 => Vec::new(),
            _ => groups,
        }
    }
}

/// How the tasks of programs went.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TaskSummary {
    /// How many.
    pub tasks: usize,
    /// How many ended.
    pub finished: usize,
    /// How long the host computes that computes longest: the least that the run can take.
    pub compute_us: f64,
    /// By how much the run takes longer than that: communication that computing does not hide.
    /// `None` where nothing computes, or where a task has not ended.
    pub exposed_us: Option<f64>,
    /// By name, those that took longest in all first, 64 names at most.
    pub by_name: Vec<NamedTasks>,
}

fn times(flows: &[FlowOutcome], time: fn(&FlowOutcome) -> Option<Span>) -> Option<Spread> {
    Spread::of(flows.iter().filter_map(time).map(micros).collect())
}

fn slowdown(flows: &[FlowOutcome]) -> Option<Spread> {
    Spread::of(flows.iter().filter_map(statistics::slowdown).collect())
}

fn finished(flows: &[FlowOutcome]) -> usize {
    flows.iter().filter(|flow| flow.received.is_some()).count()
}

impl Summary {
    /// The summary of an outcome.
    pub fn new(scenario: &Scenario, loaded: &Loaded, outcome: &Outcome, cost: &RunCost) -> Self {
        let setup = &loaded.setup;
        let (flows, background) = outcome.flows.split_at(loaded.flows);
        let goodput = Goodput::of(flows);
        let own_tasks = loaded.own_tasks(outcome);
        let over = statistics::makespan(&outcome.flows, &outcome.tasks);
        let places = statistics::by_places(&setup.fabric, &outcome.links, over);
        let counts = &outcome.transport;
        let hops = |count: fn(&_) -> u64| outcome.links.iter().map(count).sum();
        Self {
            fabric: scenario.fabric.clone(),
            workload: scenario.workload.clone(),
            background: scenario.background.clone(),
            transport: scenario.transport.clone(),
            job: changed_keys(&setup.job),
            seed: scenario.seed,
            simulated: true,
            threads: scenario.threads,
            hosts: setup.fabric.hosts,
            flows: flows.len(),
            finished: finished(flows),
            background_flows: background.len(),
            background_finished: finished(background),
            background_fct_us: times(background, statistics::completion),
            background_slowdown: slowdown(background),
            fct_us: times(flows, statistics::completion),
            fct_acked_us: times(flows, statistics::acknowledged),
            slowdown: slowdown(flows),
            goodput_gbps: rounded(goodput.gbps()),
            goodput_per_receiver_gbps: rounded(goodput.gbps_per_receiver()),
            groups: FlowGroup::of(loaded, flows),
            tasks: tasks(loaded, &own_tasks),
            training: TrainingSummary::of(&setup.workload, &own_tasks),
            makespan_us: rounded(micros(statistics::makespan(flows, &own_tasks))),
            drops: drops(outcome),
            marks: counts.marks,
            sent: counts.sent,
            retransmissions: counts.repaired,
            duplicates: counts.duplicates,
            lost_within_tolerance: counts.lost_within_tolerance,
            lost_bytes: outcome.flows.iter().map(|flow| flow.lost_bytes).sum(),
            queue_peak_bytes: places
                .iter()
                .map(|pair| (pair.name.clone(), pair.queue_peak))
                .collect(),
            utilisation: places
                .iter()
                .map(|pair| (pair.name.clone(), rounded(pair.utilisation_mean)))
                .collect(),
            links_lost: hops(|link| link.lost),
            data_packet_hops: hops(|link| link.data_packets),
            packet_hops: hops(|link| link.packets),
            events: outcome.events,
            events_per_thread: outcome.events_per_thread.clone(),
            cpu_s: rounded(cost.cpu_s),
            cpu_per_thread_s: outcome
                .cpu_per_thread
                .iter()
                .map(|cpu| rounded(cpu.as_secs_f64()))
                .collect(),
            wall_s: rounded(cost.wall_s),
            peak_rss_bytes: cost.peak_rss_bytes,
            timed_out: outcome.timed_out,
            ended_us: rounded(micros(outcome.ended.since(Instant::START))),
            digest: format!("{:016x}", statistics::digest(outcome)),
        }
    }

    /// The error that a run is whose flows or tasks did not all end; those of a background may be
    /// under way still.
    ///
    /// # Errors
    /// [`LabError::Unfinished`] has the counts and the remedy.
    pub fn unfinished(&self) -> Result<(), LabError> {
        let tasks = self.tasks.as_ref();
        let (total, ended) = tasks.map_or((0, 0), |tasks| (tasks.tasks, tasks.finished));
        let of_flows = self.flows - self.finished;
        if of_flows == 0 && total == ended {
            return Ok(());
        }
        Err(LabError::Unfinished {
            transport: self.transport.clone(),
            flows: (of_flows, self.flows),
            tasks: (total - ended, total),
            at_us: self.ended_us,
            remedy: match self.timed_out {
                true => "the time limit was reached; raise it with --limit",
                false => "no event is left, so they wait forever",
            },
        })
    }
}

fn changed_keys(job: &Job) -> BTreeMap<String, String> {
    let default = Job::default().flat();
    let keys = job.flat().into_iter();
    keys.filter(|(key, value)| default.get(key) != Some(value))
        .collect()
}

fn drops(outcome: &Outcome) -> Vec<ClassDrops> {
    let classes = statistics::by_class(&outcome.links).into_iter().enumerate();
    let drops = classes.map(|(class, counts)| ClassDrops { class, counts });
    drops.collect()
}

fn tasks(loaded: &Loaded, outcomes: &[TaskOutcome]) -> Option<TaskSummary> {
    let mut named = statistics::named_tasks(&loaded.setup.workload, outcomes);
    let finished = named.iter().map(|tasks| tasks.finished).sum();
    named.truncate(NAMES_MAX);
    let tasks = loaded.tasks.values().sum();
    let compute = statistics::longest_compute(&loaded.setup.workload, outcomes);
    let whole = statistics::makespan(&[], outcomes);
    let is_whole = finished == tasks && compute > Span::ZERO;
    (!loaded.tasks.is_empty()).then(|| TaskSummary {
        tasks,
        finished,
        compute_us: rounded(micros(compute)),
        exposed_us: is_whole.then(|| rounded(micros(whole.beyond(compute)))),
        by_name: named,
    })
}
