//! `set` lines: read, put in, taken out, in the order in which Junos shows them.
//!
//! A configuration is kept as its lines, so that what nobody touches stays as it is. What the
//! statements mean is not here.

use std::cmp::Ordering;

use crate::lines::order::natural;
use crate::reading::ReadError;

/// What a text should have been.
pub(super) const WHAT: &str = "Junos configuration in `set` lines";

/// Statements in the order in which the models of Junos name them, where that is not the order of
/// the alphabet (Juniper/yang 24.4R1, junos-qfx-conf-class-of-service).
const ORDER: [&str; 23] = [
    "classifiers",
    "code-point-aliases",
    "host-outbound-traffic",
    "drop-profiles",
    "forwarding-classes",
    "traffic-control-profiles",
    "forwarding-class-sets",
    "forwarding-class-set",
    "congestion-notification-profile",
    "interfaces",
    "routing-instances",
    "rewrite-rules",
    "scheduler-maps",
    "scheduler-map",
    "schedulers",
    "transmit-rate",
    "shaping-rate",
    "buffer-size",
    "priority",
    "drop-profile-map",
    "explicit-congestion-notification",
    "fill-level",
    "drop-probability",
];

/// Statements that have one value: `*` stands for any word, the last word is the value.
const SINGLE: [&str; 8] = [
    "class-of-service forwarding-classes class * queue-num *",
    "class-of-service scheduler-maps * forwarding-class * scheduler *",
    "class-of-service schedulers * priority *",
    "class-of-service schedulers * drop-profile-map loss-priority * protocol * drop-profile *",
    "class-of-service traffic-control-profiles * scheduler-map *",
    "class-of-service interfaces * scheduler-map *",
    "class-of-service interfaces * congestion-notification-profile *",
    "class-of-service interfaces * forwarding-class-set * output-traffic-control-profile *",
];

/// The words of one statement, without `set`.
pub(super) type Words = Vec<String>;

/// One line of a configuration.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Line {
    /// `set ...`, and the line as it was written.
    Set(Words, String),
    /// `deactivate ...`: what is below is there, and not in force.
    Deactivate(Words, String),
    /// A comment or an empty line, as it is.
    Other(String),
}

impl Line {
    /// The line of a statement.
    fn written(words: Words) -> Self {
        let line = format!("set {}", shown(&words));
        Self::Set(words, line)
    }
}

/// One line of a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Edit {
    /// Puts a statement in.
    Set(Words),
    /// Takes out everything that begins with these words.
    Delete(Words),
}

/// A configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Statements {
    lines: Vec<Line>,
}

impl Statements {
    /// Reads what `show configuration | display set` exports.
    pub(super) fn parse(text: &str) -> Result<Self, ReadError> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("/*") {
                lines.push(Line::Other(line.to_owned()));
                continue;
            }
            let (verb, words) = verb_and_words(trimmed, number + 1)?;
            match verb.as_str() {
                "set" if words.last().is_some_and(|word| word == "]") => {
                    lines.extend(unlisted(words).map(Line::written));
                }
                "set" => lines.push(Line::Set(words, line.to_owned())),
                "deactivate" => lines.push(Line::Deactivate(words, line.to_owned())),
                "activate" | "annotate" | "protect" => lines.push(Line::Other(line.to_owned())),
                _ => return Err(unexpected(number + 1, trimmed)),
            }
        }
        Ok(Self { lines })
    }

    /// The configuration as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            match line {
                Line::Set(_, line) | Line::Deactivate(_, line) | Line::Other(line) => {
                    text.push_str(line);
                }
            }
            text.push('\n');
        }
        text
    }

    /// All statements, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Words> {
        self.lines.iter().filter_map(|line| match line {
            Line::Set(words, _) => Some(words),
            _ => None,
        })
    }

    /// The statements that are in force: not deactivated.
    pub(super) fn in_force(&self) -> impl Iterator<Item = &Words> {
        let off: Vec<&Words> = self.lines.iter().filter_map(deactivated).collect();
        self.all()
            .filter(move |words| !off.iter().any(|prefix| words.starts_with(prefix)))
    }

    /// The statement that this one would take the place of: of the same place, one value only.
    pub(super) fn replaced_by(&self, words: &[String]) -> Option<&Words> {
        let place = single_place(words)?;
        self.all().find(|old| {
            old.len() == words.len() && old.starts_with(place) && old.as_slice() != words
        })
    }

    /// Makes a change.
    pub(super) fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Set(words) => self.set(words),
            Edit::Delete(prefix) => self.lines.retain(|line| match line {
                Line::Set(words, _) => !words.starts_with(prefix),
                _ => true,
            }),
        }
    }

    fn set(&mut self, words: &Words) {
        if self.all().any(|old| old == words) {
            return;
        }
        let replaced = self.replaced_by(words).cloned();
        if let Some(old) = replaced {
            let same = |line: &&mut Line| matches!(line, Line::Set(words, _) if *words == old);
            let line = self.lines.iter_mut().find(same);
            *line.expect("it was just found") = Line::written(words.clone());
            return;
        }
        let at = self.place_of(words);
        self.lines.insert(at, Line::written(words.clone()));
    }

    /// Where a new statement goes: among those that begin as it does, before the first that is
    /// shown later.
    fn place_of(&self, words: &[String]) -> usize {
        let shared = |line: &Line| match line {
            Line::Set(old, _) => old.iter().zip(words).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let most = self.lines.iter().map(shared).max().unwrap_or(0);
        if most == 0 {
            return self.lines.len();
        }
        let group = || (0..self.lines.len()).filter(|at| shared(&self.lines[*at]) == most);
        let later = group().find(|at| match (&self.lines[*at], words.get(most)) {
            (Line::Set(old, _), Some(word)) => old
                .get(most)
                .is_some_and(|other| order(other, word) == Ordering::Greater),
            _ => false,
        });
        later.unwrap_or_else(|| group().next_back().map_or(self.lines.len(), |at| at + 1))
    }
}

/// Reads the lines of a change.
pub(super) fn edits(text: &str) -> Result<Vec<Edit>, ReadError> {
    let mut edits = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let (verb, words) = verb_and_words(trimmed, number + 1)?;
        match verb.as_str() {
            "set" => edits.extend(unlisted(words).map(Edit::Set)),
            "delete" => edits.push(Edit::Delete(words)),
            _ => return Err(unexpected(number + 1, trimmed)),
        }
    }
    Ok(edits)
}

/// Changes as lines that can be loaded.
pub(super) fn written(edits: &[Edit]) -> String {
    let line = |edit: &Edit| match edit {
        Edit::Set(words) => format!("set {}\n", shown(words)),
        Edit::Delete(words) => format!("delete {}\n", shown(words)),
    };
    edits.iter().map(line).collect()
}

/// Words of a text that has no quotes.
pub(super) fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Words as they are typed.
pub(super) fn shown(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:*<>$@,+%".contains(c);
    let shown = words.iter().map(|word| match word.chars().all(plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The place of a statement of one value: all its words but the value.
fn single_place(words: &[String]) -> Option<&[String]> {
    let fits = |pattern: &&&str| {
        let mut pattern = pattern.split(' ');
        let each = words.iter().all(|word| {
            let wanted = pattern.next();
            wanted.is_some_and(|wanted| wanted == "*" || wanted == word)
        });
        each && pattern.next().is_none()
    };
    SINGLE.iter().find(fits)?;
    words.split_last().map(|(_, place)| place)
}

fn deactivated(line: &Line) -> Option<&Words> {
    match line {
        Line::Deactivate(words, _) => Some(words),
        _ => None,
    }
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

/// Which of two words, at the same place, is shown first.
fn order(a: &str, b: &str) -> Ordering {
    let rank = |word: &str| ORDER.iter().position(|known| *known == word);
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => natural(a, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_taken_out_and_put_back_has_its_place_again() {
        let text = "set class-of-service interfaces et-0/0/2 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 congestion-notification-profile p\n\
                    set class-of-service interfaces et-0/0/10 scheduler-map a\n\
                    set class-of-service interfaces et-0/0/10 unit 0 classifiers dscp a\n\
                    set class-of-service scheduler-maps a forwarding-class b scheduler c\n";
        for line in text.lines() {
            let mut statements = Statements::parse(text).expect("set lines");
            let gone = words(line.trim_start_matches("set "));
            statements.edit(&Edit::Delete(gone.clone()));
            assert_ne!(statements.text(), text);
            statements.edit(&Edit::Set(gone));
            assert_eq!(statements.text(), text);
        }
    }

    #[test]
    fn quotes_and_lists_are_understood() {
        let text = "set system login message \"a \\\"b\\\" c\"\n";
        let statements = Statements::parse(text).expect("set lines");
        assert_eq!(statements.text(), text);
        let listed = Statements::parse("set a fill-level [ 5 6 ]\n").expect("set lines");
        assert_eq!(listed.text(), "set a fill-level 5\nset a fill-level 6\n");
    }
}
