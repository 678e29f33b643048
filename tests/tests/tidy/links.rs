//! Rules over links: each leads to a file of the repository, and to a heading that is there.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_tests::tree::{File, paths, report};

use crate::documents::documents;

/// The lines outside of fenced blocks, without code between backticks.
fn prose(file: &File) -> impl Iterator<Item = (usize, String)> {
    let mut is_code = false;
    file.numbered().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let text: String = line.split('`').step_by(2).collect();
        (!is_code && !is_fence).then_some((number, text))
    })
}

/// The anchors of a page: its headings as Markdown's readers name them.
fn anchors(file: &File) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = file.text.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|char| char.is_alphanumeric() || " -_".contains(*char));
            kept.map(|char| if char == ' ' { '-' } else { char })
                .collect()
        })
        .collect()
}

/// The path that `target` means in a file of `folder`.
fn resolved(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let tree: BTreeSet<String> = paths().into_iter().collect();
    let pages = documents();
    let headings: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), anchors(page)))
        .collect();
    let mut found = Vec::new();
    for page in &pages {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(page) {
            let targets = line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'));
            for (target, _) in targets.filter(|(target, _)| !target.contains("://")) {
                let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match name {
                    "" => page.path.clone(),
                    name => resolved(folder, name),
                };
                let is_there = tree.contains(&path);
                let has_anchor = anchor.is_empty()
                    || headings.get(&*path).is_some_and(|all| all.contains(anchor));
                if !is_there || !has_anchor {
                    found.push(page.finding(number, format!("the link {target} leads nowhere")));
                }
            }
        }
    }
    report(&found);
}
