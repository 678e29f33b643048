//! The gain of each part of gradwire: each case has one part more than the case before.

use super::super::evidence::{CellPoint, TableEvidence, faster};
use super::super::section::{Chart, ChartShape, Grid, Value};
use super::references::iteration;
use crate::eval::findings::{ITERATION, OTHERS_FCT, OTHERS_SLOWDOWN, TableFindings, named};

const ABOUT: [&str; 2] = [
    "The fabric and the traffic of the table before. Each case has one part more than the one \
     above it; the first is gradwire with one path, one class, nothing lost and gradients in the \
     order in which they are made.",
    "Speed is compared with the case above, and with the first.",
];

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points();
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: points.iter().map(|point| grid(evidence, point)).collect(),
        charts: vec![chart(evidence, &points)],
        goals: Vec::new(),
    }
}

fn times(evidence: &TableEvidence, point: &CellPoint) -> Vec<(String, Option<f64>)> {
    let cases = evidence.cases().into_iter();
    cases
        .map(|case| {
            let time = iteration(evidence, point, case);
            (case.to_owned(), time)
        })
        .collect()
}

fn grid(evidence: &TableEvidence, point: &CellPoint) -> Grid {
    let times = times(evidence, point);
    let first = times.first().and_then(|(_, time)| *time);
    let rows = times.iter().enumerate().map(|(at, (case, time))| {
        let before = at.checked_sub(1).and_then(|before| times[before].1);
        let own = point.with_case(case);
        let error = evidence.error(&own, ITERATION);
        vec![
            Value::text(case),
            Value::number(time.map(|time| time / 1e3), 3),
            Value::number(error.map(|error| error / 1e3), 3),
            Value::change(faster(before, *time)),
            Value::change(faster(first, *time)),
            Value::number(evidence.mean(&own, OTHERS_FCT), 1),
            Value::number(evidence.mean(&own, OTHERS_SLOWDOWN), 2),
        ]
    });
    let columns = "case | iteration, ms | +- | over the case above | over the first | \
                   others' FCT mean, us | others' slowdown";
    Grid::new(
        format!("{}, {}", point.model, point.exchange),
        columns.split(" | "),
        rows,
    )
}

fn chart(evidence: &TableEvidence, points: &[CellPoint]) -> Chart {
    let groups = points.iter().map(|point| {
        let times = times(evidence, point);
        let first = times.first().and_then(|(_, time)| *time);
        let bars = times.iter().map(|(_, time)| Some(first? / (*time)?));
        let name = format!("{}, {}", point.model, point.exchange);
        (name, bars.collect())
    });
    Chart {
        caption: "Speed, part by part; 1 is the first case".to_owned(),
        axis: "times the first case's".to_owned(),
        shape: ChartShape::Bars(named(evidence.cases().into_iter()), groups.collect()),
    }
}
