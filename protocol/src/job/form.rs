//! The form of a value in a TOML file, as far as an editor can check it while a person types.
//!
//! The reader of a file is stricter: it also knows ranges of sizes and times, and which values
//! contradict each other. A form never refuses what the reader takes.

use std::ops::RangeInclusive;

/// A size with or without its unit, as [`super::notation::size`] reads it.
pub const SIZE_PATTERN: &str = r"^\s*[0-9.]+\s*(B|[Kk]|KiB|[Mm]|MiB|[Gg]|GiB)?\s*$";
/// A share, as [`super::notation::share`] reads it.
pub const SHARE_PATTERN: &str = r"^\s*[0-9.]+\s*%?\s*$";
/// A length of time with its unit, as [`super::notation::span`] reads it.
pub const SPAN_PATTERN: &str = r"^\s*[0-9.]+\s*(s|ms|us|ns|ps)\s*$";

/// The form of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueForm {
    /// One of these texts.
    Words(Vec<&'static str>),
    /// A text that matches a regular expression; the empty one matches every text.
    Text(&'static str),
    /// A whole number.
    Whole(RangeInclusive<u64>),
    /// A number.
    Decimal(RangeInclusive<f64>),
    /// `true` or `false`.
    Flag,
    /// A list of values of one form, and how many it may have.
    List(Box<Self>, RangeInclusive<usize>),
    /// A table with these keys only.
    Table(Vec<FormKey>),
    /// A table whose keys are names, with values of one form.
    Named(Box<Self>),
    /// Any of these forms.
    AnyOf(Vec<Self>),
}

/// A key of a file or of a table in it.
#[derive(Clone, Debug, PartialEq)]
pub struct FormKey {
    /// Its name, without the table's.
    pub name: &'static str,
    /// Its sentence, and the allowed values.
    pub meaning: String,
    /// The value that counts without it, as TOML, if there is one.
    pub default: Option<String>,
    /// Whether a file without it is refused.
    pub need: KeyNeed,
    /// The form of its value.
    pub form: ValueForm,
}

/// Whether a key must be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyNeed {
    /// It must be.
    Required,
    /// It need not be.
    Optional,
}

impl ValueForm {
    /// A size in bytes, or with its unit.
    pub fn size() -> Self {
        Self::AnyOf(vec![Self::Text(SIZE_PATTERN), Self::Whole(0..=u64::MAX)])
    }

    /// A share as a number or with a per cent sign.
    pub fn share() -> Self {
        Self::AnyOf(vec![Self::Text(SHARE_PATTERN), Self::Decimal(0.0..=1.0)])
    }

    /// A length of time.
    pub fn span() -> Self {
        Self::Text(SPAN_PATTERN)
    }

    /// This form, or one word.
    pub fn or_word(self, word: &'static str) -> Self {
        Self::AnyOf(vec![Self::Words(vec![word]), self])
    }
}
