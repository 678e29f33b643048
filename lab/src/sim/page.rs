//! The page of a report: its text and tables around the pictures.

use super::chart;
use super::drawn::{DrawnRun, swatch};
use super::explorer::{SCRIPT, explorer};
use super::map::{self, several};
use super::run::subject;
use super::steps;
use super::summary::{ClassDrops, Summary};
use super::timeline;
use gradwire_netsim::results::statistics::Spread;
use gradwire_report::html::{cell, document, figure, heads, row, section};
use gradwire_report::numbers::{bytes, count};
use gradwire_report::svg::escaped;

/// Half of the page's width and all of it.
const HALF: (f64, f64) = (558.0, 330.0);
const WHOLE: (f64, f64) = (1_140.0, 250.0);

/// The page of some runs of one workload; `command` is the command line that makes it.
pub fn page(runs: &[DrawnRun], command: &str) -> String {
    let first = &runs[0].summary;
    let subject = subject(&named(first));
    let mut body = format!(
        "<div class=\"simulated\">simulated</div>\n<h1>{}</h1>\n<p>{}</p>\n\
         <div class=\"command\">{}</div>\n",
        escaped(&subject),
        escaped(&scale(runs)),
        escaped(command)
    );
    body += &section("Results", RESULTS, &results(runs));
    body += &steps::steps(runs);
    body += &curves(runs);
    body += &tasks(runs);
    body += &queues(runs);
    body += &maps(runs);
    body += &section("Losses by class", LOSSES, &losses(runs));
    body += &footer(runs);
    body += &format!("<script>\n{SCRIPT}</script>\n");
    document(&format!("{subject} (simulated)"), &body)
}

/// The summary with files by their names alone, for a title.
fn named(summary: &Summary) -> Summary {
    let last = |given: &str| given.rsplit('/').next().unwrap_or(given).to_owned();
    // The part behind a slash in a one-line form is no file.
    let name = |given: &str| match given.contains('@') {
        true => given.to_owned(),
        false => last(given),
    };
    Summary {
        fabric: name(&summary.fabric),
        workload: name(&summary.workload),
        background: summary.background.as_deref().map(name),
        ..summary.clone()
    }
}

const RESULTS: &str = "Times are simulated microseconds, goodput is in Gb/s. FCT is from a flow's \
    start until its receiver has all that it needs; slowdown (mean and p99) is FCT over what the \
    flow takes alone on an idle fabric; tolerated packets were lost and not sent again. \
    Percentiles are of flows that ended, by nearest rank.";
const LOSSES: &str = "What all ports together did with packets of each class, 0 = highest. Early: \
    droppable packets above the threshold of their queue; full: no room; marked: protected \
    packets above the threshold.";

fn scale(runs: &[DrawnRun]) -> String {
    let (first, fabric) = (&runs[0].summary, &runs[0].loaded.setup.fabric);
    let mut parts = vec![
        several(first.hosts as usize, "host"),
        several(fabric.switches.len(), "switch"),
        several(fabric.links.len(), "link"),
    ];
    if first.flows > 0 {
        parts.push(several(first.flows, "flow"));
    }
    if let Some(tasks) = &first.tasks {
        parts.push(several(tasks.tasks, "task"));
    }
    format!("{}; seed {}.", parts.join(", "), first.seed)
}

/// A count, which stands out where it is not zero.
fn loss(value: u64) -> String {
    let class = if value > 0 { " class=\"some\"" } else { "" };
    format!("<td{class}>{}</td>", count(value))
}

/// Columns of results: their names, and a function that reads the cell of a run. Columns of flows
/// are left out where there are no flows.
type ResultColumn = (&'static str, fn(&Summary) -> String);

const OF_FLOWS: [ResultColumn; 6] = [
    ("FCT p50", |summary| {
        figure_of(&summary.fct_us, |figures| figures.p50)
    }),
    ("p99", |summary| {
        figure_of(&summary.fct_us, |figures| figures.p99)
    }),
    ("max", |summary| {
        figure_of(&summary.fct_us, |figures| figures.max)
    }),
    ("slowdown", |summary| {
        figure_of(&summary.slowdown, |figures| figures.mean)
    }),
    ("p99", |summary| {
        figure_of(&summary.slowdown, |figures| figures.p99)
    }),
    ("goodput", |summary| {
        cell(&format!("{:.1}", summary.goodput_gbps))
    }),
];
const OF_ALL: [ResultColumn; 5] = [
    ("makespan", |summary| {
        cell(&format!("{:.2}", summary.makespan_us))
    }),
    ("dropped", |summary| {
        let of_classes = summary.drops.iter().map(|row| row.counts.dropped());
        loss(of_classes.sum::<u64>() + summary.links_lost)
    }),
    ("trimmed", |summary| {
        loss(summary.drops.iter().map(|row| row.counts.trimmed).sum())
    }),
    ("re-sent", |summary| cell(&count(summary.retransmissions))),
    ("tolerated", |summary| {
        cell(&count(summary.lost_within_tolerance))
    }),
];

fn figure_of(figures: &Option<Spread>, of: fn(&Spread) -> f64) -> String {
    let value = figures.as_ref().map(of);
    cell(&value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")))
}

fn results(runs: &[DrawnRun]) -> String {
    let of_flows: &[ResultColumn] = match runs[0].summary.flows {
        0 => &[],
        _ => &OF_FLOWS,
    };
    let columns: Vec<&ResultColumn> = of_flows.iter().chain(&OF_ALL).collect();
    let names = columns.iter().map(|(name, _)| *name);
    let mut text = heads(["transport"].into_iter().chain(names));
    for DrawnRun { summary, .. } in runs {
        let mut cells = vec![cell(&swatch(&summary.transport))];
        cells.extend(columns.iter().map(|(_, of)| of(summary)));
        text += &row(&cells);
    }
    format!("<table>\n{text}</table>\n{}", unfinished(runs))
}

fn unfinished(runs: &[DrawnRun]) -> String {
    let said = runs.iter().filter_map(|run| run.summary.unfinished().err());
    let said = said.map(|failure| format!("<p><b>{}</b></p>\n", escaped(&failure.to_string())));
    said.collect()
}

fn curves(runs: &[DrawnRun]) -> String {
    let times = chart::completion_times(runs, HALF);
    let slowdowns = chart::slowdowns(runs, HALF);
    let (Some(times), Some(slowdowns)) = (times, slowdowns) else {
        return String::new();
    };
    let pair = figure("Flow completion times", &times) + &figure("Slowdown", &slowdowns);
    format!("<h2>Flows</h2>\n<div class=\"pair\">\n{pair}</div>\n")
}

/// Rows of a table of tasks.
const NAMES_MAX: usize = 16;

fn tasks(runs: &[DrawnRun]) -> String {
    let mut text = String::new();
    for DrawnRun { summary, .. } in runs {
        let Some(tasks) = &summary.tasks else {
            continue;
        };
        let first = swatch(&summary.transport);
        text += &heads([first.as_str(), "ended", "mean, us", "longest, us"]);
        for task in tasks.by_name.iter().take(NAMES_MAX) {
            text += &row(&[
                cell(&escaped(&task.name)),
                cell(&format!(
                    "{} of {}",
                    count(task.finished as u64),
                    count(task.tasks as u64)
                )),
                cell(&format!("{:.2}", task.mean_us)),
                cell(&format!("{:.2}", task.max_us)),
            ]);
        }
    }
    if text.is_empty() {
        return text;
    }
    let told = "Time from start to end over all ranks, by name; those that took longest in all \
                first.";
    timelines(runs) + &section("Tasks", told, &format!("<table>\n{text}</table>\n"))
}

fn timelines(runs: &[DrawnRun]) -> String {
    let drawn = runs.iter().filter_map(|run| {
        let picture = timeline::timeline(run)?;
        Some(figure(&swatch(&run.summary.transport), &picture))
    });
    let told = format!(
        "When ranks computed and communicated, {}; what goes on at the same time is darker.",
        timeline::shown(&runs[0])
    );
    section("Ranks over time", &told, &drawn.collect::<String>())
}

fn queues(runs: &[DrawnRun]) -> String {
    let samples = runs.iter().flat_map(|run| &run.outcome.samples);
    let highest = samples.map(|sample| sample.bytes).max().unwrap_or(0);
    if highest == 0 {
        return String::new();
    }
    let drawn = runs.iter().map(|run| {
        let picture = chart::queues(run, highest, WHOLE);
        figure(&swatch(&run.summary.transport), &picture)
    });
    let told = "Depth of the deepest queues, of four ports at most, on one scale for all \
                transports; time is each transport's own.";
    section("Queues over time", told, &drawn.collect::<String>())
}

fn maps(runs: &[DrawnRun]) -> String {
    let drawn = runs
        .iter()
        .map(|run| figure(&swatch(&run.summary.transport), &explorer(run)));
    let told = format!(
        "Share of the time for which each link was sending, from the first start to the last end. \
         {} Point at a link for its numbers; move the time to see queues instead; follow a \
         message along the links that its packets may take.",
        map::legend_of(&runs[0])
    );
    section("Links of the fabric", &told, &drawn.collect::<String>())
}

fn losses(runs: &[DrawnRun]) -> String {
    let mut text = String::new();
    for DrawnRun { summary, .. } in runs {
        let first = swatch(&summary.transport);
        let names = first + " | queued | early | full | trimmed | marked";
        text += &heads(names.split(" | "));
        text += &loss_rows(summary);
    }
    format!("<table>\n{text}</table>\n")
}

fn loss_rows(summary: &Summary) -> String {
    let used = summary.drops.iter();
    let used = used.filter(|one| one.counts.queued + one.counts.dropped() + one.counts.trimmed > 0);
    let rows = used.map(|ClassDrops { class, counts }| {
        row(&[
            cell(&format!("class {}", class)),
            cell(&count(counts.queued)),
            loss(counts.dropped_early),
            loss(counts.dropped_full),
            loss(counts.trimmed),
            cell(&count(counts.marked)),
        ])
    });
    rows.collect()
}

fn footer(runs: &[DrawnRun]) -> String {
    let costs = runs.iter().map(|DrawnRun { summary, .. }| {
        format!(
            "{}: {} packet-hops in {:.2} s of CPU time, {} resident, digest {}<br>\n",
            escaped(&summary.transport),
            count(summary.packet_hops),
            summary.cpu_s,
            bytes(summary.peak_rss_bytes),
            summary.digest
        )
    });
    format!(
        "<footer>\n{}Simulated by gradwire {}, packet by packet; nothing here was measured on a \
         network. The same command gives the same digests.\n</footer>\n",
        costs.collect::<String>(),
        env!("CARGO_PKG_VERSION")
    )
}
