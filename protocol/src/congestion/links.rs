//! Losses of links, told from those of queues by the share that is lost where no queue is seen.
//!
//! A bad link loses as many packets beside a queue as without one; a full queue drops many, an
//! empty one none. So links explain the losses of a round trip if it lost no more, chance included,
//! than calm round trips do, and if packets beside queues are not lost clearly more often. A loss
//! is found a round trip late, when its queue may have gone, so a round trip is calm only some
//! round trips after the last queue and the last cut.
//!
//! Whatever their cause, more losses than [`LOSS_IGNORED`] are a signal ([`LinkLosses::signal`]).

use serde::{Deserialize, Serialize};

use super::Feedback;

/// After this many segments, older ones count half.
const LINK_MEMORY: f64 = 65_536.0;
/// Round trips without a queue and without a cut after which a path is calm.
const CALM_AFTER: u32 = 4;
/// Links explain no loss where fewer than this many are expected in a round trip.
const EXPECTED_MIN: f64 = 0.02;
/// The share of a link is known from few losses: it may be what these and this many standard
/// deviations make.
const SHARE_DEVIATIONS: f64 = 1.0;
/// After this many losses of calm round trips it is known how much links lose.
const KNOWN_LOSSES: f64 = 4.0;
/// On a short path, the share of a link is known from so many segments of calm round trips.
const KNOWN_SEGMENTS: f64 = 2048.0;
/// They explain one more than expected, and this many standard deviations: chance exceeds that in
/// less than one of 5,000 round trips. A window that was halved on a long path needs seconds to
/// grow back, so even one of 50 would keep it small.
const EXPLAINED_DEVIATIONS: f64 = 3.5;
/// They explain none where more packets beside a queue are lost than this many times their share,
/// by more than chance.
const CLEARLY_MORE: f64 = 2.0;
/// Share of the segments of this round trip and of earlier ones whose loss is no signal while the
/// window doubles. Those make nearly twice the segments of this one, so it is 2 % of these, as in
/// BBR (Cardwell et al., draft-ietf-ccwg-bbr, its BBR.LossThresh).
const LOSS_STARTING: f64 = 0.01;
/// Share of a round trip's segments whose loss is no signal. Ten times the loss of a link within
/// its specification, and about the random loss of a bad link.
const LOSS_IGNORED: f64 = 0.05;
/// Losses spared earlier count up to as many as are ignored in so many round trips.
const SPARED_ROUNDS: f64 = 2.0;
/// So many losses more than are ignored may be an accident, and this many standard deviations.
const ACCIDENTS: f64 = 2.0;
const DEVIATIONS: f64 = 1.5;

/// The shares of segments that are lost without a queue and beside one.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct LinkLosses {
    calm: LossCount,
    queued: LossCount,
    /// This round trip.
    round: LossCount,
    /// Segments of earlier round trips. Each round trip counts half as much as the one after it,
    /// since losses are found late.
    recent: f64,
    /// Round trips since the last queue and the last cut.
    calm_rounds: u32,
    /// Segments that arrived in the round trip before.
    segments_before: u32,
    /// Losses beyond the share that is ignored, less those that earlier round trips have spared.
    excess: f64,
}

/// Cuts for losses beside a queue, made before it was known how much the links lose.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct CutDoubt {
    /// The window before the first of them, less what other signals have taken since.
    pub(super) window: u64,
    losses: LossCount,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct LossCount {
    segments: f64,
    lost: f64,
}

impl Default for LinkLosses {
    /// A path is calm until a queue is seen.
    fn default() -> Self {
        Self {
            calm: LossCount::default(),
            queued: LossCount::default(),
            round: LossCount::default(),
            recent: 0.0,
            calm_rounds: CALM_AFTER,
            segments_before: 0,
            excess: 0.0,
        }
    }
}

impl LossCount {
    /// Segments that parity has restored say nothing here: they are told at the end of a message,
    /// of many round trips together, and some of them were only late.
    fn of(feedback: &Feedback) -> Self {
        let lost = f64::from(feedback.lost.saturating_sub(feedback.restored));
        let segments = f64::from(feedback.segments) + lost;
        Self { segments, lost }
    }

    fn add(&mut self, news: Self) {
        self.segments += news.segments;
        self.lost += news.lost;
        if self.segments > LINK_MEMORY {
            (self.segments, self.lost) = (self.segments / 2.0, self.lost / 2.0);
        }
    }

    /// The largest share that chance would make these losses of.
    fn share_most(self) -> f64 {
        let most = self.lost + SHARE_DEVIATIONS * self.lost.sqrt();
        most / self.segments.max(1.0)
    }
}

/// Whether chance may lose this many where so many are expected to be lost.
fn is_chance(lost: f64, expected: f64) -> bool {
    lost - 1.0 - expected <= EXPLAINED_DEVIATIONS * expected.sqrt()
}

impl LinkLosses {
    /// Takes the news of an acknowledgement. Once its losses are judged, it is learned from, too.
    pub(super) fn note(&mut self, feedback: &Feedback) {
        self.round.add(LossCount::of(feedback));
    }

    /// Learns from an acknowledgement that comes while no queue is seen that may be full.
    pub(super) fn learn_calm(&mut self, feedback: &Feedback) {
        if self.calm_rounds >= CALM_AFTER {
            self.calm.add(LossCount::of(feedback));
        }
    }

    /// Learns from an acknowledgement that comes while a queue is seen that may be full.
    pub(super) fn learn_queued(&mut self, feedback: &Feedback) {
        self.calm_rounds = 0;
        self.queued.add(LossCount::of(feedback));
    }

    /// Segments of this round trip and of earlier ones.
    fn segments(&self) -> f64 {
        self.round.segments + self.recent
    }

    /// Whether a window that has met no signal yet would lose more if it had overrun a queue: such
    /// windows double, so they overrun it by far.
    pub(super) fn are_few(&self) -> bool {
        is_chance(self.round.lost, LOSS_STARTING * self.segments())
    }

    /// Whether the share that links lose is that of many segments.
    pub(super) fn are_known(&self) -> bool {
        self.calm.segments >= KNOWN_SEGMENTS
    }

    /// Whether the losses of this round trip, and so many that parity has restored, are no more
    /// than links would lose, too.
    pub(super) fn explain_losses(&self, restored: u32) -> bool {
        let share = self.calm.share_most();
        let expected = share * self.segments();
        expected >= EXPECTED_MIN
            && is_chance(self.round.lost + f64::from(restored), expected)
            && is_chance(
                self.queued.lost,
                CLEARLY_MORE * share * self.queued.segments,
            )
    }

    /// The share that a round trip has lost, if it is clearly more than the share that is ignored,
    /// or if several in a row have lost clearly more together. So many segments of it arrived. A
    /// loss is found up to a round trip after the packets have arrived that were sent beside it,
    /// and later where reports are lost, too: what the round trips before have lost less counts.
    pub(super) fn signal(&mut self, segments: u32, lost: u32) -> Option<f64> {
        let beside = segments.max(std::mem::replace(&mut self.segments_before, segments));
        let (segments, lost) = (f64::from(segments), f64::from(lost));
        if segments + lost == 0.0 {
            return None;
        }
        let beside = f64::from(beside) + lost;
        let spared_most = SPARED_ROUNDS * LOSS_IGNORED * beside;
        self.excess += lost - LOSS_IGNORED * (segments + lost);
        self.excess = self.excess.max(-spared_most);
        let chance = ACCIDENTS + DEVIATIONS * (LOSS_IGNORED * beside).sqrt();
        (lost > 0.0 && self.excess > chance).then_some(lost / beside)
    }

    /// Doubts a cut for the losses of this round trip, and those before it that are in doubt.
    pub(super) fn doubt(&self, before: Option<CutDoubt>, window: u64) -> CutDoubt {
        let before = before.unwrap_or_else(|| CutDoubt {
            window,
            losses: LossCount::default(),
        });
        let losses = LossCount {
            segments: before.losses.segments + self.segments(),
            lost: before.losses.lost + self.round.lost,
        };
        CutDoubt { losses, ..before }
    }

    /// Whether links explain the losses of these cuts; `None` while too little is known of them.
    pub(super) fn explain_cuts(&self, cuts: &CutDoubt) -> Option<bool> {
        let expected = self.calm.share_most() * cuts.losses.segments;
        (self.calm.lost >= KNOWN_LOSSES).then(|| is_chance(cuts.losses.lost, expected))
    }

    /// The window was cut.
    pub(super) fn on_cut(&mut self) {
        self.calm_rounds = 0;
        self.excess = 0.0;
    }

    /// The window was cut for losses beside a queue: another cut needs new ones.
    pub(super) fn on_blame(&mut self) {
        self.queued = LossCount::default();
    }

    /// A round trip is over.
    pub(super) fn end_round(&mut self) {
        self.recent = self.recent / 2.0 + self.round.segments;
        self.round = LossCount::default();
        self.calm_rounds = self.calm_rounds.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// After how many round trips the losses are a signal. Round trips have these numbers of
    /// segments in turn, of which this share is lost; every `told`-th one tells of its own losses
    /// and of those before.
    fn signal_after(seed: u64, (share, segments): (f64, &[u32]), told: usize) -> Option<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut links, mut untold) = (LinkLosses::default(), 0);
        (0..4_000).find(|round| {
            let segments = segments[round % segments.len()];
            let lost = (0..segments).filter(|_| rng.random_bool(share)).count() as u32;
            untold += lost;
            let is_told = round % told == 0;
            let told = if is_told {
                std::mem::take(&mut untold)
            } else {
                0
            };
            links.signal(segments - lost, told).is_some()
        })
    }

    #[test]
    fn chance_does_not_exceed_the_share_that_is_ignored() {
        for seed in 0..10 {
            for segments in [10, 30, 80, 300] {
                let ended = signal_after(seed, (0.01, &[segments]), 1);
                assert_eq!(ended, None, "seed {seed}: {segments} segments");
            }
            for (segments, told) in [([300, 300], 2), ([300, 300], 3), ([300, 2], 1)] {
                for share in [0.001, 0.01, 0.03] {
                    let ended = signal_after(seed, (share, &segments), told);
                    assert_eq!(ended, None, "seed {seed}: {share} of {segments:?}, {told}");
                }
            }
        }
    }

    #[test]
    fn a_larger_share_is_found_soon() {
        for seed in 0..10 {
            for segments in [[10, 10], [30, 30], [80, 80], [300, 300], [300, 2]] {
                let ended = signal_after(seed, (0.2, &segments), 1);
                let rounds = ended.expect("it is found");
                assert!(rounds < 20, "seed {seed}: {rounds} rounds of {segments:?}");
                let little = signal_after(seed, (0.08, &segments), 1);
                assert!(little.is_some(), "seed {seed}: 8 % of {segments:?}");
            }
        }
    }

    #[test]
    fn losses_found_after_their_round_trip_count_beside_it() {
        let mut links = LinkLosses::default();
        assert_eq!(links.signal(400, 0), None);
        assert_eq!(links.signal(5, 12), None, "beside the 400 before");
        assert_eq!(links.signal(5, 12), None, "spared by them");
        assert_eq!(links.signal(4, 12), Some(12.0 / 17.0), "of few");
        assert_eq!(links.signal(1, 0), None, "nothing is lost now");
        links.on_cut();
        assert_eq!(links.signal(4, 1), None, "answered");
    }

    /// Reports of a round trip, and the segments of each.
    const REPORTS: usize = 10;
    const SEGMENTS: u32 = 60;

    /// How many round trips beside a queue are blamed for their losses, of 2,000. A link loses the
    /// first share, which is found a round trip later; the queue comes and goes, and loses the
    /// second one.
    fn blamed(seed: u64, (share, dropped): (f64, f64)) -> usize {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut links, mut found) = (LinkLosses::default(), [0; REPORTS]);
        let is_blamed = |round: &usize| {
            let has_queue = round / 6 % 2 == 1;
            let mut is_blamed = false;
            let share = if has_queue { share + dropped } else { share };
            for lost in &mut found {
                let now = (0..SEGMENTS).filter(|_| rng.random_bool(share)).count() as u32;
                let feedback = Feedback {
                    segments: SEGMENTS - now,
                    lost: std::mem::replace(lost, now),
                    ..Feedback::default()
                };
                links.note(&feedback);
                is_blamed |= has_queue && feedback.lost > 0 && !links.explain_losses(0);
                match has_queue {
                    true => links.learn_queued(&feedback),
                    false => links.learn_calm(&feedback),
                }
            }
            links.end_round();
            is_blamed && *round > 12
        };
        (0..4_000).filter(is_blamed).count()
    }

    #[test]
    fn restored_segments_change_no_share() {
        let mut links = LinkLosses::default();
        let lost = |lost, restored| Feedback {
            segments: 1_000,
            lost,
            restored,
            ..Feedback::default()
        };
        links.learn_calm(&lost(10, 0));
        for feedback in [lost(400, 400), lost(10, 5)] {
            links.note(&feedback);
            assert!(links.explain_losses(0), "{feedback:?}");
            links.learn_queued(&feedback);
        }
        links.note(&lost(400, 300));
        assert!(!links.explain_losses(0));
    }

    #[test]
    fn a_window_that_doubles_has_overrun_no_queue_if_it_loses_little() {
        for (share, are_few) in [(0.01, true), (0.02, true), (0.04, false)] {
            let mut links = LinkLosses::default();
            for segments in [500, 1_000, 2_000, 4_000] {
                links.end_round();
                links.note(&Feedback {
                    segments,
                    lost: (f64::from(segments) * share) as u32,
                    ..Feedback::default()
                });
            }
            assert_eq!(links.are_few(), are_few, "{share} of 4,000");
        }
    }

    #[test]
    fn a_queue_is_hardly_blamed_for_what_a_link_loses() {
        for share in [0.001, 0.01, 0.03] {
            for seed in 0..5 {
                let blamed = blamed(seed, (share, 0.0));
                assert!(
                    blamed <= 4,
                    "seed {seed}, {share} lost: {blamed} round trips"
                );
            }
        }
    }

    #[test]
    fn a_queue_that_drops_three_times_as_many_is_blamed() {
        for share in [0.001, 0.01] {
            for seed in 0..5 {
                let blamed = blamed(seed, (share, 3.0 * share));
                assert!(
                    blamed > 700,
                    "seed {seed}, {share} lost: {blamed} round trips"
                );
            }
        }
    }
}
