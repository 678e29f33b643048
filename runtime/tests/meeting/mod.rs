//! Where ranks of one test wait for each other, but not forever: a rank that has panicked never
//! arrives, and the test should report that instead of hanging.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Longer than any work of a rank between two meetings.
const LONGEST: Duration = Duration::from_secs(60);

/// A barrier that can be used again and again, whose waits end.
pub(crate) struct Meeting {
    ranks: u64,
    /// How many have arrived, of all rounds together.
    come: Mutex<u64>,
    one_more: Condvar,
}

impl Meeting {
    /// A meeting of `ranks` ranks.
    pub(crate) fn of(ranks: u16) -> Self {
        Self {
            ranks: ranks.into(),
            come: Mutex::new(0),
            one_more: Condvar::new(),
        }
    }

    /// Waits for all ranks; panics when they do not arrive.
    pub(crate) fn wait(&self) {
        self.wait_at_most(LONGEST);
    }

    /// As [`Meeting::wait`], with a patience of its own.
    pub(crate) fn wait_at_most(&self, patience: Duration) {
        let mut come = self.come.lock().expect("nobody panics with it");
        *come += 1;
        let all = come.div_ceil(self.ranks) * self.ranks;
        self.one_more.notify_all();
        let waited = self
            .one_more
            .wait_timeout_while(come, patience, |come| *come < all);
        let (come, _) = waited.expect("nobody panics with it");
        let (missing, ranks) = (all.saturating_sub(*come), self.ranks);
        drop(come);
        assert!(
            missing == 0,
            "{missing} of {ranks} ranks did not come within {patience:?}: it has failed, which is \
             told above or below, or it stands still"
        );
    }
}
