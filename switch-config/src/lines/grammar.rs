//! From one tree of lines to another by the commands that a switch takes, and back.
//!
//! A line fills a slot: the words that it shares with whatever would replace it, `service-profile`
//! of `service-profile X`. [`change`] compares slot by slot, and only slots that the wanted tree
//! fills; [`apply`] does to a tree what a switch does when commands are typed. Both are told by a
//! [`Grammar`] what a platform's lines are.

use std::cmp::Ordering;

use super::{Line, Lines, facts};
use crate::dialect::Change;

/// What stands between the sections of a configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fence {
    /// Nothing.
    None,
    /// A line `!` before each.
    Before,
    /// A line `!` behind each group of equal rank.
    Behind,
}

/// What a platform's lines are.
pub trait Grammar {
    /// The slot that a command fills, as its first words, or all; `no` and `default` were taken
    /// off. `section` is the line that it stands below; empty at the top.
    fn slot<'a>(&self, section: &str, command: &'a str) -> &'a str;

    /// Where a command stands among those of its section: commands of a lower rank come first,
    /// equal ones in natural order of their text. `None`: not known, it keeps its place.
    fn rank(&self, section: &str, command: &str) -> Option<usize>;

    /// Whether a section is all the plan's: what is in it and not in the plan is removed.
    fn is_ours(&self, section: &str) -> bool;

    /// What stands between this line and the next of its section.
    fn fence(&self, section: &str, command: &str) -> Fence;

    /// What a command takes away; `None` when it puts something. A platform may show some `no X`
    /// as what they are, and put them.
    fn takes_away<'a>(&self, _section: &str, command: &'a str) -> Option<&'a str> {
        let rest = command.strip_prefix("no ");
        rest.or_else(|| command.strip_prefix("default "))
    }

    /// The command that takes a line away again that was not there before.
    fn removal(&self, section: &str, command: &str) -> String {
        format!("no {}", self.slot(section, command))
    }

    /// Spaces by which a level is indented.
    fn spaces(&self) -> usize;
}

/// What must change in `running` so that every slot that `wanted` fills is as it says, and how
/// that is undone. A wanted `no X` is there when nothing fills the slot of `X`.
pub fn change(running: &Lines, wanted: &Lines, grammar: &dyn Grammar) -> Change {
    let comparison = Comparison {
        grammar,
        section: "",
    };
    let found = comparison.differ(&running.below, &wanted.below);
    let text = |lines| Lines::indented(lines, grammar.spaces()).to_string();
    Change {
        forward: text(found.forward),
        inverse: text(found.inverse.into_iter().rev().collect()),
    }
}

/// Commands there and back.
#[derive(Default)]
struct Found {
    forward: Vec<Line>,
    inverse: Vec<Line>,
}

impl Found {
    fn add(&mut self, forward: Line, inverse: Line) {
        self.forward.push(forward);
        self.inverse.push(inverse);
    }
}

/// Compares the lines of one section.
struct Comparison<'a> {
    grammar: &'a dyn Grammar,
    section: &'a str,
}

impl Comparison<'_> {
    fn slot<'b>(&self, line: &'b Line) -> &'b str {
        slot(self.grammar, self.section, &line.text)
    }

    fn differ(&self, running: &[Line], wanted: &[Line]) -> Found {
        let mut found = Found::default();
        for line in facts(wanted) {
            let same = facts(running).find(|other| self.slot(other) == self.slot(line));
            self.compare(line, same, &mut found);
        }
        if self.grammar.is_ours(self.section) {
            let is_wanted =
                |line: &&Line| facts(wanted).any(|other| self.slot(other) == self.slot(line));
            for line in facts(running).filter(|line| !is_wanted(line)) {
                found.add(self.removal(line), line.clone());
            }
        }
        found
    }

    fn compare(&self, line: &Line, same: Option<&Line>, found: &mut Found) {
        let is_negation = self.takes_away(line);
        let same = same.filter(|same| !(is_negation && self.takes_away(same)));
        match same {
            None if is_negation => {}
            None => found.add(line.clone(), self.removal(line)),
            Some(same) if is_negation => found.add(line.clone(), same.clone()),
            Some(same) if line.below.is_empty() && same.below.is_empty() => {
                if line.text != same.text {
                    found.add(line.clone(), same.clone());
                }
            }
            Some(same) => {
                let inner = Comparison {
                    grammar: self.grammar,
                    section: &line.text,
                };
                let inner = inner.differ(&same.below, &line.below);
                if !inner.forward.is_empty() {
                    found.add(
                        Line::new(&line.text, inner.forward),
                        Line::new(&same.text, inner.inverse),
                    );
                }
            }
        }
    }

    fn takes_away(&self, line: &Line) -> bool {
        let taken = self.grammar.takes_away(self.section, &line.text);
        taken.is_some()
    }

    fn removal(&self, line: &Line) -> Line {
        Line::leaf(self.grammar.removal(self.section, &line.text))
    }
}

/// The slot of a command, with or without `no` or `default` before it.
fn slot<'a>(grammar: &dyn Grammar, section: &str, command: &'a str) -> &'a str {
    let mut words = ["no ", "default "].into_iter();
    let bare = words.find_map(|word| command.strip_prefix(word));
    grammar.slot(section, bare.unwrap_or(command))
}

/// `running` after the commands were typed. `no X` and `default X` take away what fills the slot
/// of `X`; a switch does not show them.
pub fn apply(running: &Lines, commands: &Lines, grammar: &dyn Grammar) -> Lines {
    let mut tree = running.clone();
    let level = Level {
        grammar,
        section: "",
        head: "",
    };
    level.load(&mut tree.below, &commands.below);
    tree.unended &= !tree.below.is_empty();
    tree
}

/// The lines of one section, and what they are indented by.
struct Level<'a> {
    grammar: &'a dyn Grammar,
    section: &'a str,
    head: &'a str,
}

impl Level<'_> {
    fn load(&self, lines: &mut Vec<Line>, commands: &[Line]) {
        for command in facts(commands) {
            let slot = slot(self.grammar, self.section, &command.text);
            let same = |line: &Line| {
                !line.is_remark() && self::slot(self.grammar, self.section, &line.text) == slot
            };
            let at = lines.iter().position(same);
            let taken = self.grammar.takes_away(self.section, &command.text);
            match (at, taken) {
                (None, Some(_)) => {}
                (Some(at), Some(_)) => self.take(lines, at),
                (Some(at), None) => self.enter(&mut lines[at], command),
                (None, None) => self.insert(lines, command),
            }
        }
    }

    /// Puts a command where its slot is.
    fn enter(&self, line: &mut Line, command: &Line) {
        line.text.clone_from(&command.text);
        let head = match facts(&line.below).next() {
            Some(first) => first.head.clone(),
            None => format!("{}{}", line.head, " ".repeat(self.grammar.spaces())),
        };
        let inner = Level {
            grammar: self.grammar,
            section: &command.text,
            head: &head,
        };
        inner.load(&mut line.below, &command.below);
    }

    /// Puts a command where its rank is.
    fn insert(&self, lines: &mut Vec<Line>, command: &Line) {
        let mut line = Line::leaf(&command.text);
        line.head = self.head.to_owned();
        self.enter(&mut line, command);
        let follows = |other: &Line| !other.is_remark() && self.is_before(&line, other);
        let anchor = lines.iter().position(follows);
        let mut at = anchor.unwrap_or_else(|| self.end(lines));
        match self.grammar.fence(self.section, &line.text) {
            Fence::None => lines.insert(at, line),
            Fence::Before => {
                while at > 0 && lines[at - 1].is_remark() && anchor.is_some() {
                    at -= 1;
                }
                lines.splice(at..at, [self.bar(), line]);
            }
            Fence::Behind => {
                let joins = |other: Option<&Line>| {
                    other.is_some_and(|other| self.are_one_group(other, &line))
                };
                let before = at.checked_sub(1).and_then(|at| lines.get(at));
                if joins(lines.get(at)) || joins(before) {
                    lines.insert(at, line);
                } else if at >= 2 && joins(lines.get(at - 2)) && lines[at - 1].text == "!" {
                    lines.insert(at - 1, line);
                } else {
                    lines.splice(at..at, [line, self.bar()]);
                }
            }
        }
    }

    /// Takes a line away, and the fence that came with it.
    fn take(&self, lines: &mut Vec<Line>, at: usize) {
        let line = lines.remove(at);
        let is_bar = |at: Option<usize>| {
            let other = at.and_then(|at| lines.get(at));
            other.is_some_and(|other| other.text == "!")
        };
        match self.grammar.fence(self.section, &line.text) {
            Fence::None => {}
            Fence::Before if is_bar(at.checked_sub(1)) => {
                lines.remove(at - 1);
            }
            Fence::Behind if is_bar(Some(at)) => {
                let before = at.checked_sub(1).and_then(|at| lines.get(at));
                if !before.is_some_and(|before| self.are_one_group(before, &line)) {
                    lines.remove(at);
                }
            }
            Fence::Before | Fence::Behind => {}
        }
    }

    /// Where a line goes that none must follow: behind the last that says something.
    fn end(&self, lines: &[Line]) -> usize {
        let last = lines.iter().rposition(|line| !line.is_remark());
        match self.grammar.fence(self.section, "") {
            Fence::Behind => lines.len(),
            _ => last.map_or(lines.len(), |last| last + 1),
        }
    }

    fn bar(&self) -> Line {
        let mut bar = Line::leaf("!");
        bar.head = self.head.to_owned();
        bar
    }

    /// Whether both are lines of one group: of equal rank, without others below them.
    fn are_one_group(&self, one: &Line, other: &Line) -> bool {
        let rank = |line: &Line| self.grammar.rank(self.section, &line.text);
        let is_leaf = |line: &Line| line.below.is_empty() && !line.is_remark();
        rank(one).is_some() && rank(one) == rank(other) && is_leaf(one) && is_leaf(other)
    }

    fn is_before(&self, one: &Line, other: &Line) -> bool {
        let rank = |line: &Line| self.grammar.rank(self.section, &line.text);
        let (Some(left), Some(right)) = (rank(one), rank(other)) else {
            return false;
        };
        let by_text = || super::order::natural(&one.text, &other.text);
        left.cmp(&right).then_with(by_text) == Ordering::Less
    }
}

#[cfg(test)]
mod tests;
