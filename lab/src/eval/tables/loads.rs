//! Training steps by the load of other traffic and the memory of switches, over all transports.

use super::super::evidence::{CellPoint, SumExchange, TableEvidence};
use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value, change};
use super::references::{LOSSLESS, best, iteration, lead};
use crate::eval::findings::{ITERATION, OTHERS_FCT, OTHERS_SLOWDOWN, TableFindings, named};

const ABOUT: [&str; 2] = [
    "VGG16 on the fabric and the hosts of the table \"fabric\". Flows of the web-search \
     distribution come at the load of the row, beside the same incast, to ports with the memory of \
     the row. ByteScheduler's order, credit and chunks serve all transports alike.",
    "\"dctcp, the job in a class above\" lets the job's messages go before all other traffic; PIAS \
     lets every flow sink from queue to queue as it sends. Both divide a port's memory among \
     queues as gradwire does. RoCE's switches pause instead of dropping, and hold what is on its \
     way then beyond that memory; NDP's trim above 8 packets or half of the memory; pFabric's \
     sort.",
];

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points();
    let millis = |micros: Option<f64>| Value::number(micros.map(|micros| micros / 1e3), 3);
    let of =
        |place, digits| move |point: &CellPoint| Value::number(evidence.mean(point, place), digits);
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: vec![
            grid(evidence, "Iteration, ms", |point| {
                millis(evidence.mean(point, ITERATION))
            }),
            grid(evidence, "Iteration, +- ms", |point| {
                millis(evidence.error(point, ITERATION))
            }),
            grid(evidence, "Others' FCT mean, us", of(OTHERS_FCT, 1)),
            grid(evidence, "Others' slowdown", of(OTHERS_SLOWDOWN, 2)),
        ],
        charts: SumExchange::ALL
            .map(|exchange| chart(evidence, &points, exchange))
            .to_vec(),
        goals: vec![never_slower(evidence, &points)],
    }
}

fn memory(point: &CellPoint) -> &str {
    point.buffer.split('/').next().unwrap_or("-")
}

/// A row of each load, memory and exchange, a column of each case.
fn grid(evidence: &TableEvidence, caption: &str, value: impl Fn(&CellPoint) -> Value) -> Grid {
    let points = evidence.points();
    let rows = points.iter().map(|point| {
        let mut row = vec![
            Value::text(point.exchange.to_string()),
            Value::text(&point.load),
            Value::text(memory(point)),
        ];
        let cases = evidence.cases().into_iter();
        row.extend(cases.map(|case| value(&point.with_case(case))));
        row
    });
    let fixed = ["exchange", "load", "memory"];
    let columns = fixed.into_iter().chain(evidence.cases());
    Grid::new(caption, columns, rows)
}

fn chart(evidence: &TableEvidence, points: &[CellPoint], exchange: SumExchange) -> Chart {
    let cases = named(evidence.cases().into_iter());
    let own = points.iter().filter(|point| point.exchange == exchange);
    let groups = own.map(|point| {
        let times = cases.iter().map(|case| iteration(evidence, point, case));
        let bars = times.map(|time| Some(time? / 1e3));
        (format!("{} {}", point.load, memory(point)), bars.collect())
    });
    Chart {
        caption: format!("Iteration by load and memory, {exchange}"),
        axis: "ms".to_owned(),
        shape: ChartShape::Bars(cases.clone(), groups.collect()),
    }
}

fn never_slower(evidence: &TableEvidence, points: &[CellPoint]) -> EvalGoal {
    let leads = points.iter().filter_map(|point| {
        let (case, _) = best(evidence, point)?;
        Some((point, case, lead(evidence, point, LOSSLESS)?))
    });
    let leads: Vec<(&CellPoint, &str, f64)> = leads.collect();
    let slower = leads.iter().filter(|(_, _, lead)| *lead < 0.0);
    let told: Vec<String> = slower
        .map(|(point, case, lead)| {
            let (exchange, load) = (point.exchange, &point.load);
            format!(
                "{exchange} {load} {}: {} ({case})",
                memory(point),
                change(*lead)
            )
        })
        .collect();
    EvalGoal {
        what: "Without loss (p = 0) never slower than the best reference, at any load and memory"
            .to_owned(),
        found: match told.is_empty() {
            true => format!("in none of {} cells", leads.len()),
            false => format!("slower in {}", told.join(", ")),
        },
        state: GoalState::of((!leads.is_empty()).then_some(told.is_empty())),
    }
}
