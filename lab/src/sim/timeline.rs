//! Programs of a report over time: when each rank computed, and when it communicated.

use std::collections::BTreeMap;

use gradwire_netsim::results::statistics::micros;
use gradwire_protocol::units::Instant;
use gradwire_workloads::workload::{Task, Work};

use super::drawn::DrawnRun;
use gradwire_report::numbers::count;
use gradwire_report::timeline::{TimelineBar, TimelinePlot};

/// Ranks that are drawn.
const RANKS_MAX: usize = 16;
/// Bars that are drawn; the longest, where there are more tasks.
const BARS_MAX: usize = 6_000;
/// Room for the names of rows, and the height of a row, in pixels.
const LEFT: f64 = 72.0;
const ROW: f64 = 26.0;
const COMPUTES: &str = "#56606b";
const COMMUNICATES: &str = "#0072b2";

/// A task that ended.
struct RankBar<'a> {
    rank: usize,
    task: &'a Task,
    from: Instant,
    to: Instant,
}

/// The first ranks of the programs of a run; `None` where no task ended.
pub fn timeline(run: &DrawnRun) -> Option<String> {
    let bars = bars(run);
    let end = bars.iter().map(|bar| bar.to).max()?;
    let ranks = bars.iter().map(|bar| bar.rank + 1).max()?;
    let at = |instant: Instant| micros(instant.since(Instant::START));
    let mut plot = TimelinePlot::new(LEFT, (ranks, ROW), at(end));
    plot.key("computes", COMPUTES);
    plot.key("communicates", COMMUNICATES);
    for (rank, host) in hosts(run).into_iter().enumerate().take(ranks) {
        plot.name(rank, &format!("host {host}"));
    }
    for bar in &bars {
        let (time, first) = ((at(bar.from), at(bar.to)), bar.rank as f64);
        // Computing is in the upper half of a rank's row, communication in the lower one.
        let (within, colour) = match bar.task.work {
            Work::Compute { .. } => (0.1, COMPUTES),
            _ => (0.5, COMMUNICATES),
        };
        plot.bar(&TimelineBar {
            time,
            rows: (first + within, 0.35),
            fill: (colour, 0.55),
            told: &format!("{}: {:.3} us", bar.task.name, time.1 - time.0),
        });
    }
    Some(plot.element("simulated time, us", "when ranks computed and communicated"))
}

/// How many of how many ranks are drawn, in words.
pub fn shown(run: &DrawnRun) -> String {
    let ranks = run.loaded.setup.workload.programs.len();
    match ranks {
        few if few <= RANKS_MAX => format!("all {few} ranks"),
        many => format!("the first {RANKS_MAX} of {} ranks", count(many as u64)),
    }
}

fn hosts(run: &DrawnRun) -> Vec<u32> {
    let programs = run.loaded.setup.workload.programs.iter();
    let mut hosts: Vec<u32> = programs.map(|program| program.host).collect();
    hosts.sort_unstable();
    hosts.truncate(RANKS_MAX);
    hosts
}

fn bars(run: &DrawnRun) -> Vec<RankBar<'_>> {
    let hosts = hosts(run);
    let programs = run.loaded.setup.workload.programs.iter();
    let programs: BTreeMap<u32, &[Task]> = programs
        .map(|program| (program.host, program.tasks.as_slice()))
        .collect();
    let drawn = run.outcome.tasks.iter().filter_map(|outcome| {
        Some(RankBar {
            rank: hosts.binary_search(&outcome.host).ok()?,
            task: programs.get(&outcome.host)?.get(outcome.task as usize)?,
            from: outcome.started?,
            to: outcome.ended?,
        })
    });
    let mut bars: Vec<RankBar<'_>> = drawn.collect();
    bars.sort_by_key(|bar| (std::cmp::Reverse(bar.to.since(bar.from)), bar.rank));
    bars.truncate(BARS_MAX);
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    #[test]
    fn ranks_have_rows_and_tasks_bars() {
        let scenario = Scenario::new("single:3@100G", "all-reduce:64KiBx2");
        let loaded = scenario.load().expect("both exist");
        let run = DrawnRun::of(&scenario, loaded, &mut |_| {}).expect("they fit each other");
        let tasks = run.outcome.tasks.len();
        assert!(tasks >= 6, "two all-reduces on three ranks, {tasks} tasks");
        let text = timeline(&run).expect("tasks have ended");
        assert_eq!(text.matches("<rect ").count(), tasks + 2);
        assert!(text.contains("host 2<") && !text.contains("host 3<"));
        assert_eq!(shown(&run), "all 3 ranks");
    }
}
