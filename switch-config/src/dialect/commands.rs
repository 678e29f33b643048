//! Commands for people: how a change is loaded, and how its result is looked at.
//!
//! Each platform has them in its `commands.txt`. A heading there says what the commands below it
//! are for, `load` or `look`, and when they are needed. A command has a line of its own, and below
//! it, indented, its expected result. Words in braces stand for what differs from plan to plan:
//! `{port}` and `{rate}` (of the port, or of the first one), `{ports}`, and those of the dialect.

use serde::Serialize;

use crate::plan::Plan;
use gradwire_fabric::policy::Balance;

/// A command for people, and its expected result.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Look {
    /// The command, as typed on the switch.
    pub command: String,
    /// The expected result.
    pub expect: String,
}

/// Words in braces, and the texts that take their places.
pub type CommandWords = Vec<(&'static str, String)>;

/// The commands of a `commands.txt` for a task, `load` or `look`.
pub(crate) fn list(text: &str, task: &str, plan: &Plan, words: &CommandWords) -> Vec<Look> {
    let ports = &plan.site.ports;
    let sections = text.split("== ").skip(1);
    let sections = sections.filter_map(|section| section.strip_prefix(task)?.split_once('\n'));
    let meant = sections.flat_map(|(when, body)| {
        let times = match when {
            ", for each port" => ports.len(),
            when => usize::from(is_needed(plan, when)),
        };
        ports.iter().take(times).map(move |port| (port, body))
    });
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let all = [("ports", names.join(", "))];
    let texts = meant.map(|(port, body)| {
        let own = [("port", port.name.clone()), ("rate", port.rate.to_string())];
        filled(body, words.iter().chain(&own).chain(&all))
    });
    steps(&texts.collect::<String>())
}

/// Whether a plan needs the commands below a heading.
fn is_needed(plan: &Plan, when: &str) -> bool {
    match when {
        "" => true,
        ", where memory is shared" => plan.alpha.is_some(),
        ", where packets are trimmed" => plan.trims_to.is_some(),
        ", where paths adapt" => plan.balance == Balance::Adaptive,
        ", where data has a buffer profile" => plan.alpha.is_some() || plan.trims_to.is_some(),
        other => unreachable!("tests read every heading, and there is no `{other}`"),
    }
}

/// A text with words in braces replaced.
fn filled<'a>(body: &str, words: impl Iterator<Item = &'a (&'static str, String)>) -> String {
    words.fold(body.to_owned(), |text, (word, value)| {
        text.replace(&format!("{{{word}}}"), value)
    })
}

/// The steps of a text: a command in a line of its own, and the expected result
/// below it, indented.
fn steps(text: &str) -> Vec<Look> {
    let mut steps: Vec<Look> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("    "), steps.last_mut()) {
            (Some(more), Some(step)) => {
                let space = if step.expect.is_empty() { "" } else { " " };
                step.expect.push_str(space);
                step.expect.push_str(more);
            }
            _ => steps.push(Look {
                command: line.to_owned(),
                expect: String::new(),
            }),
        }
    }
    steps
}
