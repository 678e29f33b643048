//! Rules over releases: one version everywhere, and a changelog that people and programs can read.

use gradwire_tests::tree::{File, read, report};

/// Kinds of changes, in the order of Keep a Changelog.
const KINDS: [&str; 6] = [
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

/// A release's section is read in one sitting; the history of the repository has the rest.
const RELEASE_LINES_MAX: usize = 100;

/// The sections of the changelog: number of the line, text between brackets, and what follows.
fn sections(changelog: &File) -> Vec<(usize, &str, &str)> {
    let headings = changelog.numbered().filter_map(|(number, line)| {
        let (name, rest) = line.strip_prefix("## [")?.split_once(']')?;
        Some((number, name, rest))
    });
    headings.collect()
}

/// Whether this is three numbers between two marks, each of the length given.
fn is_numbers(text: &str, mark: char, lengths: [usize; 3]) -> bool {
    let parts: Vec<&str> = text.split(mark).collect();
    parts.len() == 3
        && parts.iter().zip(lengths).all(|(part, length)| {
            part.chars().all(|char| char.is_ascii_digit())
                && !part.is_empty()
                && (length == 0 || part.len() == length)
        })
}

/// The version of a manifest, of its package, its workspace or its project.
fn version_of(path: &str) -> String {
    let manifest: toml::Table = read(path).text.parse().expect("the manifest is TOML");
    let tables = [
        manifest.get("package"),
        manifest.get("project"),
        manifest.get("workspace").and_then(|all| all.get("package")),
    ];
    let version = tables.into_iter().flatten().find_map(|table| {
        let version = table.get("version")?;
        version.as_str().map(str::to_owned)
    });
    version.expect("the manifest has a version")
}

#[test]
fn every_manifest_has_the_newest_version_of_the_changelog() {
    let changelog = read("CHANGELOG.md");
    let (_, newest, _) = sections(&changelog)[1];
    let manifests = [
        "Cargo.toml",
        "pyproject.toml",
        "fuzz/Cargo.toml",
        "switch-config/schemas/Cargo.toml",
    ];
    for path in manifests {
        assert_eq!(version_of(path), newest, "{path}: CHANGELOG.md says so");
    }
}

#[test]
fn sections_of_the_changelog_are_unreleased_then_dated_versions() {
    let changelog = read("CHANGELOG.md");
    let sections = sections(&changelog);
    let mut found = Vec::new();
    for (index, (line, name, rest)) in sections.iter().enumerate() {
        let is_right = match index {
            0 => *name == "Unreleased" && rest.is_empty(),
            _ => {
                let date = rest.strip_prefix(" - ").unwrap_or_default();
                is_numbers(name, '.', [0; 3]) && is_numbers(date, '-', [4, 2, 2])
            }
        };
        if !is_right {
            let what = "write `## [Unreleased]` first, then `## [1.2.3] - 2026-01-31`";
            found.push(changelog.finding(*line, what));
        }
    }
    for (line, heading) in changelog.numbered() {
        let kind = heading.strip_prefix("### ");
        if kind.is_some_and(|kind| !KINDS.contains(&kind)) {
            found.push(changelog.finding(line, format!("known kinds are {}", KINDS.join(", "))));
        }
    }
    report(&found);
}

#[test]
fn released_versions_are_short_enough_to_read() {
    let changelog = read("CHANGELOG.md");
    let starts: Vec<usize> = sections(&changelog)
        .iter()
        .map(|(line, ..)| *line)
        .collect();
    let ends = starts.iter().skip(1).copied();
    let ends = ends.chain([changelog.text.lines().count() + 1]);
    let long = starts.iter().zip(ends).skip(1);
    let long = long.filter(|(start, end)| end - **start > RELEASE_LINES_MAX);
    let found: Vec<_> = long
        .map(|(start, end)| {
            let lines = end - start;
            let what = format!("{lines} lines, at most {RELEASE_LINES_MAX}: say it to users");
            changelog.finding(*start, what)
        })
        .collect();
    report(&found);
}
