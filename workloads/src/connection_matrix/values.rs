//! The words of a line and their values.

use std::str::FromStr;

use gradwire_protocol::units::Instant;

use crate::fault::TextError;
use crate::words::{NumberedLine, did_you_mean};
use crate::workload::{Start, TriggerId};

const FROM_ONE: &str = "a whole number from 1";

/// The words of a line after its first one.
pub(super) struct MatrixWords<'a> {
    line: usize,
    rest: std::vec::IntoIter<&'a str>,
}

impl<'a> MatrixWords<'a> {
    pub(super) fn after_first(line: &NumberedLine<'a>) -> Self {
        let mut rest = line.words.clone().into_iter();
        rest.next();
        Self {
            line: line.number,
            rest,
        }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    pub(super) fn number<T: FromStr>(&mut self, key: &str, allowed: &str) -> Result<T, TextError> {
        let given = self.next().unwrap_or("");
        given.parse().map_err(|_| self.value(key, given, allowed))
    }

    pub(super) fn number_from_one<T: FromStr + Default + PartialEq>(
        &mut self,
        key: &str,
    ) -> Result<T, TextError> {
        let number = self.number(key, FROM_ONE)?;
        if number == T::default() {
            return Err(self.value(key, "0", FROM_ONE));
        }
        Ok(number)
    }

    pub(super) fn trigger(&mut self, key: &str) -> Result<TriggerId, TextError> {
        self.number_from_one(key).map(TriggerId)
    }

    /// htsim reads a floating-point number and drops its fraction.
    pub(super) fn start(&mut self, start: &mut Option<Start>) -> Result<(), TextError> {
        let given = self.next().unwrap_or("");
        let picos = given
            .parse::<f64>()
            .ok()
            .filter(|picos| (0.0..1.8e19).contains(picos));
        let allowed = "a time in picoseconds from 0";
        let picos = picos.ok_or_else(|| self.value("start", given, allowed))?;
        self.begin(start, Start::At(Instant::from_picos(picos as u64)))
    }

    pub(super) fn wait_for(&mut self, start: &mut Option<Start>) -> Result<(), TextError> {
        let trigger = self.trigger("trigger")?;
        self.begin(start, Start::On(trigger))
    }

    fn begin(&self, start: &mut Option<Start>, given: Start) -> Result<(), TextError> {
        match start.replace(given) {
            None => Ok(()),
            Some(_) => {
                let rule = "a connection has one `start` or one `trigger`, not both";
                Err(TextError::line(self.line, rule))
            }
        }
    }

    pub(super) fn tier(&mut self) -> Result<u8, TextError> {
        match self.next().unwrap_or("") {
            "TOR" => Ok(0),
            "AGG" => Ok(1),
            "CORE" => Ok(2),
            given => Err(self.value("switch_type", given, "TOR, AGG or CORE")),
        }
    }

    fn value(&self, key: &str, given: &str, allowed: &str) -> TextError {
        TextError::value(self.line, key, given, allowed)
    }

    pub(super) fn unknown(&self, given: &str, allowed: &str) -> TextError {
        let known = allowed
            .split([',', ' '])
            .filter(|word| !["", "and"].contains(word));
        let nearest = did_you_mean(given, known);
        let rule = format!("`{given}`{nearest}: allowed here are {allowed}");
        TextError::line(self.line, rule)
    }
}
