//! Programs of a report over time: when each rank computed, and when it communicated.

use std::collections::BTreeMap;

use gradwire_netsim::results::statistics::micros;
use gradwire_protocol::units::Instant;
use gradwire_workloads::workload::{Task, Work};

use super::drawn::DrawnRun;
use gradwire_report::numbers::count;
use gradwire_report::svg::{Anchor, Drawing, Scale, number};

/// Ranks that are drawn.
const RANKS_MAX: usize = 16;
/// Bars that are drawn; the longest, where there are more tasks.
const BARS_MAX: usize = 6_000;
const WIDTH: f64 = 1_140.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 30.0;
const FOOT: f64 = 44.0;
const ROW: f64 = 26.0;
const COMPUTES: &str = "#56606b";
const COMMUNICATES: &str = "#0072b2";

/// A task that ended.
struct Bar<'a> {
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
    let foot = TOP + ranks as f64 * ROW;
    let mut drawing = Drawing::new(WIDTH, foot + FOOT);
    let end = micros(end.since(Instant::START));
    let time = Scale::linear((0.0, end), (LEFT, WIDTH - RIGHT));
    legend(&mut drawing);
    for tick in time.ticks(8) {
        let at = time.at(tick);
        drawing.line((at, TOP), (at, foot), r#"class="grid""#);
        drawing.text((at, foot + 18.0), Anchor::Middle, "tick", &number(tick));
    }
    for (rank, host) in hosts(run).into_iter().enumerate().take(ranks) {
        let y = TOP + rank as f64 * ROW;
        drawing.text(
            (LEFT - 12.0, y + 16.0),
            Anchor::End,
            "tick",
            &format!("host {host}"),
        );
    }
    for bar in &bars {
        draw(&mut drawing, &time, bar);
    }
    let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
    drawing.text(
        (middle, foot + 38.0),
        Anchor::Middle,
        "title",
        "simulated time, us",
    );
    Some(drawing.element("when ranks computed and communicated"))
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

fn bars(run: &DrawnRun) -> Vec<Bar<'_>> {
    let hosts = hosts(run);
    let programs = run.loaded.setup.workload.programs.iter();
    let programs: BTreeMap<u32, &[Task]> = programs
        .map(|program| (program.host, program.tasks.as_slice()))
        .collect();
    let drawn = run.outcome.tasks.iter().filter_map(|outcome| {
        Some(Bar {
            rank: hosts.binary_search(&outcome.host).ok()?,
            task: programs.get(&outcome.host)?.get(outcome.task as usize)?,
            from: outcome.started?,
            to: outcome.ended?,
        })
    });
    let mut bars: Vec<Bar<'_>> = drawn.collect();
    bars.sort_by_key(|bar| (std::cmp::Reverse(bar.to.since(bar.from)), bar.rank));
    bars.truncate(BARS_MAX);
    bars
}

fn computes(task: &Task) -> bool {
    matches!(task.work, Work::Compute { .. })
}

/// Computing is in the upper half of a rank's row, communication in the lower; simultaneous work
/// adds up to a darker shade.
fn draw(drawing: &mut Drawing, time: &Scale, bar: &Bar<'_>) {
    let at = |instant: Instant| time.at(micros(instant.since(Instant::START)));
    let (from, to) = (at(bar.from), at(bar.to));
    let top = TOP + bar.rank as f64 * ROW + 3.0;
    let (y, colour) = match computes(bar.task) {
        true => (top, COMPUTES),
        false => (top + 10.0, COMMUNICATES),
    };
    let style = format!(r#"fill="{colour}" fill-opacity="0.55""#);
    let took = micros(bar.to.since(bar.from));
    let told = format!("{}: {took:.3} us", bar.task.name);
    drawing.area((from, y), ((to - from).max(0.5), 9.0), &style, &told);
}

fn legend(drawing: &mut Drawing) {
    let mut x = LEFT;
    for (name, colour) in [("computes", COMPUTES), ("communicates", COMMUNICATES)] {
        let style = format!(r#"fill="{colour}" fill-opacity="0.75""#);
        drawing.area((x, 6.0), (16.0, 9.0), &style, "");
        drawing.text((x + 22.0, 15.0), Anchor::Start, "key", name);
        x += 110.0;
    }
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
