//! The contract of every platform: [`Dialect`].

use super::commands::{self, CommandWords, Look};
use crate::change::ConfigChange;
use crate::counters::{QueueCount, neutral};
use crate::limits::PlatformLimits;
use crate::plan::Plan;
use crate::ports::SeenPorts;
use crate::reading::{ReadError, Reading};

/// The data of a platform, as text.
#[derive(Clone, Copy, Debug)]
pub struct PlatformTexts {
    /// Its `limits.toml`.
    pub limits: &'static str,
    /// Its `commands.txt`.
    pub commands: &'static str,
}

/// A platform: it writes plans, reads configurations, and changes them.
pub trait Dialect: Sync {
    /// Its data.
    fn texts(&self) -> PlatformTexts;

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

    /// The ports that an export names.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn ports(&self, text: &str) -> Result<SeenPorts, ReadError>;

    /// The change from an exported running configuration to the plan. Only entries that the plan
    /// names are touched.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn change(&self, plan: &Plan, running: &str) -> Result<ConfigChange, ReadError>;

    /// The running configuration after a change was loaded, as the switch would export it then.
    /// New commands go to the end of their section, even where a switch sorts them, unless the
    /// order changes their meaning.
    ///
    /// # Errors
    /// As [`Self::read`], for the running configuration or the change.
    fn apply(&self, running: &str, change: &str) -> Result<String, ReadError>;

    /// The counters of an export in one of the platform's own forms.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn own_counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError>;

    /// Words of its `commands.txt` that only this platform has.
    fn words(&self, _plan: &Plan) -> CommandWords {
        CommandWords::new()
    }

    /// The abilities of this version.
    fn limits(&self, version: &str) -> PlatformLimits {
        PlatformLimits::of(version, self.texts().limits)
    }

    /// How a change is loaded, tried without effect, and rolled back: commands for people.
    fn procedure(&self, plan: &Plan) -> Vec<Look> {
        commands::list(self.texts().commands, "load", plan, &self.words(plan))
    }

    /// Commands that show the result of loading, in order.
    fn looks(&self, plan: &Plan) -> Vec<Look> {
        commands::list(self.texts().commands, "look", plan, &self.words(plan))
    }

    /// The counters of an export of one of those looks, or of several, or in the neutral form.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn counters(&self, plan: &Plan, text: &str) -> Result<Vec<QueueCount>, ReadError> {
        neutral::read(text).unwrap_or_else(|| self.own_counters(plan, text))
    }
}
