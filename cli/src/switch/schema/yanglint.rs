//! Asking Debian's `yanglint`: models and a document are written into a folder of their own.

use std::fs;
use std::io;
use std::process::{Command, Stdio};

use super::validation::Validation;

/// YANG models of a platform.
pub(super) struct Models<'a> {
    /// Their name, for people.
    pub(super) name: &'a str,
    /// Every file: its name and its text.
    pub(super) files: &'a [(&'a str, &'a str)],
    /// Modules to load, in order; their imports are found among the files.
    pub(super) modules: &'a [&'a str],
}

/// The verdict of yanglint on a document in JSON (RFC 7951).
pub(super) fn validate(models: &Models<'_>, document: &str) -> Validation {
    match ask(models, document) {
        Ok(validation) => validation,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Validation::Missing {
            install: "yanglint: apt-get install libyang2-tools".to_owned(),
        },
        Err(error) => Validation::Missing {
            install: format!("room for the models of yanglint: {error}"),
        },
    }
}

fn ask(models: &Models<'_>, document: &str) -> io::Result<Validation> {
    // Before anything is written: it is rarely there.
    Command::new("yanglint").arg("--version").output()?;
    let folder = tempfile::TempDir::with_prefix("gradwire-schema-")?;
    for (name, text) in models.files {
        fs::write(folder.path().join(name), text)?;
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
}
