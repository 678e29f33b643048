//! The result of planning as a page: the frontier as a picture, and the fastest plan by blocks.

use gradwire_report::html::{document, figure, section, table};
use gradwire_report::numbers::bytes;
use gradwire_report::plot::{Plot, PlotAxis, SERIES, dashed, stroke};
use gradwire_report::svg::escaped;

use super::report::{FrontierRow, PlanReport};

const SIZE: (f64, f64) = (760.0, 380.0);
/// Dots of a picture at most; the curve has all plans.
const DOTS_MAX: usize = 60;
const FRONTIER: &str = "Each point is a plan that no other beats in both time and memory. Between \
    two points the one with less memory is the fastest that fits. The dashed line is the memory of \
    a device.";

/// Makes the page.
pub fn page(report: &PlanReport) -> String {
    let title = format!("Plans of {} on {} devices", report.model, report.devices);
    let mut body = format!("<h1>{}</h1>\n", escaped(&title));
    for line in report.headlines() {
        body += &format!("<p>{}</p>\n", escaped(&line));
    }
    let picture = figure("", &curve(report));
    body += &section("Time over memory", FRONTIER, &picture);
    body += &match &report.fastest {
        Some(fastest) => {
            let text = format!(
                "A step takes {:.3} ms and {} of a device. Simulate it with <code>{}</code>.",
                fastest.row.time_us / 1e3,
                bytes(fastest.row.memory),
                escaped(&fastest.command)
            );
            let groups = report.groups(&fastest.row.plan).into_iter();
            let rows = groups.map(|(names, way)| vec![escaped(&names), way.to_owned()]);
            section("The fastest that fits", &text, &table("blocks | way", rows))
        }
        None => section("Nothing fits", &escaped(&report.nothing_fits()), ""),
    };
    document(&title, &body)
}

fn curve(report: &PlanReport) -> String {
    let place = |row: &FrontierRow| (row.memory as f64 / 1e9, row.time_us / 1e3);
    let points: Vec<(f64, f64)> = report.frontier.iter().map(place).collect();
    let limit = report.memory as f64 / 1e9;
    let most = points.last().map_or(limit, |point| point.0.max(limit)) * 1.05;
    let slowest = points.first().map_or(1.0, |point| point.1) * 1.05;
    let mut plot = Plot::new(
        SIZE,
        PlotAxis::linear("memory of a device, GB", (0.0, most)),
        PlotAxis::linear("time of a step, ms", (0.0, slowest)),
    );
    let stairs = points.windows(2).flat_map(|pair| {
        let [from, to] = [pair[0], pair[1]];
        [from, (to.0, from.1), to]
    });
    let stairs: Vec<(f64, f64)> = stairs.collect();
    plot.curve(&stairs, &stroke(SERIES[0]));
    plot.curve(&[(limit, 0.0), (limit, slowest)], &dashed(SERIES[7]));
    let every = points.len().div_ceil(DOTS_MAX).max(1);
    let fastest = report.fastest.as_ref().map(|fastest| &fastest.row);
    let dots = report
        .frontier
        .iter()
        .step_by(every)
        .map(|row| (row, 3.0, SERIES[0]));
    for (row, radius, colour) in dots.chain(fastest.map(|row| (row, 6.0, SERIES[1]))) {
        let (x, y) = place(row);
        let told = format!("{}: {y:.3} ms, {x:.3} GB", row.plan);
        let at = plot.at(x, y);
        plot.drawing
            .disc(at, radius, &format!(r#"fill="{colour}""#), &told);
    }
    plot.legend(&[
        ("plans".to_owned(), stroke(SERIES[0])),
        ("fastest that fits".to_owned(), stroke(SERIES[1])),
        ("memory".to_owned(), dashed(SERIES[7])),
    ]);
    plot.drawing
        .element("time of a step over memory of a device")
}
