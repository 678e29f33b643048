//! A table of an evaluation: numbers, pictures, goals, and the command that makes them again.
//!
//! A [`Section`] has no form: [`super::markdown`], [`super::page`] and serde write it as Markdown,
//! HTML and JSON.

use serde::{Serialize, Serializer};

use super::findings::TableFindings;

/// One table with its text, pictures and goals.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its name for `--only`.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The source of its numbers.
    pub source: Source,
    /// Its findings, and how to make them again.
    #[serde(flatten)]
    pub outcome: TableOutcome,
}

/// The outcome of a table.
#[derive(Clone, Debug, Serialize)]
pub struct TableOutcome {
    /// The findings from the available results.
    #[serde(flatten)]
    pub found: TableFindings,
    /// The study's own report in Markdown, if it wrote one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<String>,
    /// The commands that make the numbers again.
    pub commands: Vec<String>,
    /// Missing parts, each with its remedy.
    pub missing: Vec<String>,
}

/// The source of numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The simulator, packet by packet.
    Simulated,
    /// Real training on this machine.
    Trained,
}

impl Source {
    /// The label beside every table.
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
    /// Their subject.
    pub caption: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with one value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Grid {
    /// A grid of rows with a value for each of these columns.
    pub fn new<C: Into<String>>(
        caption: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
        rows: impl IntoIterator<Item = Vec<Value>>,
    ) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.into_iter().map(C::into).collect(),
            rows: rows.into_iter().collect(),
        }
    }
}

/// One value of a grid.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A name.
    Text(String),
    /// A number, shown with this many digits behind the point.
    Number(f64, usize),
    /// A change in percent, shown with its sign.
    Change(f64),
    /// The value is unknown.
    Missing,
}

impl Value {
    /// A name.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Makes a cell of a number that may be missing.
    pub fn number(value: Option<f64>, digits: usize) -> Self {
        value.map_or(Self::Missing, |value| Self::Number(value, digits))
    }

    /// Makes a cell of a change in percent that may be missing.
    pub fn change(percents: Option<f64>) -> Self {
        percents.map_or(Self::Missing, Self::Change)
    }

    /// Returns the value for people.
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

/// Writes a change in percent, with its sign.
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
    /// Its subject.
    pub caption: String,
    /// The axis title, with the unit.
    pub axis: String,
    /// Its bars or curves.
    pub shape: ChartShape,
}

/// The content of a picture.
#[derive(Clone, Debug)]
pub enum ChartShape {
    /// Bars side by side: names of the series, and groups with a bar of each series.
    Bars(Vec<String>, Vec<(String, Vec<Option<f64>>)>),
    /// Curves over an axis with this title, by name.
    Curves(String, Vec<(String, Vec<(f64, f64)>)>),
}

/// A goal.
#[derive(Clone, Debug, Serialize)]
pub struct EvalGoal {
    /// The goal in words.
    pub what: String,
    /// The finding.
    pub found: String,
    /// Whether the goal is reached.
    pub state: GoalState,
}

/// Whether a goal is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum GoalState {
    /// Reached.
    Met,
    /// Missed.
    Missed,
    /// Open: not enough is known.
    Open,
}

impl GoalState {
    /// Returns its mark: a tick, a cross or a question mark.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Met => "✓",
            Self::Missed => "✗",
            Self::Open => "?",
        }
    }

    /// Returns whether `met` is true; `None` leaves the goal open.
    pub fn of(met: Option<bool>) -> Self {
        match met {
            Some(true) => Self::Met,
            Some(false) => Self::Missed,
            None => Self::Open,
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
