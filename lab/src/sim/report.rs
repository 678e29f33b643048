//! Runs a scenario, with one transport or several, and draws the results.

use std::path::Path;

use super::drawn::DrawnRun;
use super::page::page;
use super::progress::RunProgress;
use super::scenario::Scenario;
use crate::error::LabError;
use crate::output::WholeFile;
use crate::shell;

/// Runs the scenario with each of `transports`, or with its own where the list is empty, one after
/// the other, and writes the report to `out`. The inner result says whether all flows and tasks
/// have ended.
///
/// # Errors
/// [`LabError`] when the scenario makes no sense or the file cannot be written: then there is no
/// file. Or, within, when flows did not all end, which the report says too.
pub fn report(
    scenario: &Scenario,
    transports: &[String],
    out: &Path,
) -> Result<Result<(), LabError>, LabError> {
    let file = WholeFile::create(out)?;
    let scenarios = scenarios(scenario, transports);
    let progress = RunProgress::of_runs(scenarios.len());
    let mut runs = Vec::new();
    for scenario in scenarios {
        let loaded = scenario.load()?;
        let mut watch = progress.run(&scenario.transport, &loaded);
        runs.push(DrawnRun::of(&scenario, loaded, &mut watch)?);
        progress.done(runs.len());
    }
    progress.end();
    file.keep(page(&runs, &command(scenario, transports, out)).as_bytes())?;
    Ok(runs.iter().try_for_each(|run| run.summary.unfinished()))
}

fn scenarios(scenario: &Scenario, transports: &[String]) -> Vec<Scenario> {
    if transports.is_empty() {
        return vec![scenario.clone()];
    }
    let of_transport = |transport: &String| Scenario {
        transport: transport.clone(),
        ..scenario.clone()
    };
    transports.iter().map(of_transport).collect()
}

/// The command line that makes this report again.
fn command(scenario: &Scenario, transports: &[String], out: &Path) -> String {
    let mut words = vec!["gradwire".to_owned(), "sim".to_owned(), "report".to_owned()];
    words.extend(scenario.words(transports));
    words.push("--out".to_owned());
    words.push(out.display().to_string());
    shell::line(words.iter().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_are_quoted() {
        assert_eq!(shell::word("fat-tree:k=8@100G"), "fat-tree:k=8@100G");
        assert_eq!(shell::word("my fabric's.toml"), r"'my fabric'\''s.toml'");
    }
}
