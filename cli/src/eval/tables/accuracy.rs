//! Accuracy under loss: real training, real sockets, packets dropped on purpose.

use std::collections::BTreeMap;

use serde_json::Value as Record;

use super::super::evidence::mean;
use super::super::section::{Chart, Grid, Shape, Value};
use super::{Found, named};

/// What is the same for all seeds of a training.
type Kind = (String, String, String, String, String);

/// Makes the table.
pub fn found(records: &[Record]) -> Found {
    let mut finals: BTreeMap<Kind, Vec<f64>> = BTreeMap::new();
    for record in records {
        if let Some(score) = last(record) {
            finals.entry(kind(record)).or_default().push(score);
        }
    }
    Found {
        about: vec![
            "Four ranks on this machine, over UDP; packets are dropped on purpose, and what is lost \
             stays lost. Means over seeds."
                .to_owned(),
        ],
        grids: vec![grid(&finals)],
        charts: tasks(&finals).iter().map(|task| chart(task, &finals)).collect(),
        goals: Vec::new(),
    }
}

fn kind(record: &Record) -> Kind {
    let word = |key: &str| record[key].as_str().unwrap_or("-").to_owned();
    let drop = record["drop"].as_f64().unwrap_or(0.0) * 100.0;
    (
        word("task"),
        word("part"),
        word("transform"),
        word("holes"),
        format!("{drop:04.1}"),
    )
}

/// The score at the end of a training.
fn last(record: &Record) -> Option<f64> {
    record["curve"].as_array()?.last()?.get(1)?.as_f64()
}

fn tasks(finals: &BTreeMap<Kind, Vec<f64>>) -> Vec<String> {
    named(finals.keys().map(|kind| kind.0.as_str()))
}

fn grid(finals: &BTreeMap<Kind, Vec<f64>>) -> Grid {
    let rows = finals.iter().map(|(kind, scores)| {
        let (task, part, transform, holes, drop) = kind;
        let mut row: Vec<Value> = [task, part, transform, holes, drop]
            .map(Value::text)
            .to_vec();
        row.push(Value::number(mean(scores), 4));
        row.push(Value::Number(scores.len() as f64, 0));
        row
    });
    let columns = [
        "task",
        "part",
        "transform",
        "holes",
        "dropped, %",
        "final score",
        "seeds",
    ];
    Grid {
        caption: "The score at the end".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn chart(task: &str, finals: &BTreeMap<Kind, Vec<f64>>) -> Chart {
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let own = finals
        .iter()
        .filter(|(kind, _)| kind.0 == task && kind.1 == "all");
    for ((_, _, transform, holes, drop), scores) in own {
        let name = match transform.as_str() {
            "none" | "-" => holes.clone(),
            transform => format!("{holes}, {transform}"),
        };
        let point = drop.parse().ok().zip(mean(scores));
        curves.entry(name).or_default().extend(point);
    }
    Chart {
        caption: format!("{task}: the score at the end"),
        axis: "score".to_owned(),
        shape: Shape::Curves(
            "packets dropped, %".to_owned(),
            curves.into_iter().collect(),
        ),
    }
}
