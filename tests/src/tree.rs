//! The files of the repository: those that git tracks or would track, never build outputs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the repository's root, with slashes.
    pub path: String,
    /// All of its text.
    pub text: String,
}

impl File {
    /// The file name up to its first dot, without folders.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.split('.')
            .find(|part| !part.is_empty())
            .unwrap_or(name)
    }

    /// The file name after its last dot; empty without a dot.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Lines with their numbers, from 1 on.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }

    /// A finding at a line of this file.
    pub fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }
}

/// A line that breaks a rule, with the remedy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Path from the repository's root.
    pub path: String,
    /// Line, from 1 on.
    pub line: usize,
    /// The mistake and its remedy.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Fails with one line per finding.
///
/// # Panics
/// When there is a finding.
pub fn report(findings: &[Finding]) {
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(
        findings.is_empty(),
        "{} places to mend:\n{}",
        findings.len(),
        lines.join("\n")
    );
}

/// The repository's root folder.
///
/// # Panics
/// Never: this package lies in a folder of the root.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("this package lies in a folder of the root")
        .to_path_buf()
}

/// Every path that git tracks or would track, relative to the root.
///
/// # Panics
/// When git cannot be run: the rules hold for a checkout.
pub fn paths() -> Vec<String> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the checkout");
    assert!(
        listing.status.success(),
        "git ls-files failed: is this a checkout?"
    );
    let text = String::from_utf8(listing.stdout).expect("paths of this repository are UTF-8");
    let mut paths: Vec<String> = text.lines().map(str::to_owned).collect();
    paths.retain(|path| root().join(path).is_file());
    paths.sort();
    paths.dedup();
    paths
}

/// All files with one of these extensions.
pub fn files(extensions: &[&str]) -> Vec<File> {
    let paths = paths().into_iter().filter(|path| {
        path.rsplit_once('.')
            .is_some_and(|(_, extension)| extensions.contains(&extension))
    });
    paths.map(|path| read(&path)).collect()
}

/// One file of the repository.
///
/// # Panics
/// When it cannot be read as UTF-8 text.
pub fn read(path: &str) -> File {
    let text = fs::read_to_string(root().join(path));
    let text = text.unwrap_or_else(|error| panic!("{path}: {error}"));
    File {
        path: path.to_owned(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stem_and_extension_leave_folders_and_dots_out() {
        let file = File {
            path: "a/.config.toml".to_owned(),
            text: String::new(),
        };
        assert_eq!((file.stem(), file.extension()), ("config", "toml"));
        let file = File {
            path: "Makefile".to_owned(),
            text: String::new(),
        };
        assert_eq!((file.stem(), file.extension()), ("Makefile", ""));
    }

    #[test]
    fn the_tree_holds_this_file_once() {
        let here = paths()
            .into_iter()
            .filter(|path| path == "tests/src/tree.rs")
            .count();
        assert_eq!(here, 1);
    }
}
