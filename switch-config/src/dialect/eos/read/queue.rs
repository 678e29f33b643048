//! The lines of one queue.

use crate::lint::Rule;
use crate::reading::{Marking, Service};
use crate::tree::ConfigEntry;

use super::super::maps::FIRST_TO_DROP;

/// Thresholds and probability of marks or of drops.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Detection {
    low: u64,
    high: u64,
    percent: u8,
}

/// The lines of one queue.
#[derive(Debug, Default)]
pub(super) struct QueueLines {
    is_strict: Option<bool>,
    has_share: bool,
    marks: Option<Detection>,
    drops: Option<Detection>,
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
            (Some(false), _) | (None, true) => Some(Service::Weighted),
            (None, false) => None,
        }
    }

    /// Whether it says when it marks or drops.
    pub(super) fn speaks(&self) -> bool {
        self.marks.is_some() || self.drops.is_some()
    }

    /// When it marks and drops.
    pub(super) fn marking(&self) -> Option<Marking> {
        let first = self.drops.or(self.marks)?;
        Some(Marking {
            low: first.low,
            high: first.high,
            percent: first.percent,
            marks_ect: self.marks.is_some(),
            drops_droppable: self.drops.is_some(),
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
            ["bandwidth", ..] => self.has_share = true,
            ["random-detect", "ecn", "count"] => {}
            ["random-detect", "ecn", ref rest @ ..] => {
                self.marks = self.detection(text, rest, "max-mark-probability");
            }
            [
                "random-detect",
                "drop",
                "drop-precedence",
                precedence,
                ref rest @ ..,
            ] => {
                self.add_drops(text, precedence, rest);
            }
            ["random-detect", "drop", ref rest @ ..] => self.add_drops(text, "", rest),
            _ => {}
        }
    }

    fn add_drops(&mut self, text: &str, precedence: &str, rest: &[&str]) {
        let found = self.detection(text, rest, "drop-probability");
        match precedence.parse() {
            Ok(FIRST_TO_DROP) => self.drops = found,
            Ok(0..FIRST_TO_DROP) => self.find(
                Rule::DropPrecedence,
                format!("`{text}`: drops early what is to be kept; only drop-precedence 2 may be"),
            ),
            Ok(_) => self.find(
                Rule::Schema,
                format!("`{text}`: drop precedences are 0 to 2"),
            ),
            Err(_) => self.find(
                Rule::DropPrecedence,
                format!("`{text}`: drops early whatever comes; name drop-precedence 2"),
            ),
        }
    }

    /// `minimum-threshold L UNIT maximum-threshold H UNIT WORD P weight W`.
    fn detection(&mut self, text: &str, words: &[&str], chance: &str) -> Option<Detection> {
        let value = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            words.get(at + 1).copied()
        };
        let unit = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            words.get(at + 2).copied()
        };
        let depth = |key: &str| {
            let depth: u64 = value(key)?.parse().ok()?;
            let size = unit_bytes(unit(key)?)?;
            depth.checked_mul(size).filter(|depth| *depth > 0)
        };
        let low = depth("minimum-threshold");
        let high = depth("maximum-threshold");
        let percent = value(chance).map_or(Some(100), |percent| percent.parse().ok());
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        let weight = value("weight").map_or(Some(0), |weight| weight.parse().ok());
        match weight.filter(|weight: &u8| *weight <= 15) {
            None => self.find(Rule::Schema, format!("`{text}`: weights are 0 to 15")),
            Some(0) => {}
            Some(weight) => self.find(
                Rule::Threshold,
                format!("`{text}`: weight {weight} averages the depth; the plan means it as it is"),
            ),
        }
        let (Some(low), Some(high), Some(percent)) = (low, high, percent) else {
            self.find(
                Rule::Schema,
                format!(
                    "`{text}`: wants thresholds above 0 in bytes, kbytes or mbytes and `{chance}` \
                     of 1 to 100"
                ),
            );
            return None;
        };
        Some(Detection { low, high, percent })
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

/// Bytes of a unit; those of time and of memory cells differ from port to port.
fn unit_bytes(unit: &str) -> Option<u64> {
    match unit {
        "bytes" => Some(1),
        "kbytes" => Some(1000),
        "mbytes" => Some(1_000_000),
        _ => None,
    }
}
