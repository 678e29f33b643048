//! Lines that begin with `set` and name one statement each, as Junos exports and loads them.
//!
//! Every word is a node of the tree. The last two words of a statement that has one value only are
//! one node, a name and its value. `deactivate` lines and comments stay where they are; a node below
//! which something is deactivated is in the tree all the same, but not among the [`in_force`].

use crate::change::ConfigChange;
use crate::reading::ReadError;
use crate::tree::ConfigNode;
use crate::tree::Sign;
use crate::tree::diff::{self, NodeChange, TreeStep};
use crate::tree::load::load;
use crate::tree::rules::TreeRules;

/// The expected text, in the words of an error.
pub const WHAT: &str = "Junos configuration in `set` lines";

/// The words of one statement, without `set`.
pub type Words = Vec<String>;

/// The facts of a platform that decide about its statements.
pub trait StatementRules: TreeRules {
    /// Statements that have one value: `*` stands for any word, the last word is the value.
    fn single(&self) -> &[&str];

    /// Words of the shortest path that a change deletes, of those that begin as this one does.
    fn entry_words(&self, path: &[&str]) -> usize;
}

/// Reads the output of `show configuration | display set`.
///
/// # Errors
/// [`ReadError`] names the first line that is no statement.
pub fn read(rules: &dyn StatementRules, text: &str) -> Result<Vec<ConfigNode>, ReadError> {
    let mut nodes = Vec::new();
    let mut remarks = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim();
        let mut remark = ConfigNode::remark(line);
        remark.number = number;
        if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("/*") {
            remarks.push(remark);
            continue;
        }
        let (verb, words) = verb_and_words(trimmed, number)?;
        match verb.as_str() {
            "set" => {
                let is_list = words.last().is_some_and(|word| word == "]");
                for words in unlisted(words) {
                    let mut node = statement(rules, &words);
                    let last = last(&mut node);
                    last.number = number;
                    if !is_list {
                        last.line = Some(line.to_owned());
                    }
                    add(&mut nodes, node, &mut remarks);
                }
            }
            "deactivate" | "activate" | "annotate" | "protect" => remarks.push(remark),
            _ => return Err(unexpected(number, trimmed)),
        }
    }
    nodes.append(&mut remarks);
    Ok(nodes)
}

/// Puts a statement behind those that begin as it does, and remarks before it.
fn add(nodes: &mut Vec<ConfigNode>, node: ConfigNode, remarks: &mut Vec<ConfigNode>) {
    let same = nodes.iter_mut().find(|other| other.name == node.name);
    let Some(same) = same else {
        nodes.append(remarks);
        return nodes.push(node);
    };
    for child in node.below {
        add(&mut same.below, child, remarks);
    }
    if node.line.is_some() {
        (same.line, same.value, same.number) = (node.line, node.value, node.number);
    }
}

/// The configuration as text: lines that were read in their order, new ones behind the line that
/// the tree has before them.
pub fn write(nodes: &[ConfigNode]) -> String {
    let mut lines: Vec<(usize, &str)> = Vec::new();
    collect(nodes, &mut lines);
    lines.sort_by_key(|(number, _)| *number);
    lines.iter().map(|(_, line)| format!("{line}\n")).collect()
}

fn collect<'a>(nodes: &'a [ConfigNode], lines: &mut Vec<(usize, &'a str)>) {
    for node in nodes {
        if let Some(line) = &node.line {
            let before = lines.last().map_or(0, |(number, _)| *number);
            let number = if node.number == 0 {
                before
            } else {
                node.number
            };
            lines.push((number, line));
        }
        collect(&node.below, lines);
    }
}

/// All statements, deactivated ones among them.
pub fn statements(nodes: &[ConfigNode]) -> Vec<Words> {
    Statements::of(nodes).set
}

/// The statements that are in force: not deactivated.
pub fn in_force(nodes: &[ConfigNode]) -> Vec<Words> {
    let Statements { mut set, off } = Statements::of(nodes);
    set.retain(|words| !off.iter().any(|prefix| words.starts_with(prefix)));
    set
}

/// Statements of a tree, and beginnings of those that are deactivated.
#[derive(Default)]
struct Statements {
    set: Vec<Words>,
    off: Vec<Words>,
}

impl Statements {
    fn of(nodes: &[ConfigNode]) -> Self {
        let mut found = Self::default();
        found.add(&mut Vec::new(), nodes);
        found
    }

    fn add(&mut self, path: &mut Words, nodes: &[ConfigNode]) {
        for node in nodes {
            if node.is_remark() {
                let line = Some(node.text().trim()).filter(|line| line.starts_with("deactivate "));
                let words = line.and_then(|line| verb_and_words(line, 0).ok());
                self.off.extend(words.map(|(_, words)| words));
                continue;
            }
            path.push(node.name.clone());
            if node.line.is_some() {
                let value = Some(&node.value).filter(|value| !value.is_empty());
                self.set.push(path.iter().chain(value).cloned().collect());
            }
            self.add(path, &node.below);
            path.pop();
        }
    }
}

/// The lines that bring `running` to `wanted`, and those back.
pub fn change(
    rules: &dyn StatementRules,
    running: &[ConfigNode],
    wanted: &[ConfigNode],
) -> ConfigChange {
    let steps = diff::steps(rules, &mut Vec::new(), running, wanted);
    let mut lines = ChangeLines::default();
    lines.add(rules, &mut Vec::new(), &steps);
    lines.order_of_running(&mut Vec::new(), &steps);
    let ChangeLines {
        taken,
        put,
        taken_back,
        put_back,
    } = lines;
    ConfigChange {
        forward: [taken, put].concat(),
        inverse: [taken_back, put_back].concat(),
    }
}

/// Lines of a change, there and back.
#[derive(Default)]
struct ChangeLines {
    taken: String,
    put: String,
    taken_back: String,
    put_back: String,
}

impl ChangeLines {
    /// What is put, in the order of the wanted tree.
    fn add<'a>(
        &mut self,
        rules: &dyn StatementRules,
        path: &mut Vec<&'a str>,
        steps: &[TreeStep<'a>],
    ) {
        for step in steps {
            match &step.change {
                NodeChange::Put(now) => {
                    set(path, now, &mut self.put);
                    delete(rules, path, now, &mut self.taken_back);
                }
                NodeChange::Replace { now, .. } => set(path, now, &mut self.put),
                NodeChange::Within { now, steps, .. } => {
                    path.push(&now.name);
                    self.add(rules, path, steps);
                    path.pop();
                }
                NodeChange::Take(_) => {}
            }
        }
    }

    /// What goes, in the order of the running tree.
    fn order_of_running<'a>(&mut self, path: &mut Vec<&'a str>, steps: &[TreeStep<'a>]) {
        let mut steps: Vec<&TreeStep<'a>> = steps.iter().collect();
        steps.sort_by_key(|step| step.at);
        for step in steps {
            match &step.change {
                NodeChange::Take(was) => {
                    let line = typed("delete", path, was, "");
                    self.taken.push_str(&line);
                    set(path, was, &mut self.put_back);
                }
                NodeChange::Replace { was, .. } => set(path, was, &mut self.put_back),
                NodeChange::Within { was, steps, .. } => {
                    path.push(&was.name);
                    self.order_of_running(path, steps);
                    path.pop();
                }
                NodeChange::Put(_) => {}
            }
        }
    }
}

/// Adds `set` lines of a node and of everything below it.
fn set<'a>(path: &mut Vec<&'a str>, node: &'a ConfigNode, text: &mut String) {
    if node.line.is_some() {
        text.push_str(&typed("set", path, node, &node.value));
    }
    path.push(&node.name);
    for child in node.facts() {
        set(path, child, text);
    }
    path.pop();
}

/// Adds `delete` lines that take a node away: one for each entry, where it has several.
fn delete<'a>(
    rules: &dyn StatementRules,
    path: &mut Vec<&'a str>,
    node: &'a ConfigNode,
    text: &mut String,
) {
    path.push(&node.name);
    let is_entry = path.len() >= rules.entry_words(path) || node.below.is_empty();
    if !is_entry {
        for child in node.facts() {
            delete(rules, path, child, text);
        }
    }
    path.pop();
    if is_entry {
        text.push_str(&typed("delete", path, node, ""));
    }
}

/// A line of a verb, a path, a node and its value, if it has one.
fn typed(verb: &str, path: &[&str], node: &ConfigNode, value: &str) -> String {
    let words = path.iter().copied().chain([node.name.as_str(), value]);
    let words: Words = words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    format!("{verb} {}\n", shown(&words))
}

/// The nodes after a change of `set` and `delete` lines was loaded.
///
/// # Errors
/// [`ReadError`] names the first line of the change that is neither.
pub fn apply(
    rules: &dyn StatementRules,
    nodes: &mut Vec<ConfigNode>,
    change: &str,
) -> Result<(), ReadError> {
    let mut loaded = Vec::new();
    for (number, line) in change.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let (verb, words) = verb_and_words(trimmed, number + 1)?;
        match verb.as_str() {
            "set" => loaded.extend(unlisted(words).map(|words| statement(rules, &words))),
            "delete" => {
                let mut node = statement(rules, &words);
                take(&mut node);
                loaded.push(node);
            }
            _ => return Err(unexpected(number + 1, trimmed)),
        }
    }
    load(rules, nodes, &loaded);
    Ok(())
}

fn take(node: &mut ConfigNode) {
    node.sign = Sign::Take;
    node.below.iter_mut().for_each(take);
}

/// A statement as a path of nodes, the last of which has its line.
pub fn statement(rules: &dyn StatementRules, words: &[String]) -> ConfigNode {
    let is_single = rules.single().iter().any(|pattern| fits(pattern, words));
    let (names, value) = match words.split_last() {
        Some((value, names)) if is_single => (names, value.as_str()),
        _ => (words, ""),
    };
    let mut nodes = names.iter().rev().map(|name| ConfigNode::part(name, ""));
    let mut node = nodes.next().unwrap_or_default();
    value.clone_into(&mut node.value);
    node.line = Some(format!("set {}", shown(words)));
    nodes.fold(node, |below, mut node| {
        node.below.push(below);
        node
    })
}

fn fits(pattern: &str, words: &[String]) -> bool {
    let mut pattern = pattern.split(' ');
    let each = words.iter().all(|word| {
        let wanted = pattern.next();
        wanted.is_some_and(|wanted| wanted == "*" || wanted == word)
    });
    each && pattern.next().is_none()
}

/// The last node of a path.
fn last(node: &mut ConfigNode) -> &mut ConfigNode {
    match node.below.is_empty() {
        true => node,
        false => last(&mut node.below[0]),
    }
}

/// Words as they are typed.
fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:*<>$@,+%".contains(c);
    let shown = words.iter().map(|word| match word.chars().all(plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn unexpected(number: usize, line: &str) -> ReadError {
    let shown: String = line.chars().take(40).collect();
    ReadError {
        what: WHAT,
        line: Some(number),
        message: format!(
            "`{shown}` is no `set` line; export with `show configuration | display set`"
        ),
    }
}

/// Splits a line at its blanks, quoted parts apart.
fn verb_and_words(line: &str, number: usize) -> Result<(String, Words), ReadError> {
    let mut words = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(first) = chars.peek().copied() {
        if first.is_whitespace() {
            chars.next();
            continue;
        }
        let mut word = String::new();
        if first == '"' {
            chars.next();
            let mut closed = false;
            while let Some(c) = chars.next() {
                match c {
                    '"' => {
                        closed = true;
                        break;
                    }
                    '\\' => word.extend(chars.next()),
                    c => word.push(c),
                }
            }
            if !closed {
                return Err(ReadError {
                    what: WHAT,
                    line: Some(number),
                    message: "a quote is opened and not closed".to_owned(),
                });
            }
        } else {
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        words.push(word);
    }
    let verb = words.remove(0);
    Ok((verb, words))
}

/// One statement for each value of a list in brackets: `a [ b c ]` is `a b` and `a c`.
fn unlisted(words: Words) -> impl Iterator<Item = Words> {
    let open = words.iter().position(|word| word == "[");
    let close = words.iter().rposition(|word| word == "]");
    let expanded = match (open, close) {
        (Some(open), Some(close)) if open < close => {
            let values = words[open + 1..close].iter();
            values
                .map(|value| {
                    let mut one = words[..open].to_vec();
                    one.push(value.clone());
                    one.extend_from_slice(&words[close + 1..]);
                    one
                })
                .collect()
        }
        _ => vec![words],
    };
    expanded.into_iter()
}
