//! DLCP's evaluation: training steps of 144 hosts beside other traffic, over several transports.

use super::super::evidence::{CellPoint, SumExchange, TableEvidence, larger};
use super::super::published::{DLCP_FCT, dlcp_speed};
use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value, change};
use super::references::{LOSSLESS, best, iteration, lead, ours};
use crate::eval::findings::{
    ITERATION, ITERATIONS, OTHERS_FCT, OTHERS_SLOWDOWN, TableFindings, named,
};
use crate::sim::training::mean;

/// The place of communication tasks' completion times in a result, in microseconds.
const FCT_MEAN: &str = "/training/0/fct_us/mean";
const FCT_P99: &str = "/training/0/fct_us/p99";

const ABOUT: [&str; 3] = [
    "Leaf-spine of 144 hosts (9 leaves with 16 each, 4 spines), links of hosts 100 Gb/s and \
     between switches 400 Gb/s, as many times as fast as in pFabric's own topology; switches with \
     512 KiB for each port that drop what finds no room and mark above one round trip. gradwire's \
     divide that memory among classes as its rendered configurations do (alpha 1), and its hosts \
     send the job's classes before others (priority.untagged = \"below\"); pFabric has switches of \
     its own. Beside the steps, all hosts send each other flows of the web-search distribution at \
     a load of 30 %, without a class, and every 2 ms 31 hosts send 1 MB each to one of the job's \
     own at once. These flows ride DCTCP beside gradwire and beside DCTCP, and pFabric beside \
     pFabric; their times are of the flows that ended before the job did.",
    "32 hosts train, four under each of eight leaves: 4 servers with 28 workers, or one ring. \
     Sizes and times are divided by the scale in the plan and rates are not, so that latencies \
     weigh as many times as much. +- is half the interval that holds the true mean in 95 of 100 \
     cases, by Student's t over seeds. Iteration p99 is over the steps of all seeds, by nearest \
     rank; FCT is of pushes, pulls and all-reduces, from their start to their end on the side that \
     sends. A ring carries sums of many and is lossless, \
     whatever the tolerance.",
    "Published (DLCP, arXiv 2008.08445): FCT mean -43.1 % and p99 -91.8 % against DCTCP, -35.5 % \
     and -88.6 % against pFabric; training up to +84.3 % faster than the best there was with \
     servers, +11 % in a ring. Its load, buffers and models in the simulation are not known.",
];

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points();
    let mut grids = vec![speeds(evidence, &points)];
    grids.push(others(evidence, &points));
    let completions = SumExchange::ALL.map(|one| completion(evidence, &points, one));
    grids.extend(completions.into_iter().filter(|grid| !grid.rows.is_empty()));
    grids.extend(points.iter().map(|point| details(evidence, point)));
    let charts = SumExchange::ALL.map(|exchange| chart(evidence, &points, exchange));
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids,
        charts: charts.to_vec(),
        goals: goals(evidence, &points),
    }
}

fn speeds(evidence: &TableEvidence, points: &[CellPoint]) -> Grid {
    let ours: Vec<&str> = ours(evidence).collect();
    let fixed = ["model", "exchange", "best reference", "its iteration, ms"];
    let rows = points.iter().map(|point| {
        let best = best(evidence, point);
        let mut row = vec![
            Value::text(&point.model),
            Value::text(point.exchange.to_string()),
            best.map_or(Value::Missing, |(case, _)| Value::text(case)),
            Value::number(best.map(|(_, time)| time / 1e3), 3),
        ];
        let leads = ours.iter().map(|case| lead(evidence, point, case));
        row.extend(leads.map(Value::change));
        row
    });
    let caption = "How much faster steps are than with the best reference";
    Grid::new(caption, fixed.into_iter().chain(ours.iter().copied()), rows)
}

/// Returns the changes of completion times against a reference: means over points that have both.
fn change_of(
    evidence: &TableEvidence,
    points: &[CellPoint],
    pair: (&str, &str),
    place: &str,
) -> Option<f64> {
    let time = |point: &CellPoint, case: &str| evidence.mean(&point.with_case(case), place);
    let (before, case) = pair;
    let changes = points
        .iter()
        .filter_map(|point| larger(time(point, before), time(point, case)));
    mean(&changes.collect::<Vec<_>>())
}

fn completion(evidence: &TableEvidence, points: &[CellPoint], exchange: SumExchange) -> Grid {
    let own = points.iter().filter(|point| point.exchange == exchange);
    let points: Vec<CellPoint> = own.cloned().collect();
    let mut rows = Vec::new();
    for (reference, paper_mean, paper_p99) in DLCP_FCT {
        for case in ours(evidence) {
            let against = |place| change_of(evidence, &points, (reference, case), place);
            let Some(change) = against(FCT_MEAN) else {
                continue;
            };
            rows.push(vec![
                Value::text(case),
                Value::text(reference),
                Value::Change(change),
                Value::Change(paper_mean),
                Value::change(against(FCT_P99)),
                Value::Change(paper_p99),
            ]);
        }
    }
    let columns = "case | against | FCT mean | paper | FCT p99 | paper";
    Grid::new(
        format!(
            "Completion times against references, mean of the changes of all models, {}",
            exchange
        ),
        columns.split(" | "),
        rows,
    )
}

/// What the other traffic pays for the speed of the job, against its times beside DCTCP.
fn others(evidence: &TableEvidence, points: &[CellPoint]) -> Grid {
    let rows = evidence.cases().into_iter().map(|case| {
        let mut row = vec![Value::text(case)];
        for exchange in SumExchange::ALL {
            let own = points.iter().filter(|point| point.exchange == exchange);
            let own: Vec<CellPoint> = own.cloned().collect();
            let against = |place| change_of(evidence, &own, ("dctcp", case), place);
            row.extend([OTHERS_FCT, OTHERS_SLOWDOWN].map(|place| Value::change(against(place))));
        }
        row
    });
    let columns = "case | servers: FCT mean | slowdown | ring: FCT mean | slowdown";
    let caption = "The other traffic's flows against those beside DCTCP, mean of the changes of \
                   all models";
    Grid::new(caption, columns.split(" | "), rows)
}

fn details(evidence: &TableEvidence, point: &CellPoint) -> Grid {
    let rows = evidence.cases().into_iter().map(|case| {
        let own = point.with_case(case);
        let millis = |micros: Option<f64>| Value::number(micros.map(|micros| micros / 1e3), 3);
        vec![
            Value::text(case),
            millis(evidence.mean(&own, ITERATION)),
            millis(evidence.error(&own, ITERATION)),
            millis(evidence.p99(&own, ITERATIONS)),
            Value::number(evidence.mean(&own, FCT_MEAN), 1),
            Value::number(evidence.mean(&own, FCT_P99), 1),
            Value::change(lead(evidence, point, case)),
            Value::number(evidence.mean(&own, OTHERS_FCT), 1),
            Value::number(evidence.error(&own, OTHERS_FCT), 1),
            Value::number(evidence.mean(&own, OTHERS_SLOWDOWN), 2),
        ]
    });
    let columns = "case | iteration mean, ms | +- | p99, ms | FCT mean, us | p99, us | \
                   against the best reference | others' FCT mean, us | +- | others' slowdown";
    Grid::new(
        format!("{}, {}", point.model, point.exchange),
        columns.split(" | "),
        rows,
    )
}

fn chart(evidence: &TableEvidence, points: &[CellPoint], exchange: SumExchange) -> Chart {
    let own: Vec<&CellPoint> = points
        .iter()
        .filter(|point| point.exchange == exchange)
        .collect();
    let cases = named(evidence.cases().into_iter());
    let groups = own.iter().map(|point| {
        let compared = best(evidence, point).map(|(_, time)| time);
        let bars = cases.iter();
        let bars = bars.map(|case| Some(iteration(evidence, point, case)? / compared?));
        (point.model.clone(), bars.collect())
    });
    Chart {
        caption: format!("Iteration time, {}; 1 is the best reference", exchange),
        axis: "times the best reference's".to_owned(),
        shape: ChartShape::Bars(cases.clone(), groups.collect()),
    }
}

fn goals(evidence: &TableEvidence, points: &[CellPoint]) -> Vec<EvalGoal> {
    let ours: Vec<&str> = ours(evidence).collect();
    let mut goals: Vec<EvalGoal> = SumExchange::ALL
        .iter()
        .map(|exchange| fastest(evidence, points, &ours, *exchange))
        .collect();
    let leads: Vec<(&CellPoint, f64)> = points
        .iter()
        .filter_map(|point| Some((point, lead(evidence, point, LOSSLESS)?)))
        .collect();
    let slower: Vec<String> = leads
        .iter()
        .filter(|(_, lead)| *lead < 0.0)
        .map(|(point, lead)| format!("{} {} {}", point.model, point.exchange, change(*lead)))
        .collect();
    goals.push(EvalGoal {
        what: "Without loss (p = 0) never slower than the best reference".to_owned(),
        found: match slower.is_empty() {
            true => format!("in none of {} cells", leads.len()),
            false => format!(
                "slower in {} of {}: {}",
                slower.len(),
                leads.len(),
                slower.join(", ")
            ),
        },
        state: GoalState::of((!leads.is_empty()).then_some(slower.is_empty())),
    });
    goals
}

fn fastest(
    evidence: &TableEvidence,
    points: &[CellPoint],
    ours: &[&str],
    exchange: SumExchange,
) -> EvalGoal {
    let own = points.iter().filter(|point| point.exchange == exchange);
    let cells = own.flat_map(|point| ours.iter().map(move |case| (point, *case)));
    let leads = cells.filter_map(|(point, case)| Some((point, case, lead(evidence, point, case)?)));
    let most = leads.max_by(|(_, _, one), (_, _, other)| one.total_cmp(other));
    let paper = dlcp_speed(exchange);
    EvalGoal {
        what: format!(
            "With {}: in its best cell more than {} over the best reference",
            exchange,
            change(paper)
        ),
        found: most.map_or_else(
            || "not run".to_owned(),
            |(point, case, lead)| format!("{} ({}, {case})", change(lead), point.model),
        ),
        state: GoalState::of(most.map(|(_, _, lead)| lead > paper)),
    }
}
