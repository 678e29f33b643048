//! Rules over the rooms: which package may know which, and which files may know each other.

use std::collections::BTreeMap;

use gradwire_tests::rooms::{arrows, circles, without_tests};
use gradwire_tests::rust_text::{Token, code_only, tokens};
use gradwire_tests::tree::{File, files, read, report};

/// Each package of the workspace and the packages it may know, as ARCHITECTURE.md draws them.
const MAY_KNOW: [(&str, &[&str]); 15] = [
    ("protocol", &[]),
    ("report", &[]),
    ("tuning", &["protocol"]),
    ("collectives", &["protocol"]),
    ("transport", &["protocol"]),
    ("fabric", &["protocol"]),
    ("testnet", &["protocol", "collectives"]),
    ("switch-config", &["protocol", "fabric"]),
    ("workloads", &["protocol", "fabric"]),
    (
        "runtime",
        &["protocol", "collectives", "transport", "tuning"],
    ),
    (
        "netsim",
        &["protocol", "collectives", "fabric", "workloads"],
    ),
    ("trace", &["protocol", "fabric", "workloads", "netsim"]),
    (
        "lab",
        &[
            "protocol",
            "collectives",
            "fabric",
            "workloads",
            "tuning",
            "runtime",
            "netsim",
            "trace",
            "testnet",
            "report",
        ],
    ),
    ("python", &["protocol", "collectives", "runtime"]),
    (
        "cli",
        &[
            "protocol",
            "transport",
            "fabric",
            "switch-config",
            "workloads",
            "tuning",
            "runtime",
            "netsim",
            "trace",
            "testnet",
            "report",
            "lab",
        ],
    ),
];

/// Files of one package that may form a circle: a value, its error and its builder, say.
const CIRCLE_FILES_MAX: usize = 3;

#[test]
fn packages_know_only_the_packages_below_them() {
    let mut found = Vec::new();
    for (package, allowed) in MAY_KNOW {
        let file = read(&format!("{package}/Cargo.toml"));
        let manifest: toml::Table = file.text.parse().expect("a manifest is TOML");
        let known = manifest.get("dependencies").and_then(toml::Value::as_table);
        let names = known.into_iter().flat_map(toml::Table::keys);
        let ours = names.filter_map(|name| name.strip_prefix("gradwire-"));
        for name in ours.filter(|name| !allowed.contains(name)) {
            let what = format!("`{package}` may not know `{name}`: move the code it wants down");
            found.push(file.finding(1, what));
        }
    }
    report(&found);
}

#[test]
fn every_package_of_the_workspace_has_its_place() {
    let manifest: toml::Table = read("Cargo.toml").text.parse().expect("TOML");
    let members = manifest["workspace"]["members"].as_array().expect("a list");
    let placed = |member: &str| {
        let above_all = ["tests", "benches"].contains(&member);
        above_all || MAY_KNOW.iter().any(|(package, _)| *package == member)
    };
    let missing: Vec<&str> = members
        .iter()
        .filter_map(toml::Value::as_str)
        .filter(|member| !placed(member))
        .collect();
    assert!(
        missing.is_empty(),
        "{missing:?}: say in MAY_KNOW and in ARCHITECTURE.md what they may know"
    );
}

#[test]
fn files_form_no_large_circles() {
    let sources = files(&["rs"]);
    let mut found = Vec::new();
    for (package, _) in MAY_KNOW {
        let arrows = arrows(&format!("{package}/src/"), &sources);
        for circle in circles(&arrows) {
            if circle.len() > CIRCLE_FILES_MAX {
                let (count, list) = (circle.len(), circle.join(", "));
                let what = format!("{count} files know each other in a circle: {list}");
                found.push(read(circle[0]).finding(1, what));
            }
        }
    }
    report(&found);
}

/// The public types that the code of a file declares.
fn public_types(file: &File) -> Vec<Token> {
    let tokens = tokens(&code_only(without_tests(&file.text)));
    let mut types = Vec::new();
    let mut is_public = false;
    for (at, token) in tokens.iter().enumerate() {
        match &*token.text {
            "pub" => is_public = true,
            "struct" | "enum" | "union" | "trait" if is_public => {
                // A macro declares its types by `$name`.
                let name = tokens.get(at + 1).filter(|name| name.text != "$");
                types.extend(name.cloned());
                is_public = false;
            }
            "fn" | "use" | "mod" | "const" | "static" | "type" | ";" | "{" | "}" | "," => {
                is_public = false;
            }
            _ => {}
        }
    }
    types
}

#[test]
fn public_type_names_are_unique_in_the_workspace() {
    let mut places: BTreeMap<String, Vec<(File, usize)>> = BTreeMap::new();
    let shipped = |path: &str| MAY_KNOW.iter().any(|(package, _)| in_source(path, package));
    for file in files(&["rs"])
        .into_iter()
        .filter(|file| shipped(&file.path))
    {
        for name in public_types(&file) {
            let place = (file.clone(), name.line);
            places.entry(name.text).or_default().push(place);
        }
    }
    let shared = places.iter().filter(|(_, places)| places.len() > 1);
    let found = shared.flat_map(|(name, places)| {
        let what = format!("`{name}` names {} types: two words say which", places.len());
        places
            .iter()
            .map(move |(file, line)| file.finding(*line, what.clone()))
    });
    report(&found.collect::<Vec<_>>());
}

/// Whether a path lies in the sources of a package.
fn in_source(path: &str, package: &str) -> bool {
    path.strip_prefix(package)
        .is_some_and(|rest| rest.starts_with("/src/"))
}
