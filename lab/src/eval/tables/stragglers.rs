//! Ranks that are slow for a while: what waiting for them costs, and what patience gains.

use super::super::evidence::{CellPoint, TableEvidence, percentile};
use super::super::section::{EvalGoal, GoalState, Grid, Value};
use crate::eval::findings::TableFindings;
use crate::sim::training::mean;

/// How many times as fast a step shall be with patience.
const GAIN: f64 = 1.3;
/// Earlier steps, in which patience learns the usual time, do not count.
const FIRST: u32 = 16;
/// The case that all others are compared with.
const LOSSLESS: &str = "lossless";
/// The case with patience.
const PATIENT: &str = "10 %, patience 1.2";

const ABOUT: [&str; 2] = [
    "All-reduces of 1 MiB, direct, one after another, on 64 hosts at one switch. Now and then the \
     link of a host is slow for some milliseconds, in the direction in which it sends or in which \
     it receives. A step is one all-reduce, its time the mean over the hosts; the \
     first 16 steps, in which patience learns, do not count.",
    "Patience (collectives.patience) lets a host finish its part of the sum without hosts that are \
     late, with error feedback. Missing is the share of all data packets that receivers did \
     without; these values come a step later. Only the first half of an all-reduce can do so: a \
     slow host's own part of the result is always waited for. A host that receives slowly gets all \
     contributions late, and only a tenth of them may be missing.",
];

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points();
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: points.iter().map(|point| grid(evidence, point)).collect(),
        charts: Vec::new(),
        goals: points
            .iter()
            .flat_map(|point| faster(evidence, point))
            .collect(),
    }
}

/// The median, mean and 99th percentile of a case's steps, in microseconds.
fn times(evidence: &TableEvidence, point: &CellPoint, case: &str) -> Option<[f64; 3]> {
    let times = evidence.round_times(&point.with_case(case), FIRST);
    let (median, last) = (
        percentile(times.clone(), 50)?,
        percentile(times.clone(), 99)?,
    );
    Some([median, mean(&times)?, last])
}

/// Returns the share of data packets that receivers did without, in percent.
fn missing(evidence: &TableEvidence, point: &CellPoint) -> Option<f64> {
    let lost = evidence.mean(point, "/lost_within_tolerance")?;
    Some(lost / evidence.mean(point, "/sent")? * 100.0)
}

fn grid(evidence: &TableEvidence, point: &CellPoint) -> Grid {
    let lossless = times(evidence, point, LOSSLESS);
    let rows = evidence.cases().into_iter().map(|case| {
        let of_case = times(evidence, point, case);
        let of = |at: usize| Value::number(of_case.map(|times| times[at] / 1e3), 3);
        let gain = |at: usize| {
            let gain = lossless.zip(of_case);
            Value::number(gain.map(|(before, times)| before[at] / times[at]), 2)
        };
        let missing = missing(evidence, &point.with_case(case));
        let missing = Value::number(missing, 2);
        [
            vec![Value::text(case)],
            (0..3).map(of).collect(),
            vec![gain(1), gain(2), missing],
        ]
        .concat()
    });
    let columns = "case | p50, ms | mean, ms | p99, ms | lossless / it, mean | p99 | missing, %";
    Grid::new(point.spells.clone(), columns.split(" | "), rows)
}

/// Whether patience makes the steps of a point so much faster: in the mean, and the slowest ones.
fn faster(evidence: &TableEvidence, point: &CellPoint) -> [EvalGoal; 2] {
    let lossless = times(evidence, point, LOSSLESS);
    let patient = times(evidence, point, PATIENT);
    [("mean", 1), ("p99", 2)].map(|(name, at)| {
        let gain = lossless.zip(patient);
        let gain = gain.map(|(before, times)| before[at] / times[at]);
        EvalGoal {
            what: format!(
                "{}: {name} of steps at least {GAIN} times better",
                point.spells
            ),
            found: gain.map_or_else(|| "not run".to_owned(), |gain| format!("{gain:.2} times")),
            state: GoalState::of(gain.map(|gain| gain >= GAIN)),
        }
    })
}
