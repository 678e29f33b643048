//! The lines of one queue.

use crate::lint::Rule;
use crate::notation::words::{behind, bytes_behind};
use crate::reading::{Marking, Service};
use crate::tree::ConfigEntry;

use super::super::maps::FIRST_TO_DROP;

/// The lines of one queue.
#[derive(Debug, Default)]
pub(super) struct QueueLines {
    is_strict: Option<bool>,
    has_share: bool,
    percent: Option<u32>,
    marks: Option<Marking>,
    drops: Option<Marking>,
    mistakes: Vec<(Rule, String)>,
}

impl QueueLines {
    /// Reads the lines below `tx-queue N`.
    pub(super) fn of(section: &ConfigEntry) -> Self {
        let mut queue = Self::default();
        for line in section.facts() {
            queue.add(line.text());
        }
        queue.compare();
        queue
    }

    /// How it is served, where it says so.
    pub(super) fn service(&self, rank: u16) -> Option<Service> {
        match (self.is_strict, self.has_share) {
            (Some(true), _) => Some(Service::Strict { rank }),
            (Some(false), _) | (None, true) => Some(Service::weighted(self.percent)),
            (None, false) => None,
        }
    }

    /// When it marks and drops, where it says so.
    pub(super) fn marking(&self) -> Option<Marking> {
        Some(Marking {
            marks_ect: self.marks.is_some(),
            drops_droppable: self.drops.is_some(),
            ..self.drops.or(self.marks)?
        })
    }

    /// Contradictions, and values that no EOS takes.
    pub(super) fn mistakes(self) -> Vec<(Rule, String)> {
        self.mistakes
    }

    fn find(&mut self, rule: Rule, text: impl Into<String>) {
        self.mistakes.push((rule, text.into()));
    }

    fn add(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["priority", "strict"] => self.is_strict = Some(true),
            ["no", "priority"] => self.is_strict = Some(false),
            ["bandwidth", ref rest @ ..] => {
                self.has_share = true;
                self.percent = behind(rest, "percent").and_then(|text| text.parse().ok());
            }
            ["random-detect", "ecn", "count"] => {}
            ["random-detect", "ecn", ref rest @ ..] => {
                self.marks = self.detection(text, rest, "max-mark-probability");
            }
            ["random-detect", "drop", ref rest @ ..] => self.add_drops(text, rest),
            _ => {}
        }
    }

    fn add_drops(&mut self, text: &str, words: &[&str]) {
        let (precedence, rest) = match words {
            ["drop-precedence", precedence, rest @ ..] => (*precedence, rest),
            rest => ("", rest),
        };
        let found = self.detection(text, rest, "drop-probability");
        let (rule, mistake) = match precedence.parse() {
            Ok(FIRST_TO_DROP) => {
                self.drops = found;
                return;
            }
            Ok(0..FIRST_TO_DROP) => (
                Rule::DropPrecedence,
                "drops early what is to be kept; only drop-precedence 2 may be",
            ),
            Ok(_) => (Rule::Schema, "drop precedences are 0 to 2"),
            Err(_) => (
                Rule::DropPrecedence,
                "drops early whatever comes; name drop-precedence 2",
            ),
        };
        self.find(rule, format!("`{text}`: {mistake}"));
    }

    /// `minimum-threshold L UNIT maximum-threshold H UNIT WORD P weight W`.
    fn detection(&mut self, text: &str, words: &[&str], chance: &str) -> Option<Marking> {
        let depth = |name: &str| bytes_behind(words, name).filter(|depth| *depth > 0);
        let (low, high) = (depth("minimum-threshold"), depth("maximum-threshold"));
        let percent = behind(words, chance).map_or(Some(100), |percent| percent.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        let weight = behind(words, "weight").map_or(Some(0), |weight| weight.parse().ok());
        match weight.filter(|weight: &u8| *weight <= 15) {
            None => self.find(Rule::Schema, format!("`{text}`: weights are 0 to 15")),
            Some(0) => {}
            Some(weight) => self.find(
                Rule::Threshold,
                format!("`{text}`: weight {weight} averages the depth; the plan means it as it is"),
            ),
        }
        let (Some(low), Some(high), Some(percent)) = (low, high, percent) else {
            let mistake = format!(
                "`{text}`: wants thresholds above 0 in bytes, kbytes or mbytes and `{chance}` of 1 \
                 to 100"
            );
            self.find(Rule::Schema, mistake);
            return None;
        };
        Some(Marking {
            low,
            high,
            percent,
            marks_ect: false,
            drops_droppable: false,
        })
    }

    fn compare(&mut self) {
        if self.is_strict == Some(true) && self.has_share {
            let text = "is strict and has a bandwidth; the plan has none";
            self.find(Rule::StrictWeight, text);
        }
        if self.marks.is_some() && self.drops.is_some() {
            let text = "has `random-detect ecn` beside `random-detect drop`; a queue takes one";
            self.find(Rule::Schema, text);
        }
    }
}
