//! Nvue.

use crate::counters::QueueCount;
use crate::dialect::{Change, Dialect, Look};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// Nvue.
#[derive(Debug)]
pub struct Nvue;

impl Dialect for Nvue {
    fn limits(&self, _version: &str) -> Limits {
        unimplemented!()
    }

    fn port_name(&self, number: usize) -> String {
        format!("swp{number}")
    }

    fn render(&self, _plan: &Plan) -> String {
        unimplemented!()
    }

    fn read(&self, _plan: &Plan, _text: &str) -> Result<Reading, ReadError> {
        unimplemented!()
    }

    fn change(&self, _plan: &Plan, _running: &str) -> Result<Change, ReadError> {
        unimplemented!()
    }

    fn apply(&self, _running: &str, _change: &str) -> Result<String, ReadError> {
        unimplemented!()
    }

    fn procedure(&self, _plan: &Plan) -> Vec<Look> {
        unimplemented!()
    }

    fn looks(&self, _plan: &Plan) -> Vec<Look> {
        unimplemented!()
    }

    fn counters(&self, _plan: &Plan, _text: &str) -> Result<Vec<QueueCount>, ReadError> {
        unimplemented!()
    }
}
