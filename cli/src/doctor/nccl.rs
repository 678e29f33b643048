//! The plugin of NCCL, as the Python package that carries it finds it: symbols, and messages
//! through two connections.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::finding::HostFinding;

/// The name of the check.
const CHECK: &str = "nccl_plugin";

/// What `python -m gradwire nccl --check --json` prints.
#[derive(Deserialize)]
struct PluginCheck {
    ok: bool,
    found: String,
}

/// Lets the Python package check its plugin.
pub fn check(python: &Path) -> HostFinding {
    let mut command = Command::new(python);
    command.args(["-m", "gradwire", "nccl", "--check", "--json"]);
    match command.output() {
        Ok(output) => judged(
            &String::from_utf8_lossy(&output.stdout),
            &String::from_utf8_lossy(&output.stderr),
        ),
        Err(error) => missing(&format!("{} cannot be run: {error}", python.display())),
    }
}

fn judged(told: &str, errors: &str) -> HostFinding {
    match serde_json::from_str(told) {
        Ok(PluginCheck { ok: true, found }) => HostFinding::ok(CHECK, found),
        Ok(PluginCheck { found, .. }) => HostFinding::problem(CHECK, found)
            .costs("NCCL uses its own sockets, or fails if NCCL_NET names gradwire")
            .mend("do as the finding says, and check again: gradwire doctor --nccl"),
        Err(_) => missing(errors.trim().lines().last().unwrap_or("it prints nothing")),
    }
}

fn missing(reason: &str) -> HostFinding {
    HostFinding::problem(
        CHECK,
        format!("the Python package cannot be asked: {reason}"),
    )
    .costs("NCCL cannot use gradwire")
    .mend("install gradwire in the Python that runs NCCL, and activate its environment")
}

#[cfg(test)]
mod tests {
    use super::super::finding::{FindingState, mended};
    use super::*;

    #[test]
    fn a_plugin_that_works_is_told_with_its_line() {
        let finding = judged(r#"{"ok": true, "found": "gradwire is loaded"}"#, "");
        assert_eq!(
            (finding.state, &*finding.found),
            (FindingState::Ok, "gradwire is loaded")
        );
    }

    #[test]
    fn failures_are_problems_with_a_remedy() {
        let failed = judged(r#"{"ok": false, "found": "GRADWIRE_IFNAME"}"#, "");
        let absent = judged("", "Traceback\nNo module named gradwire\n");
        let no_python = check(Path::new("/nonexistent/python"));
        assert!(absent.found.ends_with("No module named gradwire"));
        for finding in [failed, absent, no_python] {
            assert_eq!(finding.state, FindingState::Problem);
            assert!(!mended(&finding).is_empty());
        }
    }
}
