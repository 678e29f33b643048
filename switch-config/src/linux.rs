//! Linux: queueing disciplines, by the program `tc` of iproute2.
//!
//! Start here: [`form`] says which disciplines stand where, [`limits`] what Linux can do, [`render`]
//! writes a plan as a shell script.

mod code;
mod form;
mod limits;
mod object;
mod program;
mod render;

use form::Form;

use crate::counters::QueueCount;
use crate::dialect::{Change, Dialect, Look};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// Linux.
#[derive(Debug)]
pub struct Linux;

impl Dialect for Linux {
    fn limits(&self, version: &str) -> Limits {
        limits::limits(Form::of_version(version))
    }

    fn port_name(&self, number: usize) -> String {
        format!("swp{number}")
    }

    fn render(&self, plan: &Plan) -> String {
        render::script(plan)
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
