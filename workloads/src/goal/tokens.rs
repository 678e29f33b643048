//! The words of a GOAL text, one after the other, without comments.

use std::str::FromStr;

use crate::fault::TextError;
use crate::words::did_you_mean;

const WORDS: [&str; 13] = [
    "num_ranks",
    "rank",
    "send",
    "recv",
    "calc",
    "to",
    "from",
    "tag",
    "cpu",
    "nic",
    "requires",
    "irequires",
    "b",
];

/// Words and the signs `{`, `}` and `:`, with their lines.
pub(super) struct Tokens<'a> {
    all: Vec<(usize, &'a str)>,
    next: usize,
}

/// The options behind an operation.
#[derive(Default)]
pub(super) struct Options {
    pub(super) tag: u32,
    pub(super) cpu: u16,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut all = Vec::new();
        let mut in_comment = false;
        for (index, line) in text.lines().enumerate() {
            let mut rest = line;
            while let Some(code) = code_of(&mut rest, &mut in_comment) {
                all.extend(words(code).map(|word| (index + 1, word)));
            }
        }
        Self { all, next: 0 }
    }

    pub(super) fn at_end(&self) -> bool {
        self.next >= self.all.len()
    }

    /// The line of the next word, or the last line at the end.
    pub(super) fn line(&self) -> usize {
        let here = self.all.get(self.next).or_else(|| self.all.last());
        here.map_or(1, |(line, _)| *line)
    }

    /// Returns the next word without taking it; empty at the end.
    pub(super) fn peek(&self) -> &'a str {
        self.all.get(self.next).map_or("", |(_, word)| word)
    }

    pub(super) fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.next += 1;
        word
    }

    /// Takes the next word if it is `word`.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, word: &str, allowed: &str) -> Result<(), TextError> {
        if self.takes(word) {
            return Ok(());
        }
        let given = self.next();
        Err(self.wrong(given, allowed))
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Result<T, TextError> {
        let given = self.next();
        let number = given.parse();
        number.map_err(|_| self.wrong(given, "a whole number from 0"))
    }

    /// Reads a number followed by `b`, in one word or two.
    pub(super) fn bytes(&mut self) -> Result<u64, TextError> {
        let given = self.next();
        let number = given.strip_suffix('b');
        let parsed = number.unwrap_or(given).parse().ok();
        let closed = number.is_some() || self.takes("b");
        parsed
            .filter(|_| closed)
            .ok_or_else(|| self.wrong(given, "bytes with a `b`, like `80b`"))
    }

    pub(super) fn rank(&mut self, ranks: u32) -> Result<u32, TextError> {
        let line = self.line();
        let rank = self.number()?;
        if rank < ranks {
            return Ok(rank);
        }
        let last = ranks.saturating_sub(1);
        let rule = format!("rank {rank}; `num_ranks {ranks}` allows 0 to {last}");
        Err(TextError::line(line, rule))
    }

    pub(super) fn label(&mut self) -> Result<String, TextError> {
        let given = self.next();
        let letter = given.starts_with(|first: char| first.is_ascii_alphabetic());
        let rest = given
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '_');
        if letter && rest {
            return Ok(given.to_owned());
        }
        let allowed = "an operation, a label (letters, digits, `_`) or `}`";
        Err(self.wrong(given, allowed))
    }

    /// Reads `tag`, `cpu` and `nic` in any order.
    pub(super) fn options(&mut self) -> Result<Options, TextError> {
        let mut options = Options::default();
        loop {
            if self.takes("tag") {
                options.tag = self.tag()?;
            } else if self.takes("cpu") {
                options.cpu = self.number()?;
            } else if self.takes("nic") {
                self.number::<u16>()?;
            } else {
                return Ok(options);
            }
        }
    }

    fn tag(&mut self) -> Result<u32, TextError> {
        if self.peek() == "-1" {
            let rule = "`tag -1` (any tag) is not simulated; name the tag";
            return Err(TextError::line(self.line(), rule));
        }
        self.number()
    }

    /// Makes the error for `given`, the last word taken.
    pub(super) fn wrong(&self, given: &str, allowed: &str) -> TextError {
        let last = self
            .all
            .get(self.next.saturating_sub(1))
            .or_else(|| self.all.last());
        let nearest = did_you_mean(given, WORDS);
        let rule = format!("`{given}`{nearest}: allowed here is {allowed}");
        TextError::line(last.map_or(1, |(line, _)| *line), rule)
    }
}

/// Cuts the next piece of code off a line; `None` when at most comments are left.
fn code_of<'a>(rest: &mut &'a str, in_comment: &mut bool) -> Option<&'a str> {
    if *in_comment {
        let (_, behind) = rest.split_once("*/")?;
        (*rest, *in_comment) = (behind, false);
    }
    if rest.is_empty() {
        return None;
    }
    let line_comment = rest.find("//").unwrap_or(rest.len());
    let comment = rest.find("/*").unwrap_or(rest.len());
    let code = &rest[..line_comment.min(comment)];
    if comment < line_comment {
        (*rest, *in_comment) = (&rest[comment + 2..], true);
    } else {
        *rest = "";
    }
    Some(code)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    const SIGNS: [char; 3] = ['{', '}', ':'];
    let blanks = code.split_whitespace();
    let pieces = blanks.flat_map(|word| word.split_inclusive(SIGNS));
    let parts = pieces.flat_map(|piece| match piece.strip_suffix(SIGNS) {
        None => [piece, ""],
        Some(word) => [word, &piece[word.len()..]],
    });
    parts.filter(|word| !word.is_empty())
}
