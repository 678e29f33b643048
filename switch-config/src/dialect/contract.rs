//! The contract of every platform: [`Dialect`], and the commands that it tells people.

use serde::Serialize;

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::limits::PlatformLimits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// A command for people, and its expected result.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Look {
    /// The command, as typed on the switch.
    pub command: String,
    /// The expected result.
    pub expect: String,
}

/// The steps of a text: a command in a line of its own, and the expected result
/// below it, indented.
pub(crate) fn steps(text: &str) -> Vec<Look> {
    let mut steps: Vec<Look> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("    "), steps.last_mut()) {
            (Some(more), Some(step)) => {
                let space = if step.expect.is_empty() { "" } else { " " };
                step.expect.push_str(space);
                step.expect.push_str(more);
            }
            _ => steps.push(Look {
                command: line.to_owned(),
                expect: String::new(),
            }),
        }
    }
    steps
}

/// A platform: it writes plans, reads configurations, and changes them.
pub trait Dialect: Sync {
    /// The abilities of this version.
    fn limits(&self, version: &str) -> PlatformLimits;

    /// The platform's name for its port of this number, from 0: the default.
    fn port_name(&self, number: usize) -> String;

    /// The plan as a whole configuration, loadable as it is. Equal plans give equal bytes.
    fn render(&self, plan: &Plan) -> String;

    /// Reads the plan's ports from an exported configuration. A value that a schema would refuse
    /// is no error but a finding.
    ///
    /// # Errors
    /// [`ReadError`] when the text is not of the platform's form at all.
    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError>;

    /// The change from an exported running configuration to the plan. Only entries that the plan
    /// names are touched.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError>;

    /// The running configuration after a change was loaded, in the platform's own order, as the
    /// switch would export it then.
    ///
    /// # Errors
    /// As [`Self::read`], for the running configuration or the change.
    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError>;

    /// How a change is loaded, tried without effect, and rolled back: commands for people.
    fn procedure(&self, plan: &Plan) -> Vec<Look>;

    /// Commands that show the result of loading, in order.
    fn looks(&self, plan: &Plan) -> Vec<Look>;

    /// The counters of an export of one of those looks, or of several.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError>;
}
