//! How long a message waits for segments that it could do without (rule 10 of [`super`]).

use serde::{Deserialize, Serialize};

use crate::outlook::earlier;
use crate::units::{Instant, MessageKey};

/// The patience of a posted message.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum MessagePatience {
    /// It waits for every segment that is not lost.
    #[default]
    Endless,
    /// It waits so until then.
    Until(Instant),
    /// It waits no longer for segments that it could do without.
    Over,
    /// It has given up such segments.
    Used,
}

impl MessagePatience {
    /// Of a message that is posted with this request.
    pub(super) fn new(ends: Option<Instant>) -> Self {
        ends.map_or(Self::Endless, Self::Until)
    }

    /// When it ends, unless it has ended.
    pub(super) fn ends(self) -> Option<Instant> {
        match self {
            Self::Until(at) => Some(at),
            Self::Endless | Self::Over | Self::Used => None,
        }
    }

    /// Ends if it is time.
    pub(super) fn look(&mut self, now: Instant) {
        if self.ends().is_some_and(|at| at <= now) {
            *self = Self::Over;
        }
    }
}

/// The messages of one peer that are given up and have not begun to arrive.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct AbsentMessages {
    given_up: Vec<MessageKey>,
    /// No later than the end of patience with any posted message that has not begun to arrive.
    patience_ends: Option<Instant>,
}

impl AbsentMessages {
    /// How many are given up.
    pub(super) fn len(&self) -> usize {
        self.given_up.len()
    }

    /// Whether this message is given up.
    pub(super) fn has(&self, key: MessageKey) -> bool {
        self.given_up.contains(&key)
    }

    /// The message arrives or is cancelled; tells whether it was given up.
    pub(super) fn take(&mut self, key: MessageKey) -> bool {
        let at = self.given_up.iter().position(|given_up| *given_up == key);
        at.map(|at| self.given_up.swap_remove(at)).is_some()
    }

    /// A message is posted, and patience with it ends then.
    pub(super) fn await_patience(&mut self, ends: Option<Instant>) {
        self.patience_ends = earlier(self.patience_ends, ends);
    }

    /// Of the posted messages, patience with the first one ends then.
    pub(super) fn renew_patience(&mut self, ends: Option<Instant>) {
        self.patience_ends = ends;
    }

    /// A message is given up.
    pub(super) fn give_up(&mut self, key: MessageKey) {
        self.given_up.push(key);
    }

    /// When a message may have to be given up.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.patience_ends
    }
}
