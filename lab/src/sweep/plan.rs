//! The content of a plan: the base of all cells and the varied values, each with its line.
//!
//! This file only reads a plan. [`scenario`](crate::sim::scenario) decides the keys,
//! [`cells`](super::cells) the cells.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The table whose keys are dotted keys of a job.
const SET: &str = "set";
/// The heading of a case.
const CASES: &str = "[[cases]]";
/// The key of a case's name; it is no key of a scenario.
const NAME: &str = "name";

/// A plan as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SweepPlan {
    /// The entries common to all cells.
    pub base: Vec<PlanEntry>,
    /// The values of each varied key, in the order of the plan; no list is empty.
    pub ranges: Vec<Vec<PlanEntry>>,
    /// Keys that change together.
    pub cases: Vec<Vec<PlanEntry>>,
}

/// One value of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanEntry {
    /// Its key.
    pub key: Key,
    /// The value.
    pub value: Value,
    /// Its line in the plan, from 1.
    pub line: usize,
}

/// A key of a scenario.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Key {
    /// A field.
    Field(String),
    /// A key of the job, under `set`.
    Set(String),
    /// The name of a case, which does not affect results.
    Name,
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, "{name}"),
            Self::Set(name) => write!(formatter, "{SET}.\"{name}\""),
            Self::Name => write!(formatter, "{NAME}"),
        }
    }
}

impl PlanEntry {
    /// Puts the value into a scenario, replacing an earlier one.
    pub fn put(&self, scenario: &mut Value) {
        match &self.key {
            Key::Field(name) => scenario[name.as_str()] = self.value.clone(),
            Key::Set(name) => scenario[SET][name.as_str()] = self.value.clone(),
            Key::Name => {}
        }
    }
}

/// Errors of a plan.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SweepPlanError {
    /// A line is faulty: no TOML, an unknown table or key, or a value that is refused.
    #[error("line {line}: {message}")]
    Line {
        /// Line of the plan, from 1.
        line: usize,
        /// The fault and its remedy.
        message: String,
    },
    /// The plan lacks a key that every scenario needs.
    #[error("{message}: write it in [base]")]
    Missing {
        /// The missing key.
        message: String,
    },
    /// There are too many cells.
    #[error("the plan has {cells} cells: allowed are at most {most}")]
    Size {
        /// How many there are.
        cells: u128,
        /// The largest allowed number.
        most: usize,
    },
    /// Two cells are equal.
    #[error("two cells are the same, {cell}: write each value of a key once, in one place")]
    Same {
        /// The varied keys and values.
        cell: String,
    },
}

impl SweepPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// [`SweepPlanError`] names the first faulty line and its remedy.
    pub fn from_toml(text: &str) -> Result<Self, SweepPlanError> {
        let reader = Reader { text };
        let root = DeTable::parse(text).map_err(|error| SweepPlanError::Line {
            line: error.span().map_or(1, |span| reader.line(&span)),
            message: error.message().replace('\n', ", "),
        })?;
        let mut plan = Self::default();
        for (name, value) in in_order(root.get_ref()) {
            match name.get_ref().as_ref() {
                "base" => plan.base = reader.entries("[base]", value)?,
                "ranges" => plan.ranges = reader.ranges(value)?,
                "cases" => plan.cases = reader.cases(value)?,
                other => {
                    return Err(SweepPlanError::Line {
                        line: reader.line(&name.span()),
                        message: format!(
                            "unknown table `{other}`; known are [base], [ranges] and [[cases]]"
                        ),
                    });
                }
            }
        }
        Ok(plan)
    }
}

type Written<'a> = (
    &'a Spanned<std::borrow::Cow<'a, str>>,
    &'a Spanned<DeValue<'a>>,
);

/// Returns the keys of a table in their written order.
fn in_order<'a>(table: &'a DeTable<'a>) -> Vec<Written<'a>> {
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    keys
}

struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn wrong(&self, value: &Spanned<DeValue<'_>>, what: &str, allowed: &str) -> SweepPlanError {
        SweepPlanError::Line {
            line: self.line(&value.span()),
            message: format!("{what}: allowed {allowed}"),
        }
    }

    /// Returns the keys of a table with their values; those of `set` are joined by dots.
    fn keys<'a>(
        &self,
        what: &str,
        table: &'a Spanned<DeValue<'a>>,
    ) -> Result<Vec<(Key, &'a Spanned<DeValue<'a>>)>, SweepPlanError> {
        let Some(written) = table.get_ref().as_table() else {
            return Err(self.wrong(table, what, "is a table of keys and values"));
        };
        let mut keys = Vec::new();
        for (name, value) in in_order(written) {
            match (name.get_ref().as_ref(), value.get_ref().as_table()) {
                (SET, Some(job)) => dotted("", job, &mut keys),
                (SET, None) => {
                    let allowed = "are keys of a job, such as set.\"transport.gap\"";
                    return Err(self.wrong(value, SET, allowed));
                }
                (NAME, _) if what == CASES => keys.push((Key::Name, value)),
                (name, _) => keys.push((Key::Field(name.to_owned()), value)),
            }
        }
        Ok(keys)
    }

    fn entry(&self, key: Key, value: &Spanned<DeValue<'_>>) -> Result<PlanEntry, SweepPlanError> {
        let line = self.line(&value.span());
        let deserializer = ValueDeserializer::from(value.clone());
        match Value::deserialize(deserializer) {
            Ok(value) => Ok(PlanEntry { key, value, line }),
            Err(error) => Err(SweepPlanError::Line {
                line,
                message: format!("{key}: {}", error.message()),
            }),
        }
    }

    fn entries(
        &self,
        what: &str,
        table: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<PlanEntry>, SweepPlanError> {
        let keys = self.keys(what, table)?.into_iter();
        keys.map(|(key, value)| self.entry(key, value)).collect()
    }

    fn cases(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<Vec<PlanEntry>>, SweepPlanError> {
        let Some(tables) = value.get_ref().as_array() else {
            return Err(self.wrong(value, "cases", "are tables, each headed [[cases]]"));
        };
        let tables = tables.iter();
        tables.map(|table| self.entries(CASES, table)).collect()
    }

    fn ranges(&self, table: &Spanned<DeValue<'_>>) -> Result<Vec<Vec<PlanEntry>>, SweepPlanError> {
        let keys = self.keys("[ranges]", table)?.into_iter();
        keys.map(|(key, value)| self.range(key, value)).collect()
    }

    fn range(
        &self,
        key: Key,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Vec<PlanEntry>, SweepPlanError> {
        let wrong = || {
            let allowed = "are a list of values, or whole numbers as \"1..=10\"";
            self.wrong(value, &format!("the range of {key}"), allowed)
        };
        match value.get_ref() {
            DeValue::Array(values) if !values.is_empty() => {
                let values = values.iter();
                values.map(|value| self.entry(key.clone(), value)).collect()
            }
            DeValue::String(text) => {
                let line = self.line(&value.span());
                let numbers = whole_numbers(text).ok_or_else(wrong)?;
                let entry = |number| PlanEntry {
                    key: key.clone(),
                    value: Value::from(number),
                    line,
                };
                Ok(numbers.map(entry).collect())
            }
            _ => Err(wrong()),
        }
    }
}

fn dotted<'a>(
    before: &str,
    table: &'a DeTable<'a>,
    keys: &mut Vec<(Key, &'a Spanned<DeValue<'a>>)>,
) {
    for (name, value) in in_order(table) {
        let name = format!("{before}{}", name.get_ref());
        match value.get_ref().as_table() {
            Some(inner) => dotted(&format!("{name}."), inner, keys),
            None => keys.push((Key::Set(name), value)),
        }
    }
}

/// Reads the numbers of `"1..=10"`: at least one, and at most as many as a plan may have cells.
fn whole_numbers(text: &str) -> Option<std::ops::RangeInclusive<u64>> {
    let (first, last) = text.split_once("..=")?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    let few = last >= first && last - first < super::cells::MOST as u64;
    few.then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        SweepPlan::from_toml(text)
            .expect_err("the plan is wrong")
            .to_string()
    }

    #[test]
    fn values_keep_their_order_and_line() {
        let text = "[base]\nworkload = \"incast:15x64KB\"\nset.loss.min_message = \"1KiB\"\n\
                    [ranges]\nseed = \"3..=5\"\n\
                    set.\"transport.gap\" = [\n  \"1ms\",\n  \"2ms\"\n]\n";
        let plan = SweepPlan::from_toml(text).expect("the plan is right");
        let told = |entries: &[PlanEntry]| {
            let told = entries
                .iter()
                .map(|entry| format!("{} {} = {}", entry.line, entry.key, entry.value));
            told.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            told(&plan.base),
            "2 workload = \"incast:15x64KB\", 3 set.\"loss.min_message\" = \"1KiB\""
        );
        let ranges: Vec<String> = plan.ranges.iter().map(|range| told(range)).collect();
        assert_eq!(
            ranges,
            [
                "5 seed = 3, 5 seed = 4, 5 seed = 5",
                "7 set.\"transport.gap\" = \"1ms\", 8 set.\"transport.gap\" = \"2ms\"",
            ]
        );
    }

    #[test]
    fn what_belongs_nowhere_is_named_with_its_line() {
        assert_eq!(
            refusal("[base]\nseed = 1\n[rnages]\n"),
            "line 3: unknown table `rnages`; known are [base], [ranges] and [[cases]]"
        );
        assert!(refusal("[base]\nseed = = 1\n").starts_with("line 2: "));
        assert_eq!(
            refusal("\nbase = 1\n"),
            "line 2: [base]: allowed is a table of keys and values"
        );
        assert_eq!(
            refusal("[cases]\nseed = 1\n"),
            "line 1: cases: allowed are tables, each headed [[cases]]"
        );
    }

    #[test]
    fn a_range_is_a_list_or_two_numbers() {
        for given in [
            "5",
            "[]",
            "\"1..10\"",
            "\"9..=1\"",
            "\"0..=9999999999\"",
            "{ a = 1 }",
        ] {
            assert_eq!(
                refusal(&format!("[ranges]\nseed = {given}\n")),
                "line 2: the range of seed: allowed are a list of values, \
                 or whole numbers as \"1..=10\""
            );
        }
    }
}
