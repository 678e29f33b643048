//! The contract of every platform: [`Dialect`], and the commands that it tells people.

use crate::change::ConfigChange;
use crate::counters::QueueCount;
use crate::limits::PlatformLimits;
use crate::plan::Plan;
use crate::reading::{ReadError, Reading};

/// One thing to look at after a plan was applied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Look {
    /// The command, as typed on the switch.
    pub command: String,
    /// What it should show.
    pub expect: String,
}

/// The steps of a text: a command in a line of its own, and below it, indented, what it shows.
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

/// A platform: how a plan is written there, and how what is there is read.
pub trait Dialect: Sync {
    /// What this version can do.
    fn limits(&self, version: &str) -> PlatformLimits;

    /// What the platform calls its port of this number, from 0: used where nobody says.
    fn port_name(&self, number: usize) -> String;

    /// The plan as a whole configuration, loadable as it is. Equal plans give equal bytes.
    fn render(&self, plan: &Plan) -> String;

    /// What an exported configuration says of the plan's ports. What a schema would refuse is no
    /// error but a finding.
    ///
    /// # Errors
    /// [`ReadError`] when the text is not of the platform's form at all.
    fn read(&self, plan: &Plan, text: &str) -> Result<Reading, ReadError>;

    /// What must change in an exported running configuration. Only what the plan names is touched.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError>;

    /// The running configuration after a change was loaded, in the platform's own order: what a
    /// switch would export then.
    ///
    /// # Errors
    /// As [`Self::read`], for the running configuration or the change.
    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError>;

    /// How a change is loaded, tried without effect, and rolled back: commands for people.
    fn procedure(&self, plan: &Plan) -> Vec<Look>;

    /// What to look at after loading, in order.
    fn looks(&self, plan: &Plan) -> Vec<Look>;

    /// The counters of an export of one of those looks, or of several.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError>;
}
