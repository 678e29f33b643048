//! Losses of links, told from those of queues by the share that is lost where no queue is seen.
//!
//! A bad link loses as many packets beside a queue as without one; a full queue drops many, an
//! empty one none. So links explain the losses of a round trip if it lost no more, chance included,
//! than calm round trips do, and if packets beside queues are not lost clearly more often. A loss
//! is found a round trip late, when its queue may have gone, so a round trip is calm only some
//! round trips after the last queue and the last cut.

use super::{Feedback, LOSS_IGNORED};

/// After this many segments, older ones count half.
const LINK_MEMORY: u64 = 1 << 14;
/// Round trips without a queue and without a cut after which a path is calm.
const CALM_AFTER: u32 = 4;
/// Links explain no loss where fewer than this many are expected in a round trip.
const EXPECTED_MIN: f64 = 0.02;
/// They explain one more than expected, and this many standard deviations: chance exceeds that in
/// about one of 50 round trips.
const DEVIATIONS: f64 = 1.5;
/// A round trip may lose what as many before it have spared.
const SPARED_ROUNDS: f64 = 2.0;
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
    /// Segments that arrived in the round trip before.
    segments_before: u32,
    /// Losses beyond the share that is ignored, less those that earlier round trips have spared.
    excess: f64,
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

    /// Whether a round trip in which so many segments arrived has lost clearly more than the share
    /// that is ignored, or several in a row have lost more together. A loss is found up to a round
    /// trip after the packets have arrived that were sent beside it, and later where reports are
    /// lost, too: what the round trips before have lost less counts.
    pub(super) fn lost_too_many(&mut self, segments: u32, lost: u32) -> bool {
        let beside = segments.max(std::mem::replace(&mut self.segments_before, segments));
        let ignored = LOSS_IGNORED * (f64::from(beside) + f64::from(lost));
        self.excess = (self.excess + f64::from(lost) - ignored).max(-SPARED_ROUNDS * ignored);
        let is_signal = self.excess > 1.0 + DEVIATIONS * ignored.sqrt();
        if is_signal {
            self.excess = 0.0;
        }
        is_signal
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

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// After how many round trips of so many segments, of which this share is lost, the losses are
    /// too many. Every `told`-th round trip tells of its own losses and of those before.
    fn signal_after(seed: u64, (share, segments): (f64, u32), told: usize) -> Option<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut links, mut untold) = (LinkLosses::default(), 0);
        (0..10_000).find(|round| {
            let lost = (0..segments).filter(|_| rng.random_bool(share)).count() as u32;
            untold += lost;
            let told = if round % told == 0 {
                std::mem::take(&mut untold)
            } else {
                0
            };
            links.lost_too_many(segments - lost, told)
        })
    }

    #[test]
    fn chance_does_not_exceed_the_share_that_is_ignored() {
        for segments in [30, 80, 300] {
            for share in [0.001, 0.01] {
                for told in [1, 2, 3] {
                    let signal = signal_after(7, (share, segments), told);
                    assert_eq!(signal, None, "{share} of {segments}, told each {told}");
                }
            }
        }
        assert_eq!(signal_after(7, (0.03, 300), 2), None);
    }

    #[test]
    fn a_larger_share_is_found_within_few_round_trips() {
        for segments in [10, 30, 80, 300] {
            let rounds = signal_after(7, (0.2, segments), 1).expect("it is found");
            assert!(rounds < 8, "{rounds} round trips of {segments}");
        }
    }

    #[test]
    fn losses_found_after_their_round_trip_count_beside_it() {
        let mut links = LinkLosses::default();
        assert!(!links.lost_too_many(400, 0));
        assert!(!links.lost_too_many(5, 12), "beside the 400 before");
        assert!(!links.lost_too_many(5, 12), "spared by them");
        assert!(links.lost_too_many(5, 12), "of few");
    }
}
