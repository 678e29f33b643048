//! Notices that this process itself did not run, because it was stopped or starved.
//!
//! The other ranks count such a process as dead after `peer_timeout`. It cannot know which of its
//! operations still hold by then, so it ends itself.

use std::time::Duration;

use tokio::time::Instant;

use super::participant::Participant;

/// Compares the time between two looks at the clock with the longest time allowed.
pub(super) struct StallDetector {
    limit: Duration,
    last_look: Instant,
}

impl StallDetector {
    /// Looks at the clock per `limit`.
    const LOOKS: u32 = 16;

    /// A rank that does not run for `limit` counts as dead.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            last_look: Instant::now(),
        }
    }

    /// Ends when the next look is due.
    pub(super) async fn tick(&self) {
        tokio::time::sleep_until(self.last_look + self.limit / Self::LOOKS).await;
    }

    /// Aborts the job if this process has not run for longer than the limit.
    pub(super) fn look(&mut self, participant: &mut Participant) {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.last_look, now);
        if gap > self.limit {
            participant.stalled(gap, self.limit);
        }
    }
}
