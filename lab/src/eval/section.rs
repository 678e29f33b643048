//! The content of a table in a report: numbers, pictures, goals, and the commands that compute them
//! again.
//!
//! A [`Section`] is independent of Markdown, HTML and JSON: [`super::markdown`], [`super::page`]
//! and serde write it.

use serde::{Serialize, Serializer};

/// One table with everything that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name for `--only`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Where its numbers come from.
    pub source: Source,
    /// Paragraphs: the runs, and how to read their numbers.
    pub about: Vec<String>,
    /// The numbers.
    pub grids: Vec<Grid>,
    /// The pictures; they show numbers of the grids.
    #[serde(skip)]
    pub charts: Vec<Chart>,
    /// The goals, and whether they were reached.
    pub goals: Vec<EvalGoal>,
    /// The study's own summary, in Markdown, where it wrote one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// Commands that compute the numbers again.
    pub commands: Vec<String>,
    /// Missing results, and how to get them.
    pub missing: Vec<String>,
}

/// Where numbers come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The simulator, packet by packet.
    Simulated,
    /// Real training on this machine.
    Trained,
}

impl Source {
    /// The word for it that stands beside every table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Trained => "real training",
        }
    }
}

/// Rows of numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Grid {
    /// Describes the numbers.
    pub caption: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// As many values in each row as there are columns.
    pub rows: Vec<Vec<Value>>,
}

/// One value of a grid.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A name.
    Text(String),
    /// A number, shown with so many digits behind the point.
    Number(f64, usize),
    /// A share as percents with a sign, of a number of percents.
    Change(f64),
    /// Unknown.
    Missing,
}

impl Value {
    /// A name.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number that may be missing.
    pub fn number(value: Option<f64>, digits: usize) -> Self {
        value.map_or(Self::Missing, |value| Self::Number(value, digits))
    }

    /// A change in percents that may be missing.
    pub fn change(percents: Option<f64>) -> Self {
        percents.map_or(Self::Missing, Self::Change)
    }

    /// The value for people.
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, digits) => format!("{value:.digits$}"),
            Self::Change(percents) => change(*percents),
            Self::Missing => "-".to_owned(),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => to.serialize_str(text),
            Self::Number(value, _) | Self::Change(value) => to.serialize_f64(*value),
            Self::Missing => to.serialize_none(),
        }
    }
}

/// A change in percents, with its sign.
pub fn change(percents: f64) -> String {
    let text = format!("{percents:+.1} %");
    match text.as_str() {
        "-0.0 %" => "+0.0 %".to_owned(),
        _ => text,
    }
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Describes the picture.
    pub caption: String,
    /// Title and unit of its numbers.
    pub axis: String,
    /// Its content.
    pub shape: ChartShape,
}

/// The form of a picture.
#[derive(Clone, Debug)]
pub enum ChartShape {
    /// Bars side by side: names of the series, and groups with a bar of each series.
    Bars(Vec<String>, Vec<(String, Vec<Option<f64>>)>),
    /// Curves over an axis with this title, by name.
    Curves(String, Vec<(String, Vec<(f64, f64)>)>),
}

/// Something that was to be reached.
#[derive(Clone, Debug, Serialize)]
pub struct EvalGoal {
    /// The goal.
    pub what: String,
    /// The result.
    pub found: String,
    /// Whether that is enough.
    pub state: GoalState,
}

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GoalState {
    /// It is.
    Met,
    /// It is not.
    Missed,
    /// Not enough is known.
    Open,
}

impl GoalState {
    /// The state for a comparison's outcome; `None` where the numbers are unknown.
    pub fn of(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::Missed,
            None => Self::Open,
        }
    }

    /// The word for it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Open => "open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_sign_and_zero_is_not_negative() {
        assert_eq!(change(84.34), "+84.3 %");
        assert_eq!(change(-43.1), "-43.1 %");
        assert_eq!(change(-0.01), "+0.0 %");
    }

    #[test]
    fn numbers_stay_numbers_for_programs() {
        let row = [
            Value::text("vgg16"),
            Value::number(Some(1.25), 1),
            Value::change(None),
        ];
        assert_eq!(
            serde_json::to_string(&row).expect("it is JSON"),
            r#"["vgg16",1.25,null]"#
        );
        assert_eq!(row.map(|value| value.shown()), ["vgg16", "1.2", "-"]);
    }
}
