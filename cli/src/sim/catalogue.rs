//! `gradwire sim workloads`: the workloads and fabrics of one line, from the tables that read them.

use std::fmt::Write;

use gradwire_fabric::shape;
use gradwire_workloads::arrivals::SizeDistribution;
use gradwire_workloads::model::NAMES;
use gradwire_workloads::pattern::FORMS;
use serde_json::{Value, json};

/// Files that are workloads, by their ending.
const FILES: [(&str, &str); 5] = [
    (".cm", "connection matrix of htsim"),
    (".goal", "GOAL of LogGOPSim"),
    (".txt", "layers of SimAI and ASTRA-sim"),
    (
        ".et",
        "Chakra trace; NAME.0.et stands for those of all ranks",
    ),
    (".json", "the same as JSON"),
];

/// The lists, for people.
pub(super) fn text() -> String {
    let mut text = String::from("Workloads, as in `gradwire sim run FABRIC permutation:2MB`:\n");
    for form in FORMS {
        let _ = writeln!(text, "  {:<28}{}", form.example, form.meaning);
    }
    let _ = writeln!(
        text,
        "  {:<28}on these hosts only, behind any of them",
        "@hosts=0-63"
    );
    let _ = writeln!(
        text,
        "Models of step: {}; or a file, see `gradwire model`",
        NAMES.join(", ")
    );
    let _ = writeln!(
        text,
        "Distributions of poisson: {}; or a file",
        SizeDistribution::names()
    );
    text.push_str("Files:\n");
    for (ending, meaning) in FILES {
        let _ = writeln!(text, "  {ending:<28}{meaning}");
    }
    text.push_str("\nFabrics, as SHAPE:SIZE@RATE[/RATE BETWEEN SWITCHES][,OPTION=VALUE]...:\n");
    for (name, allowed) in shape::shapes() {
        let _ = writeln!(text, "  {name:<16}{allowed}");
    }
    text.push_str("Options, and keys of fabric.toml:\n");
    for (name, meaning, allowed) in shape::options() {
        let _ = writeln!(text, "  {name:<16}{meaning}\n  {:<16}{allowed}", "");
    }
    text
}

/// The lists, for programs.
pub(super) fn object() -> Value {
    let workloads = FORMS.map(|form| json!({"example": form.example, "meaning": form.meaning}));
    let files = FILES.map(|(ending, meaning)| json!({"ending": ending, "meaning": meaning}));
    let shapes = shape::shapes().map(|(name, size)| json!({"name": name, "size": size}));
    let options = shape::options();
    let options = options.map(
        |(name, meaning, allowed)| json!({"name": name, "meaning": meaning, "allowed": allowed}),
    );
    json!({
        "workloads": workloads,
        "models": NAMES,
        "distributions": SizeDistribution::names().split(", ").collect::<Vec<_>>(),
        "files": files,
        "shapes": shapes.collect::<Vec<_>>(),
        "options": options.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_simulator_has_every_workload_and_option() {
        let page = include_str!("../../../docs/simulator.md");
        for form in FORMS {
            let row = format!("| `{}` | {} |", form.example, form.meaning);
            assert!(page.contains(&row), "docs/simulator.md lacks {row}");
        }
        for (name, meaning, allowed) in shape::options() {
            let row = format!("| `{name}` | {meaning} | {allowed} |");
            assert!(page.contains(&row), "docs/simulator.md lacks {row}");
        }
    }

    #[test]
    fn every_form_and_option_is_listed_in_both_forms() {
        let (text, object) = (text(), object());
        for form in FORMS {
            assert!(text.contains(form.example), "{text}");
        }
        assert_eq!(
            object["workloads"].as_array().map(Vec::len),
            Some(FORMS.len())
        );
        let options = shape::options().count();
        assert_eq!(object["options"].as_array().map(Vec::len), Some(options));
        assert!(text.contains("websearch"), "{text}");
    }
}
