//! Whether a window that shrank for delay has shortened the round trip, or others fill the queue.

use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Round trips after a cut for delay until it must have worked.
const DELAY_TRIAL_ROUNDS: usize = 2;

/// Cuts for delay whose effect is watched.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct DelayTrial {
    /// The window and the round trip before the first of them.
    pub(super) bytes: u64,
    pub(super) round_trip: Span,
    /// The window in the last round trips, the newest last.
    pub(super) rounds: [u64; DELAY_TRIAL_ROUNDS],
    /// Whether the round trip has since fallen to the target, if this window must keep it there.
    pub(super) has_followed: bool,
}

impl DelayTrial {
    pub(super) fn new(bytes: u64, round_trip: Span) -> Self {
        Self {
            bytes,
            round_trip,
            rounds: [bytes; DELAY_TRIAL_ROUNDS],
            has_followed: false,
        }
    }

    /// A round trip is over; returns by how much the newest one exceeds the one that this window
    /// would have alone.
    ///
    /// A full link serves as much in a round trip as the window held when it began.
    pub(super) fn delay_of_others(&mut self, bytes: u64, round_trip: Span) -> Span {
        let kept = self.rounds[0] as f64 / self.bytes as f64;
        self.rounds.rotate_left(1);
        self.rounds[DELAY_TRIAL_ROUNDS - 1] = bytes;
        let alone = (self.round_trip.as_picos() as f64 * kept) as u64;
        round_trip.beyond(Span::from_picos(alone))
    }
}
