//! A scheduler on and off: the gain when gradients of front layers leave first, in parts, within a
//! credit.

use super::super::evidence::{CellPoint, SumExchange, TableEvidence, faster};
use super::super::published::{BYTE_SCHEDULER, flow_model};
use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value, change};
use crate::eval::findings::{ITERATION, TableFindings, named};

/// The case without a scheduler; all others have one.
const OFF: &str = "off";
/// Percentage points by which a gain may differ from the flow-level model's.
const APART_MOST: f64 = 10.0;

const ABOUT: [&str; 3] = [
    "Off: tensors leave whole, in the order in which the backward pass makes them; those of a \
     million elements or more are shared by all servers, as by MXNet. On: parts of a size, front \
     layers first, with a credit; of all settings in the plans the best. The transport is \
     gradwire without loss in both. Gain is in speed: +100 % is half the time.",
    "8 workers with 8 servers, or 8 workers in a ring, behind one switch. Sizes, times, parts and \
     credits are divided by 16, rates are not: latencies weigh 16 times as much as they would, \
     which makes small parts look worse than they are. Times are those of the divided model.",
    BYTE_SCHEDULER,
];

/// The result of one point.
struct SchedulerGain<'a> {
    point: &'a CellPoint,
    off: Option<f64>,
    on: Option<(&'a str, f64)>,
}

impl SchedulerGain<'_> {
    fn gain(&self) -> Option<f64> {
        faster(self.off, self.on.map(|(_, time)| time))
    }

    /// Returns the distance of the gain from the flow-level model's, in percentage points.
    fn apart(&self) -> Option<f64> {
        Some(self.gain()? - flow_model(self.point)?)
    }
}

/// Makes the table.
pub fn found(evidence: &TableEvidence) -> TableFindings {
    let points = evidence.points();
    let rows: Vec<SchedulerGain<'_>> = points.iter().map(|point| row(evidence, point)).collect();
    TableFindings {
        about: ABOUT.map(str::to_owned).to_vec(),
        grids: vec![grid(&rows)],
        charts: SumExchange::ALL
            .map(|exchange| chart(&rows, exchange))
            .to_vec(),
        goals: goals(&rows),
    }
}

fn row<'a>(evidence: &'a TableEvidence, point: &'a CellPoint) -> SchedulerGain<'a> {
    let time = |case: &str| evidence.mean(&point.with_case(case), ITERATION);
    let on = evidence.cases().into_iter().filter(|case| *case != OFF);
    let on = on.filter_map(|case| Some((case, time(case)?)));
    SchedulerGain {
        point,
        off: time(OFF),
        on: on.min_by(|(_, one), (_, other)| one.total_cmp(other)),
    }
}

fn grid(rows: &[SchedulerGain<'_>]) -> Grid {
    let columns =
        "model | exchange | rate | off, ms | on, ms | best setting | gain | flow model | apart";
    let rows = rows.iter().map(|row| {
        let on = row.on.map(|(_, time)| time / 1e3);
        let setting = row.on.map_or(Value::Missing, |(case, _)| {
            Value::text(case.strip_prefix("on, ").unwrap_or(case))
        });
        vec![
            Value::text(&row.point.model),
            Value::text(row.point.exchange.to_string()),
            Value::text(&row.point.rate),
            Value::number(row.off.map(|time| time / 1e3), 3),
            Value::number(on, 3),
            setting,
            Value::change(row.gain()),
            Value::change(flow_model(row.point)),
            Value::number(row.apart(), 1),
        ]
    });
    Grid::new(
        "Iteration time and gain; apart is in points of percent",
        columns.split(" | "),
        rows,
    )
}

fn chart(rows: &[SchedulerGain<'_>], exchange: SumExchange) -> Chart {
    let own = || rows.iter().filter(|row| row.point.exchange == exchange);
    let models = named(own().map(|row| row.point.model.as_str()));
    let rates = named(own().map(|row| row.point.rate.as_str()));
    let gain = |model: &str, rate: &String| {
        let row = own().find(|row| row.point.model == model && row.point.rate == *rate);
        row.and_then(SchedulerGain::gain)
    };
    let groups = models.into_iter().map(|model| {
        let bars = rates.iter().map(|rate| gain(&model, rate)).collect();
        (model, bars)
    });
    Chart {
        caption: format!("Gain of the scheduler, {}", exchange),
        axis: "percents of speed".to_owned(),
        shape: ChartShape::Bars(rates.clone(), groups.collect()),
    }
}

fn goals(rows: &[SchedulerGain<'_>]) -> Vec<EvalGoal> {
    let servers = || {
        let servers = rows.iter();
        servers.filter(|row| row.point.exchange == SumExchange::Servers)
    };
    let at_25 = |model: &str| {
        let row = servers().find(|row| row.point.model == model && row.point.rate == "25G");
        row.and_then(SchedulerGain::gain)
    };
    let told = |gain: Option<f64>| gain.map_or_else(|| "not run".to_owned(), change);
    let (vgg, bert, resnet) = (at_25("vgg16"), at_25("bert-base"), at_25("resnet50"));
    let order = vgg.zip(bert).zip(resnet);
    let apart: Vec<f64> = servers().filter_map(SchedulerGain::apart).collect();
    let near = apart.iter().filter(|apart| apart.abs() <= APART_MOST);
    let (near, all) = (near.count(), apart.len());
    vec![
        EvalGoal {
            what: "VGG16 with servers at 25 Gb/s: about 1.9 times as fast (+85 to +105 %)".into(),
            found: told(vgg),
            state: GoalState::of(vgg.map(|gain| (85.0..=105.0).contains(&gain))),
        },
        EvalGoal {
            what: "ResNet50 with servers at 25 Gb/s: nothing to gain (within 5 %)".into(),
            found: told(resnet),
            state: GoalState::of(resnet.map(|gain| gain.abs() <= 5.0)),
        },
        EvalGoal {
            what: "Gains at 25 Gb/s in the order VGG16, BERT-base, ResNet50".into(),
            found: [vgg, bert, resnet].map(told).join(", "),
            state: GoalState::of(order.map(|((vgg, bert), resnet)| vgg > bert && bert > resnet)),
        },
        EvalGoal {
            what: "With servers, within 10 points of the flow-level model".into(),
            found: format!("{near} of {all} cells"),
            state: GoalState::of((all > 0).then_some(near == all)),
        },
    ]
}
