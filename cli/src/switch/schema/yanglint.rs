//! Asking Debian's `yanglint`: models and a document are written into a folder of their own.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use gradwire_switch_config::dialect::{junos, openconfig, sonic};
use gradwire_switch_config::reading::ReadError;
use include_dir::{Dir, include_dir};

use super::validation::Validation;

/// Published models, in a folder for each platform, with their licences.
static PUBLISHED: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../switch-config/schemas/yang");

/// YANG models of a platform.
pub(super) struct Models {
    /// Their name, for people.
    name: &'static str,
    /// Their folder among [`PUBLISHED`] ones.
    folder: &'static str,
    /// Modules to load, in order; their imports are found in the folder.
    modules: &'static [&'static str],
}

/// Models of CONFIG_DB.
pub(super) const SONIC: Models = Models {
    name: "SONiC's models of 2026-08",
    folder: "sonic",
    modules: &sonic::yang::MODULES,
};
/// Models of quality of service.
pub(super) const OPENCONFIG: Models = Models {
    name: "OpenConfig's models of 2026-07",
    folder: "openconfig",
    modules: &openconfig::yang::MODULES,
};
/// Models of class-of-service.
pub(super) const JUNOS: Models = Models {
    name: "Juniper's models of class-of-service, 24.4R1 for QFX",
    folder: "junos",
    modules: &junos::yang::MODULES,
};

/// The verdict of yanglint on a document in JSON (RFC 7951), which may have been no export.
pub(super) fn validate(models: &Models, document: Result<String, ReadError>) -> Validation {
    let document = match document {
        Ok(document) => document,
        Err(error) => {
            return Validation::Rejected {
                tool: "gradwire".to_owned(),
                messages: vec![error.to_string()],
            };
        }
    };
    ask(models, &document).unwrap_or_else(|error| Validation::Missing {
        install: match error.kind() {
            io::ErrorKind::NotFound => "yanglint: apt-get install libyang2-tools".to_owned(),
            _ => format!("room for the models of yanglint: {error}"),
        },
    })
}

fn ask(models: &Models, document: &str) -> io::Result<Validation> {
    // Before anything is written: it is rarely there.
    Command::new("yanglint").arg("--version").output()?;
    let folder = tempfile::TempDir::with_prefix("gradwire-schema-")?;
    let files = PUBLISHED
        .get_dir(models.folder)
        .into_iter()
        .flat_map(Dir::files);
    for file in files {
        let name = file.path().file_name().unwrap_or_default();
        fs::write(folder.path().join(name), file.contents())?;
    }
    let data = folder.path().join("document.json");
    fs::write(&data, document)?;
    let modules = models.modules.iter();
    let modules = modules.map(|module| folder.path().join(format!("{module}.yang")));
    let mut command = Command::new("yanglint");
    command.arg("-p").arg(folder.path()).args(["-t", "config"]);
    command.args(modules).arg(&data).stdin(Stdio::null());
    let output = command.output()?;
    let tool = format!("yanglint, {}", models.name);
    if output.status.success() {
        return Ok(Validation::Accepted { tool });
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reasons = errors.lines().filter_map(reason);
    let mut messages: Vec<String> = reasons.map(str::to_owned).collect();
    if messages.is_empty() {
        messages.push(errors.trim().to_owned());
    }
    Ok(Validation::Rejected { tool, messages })
}

/// The message of a line `libyang err : ...`.
fn reason(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("libyang err ")?;
    Some(rest.trim_start_matches([':', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_follow_the_name_of_libyang() {
        let line = "libyang err : Invalid enumeration value \"ecn_blue\". (Line number 3.)";
        let text = "Invalid enumeration value \"ecn_blue\". (Line number 3.)";
        assert_eq!(reason(line), Some(text));
        assert_eq!(reason("YANGLINT[E]: Failed to parse"), None);
    }

    /// One is accepted, the other refused for this reason; or yanglint is not installed.
    fn tells_apart(good: Validation, bad: Validation, reason: &str) {
        if let Validation::Missing { install } = &good {
            eprintln!("left out: {install}");
            assert!(install.starts_with("yanglint: "), "{install}");
            return;
        }
        assert!(matches!(good, Validation::Accepted { .. }), "{good:?}");
        let Validation::Rejected { messages, .. } = bad else {
            panic!("{bad:?}");
        };
        assert!(
            messages.iter().any(|message| message.contains(reason)),
            "{messages:?}"
        );
    }

    #[test]
    fn yanglint_refuses_forbidden_openconfig_queues() {
        let tree = |id: &str| {
            format!(
                r#"{{"openconfig-qos:qos": {{"queues": {{"queue": [
                    {{"name": "a", "config": {{"name": "a", "queue-id": {id}}}}}]}}}}}}"#
            )
        };
        let verdict = |text: &str| validate(&OPENCONFIG, openconfig::yang::document(text));
        tells_apart(verdict(&tree("5")), verdict(&tree("256")), "queue-id");
    }

    #[test]
    fn yanglint_refuses_forbidden_juniper_fill_levels() {
        let line = |percent: u8| {
            format!("set class-of-service drop-profiles a interpolate fill-level {percent}\n")
        };
        let verdict = |text: &str| validate(&JUNOS, junos::yang::document(text));
        tells_apart(verdict(&line(5)), verdict(&line(105)), "fill-level");
    }

    #[test]
    fn yanglint_refuses_forbidden_sonic_values() {
        let config = |ecn: &str| format!(r#"{{"WRED_PROFILE": {{"A": {{"ecn": "{ecn}"}}}}}}"#);
        let verdict = |ecn: &str| validate(&SONIC, sonic::yang::document(&config(ecn)));
        tells_apart(verdict("ecn_all"), verdict("ecn_blue"), "ecn_blue");
    }
}
