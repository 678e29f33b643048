//! A training step over time: computing and communication of each layer on one worker.

use std::collections::BTreeMap;

use gradwire_netsim::results::statistics::micros;
use gradwire_protocol::units::Instant;
use gradwire_workloads::training::StepEnds;
use gradwire_workloads::workload::{CollectiveKind, Task, Work};

use super::drawn::DrawnRun;
use gradwire_report::timeline::{TimelineBar, TimelinePlot};

/// Bars that are drawn; the longest, where there are more tasks.
const BARS_MAX: usize = 4_000;
/// Room for the names of layers in pixels.
const LEFT: f64 = 210.0;
/// Height of all rows together, and of one at most.
const ROWS: f64 = 480.0;
const ROW_MAX: f64 = 20.0;
/// Pixels between the names of layers at least, and letters of a name at most.
const NAMES_APART: f64 = 13.0;
const LETTERS_MAX: usize = 30;

/// The content of a bar; later variants are drawn over earlier ones.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum BarKind {
    Sent,
    Pulled,
    Backward,
    Forward,
}

const LEGEND: [(BarKind, &str, &str); 4] = [
    (BarKind::Forward, "forward", "#16202b"),
    (BarKind::Backward, "backward", "#8b96a2"),
    (BarKind::Sent, "all-reduce or push", "#0072b2"),
    (BarKind::Pulled, "pull", "#e69f00"),
];

/// A task within the step.
struct LayerBar<'a> {
    what: BarKind,
    name: &'a str,
    /// The first and the last layer that it belongs to, from front to back.
    layers: (usize, usize),
    from: Instant,
    to: Instant,
}

/// The step that is drawn.
struct DrawnStep<'a> {
    layers: &'a [String],
    from: Instant,
    to: Instant,
    bars: Vec<LayerBar<'a>>,
}

/// The last step that a worker of the first job ended, on the worker that was last: its title and
/// its picture. `None` where no step ended.
pub fn last(run: &DrawnRun) -> Option<(String, String)> {
    let job = run.loaded.setup.workload.step_ends.first()?;
    let ends = |host: u32| {
        let outcomes = run
            .outcome
            .tasks
            .iter()
            .filter(move |task| task.host == host);
        let ended = outcomes.filter_map(|task| Some((task.task, task.ended?)));
        ended.collect::<BTreeMap<u32, Instant>>()
    };
    let of_worker = job.workers.iter().map(|worker| {
        let ended = ends(worker.host);
        let passes = worker.forward_ends.iter();
        let passes: Vec<Instant> = passes.map_while(|task| ended.get(task).copied()).collect();
        (worker.host, passes)
    });
    let of_worker: Vec<(u32, Vec<Instant>)> = of_worker.collect();
    let number = of_worker.iter().map(|(_, passes)| passes.len()).min()?;
    let number = number.checked_sub(1).filter(|number| *number > 0)?;
    let (host, passes) = of_worker.iter().max_by_key(|(_, passes)| passes[number])?;
    let (from, to) = (passes[number - 1], passes[number]);
    let step = DrawnStep {
        layers: &job.layers,
        from,
        to,
        bars: bars(run, job, *host, (from, to)),
    };
    let told = format!(
        "{}, step {number} of {}, host {host}: {:.1} us",
        job.name,
        job.steps,
        micros(to.since(from))
    );
    Some((told, step.picture()))
}

fn bars<'a>(
    run: &'a DrawnRun,
    job: &'a StepEnds,
    host: u32,
    (from, to): (Instant, Instant),
) -> Vec<LayerBar<'a>> {
    let workload = &run.loaded.setup.workload;
    let program = workload
        .programs
        .iter()
        .find(|program| program.host == host);
    let tasks = program.map_or(&[][..], |program| &program.tasks);
    let outcomes = run.outcome.tasks.iter().filter(|task| task.host == host);
    let bars = outcomes.filter_map(|outcome| {
        let task = tasks.get(outcome.task as usize)?;
        let (started, ended) = (outcome.started?, outcome.ended?);
        (started < to && ended > from).then_some(())?;
        let (what, layers) = kind(task, &job.layers)?;
        Some(LayerBar {
            what,
            name: &task.name,
            layers,
            from: started.max(from),
            to: ended.min(to),
        })
    });
    let mut bars: Vec<LayerBar<'_>> = bars.collect();
    bars.sort_by_key(|bar| std::cmp::Reverse(bar.to.since(bar.from)));
    bars.truncate(BARS_MAX);
    bars.sort_by_key(|bar| bar.what);
    bars
}

/// The kind of a worker's task, and the layers that it belongs to.
fn kind(task: &Task, layers: &[String]) -> Option<(BarKind, (usize, usize))> {
    match &task.work {
        Work::Collective { kind, layers, .. } => {
            let what = match kind {
                CollectiveKind::Broadcast { .. } => BarKind::Pulled,
                _ => BarKind::Sent,
            };
            let places = layers.iter().map(|(_, layer)| usize::from(layer.0));
            let first = places.clone().min()?;
            Some((what, (first, places.max()?)))
        }
        Work::Compute { .. } => {
            let (what, name) = match task.name.strip_prefix("forward ") {
                Some(name) => (BarKind::Forward, name),
                None => (BarKind::Backward, task.name.strip_prefix("backward ")?),
            };
            let place = layer_of(name, layers)?;
            Some((what, (place, place)))
        }
        Work::Send { .. } | Work::Receive { .. } => None,
    }
}

/// The layer of this name, or else the one with the longest name that a tensor's begins with.
fn layer_of(name: &str, layers: &[String]) -> Option<usize> {
    let within = |layer: &String| match name.strip_prefix(layer.as_str()) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    let fitting = layers.iter().enumerate().filter(|(_, layer)| within(layer));
    fitting
        .max_by_key(|(_, layer)| layer.len())
        .map(|(place, _)| place)
}

impl DrawnStep<'_> {
    fn picture(&self) -> String {
        let height = (ROWS / self.layers.len() as f64).min(ROW_MAX);
        let took = micros(self.to.since(self.from));
        let mut plot = TimelinePlot::new(LEFT, (self.layers.len(), height), took);
        for (what, name, colour) in LEGEND {
            if self.bars.iter().any(|bar| bar.what == what) {
                plot.key(name, colour);
            }
        }
        let every = (NAMES_APART / height).ceil().max(1.0) as usize;
        for (place, name) in self.layers.iter().enumerate().step_by(every) {
            plot.name(place, &end_of(name));
        }
        for bar in &self.bars {
            self.draw(&mut plot, bar);
        }
        plot.element(
            "simulated time since the end of the forward pass, us",
            "computing and communication of each layer in one step",
        )
    }

    /// Computing is drawn over transfers of the same time.
    fn draw(&self, plot: &mut TimelinePlot, bar: &LayerBar<'_>) {
        let at = |instant: Instant| micros(instant.since(self.from));
        let (time, (first, last)) = ((at(bar.from), at(bar.to)), bar.layers);
        let (opacity, within) = match bar.what {
            BarKind::Sent | BarKind::Pulled => (0.45, 0.1),
            BarKind::Backward | BarKind::Forward => (0.95, 0.2),
        };
        let colour = LEGEND.iter().find(|(what, _, _)| *what == bar.what);
        plot.bar(&TimelineBar {
            time,
            rows: (
                first as f64 + within,
                (last - first + 1) as f64 - 2.0 * within,
            ),
            fill: (colour.map_or("", |(_, _, colour)| colour), opacity),
            told: &format!("{}: {:.3} us", bar.name, time.1 - time.0),
        });
    }
}

/// The last letters of a name that is too long.
fn end_of(name: &str) -> String {
    match name.chars().count() {
        letters if letters > LETTERS_MAX => {
            let end = name.chars().skip(letters - LETTERS_MAX + 1);
            format!("…{}", end.collect::<String>())
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    fn drawn(workload: &str) -> (String, String) {
        let scenario = Scenario::new("single:5@10G", workload);
        let loaded = scenario.load().expect("both exist");
        let run = DrawnRun::of(&scenario, loaded, &mut |_| {}).expect("they fit each other");
        last(&run).expect("a step has ended")
    }

    #[test]
    fn steps_have_bars_of_one_worker() {
        let (told, picture) = drawn("step:alexnet:ps=1,scale=2000,steps=2");
        assert!(told.contains("step 2 of 2, host "), "{told}");
        for layer in ["features.0", "classifier.6"] {
            assert!(picture.contains(&format!(">{layer}</text>")), "{picture}");
            assert_eq!(picture.matches(&format!("forward {layer}:")).count(), 1);
            assert_eq!(
                picture
                    .matches(&format!("backward {layer}.weight:"))
                    .count(),
                1
            );
            assert!(
                picture.contains(&format!("<title>push {layer}.weight")),
                "{picture}"
            );
            assert!(
                picture.contains(&format!("<title>pull {layer}.weight")),
                "{picture}"
            );
        }
        assert!(picture.contains(">pull</text>"));
    }

    #[test]
    fn a_bucket_covers_the_rows_of_its_layers() {
        let (_, picture) = drawn("step:alexnet:ddp,scale=2000,steps=1");
        assert!(picture.contains("<title>all-reduce bucket 0"), "{picture}");
        assert!(!picture.contains(">pull</text>"));
    }

    #[test]
    fn tensors_belong_to_the_longest_fitting_layer() {
        let layers = ["a", "a.b", "a.bc"].map(String::from);
        assert_eq!(layer_of("a.bc", &layers), Some(2));
        assert_eq!(layer_of("a.b.weight", &layers), Some(1));
        assert_eq!(layer_of("a.weight", &layers), Some(0));
        assert_eq!(layer_of("b.weight", &layers), None);
    }
}
