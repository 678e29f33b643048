//! How the commands list the commands to run on a switch, for people and programs.

use std::path::Path;

use gradwire_lab::error::LabError;
use gradwire_switch_config::dialect::Look;
use gradwire_switch_config::effect::{ChangedSetting, Effect};
use gradwire_switch_config::lint::Finding;
use gradwire_switch_config::plan::{NoteKind, Plan};
use gradwire_switch_config::reading::ReadError;
use serde_json::{Value, json};

/// Letters of a setting's name, behind which a long list of DSCPs goes on.
const SETTING_WIDTH: usize = 10;
/// Ports that a line names.
const LISTED: usize = 4;

/// The error of a file that is no export of the platform.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> LabError {
    LabError::input(path.display(), error)
}

/// Tells on standard error what a change does to the ports that were asked for, and to others.
pub(super) fn effects(asked: &[Effect], others: &[Effect]) {
    for effect in asked {
        eprintln!("{}, before and after:", names(&effect.ports));
        settings(effect);
    }
    for effect in others {
        let ports = names(&effect.ports);
        eprintln!("{ports}, not asked for, but settings of the whole switch change:");
        settings(effect);
    }
}

/// Tells on standard error what else a change mends, equal mistakes together.
pub(super) fn mended(findings: &[Finding]) {
    let mut kinds: Vec<(&str, Vec<String>)> = Vec::new();
    for Finding { place, text, .. } in findings {
        match kinds.iter_mut().find(|(known, _)| known == text) {
            Some((_, places)) => places.push(place.clone()),
            None => kinds.push((text, vec![place.clone()])),
        }
    }
    if !kinds.is_empty() {
        eprintln!("it also mends:");
    }
    for (text, places) in kinds {
        eprintln!("  {}: {text}", names(&places));
    }
}

/// A finding for programs.
pub(super) fn finding(finding: &Finding) -> Value {
    json!({"rule": finding.rule.name(), "place": finding.place, "text": finding.text})
}

/// Tells on standard error the warnings of a plan.
pub(super) fn warnings(plan: &Plan) {
    let notes = plan.notes.iter();
    for note in notes.filter(|note| note.kind == NoteKind::Warning) {
        eprintln!("warning: {}", note.text);
    }
}

/// The first ports by name, and the number of the others.
fn names(ports: &[String]) -> String {
    match ports.get(..LISTED) {
        Some(first) if ports.len() > LISTED => {
            format!("{} and {} more", first.join(", "), ports.len() - LISTED)
        }
        _ => ports.join(", "),
    }
}

fn settings(effect: &Effect) {
    for ChangedSetting {
        setting,
        before,
        after,
    } in &effect.settings
    {
        eprintln!("  {setting:SETTING_WIDTH$}  {before}  ->  {after}");
    }
}

/// Where a list goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PrintStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Lists commands for people, each with the expected output.
pub(super) fn list(looks: &[Look], stream: PrintStream) {
    for Look { command, expect } in looks {
        let text = format!("  {command}\n      {expect}");
        match stream {
            PrintStream::Output => println!("{text}"),
            PrintStream::Error => eprintln!("{text}"),
        }
    }
}
