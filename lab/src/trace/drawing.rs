//! A predicted run as one HTML file: a lane for each rank, the critical path marked.

use gradwire_netsim::fluid::FluidMessage;
use gradwire_protocol::units::Instant;
use gradwire_report::html::{document, figure};
use gradwire_report::numbers::count;
use gradwire_report::timeline::{TimelineBar, TimelinePlot};
use gradwire_trace::critical::{CriticalPath, PathResource, PathStation};
use gradwire_trace::replay::{Prediction, Scene};
use gradwire_workloads::workload::{Task, Work};

/// Ranks that are drawn.
const RANKS_MAX: u32 = 32;
/// Bars that are drawn; the longest, where there are more.
const BARS_MAX: usize = 8_000;
const LEFT: f64 = 84.0;
const ROW: f64 = 34.0;
const COMPUTES: &str = "#8b96a2";
const SENDS: &str = "#0072b2";
const RECEIVES: &str = "#56b4e9";
const PATH: &str = "#d55e00";

/// The page.
pub fn page(scene: &Scene, prediction: &Prediction, path: &CriticalPath) -> String {
    let iteration = prediction.iteration_us() / 1e3;
    let told = format!(
        "Predicted iteration: {iteration:.3} ms. Upper bars of a rank are computing, the middle \
         ones messages that it sends, the lower ones messages that it receives. Orange is the \
         critical path of the last iteration: shortening anything else does not shorten it.",
    );
    let picture = figure("", &picture(scene, prediction, path));
    let title = "Where the time goes";
    document(
        title,
        &format!("<h1>{title}</h1>\n<p>{told}</p>\n{picture}"),
    )
}

/// A bar of a rank: its row part, its colour, its times, and its name.
struct LaneBar {
    rank: u32,
    within: f64,
    colour: &'static str,
    times: (f64, f64),
    name: String,
}

fn picture(scene: &Scene, prediction: &Prediction, path: &CriticalPath) -> String {
    let ranks = scene
        .workload
        .programs
        .iter()
        .map(|one| one.host + 1)
        .max()
        .unwrap_or_default();
    let ranks = ranks.min(RANKS_MAX);
    let mut bars = bars(scene, prediction);
    bars.retain(|bar| bar.rank < ranks);
    bars.sort_by(|one, other| {
        let took = |bar: &LaneBar| bar.times.1 - bar.times.0;
        took(other).total_cmp(&took(one))
    });
    bars.truncate(BARS_MAX);
    let end = bars.iter().map(|bar| bar.times.1).fold(1.0, f64::max);
    let mut plot = TimelinePlot::new(LEFT, (ranks as usize, ROW), end);
    for (name, colour) in [
        ("computes", COMPUTES),
        ("sends", SENDS),
        ("receives", RECEIVES),
        ("critical path", PATH),
    ] {
        plot.key(name, colour);
    }
    for rank in 0..ranks {
        plot.name(rank as usize, &format!("rank {rank}"));
    }
    for bar in &bars {
        draw(&mut plot, bar, 0.5);
    }
    let stations = path.stations.iter().filter(|station| station.rank < ranks);
    for station in stations {
        draw(&mut plot, &marked(station), 1.0);
    }
    let label = format!("{} ranks and the critical path", count(u64::from(ranks)));
    plot.element("predicted time, us", &label)
}

fn draw(plot: &mut TimelinePlot, bar: &LaneBar, opacity: f64) {
    plot.bar(&TimelineBar {
        time: bar.times,
        rows: (f64::from(bar.rank) + bar.within, 0.24),
        fill: (bar.colour, opacity),
        told: &format!("{}: {:.3} us", bar.name, bar.times.1 - bar.times.0),
    });
}

fn micros(at: Instant) -> f64 {
    at.as_picos() as f64 / 1e6
}

fn bars(scene: &Scene, prediction: &Prediction) -> Vec<LaneBar> {
    let task = |host: u32, number: u32| -> Option<&Task> {
        let mut programs = scene.workload.programs.iter();
        let program = programs.find(|program| program.host == host)?;
        program.tasks.get(number as usize)
    };
    let computed = prediction.outcome.tasks.iter().filter_map(|outcome| {
        let task = task(outcome.host, outcome.task)?;
        matches!(task.work, Work::Compute { .. }).then_some(())?;
        Some(LaneBar {
            rank: outcome.host,
            within: 0.06,
            colour: COMPUTES,
            times: (micros(outcome.started?), micros(outcome.ended?)),
            name: task.name.clone(),
        })
    });
    let messages = prediction
        .outcome
        .messages
        .iter()
        .flat_map(|message: &FluidMessage| {
            let ((from, to), times) = (
                message.hosts,
                (micros(message.first), micros(message.arrived)),
            );
            let name = task(from, message.tasks.0).map_or("", |task| &task.name);
            let sent = format!("{name} to rank {to}");
            let received = format!("{name} from rank {from}");
            [(from, 0.36, SENDS, sent), (to, 0.66, RECEIVES, received)].map(
                |(rank, within, colour, name)| LaneBar {
                    rank,
                    within,
                    colour,
                    times,
                    name,
                },
            )
        });
    computed.chain(messages).collect()
}

fn marked(station: &PathStation) -> LaneBar {
    let within = match station.resource {
        PathResource::Compute => 0.06,
        PathResource::LinkDown => 0.66,
        PathResource::LinkUp | PathResource::Queue | PathResource::Latency => 0.36,
    };
    LaneBar {
        rank: station.rank,
        within,
        colour: PATH,
        times: (station.from_us, station.to_us),
        name: format!("{}, {}", station.task, station.resource.in_words()),
    }
}
