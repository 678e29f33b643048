//! Links that lose packets at random: the cost of losses, and the gain of a tolerance.

use super::super::evidence::{CellPoint, SumExchange, TableEvidence, larger};
use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value, change};
use super::references::{LOSSLESS, best, iteration, lead, ours};
use crate::eval::findings::{OTHERS_FCT, TableFindings, named};

const ABOUT: [&str; 2] = [
    "The fabric, the hosts and the traffic of the table \"fabric\", but every link loses packets \
     at random, as damaged optics do; between hosts of two leaves a packet crosses four. Packets \
     are of 1,500 bytes, in the quick form of 9,000, and gradwire's layers leave the last class to \
     the other traffic (priority.untagged = \"below\").",
    "What a tolerance may save is what repairs cost, and only where loss may stay: in gradients \
     on their way to a server. What servers send back must be the same on every rank, and a ring \
     carries sums of many: both are always repaired.",
];

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let has_points = |one: &SumExchange| !points(evidence, *one).is_empty();
    let run = || SumExchange::ALL.into_iter().filter(has_points);
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: run().map(|one| grid(evidence, one)).collect(),
        charts: run().map(|one| chart(evidence, one)).collect(),
        goals: vec![never_slower(evidence), worth(evidence)],
    }
}

/// Returns the points of one exchange, in the order of their links' loss.
fn points(evidence: &TableEvidence, exchange: SumExchange) -> Vec<CellPoint> {
    let points = evidence.points().into_iter();
    let mut points: Vec<CellPoint> = points.filter(|one| one.exchange == exchange).collect();
    points.sort_by(|one, other| percents(one).total_cmp(&percents(other)));
    points
}

/// Returns a link's loss in percent of packets.
fn percents(point: &CellPoint) -> f64 {
    point.loss.trim_end_matches('%').parse().unwrap_or(0.0)
}

/// Returns the extra time of a step compared with the first point, whose links lose no packets.
fn harm(
    evidence: &TableEvidence,
    (first, point): (&CellPoint, &CellPoint),
    case: &str,
) -> Option<f64> {
    let time = |point| iteration(evidence, point, case);
    larger(time(first), time(point))
}

fn grid(evidence: &TableEvidence, exchange: SumExchange) -> Grid {
    let points = points(evidence, exchange);
    let mut columns = vec!["case".to_owned()];
    for (at, point) in points.iter().enumerate() {
        columns.push(format!("{} lost, ms", point.loss));
        columns.extend((at > 0).then(|| "longer".to_owned()));
        columns.push("others' FCT, us".to_owned());
    }
    let rows = evidence.cases().into_iter().map(|case| {
        let mut row = vec![Value::text(case)];
        for (at, point) in points.iter().enumerate() {
            let time = iteration(evidence, point, case);
            row.push(Value::number(time.map(|time| time / 1e3), 3));
            row.extend((at > 0).then(|| Value::change(harm(evidence, (&points[0], point), case))));
            row.push(Value::number(
                evidence.mean(&point.with_case(case), OTHERS_FCT),
                1,
            ));
        }
        row
    });
    let caption = format!("Iteration by what a link loses, {exchange}");
    Grid::new(caption, columns, rows)
}

fn chart(evidence: &TableEvidence, exchange: SumExchange) -> Chart {
    let points = points(evidence, exchange);
    let curves = named(evidence.cases().into_iter()).into_iter().map(|case| {
        let of_case = points.iter().filter_map(|point| {
            let time = iteration(evidence, point, &case)?;
            Some((percents(point), time / 1e3))
        });
        let of_case = of_case.collect();
        (case, of_case)
    });
    Chart {
        caption: format!("Iteration by what a link loses, {}", exchange),
        axis: "ms".to_owned(),
        shape: ChartShape::Curves("lost on each link, %".to_owned(), curves.collect()),
    }
}

fn never_slower(evidence: &TableEvidence) -> EvalGoal {
    let all = SumExchange::ALL.map(|exchange| points(evidence, exchange));
    let leads: Vec<(String, f64)> = (all.iter().flatten())
        .filter_map(|point| {
            let lead = lead(evidence, point, LOSSLESS)?;
            let (case, _) = best(evidence, point)?;
            let (name, loss) = (point.exchange, &point.loss);
            Some((format!("{name}, {loss}: {} ({case})", change(lead)), lead))
        })
        .collect();
    let told: Vec<&str> = leads.iter().map(|(told, _)| told.as_str()).collect();
    let holds = leads.iter().all(|(_, lead)| *lead >= 0.0);
    EvalGoal {
        what: "Without a tolerance never slower than the best reference, whatever links lose"
            .to_owned(),
        found: told.join("; "),
        state: GoalState::of((!leads.is_empty()).then_some(holds)),
    }
}

fn worth(evidence: &TableEvidence) -> EvalGoal {
    let last = points(evidence, SumExchange::Servers).pop();
    let best = last.and_then(|last| {
        let lossless = iteration(evidence, &last, LOSSLESS);
        let tolerant = ours(evidence).filter(|case| *case != LOSSLESS);
        let changes = tolerant
            .filter_map(|case| Some((case, larger(lossless, iteration(evidence, &last, case))?)));
        changes.min_by(|(_, one), (_, other)| one.total_cmp(other))
    });
    EvalGoal {
        what: "With servers, where links lose most, the best tolerance makes steps shorter"
            .to_owned(),
        found: best.map_or_else(
            || "not run".to_owned(),
            |(case, change_of)| format!("{} ({case})", change(change_of)),
        ),
        state: GoalState::of(best.map(|(_, change_of)| change_of < 0.0)),
    }
}
