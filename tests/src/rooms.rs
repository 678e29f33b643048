//! Derives the structure of a package from its text: which file takes names from which other file,
//! and which files form a circle.
//!
//! Only paths count (`use crate::a::b`, `super::c`, `child::d`), not `mod` declarations or code
//! under `#[cfg(test)]`. A path that names a re-export leads to the file that re-exports.

use std::collections::{BTreeMap, BTreeSet};

use crate::rust_text::{Token, code_only, tokens};
use crate::tree::File;

/// A module path inside a package, without `crate`.
type ModulePath = Vec<String>;

/// For each file of one package, the other files from which it takes names.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The text before a module of tests, which stands last in a file.
pub fn without_tests(text: &str) -> &str {
    let mut at = 0;
    let mut after_attribute = None;
    for line in text.split_inclusive('\n') {
        match after_attribute {
            Some(start) if line.starts_with("mod ") && line.trim_end().ends_with('{') => {
                return &text[..start];
            }
            _ => after_attribute = line.starts_with("#[cfg(test)]").then_some(at),
        }
        at += line.len();
    }
    text
}

/// The arrows between the files below `source`, a package's `…/src/` folder.
pub fn arrows(source: &str, files: &[File]) -> Arrows {
    let inside = files.iter().filter(|file| file.path.starts_with(source));
    let modules: BTreeMap<ModulePath, &File> = inside
        .map(|file| (module_path(&file.path[source.len()..]), file))
        .collect();
    let mut arrows = Arrows::new();
    for (here, file) in &modules {
        let tokens = tokens(&code_only(without_tests(&file.text)));
        let mut targets = BTreeSet::new();
        for path in paths(&tokens, here, &modules) {
            // The longest prefix that is a module names the file; the rest is an item in it.
            let found = (1..=path.len())
                .rev()
                .find_map(|length| modules.get(&path[..length]));
            targets.extend(found.map(|target| target.path.clone()));
        }
        targets.remove(&file.path);
        arrows.insert(file.path.clone(), targets);
    }
    arrows
}

/// `a/b.rs` and `a/b/mod.rs` are the module `a::b`; `lib.rs` and `main.rs` the root.
fn module_path(below_source: &str) -> ModulePath {
    let stem = below_source.trim_end_matches(".rs");
    let mut parts: ModulePath = stem.split('/').map(str::to_owned).collect();
    if matches!(&*parts[parts.len() - 1], "mod" | "lib" | "main") {
        parts.pop();
    }
    parts
}

/// Every path in the code that begins at the root, at a parent, here or at a child module.
fn paths(
    tokens: &[Token],
    here: &ModulePath,
    modules: &BTreeMap<ModulePath, &File>,
) -> Vec<ModulePath> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let follows_path = at > 0 && tokens[at - 1].text == "::";
        let opens = tokens.get(at + 1).is_some_and(|next| next.text == "::");
        if follows_path || !opens {
            continue;
        }
        let child = || {
            let mut path = here.clone();
            path.push(token.text.clone());
            modules.contains_key(&path).then_some(path)
        };
        let base = match &*token.text {
            "crate" => Some(ModulePath::new()),
            "self" => Some(here.clone()),
            "super" => here.split_last().map(|(_, parent)| parent.to_vec()),
            _ => child(),
        };
        if let Some(base) = base {
            branches(&tokens[at + 2..], base, &mut found);
        }
    }
    found
}

/// Follows a path, and each branch of a `{…}` in it; returns how many tokens were read.
fn branches(tokens: &[Token], base: ModulePath, found: &mut Vec<ModulePath>) -> usize {
    let mut path = base;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| token.text != "}") {
                at += branches(&tokens[at..], path.clone(), found).max(1);
            }
            return at + 1;
        }
        match &*token.text {
            "super" => drop(path.pop()),
            "self" | "*" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
        if tokens.get(at).is_none_or(|next| next.text != "::") {
            break;
        }
        at += 1;
    }
    found.push(path);
    at
}

/// Groups of files that all reach each other, largest first; groups of one file are left out.
pub fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = arrows
        .keys()
        .map(|file| (&**file, reached(arrows, file)))
        .collect();
    let mut circles = Vec::new();
    let mut placed = BTreeSet::new();
    for (file, targets) in &reach {
        let both = targets.iter().filter(|other| reach[**other].contains(file));
        let circle: Vec<&str> = both.copied().collect();
        if circle.len() > 1 && placed.insert(circle[0]) {
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Every file that can be reached from `start` along arrows.
fn reached<'a>(arrows: &'a Arrows, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = arrows[start].iter().map(String::as_str).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(arrows[file].iter().map(String::as_str));
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn three_files() -> Vec<File> {
        vec![
            file("p/src/lib.rs", "mod a; mod b;"),
            file(
                "p/src/a.rs",
                "mod c; use crate::b::{self, X}; fn f() { c::g() }",
            ),
            file("p/src/a/c.rs", "use super::super::b::{Y, z::W};"),
            file(
                "p/src/b.rs",
                "use crate::{a::c::V};\n#[cfg(test)]\nmod tests {\nuse crate::a::U;\n}",
            ),
        ]
    }

    #[test]
    fn paths_lead_to_the_file_of_their_longest_module() {
        let arrows = arrows("p/src/", &three_files());
        let targets = |path: &str| arrows[path].iter().cloned().collect::<Vec<_>>();
        assert_eq!(targets("p/src/a.rs"), ["p/src/a/c.rs", "p/src/b.rs"]);
        assert_eq!(targets("p/src/a/c.rs"), ["p/src/b.rs"]);
        assert_eq!(targets("p/src/b.rs"), ["p/src/a/c.rs"]);
        assert!(targets("p/src/lib.rs").is_empty());
    }

    #[test]
    fn a_circle_is_found_once_and_without_its_callers() {
        let arrows = arrows("p/src/", &three_files());
        assert_eq!(circles(&arrows), [["p/src/a/c.rs", "p/src/b.rs"]]);
    }
}
