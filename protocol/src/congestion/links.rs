//! Losses of links, told from those of queues by the share that is lost where no queue is seen.
//!
//! A bad link loses as many packets beside a queue as without one; a full queue drops many, an
//! empty one none. So links explain the losses of a round trip if it lost no more, chance included,
//! than calm round trips do, and if packets beside queues are not lost clearly more often. A loss
//! is found a round trip late, when its queue may have gone, so a round trip is calm only some
//! round trips after the last queue and the last cut.

use super::Feedback;

/// After this many segments, older ones count half.
const LINK_MEMORY: u64 = 1 << 14;
/// Round trips without a queue and without a cut after which a path is calm.
const CALM_AFTER: u32 = 4;
/// Links explain no loss where fewer than this many are expected in a round trip.
const EXPECTED_MIN: f64 = 0.02;
/// They explain one more than expected, and this many standard deviations: chance exceeds that in
/// about one of 50 round trips.
const DEVIATIONS: f64 = 1.5;
/// They explain none where more packets beside a queue are lost than this many times their share,
/// by more than chance.
const CLEARLY_MORE: f64 = 2.0;

/// The shares of segments that are lost without a queue and beside one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LinkLosses {
    calm: LossCount,
    queued: LossCount,
    /// Round trips since the last queue and the last cut.
    calm_rounds: u32,
    /// This round trip.
    round: LossCount,
}

#[derive(Clone, Copy, Debug, Default)]
struct LossCount {
    segments: u64,
    lost: u64,
}

impl LossCount {
    fn add(&mut self, feedback: &Feedback) {
        self.segments += u64::from(feedback.segments) + u64::from(feedback.lost);
        self.lost += u64::from(feedback.lost);
        if self.segments > LINK_MEMORY {
            (self.segments, self.lost) = (self.segments / 2, self.lost / 2);
        }
    }

    fn share(self) -> f64 {
        self.lost as f64 / self.segments.max(1) as f64
    }

    /// Whether chance may lose this many of them where this share is lost.
    fn is_chance(self, share: f64) -> bool {
        let expected = share * self.segments as f64;
        let beyond = self.lost.saturating_sub(1) as f64 - expected;
        beyond <= DEVIATIONS * expected.sqrt()
    }
}

impl LinkLosses {
    /// Takes the news of an acknowledgement that comes while no queue is seen.
    pub(super) fn note_alone(&mut self, feedback: &Feedback) {
        self.round.add(feedback);
        if self.calm_rounds >= CALM_AFTER {
            self.calm.add(feedback);
        }
    }

    /// Takes the news of an acknowledgement that comes while a queue is seen.
    pub(super) fn note_beside_queue(&mut self, feedback: &Feedback) {
        self.round.add(feedback);
        self.calm_rounds = 0;
        self.queued.add(feedback);
    }

    /// Whether the losses of this round trip are no more than links would lose, too.
    pub(super) fn explain_losses(&self) -> bool {
        let share = self.calm.share();
        let expected = share * self.round.segments as f64;
        expected >= EXPECTED_MIN
            && self.round.is_chance(share)
            && self.queued.is_chance(CLEARLY_MORE * share)
    }

    /// The window was cut.
    pub(super) fn on_cut(&mut self) {
        self.calm_rounds = 0;
    }

    /// A round trip is over.
    pub(super) fn end_round(&mut self) {
        self.round = LossCount::default();
        self.calm_rounds = self.calm_rounds.saturating_add(1);
    }
}
