//! One run, and its numbers as a table.

use std::fmt::Write as _;
use std::path::Path;

use gradwire_netsim::results::outcome::Outcome;
use gradwire_netsim::results::statistics::{self, PlacePair, Spread, micros};
use gradwire_protocol::units::Span;
use gradwire_report::numbers::{bytes, count};

use super::flows;
use super::progress::RunProgress;
use super::scenario::{Loaded, Scenario};
use super::summary::Summary;
use super::traced;
use crate::error::LabError;
use crate::output::WholeFile;

/// Names of tasks in a table at most.
const NAMES_MAX: usize = 12;

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The numbers of it.
    pub summary: Summary,
    places: Vec<PlacePair>,
}

/// Files that a run writes besides its numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunFiles<'a> {
    /// The folder of its trace.
    pub trace: Option<&'a Path>,
    /// The CSV file of its flows.
    pub flows: Option<&'a Path>,
}

/// Runs a scenario once, and writes the files that are asked for.
///
/// # Errors
/// [`LabError`] when the scenario makes no sense. A run that was stopped at its limit is no error
/// here, but one of [`Summary::unfinished`].
pub fn run(scenario: &Scenario, files: RunFiles<'_>) -> Result<Ran, LabError> {
    let mut loaded = scenario.load()?;
    if files.trace.is_some() {
        traced::prepare(scenario, &mut loaded)?;
    }
    let flows = files.flows.map(|path| flows_file(path, scenario, &loaded));
    let flows = flows.transpose()?;
    let progress = RunProgress::of_runs(1);
    let result = scenario.run(&loaded, &mut progress.run("", &loaded));
    progress.end();
    let (outcome, summary) = result?;
    let places = places(&loaded, &outcome);
    if let Some(folder) = files.trace {
        traced::write(&traced::traces(&loaded, &outcome, &summary), folder)?;
    }
    if let Some(file) = flows {
        file.keep(flows::csv(&outcome.flows[..loaded.flows]).as_bytes())?;
    }
    Ok(Ran { summary, places })
}

/// Begins the file of flows, before anything is simulated for it.
fn flows_file(path: &Path, scenario: &Scenario, loaded: &Loaded) -> Result<WholeFile, LabError> {
    if loaded.flows == 0 {
        return Err(LabError::Usage(format!(
            "--flows: `{}` has tasks and messages instead of flows; --json has its tasks by name, \
             and --trace FOLDER the events of training steps",
            scenario.workload
        )));
    }
    WholeFile::create(path)
}

impl Ran {
    /// The run as a table.
    pub fn table(&self) -> String {
        table(&self.summary, &self.places)
    }
}

/// Links by place, from the first start to the last end.
fn places(loaded: &Loaded, outcome: &Outcome) -> Vec<PlacePair> {
    let over = statistics::makespan(&outcome.flows, &outcome.tasks);
    statistics::by_places(&loaded.setup.fabric, &outcome.links, over)
}

fn table(summary: &Summary, places: &[PlacePair]) -> String {
    let mut text = headline(summary);
    text += &times(summary);
    text += &groups(summary);
    text += &tasks(summary);
    for training in &summary.training {
        text += &training.table();
    }
    text += &losses(summary);
    text += &queues(places);
    text += &cost(summary);
    text
}

/// Workload, background and fabric, in words.
pub fn subject(summary: &Summary) -> String {
    let background = summary.background.as_ref();
    let background = background.map_or_else(String::new, |text| format!(" beside {text}"));
    format!("{}{background} on {}", summary.workload, summary.fabric)
}

fn headline(summary: &Summary) -> String {
    let mut text = format!(
        "# simulated: {}, {}, seed {}\n# {} hosts, {} flows",
        subject(summary),
        summary.transport,
        summary.seed,
        count(u64::from(summary.hosts)),
        count(summary.flows as u64),
    );
    if let Some(tasks) = &summary.tasks {
        text += &format!(", {} tasks", count(tasks.tasks as u64));
    }
    if summary.background_flows > 0 {
        let flows = count(summary.background_flows as u64);
        text += &format!(", {flows} flows of the background");
    }
    let job = summary
        .job
        .iter()
        .map(|(key, value)| format!("{key} = {value}"));
    let job: Vec<String> = job.collect();
    if summary.transport == "gradwire" && !job.is_empty() {
        text += &format!("\n# job: {}", job.join(", "));
    }
    text + "\n"
}

fn times(summary: &Summary) -> String {
    let mut text = String::new();
    if summary.flows + summary.background_flows > 0 {
        text += &format!(
            "\n{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
            "time", "mean", "p50", "p99", "p99.9", "max", "min"
        );
    }
    if summary.flows > 0 {
        text += &figures("  FCT us", summary.fct_us.as_ref());
        text += &figures("  FCT acknowledged us", summary.fct_acked_us.as_ref());
        text += &figures("  slowdown", summary.slowdown.as_ref());
        if summary.finished < summary.flows {
            let (ended, of) = (summary.finished as u64, summary.flows as u64);
            text += &format!("  only {} of {} flows ended\n", count(ended), count(of));
        }
        let per_host = summary.goodput_per_receiver_gbps;
        let row = format!(
            "{:.3} Gb/s, {per_host:.3} each receiving host",
            summary.goodput_gbps
        );
        text += &format!("  {:<20}{row:>12}\n", "goodput");
    }
    if summary.background_flows > 0 {
        text += &figures("  background FCT us", summary.background_fct_us.as_ref());
        text += &figures(
            "  background slowdown",
            summary.background_slowdown.as_ref(),
        );
    }
    text += &format!("  {:<20}{:>12.3} us\n", "makespan", summary.makespan_us);
    text
}

fn figures(name: &str, figures: Option<&Spread>) -> String {
    let Some(one) = figures else {
        return format!("{name:<22}{:>12}\n", "none");
    };
    let values = [one.mean, one.p50, one.p99, one.p999, one.max, one.min];
    let values = values.map(|value| format!("{value:>12.3}"));
    format!("{name:<22}{}\n", values.concat())
}

fn tasks(summary: &Summary) -> String {
    let Some(tasks) = &summary.tasks else {
        return String::new();
    };
    let mut text = format!(
        "\n{:<42}{:>12}{:>12}{:>12}\n",
        "tasks", "ended", "mean us", "max us"
    );
    for row in tasks.by_name.iter().take(NAMES_MAX) {
        let name: String = row.name.chars().take(38).collect();
        let (mean, max) = (row.mean_us, row.max_us);
        writeln!(
            text,
            "  {name:<40}{:>12}{mean:>12.3}{max:>12.3}",
            row.finished
        )
        .expect("text takes text");
    }
    if tasks.by_name.len() > NAMES_MAX {
        let more = tasks.by_name.len() - NAMES_MAX;
        text += &format!("  and {more} names more, see --json\n");
    }
    if let Some(exposed) = tasks.exposed_us {
        let share = exposed / (exposed + tasks.compute_us) * 100.0;
        text += &format!(
            "  {:<40}{:>12.3}\n  {:<40}{exposed:>12.3}  communication that computing does not \
             hide, {share:.1} %\n",
            "computing us", tasks.compute_us, "exposed us"
        );
    }
    if tasks.finished < tasks.tasks {
        let (ended, of) = (tasks.finished as u64, tasks.tasks as u64);
        text += &format!("  only {} of {} tasks ended\n", count(ended), count(of));
    }
    text
}

/// The flows of each workload, if several run side by side.
fn groups(summary: &Summary) -> String {
    let mut text = String::new();
    for group in &summary.groups {
        if text.is_empty() {
            let titles = [
                "flows", "ended", "FCT p50", "FCT p99", "FCT max", "slowdown",
            ];
            let titles = titles.map(|title| format!("{title:>12}"));
            text += &format!("\n{:<40}{}\n", "by workload, us", titles.concat());
        }
        let figures = group
            .fct_us
            .map_or([f64::NAN; 3], |one| [one.p50, one.p99, one.max]);
        let slowdown = group.slowdown.map_or(f64::NAN, |one| one.mean);
        let counts = [group.flows, group.finished].map(|one| count(one as u64));
        let figures = figures.map(|value| format!("{value:>12.3}")).concat();
        let (workload, [flows, ended]) = (&group.workload, counts);
        text += &format!("  {workload:<38}{flows:>12}{ended:>12}{figures}{slowdown:>12.2}\n");
    }
    text
}

fn losses(summary: &Summary) -> String {
    let mut text = format!(
        "\n{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
        "packets at ports", "queued", "early", "full", "trimmed", "marked"
    );
    let used = summary.drops.iter();
    for row in used.filter(|row| row.counts.queued + row.counts.dropped() > 0) {
        let of = &row.counts;
        let values = [
            of.queued,
            of.dropped_early,
            of.dropped_full,
            of.trimmed,
            of.marked,
        ];
        let values = values.map(|value| format!("{:>12}", count(value)));
        text += &format!(
            "  {:<20}{}\n",
            format!("class {}", row.class),
            values.concat()
        );
    }
    for (name, value) in [
        ("lost on links", summary.links_lost),
        ("sent", summary.sent),
        ("sent again", summary.retransmissions),
        ("arrived twice", summary.duplicates),
        ("lost in tolerance", summary.lost_within_tolerance),
    ] {
        text += &format!("  {name:<20}{:>12}\n", count(value));
    }
    text
}

fn queues(places: &[PlacePair]) -> String {
    let mut text = format!(
        "\n{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
        "links", "number", "used mean", "used max", "queue mean", "queue peak", "lost"
    );
    for pair in places {
        text += &format!(
            "  {:<20}{:>12}{:>11.1}%{:>11.1}%{:>12}{:>12}{:>12}\n",
            pair.name,
            count(pair.links as u64),
            pair.utilisation_mean * 100.0,
            pair.utilisation_max * 100.0,
            bytes(pair.queue_mean as u64),
            bytes(pair.queue_peak),
            count(pair.lost),
        );
    }
    let paused = places.iter().map(|pair| pair.paused_max).max();
    if let Some(paused) = paused.filter(|paused| *paused > Span::ZERO) {
        text += &format!("  {:<20}{:>12.3} us\n", "longest pause", micros(paused));
    }
    text
}

fn cost(summary: &Summary) -> String {
    let hops = summary.data_packet_hops;
    // The system counts CPU time in ticks; below a few of them a rate is meaningless.
    let rate = match summary.cpu_s {
        cpu if cpu >= 0.02 => format!("{:.2} million", hops as f64 / cpu / 1e6),
        _ => "too short to count".to_owned(),
    };
    let threads = match summary.threads {
        1 => "1 thread".to_owned(),
        several => format!("{several} threads"),
    };
    format!(
        "\ncost\n  {} data packet-hops, {} packet-hops, {} events\n  {:.3} s user CPU, {:.3} s on \
         the wall, {threads}, {} resident at most\n  {rate} data packet-hops per CPU second; \
         digest {}\n",
        count(hops),
        count(summary.packet_hops),
        count(summary.events),
        summary.cpu_s,
        summary.wall_s,
        bytes(summary.peak_rss_bytes),
        summary.digest,
    )
}
