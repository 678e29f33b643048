//! Configurations of one fact a line, indented by what they belong to: an ordered tree of lines.
//!
//! [`Lines::read`] takes any text and [`Lines`] writes it back byte for byte, so what is not
//! touched stays as it was. [`grammar`] compares two trees by the slots that their lines fill, and
//! writes and loads the commands between them; [`order`] says which of two names comes first.
//! What a line means is not here: that is the platform's.

use std::fmt;

use crate::reading::ReadError;

pub mod grammar;
pub mod order;

/// Levels that are told apart; what is indented deeper stays at the last one.
const DEEPEST: usize = 48;

/// A text as an ordered tree of lines.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lines {
    /// Lines that belong to no other.
    pub below: Vec<Line>,
    /// Whether the last line lacks its line feed.
    unended: bool,
    /// Whether every line feed has a carriage return before it.
    returns: bool,
}

/// One line, and those indented deeper that follow it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Line {
    /// White space before the text.
    head: String,
    /// What it says, without white space around.
    pub text: String,
    /// White space behind the text, without the line feed.
    tail: String,
    /// Lines that belong to it.
    pub below: Vec<Self>,
}

impl Lines {
    /// The tree of a text. Empty lines and comments (`!`, `#`) go with the line that follows them.
    pub fn read(text: &str) -> Self {
        let mut builder = Builder::default();
        let returns =
            text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count();
        let plain = returns.then(|| text.replace("\r\n", "\n"));
        let text = plain.as_deref().unwrap_or(text);
        let unended = !text.is_empty() && !text.ends_with('\n');
        let body = text.strip_suffix('\n').unwrap_or(text);
        if !text.is_empty() {
            body.split('\n').for_each(|line| builder.add(line));
        }
        Self {
            below: builder.finish(),
            unended,
            returns,
        }
    }

    /// The tree of what `show running-config` printed: of commands, some of which begin with one of
    /// the `known` words, at least two.
    ///
    /// # Errors
    /// [`ReadError`] names the first line when none does.
    pub fn running_config(
        what: &'static str,
        text: &str,
        known: &[&str],
    ) -> Result<Self, ReadError> {
        let tree = Self::read(text);
        let is_known = |line: &Line| known.iter().any(|word| line.after(word).is_some());
        if facts(&tree.below).any(is_known) {
            return Ok(tree);
        }
        let first = text.lines().position(|line| !line.trim().is_empty());
        let found = first.and_then(|at| text.lines().nth(at)).unwrap_or("");
        let found: String = found.trim().chars().take(40).collect();
        let give = "give the output of `show running-config`, not of `| json`";
        Err(ReadError {
            what,
            line: Some(first.map_or(1, |at| at + 1)),
            message: match found.as_str() {
                "" => format!("it is empty; {give}"),
                _ => format!(
                    "`{found}` is no command, and no line begins with `{}` or `{}`; {give}",
                    known[0], known[1]
                ),
            },
        })
    }

    /// A tree of lines made by [`Line::new`], each level indented by so many spaces.
    pub fn indented(below: Vec<Line>, spaces: usize) -> Self {
        let mut tree = Self {
            below,
            ..Self::default()
        };
        for line in &mut tree.below {
            line.indent("", spaces);
        }
        tree
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for line in &self.below {
            line.write(&mut text);
        }
        if self.unended {
            text.pop();
        }
        match self.returns {
            true => f.write_str(&text.replace('\n', "\r\n")),
            false => f.write_str(&text),
        }
    }
}

impl Line {
    /// A line with others below it, not indented yet.
    pub fn new(text: impl Into<String>, below: Vec<Self>) -> Self {
        Self {
            text: text.into(),
            below,
            ..Self::default()
        }
    }

    /// A line with none below it, not indented yet.
    pub fn leaf(text: impl Into<String>) -> Self {
        Self::new(text, Vec::new())
    }

    /// Whether it says nothing: empty, or a comment.
    pub fn is_remark(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('!') || self.text.starts_with('#')
    }

    /// What stands behind these words, when the line begins with them; empty when nothing does.
    pub fn after(&self, words: &str) -> Option<&str> {
        let rest = self.text.strip_prefix(words)?;
        match rest.chars().next() {
            None => Some(rest),
            Some(first) => first.is_whitespace().then(|| rest.trim_start()),
        }
    }

    /// Lines directly below it that say something.
    pub fn facts(&self) -> impl Iterator<Item = &Self> {
        facts(&self.below)
    }

    /// Indents it as one of a level whose lines begin with `head`, and what is below it by so
    /// many spaces more.
    pub fn indent(&mut self, head: &str, spaces: usize) {
        head.clone_into(&mut self.head);
        let deeper = format!("{head}{}", " ".repeat(spaces));
        for line in &mut self.below {
            line.indent(&deeper, spaces);
        }
    }

    /// White space before it.
    pub fn head(&self) -> &str {
        &self.head
    }

    fn write(&self, text: &mut String) {
        text.push_str(&self.head);
        text.push_str(&self.text);
        text.push_str(&self.tail);
        text.push('\n');
        for line in &self.below {
            line.write(text);
        }
    }
}

/// Lines that say something.
pub fn facts(lines: &[Line]) -> impl Iterator<Item = &Line> {
    lines.iter().filter(|line| !line.is_remark())
}

/// Makes the tree, line by line.
#[derive(Default)]
struct Builder {
    done: Vec<Line>,
    /// Lines that may still get others below them, each with the width of its indentation.
    open: Vec<(usize, Line)>,
    /// Remarks that go with the next line.
    remarks: Vec<Line>,
}

impl Builder {
    fn add(&mut self, line: &str) {
        let text = line.trim();
        let width = line.len() - line.trim_start().len();
        let line = Line {
            head: line[..width].to_owned(),
            text: text.to_owned(),
            tail: line[width + text.len()..].to_owned(),
            below: Vec::new(),
        };
        if line.is_remark() {
            return self.remarks.push(line);
        }
        let closed = |open: &Vec<(usize, Line)>| {
            let last = open.last().map(|(last, _)| *last);
            last.is_some_and(|last| last >= width) || open.len() > DEEPEST
        };
        while closed(&self.open) {
            self.close();
        }
        let remarks = std::mem::take(&mut self.remarks);
        self.level().extend(remarks);
        self.open.push((width, line));
    }

    fn level(&mut self) -> &mut Vec<Line> {
        match self.open.last_mut() {
            Some((_, line)) => &mut line.below,
            None => &mut self.done,
        }
    }

    fn close(&mut self) {
        if let Some((_, line)) = self.open.pop() {
            self.level().push(line);
        }
    }

    fn finish(mut self) -> Vec<Line> {
        while !self.open.is_empty() {
            self.close();
        }
        self.done.append(&mut self.remarks);
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_written_back_byte_for_byte() {
        let deep: String = (0..200)
            .map(|depth| " ".repeat(depth) + "deeper\n")
            .collect();
        let texts = [
            "",
            "\n",
            "a",
            "a\n",
            "a\r\n  b \r\n\r\n c\n",
            "a\r\n  b \r\n\r\n c\r\n",
            "\r\r\n \r\n\r",
            "  a\n b\nc\n\n!\n  !\n d\n",
            "\ta\n        b\n\u{a0}c\u{2003}\n",
            &deep,
        ];
        for text in texts {
            assert_eq!(Lines::read(text).to_string(), text);
        }
    }

    #[test]
    fn a_line_belongs_to_the_one_that_is_indented_less() {
        let tree = Lines::read("a\n   !\n   b\n      c\n   d\n!\ne\n");
        let texts = |lines: &[Line]| {
            let texts = facts(lines).map(|line| line.text.clone());
            texts.collect::<Vec<_>>()
        };
        assert_eq!(texts(&tree.below), ["a", "e"]);
        let section = &tree.below[0];
        assert_eq!(texts(&section.below), ["b", "d"]);
        assert_eq!(section.below[0].text, "!");
        assert_eq!(texts(&section.below[1].below), ["c"]);
    }
}
