//! How many bytes may be in flight to one peer.
//!
//! A window in the manner of DCTCP (Alizadeh et al., SIGCOMM 2010, section 3.3): once a round trip
//! it shrinks by half of the smoothed share of CE marks. Delay above a target shrinks it in
//! proportion to the excess (Swift, Kumar et al., SIGCOMM 2020, section 3.1). Loss is no signal by
//! itself: a job may tolerate it, and a bad link is not a queue. The window shrinks for loss only
//! when more than [`LOSS_IGNORED`] of a round trip's segments are lost, then by half of that share:
//! some switches neither mark nor build measurable delay before they drop.

use crate::rtt::Rtt;
use crate::units::{ByteCount, Instant, Span};

/// Weight of a round trip's CE share in the smoothed share: DCTCP's g.
const MARK_WEIGHT: f64 = 1.0 / 16.0;
/// The largest share that delay may take from the window in a round trip: Swift's max_mdf.
const DELAY_CUT_MAX: f64 = 0.4;
/// Share of a round trip's segments whose loss is no signal. Ten times as much as a link within its
/// specification loses, and as much as random loss by a bad link reaches.
pub const LOSS_IGNORED: f64 = 0.05;
/// Growth per round trip in bytes, after the first signal.
const GROWTH: u64 = 32 * 1024;
/// The window never falls below this many packets.
const PACKETS_MIN: u64 = 16;

/// Bounds of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Its size at the start.
    pub initial: ByteCount,
    /// Its largest size.
    pub most: ByteCount,
    /// Bytes of a full packet.
    pub packet: ByteCount,
    /// How much the round trip may exceed the least one before that is a signal.
    pub delay_target: Span,
}

/// The news of one acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feedback {
    /// Bytes newly acknowledged.
    pub acked: ByteCount,
    /// Segments newly acknowledged.
    pub segments: u32,
    /// CE marks newly reported.
    pub marks: u32,
    /// Segments newly found lost.
    pub lost: u32,
}

/// The congestion window of one peer.
#[derive(Clone, Debug)]
pub struct CongestionWindow {
    limits: WindowLimits,
    bytes: u64,
    mark_share: f64,
    growing: Growing,
    round: Feedback,
    round_ends: Instant,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Growing {
    /// Until the first signal: by the bytes acknowledged, so it doubles in a round trip.
    Exponential,
    /// Afterwards: by [`GROWTH`] in a round trip.
    Linear,
}

impl CongestionWindow {
    /// A window at its initial size.
    pub fn new(limits: WindowLimits) -> Self {
        let bytes = limits
            .initial
            .get()
            .min(limits.most.get())
            .max(limits.packet.get());
        Self {
            limits,
            bytes,
            mark_share: 0.0,
            growing: Growing::Exponential,
            round: Feedback::default(),
            round_ends: Instant::START,
        }
    }

    /// Bytes that may be in flight.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.bytes)
    }

    /// Takes the news of an acknowledgement.
    pub fn on_feedback(&mut self, now: Instant, feedback: Feedback, rtt: &Rtt) {
        self.round.acked += feedback.acked;
        // A peer may report any number of marks.
        self.round.segments = self.round.segments.saturating_add(feedback.segments);
        self.round.marks = self.round.marks.saturating_add(feedback.marks);
        self.round.lost = self.round.lost.saturating_add(feedback.lost);
        self.grow(feedback.acked);
        if now >= self.round_ends {
            self.end_round(rtt);
            self.round_ends = now + rtt.smoothed();
        }
    }

    /// Several probes in a row were not answered: the window starts again, at its least size.
    pub fn on_silence(&mut self) {
        self.bytes = self.least();
        self.growing = Growing::Exponential;
    }

    /// The path has a longer least round trip: the window grows as fast as at the start.
    pub(crate) fn on_new_path(&mut self) {
        self.growing = Growing::Exponential;
    }

    /// Its least size in bytes.
    pub(crate) fn least(&self) -> u64 {
        (self.limits.packet.get() * PACKETS_MIN).min(self.limits.most.get())
    }

    fn grow(&mut self, acked: ByteCount) {
        let by = match self.growing {
            Growing::Exponential => acked.get(),
            Growing::Linear => GROWTH * acked.get() / self.bytes.max(1),
        };
        self.bytes = (self.bytes + by).min(self.limits.most.get());
    }

    fn end_round(&mut self, rtt: &Rtt) {
        let seen = f64::from(self.round.segments.max(1));
        let marked = (f64::from(self.round.marks) / seen).min(1.0);
        self.mark_share += (marked - self.mark_share) * MARK_WEIGHT;
        let lost = f64::from(self.round.lost) / (seen + f64::from(self.round.lost));
        let by_marks = if self.round.marks > 0 {
            self.first_or(marked) / 2.0
        } else {
            0.0
        };
        let by_loss = if lost > LOSS_IGNORED { lost / 2.0 } else { 0.0 };
        let cut = by_marks.max(by_loss).max(self.delay_cut(rtt));
        if cut > 0.0 {
            let kept = (self.bytes as f64 * (1.0 - cut)) as u64;
            self.bytes = kept.max(self.least());
            self.growing = Growing::Linear;
        }
        self.round = Feedback::default();
    }

    /// The first marks end the exponential growth with their own share, since the smoothed share
    /// would hardly contain them yet.
    fn first_or(&self, marked: f64) -> f64 {
        if self.growing == Growing::Exponential {
            marked
        } else {
            self.mark_share
        }
    }

    fn delay_cut(&self, rtt: &Rtt) -> f64 {
        let target = rtt.least() + self.limits.delay_target;
        let excess = rtt.smoothed().beyond(target);
        (excess.as_secs_f64() / rtt.smoothed().as_secs_f64()).min(DELAY_CUT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> CongestionWindow {
        CongestionWindow::new(WindowLimits {
            initial: ByteCount::kib(256),
            most: ByteCount::mib(1),
            packet: ByteCount::new(1440),
            delay_target: Span::from_millis(1),
        })
    }

    fn steady() -> Rtt {
        let mut rtt = Rtt::new(Span::from_millis(1));
        rtt.sample(Span::from_micros(100));
        rtt
    }

    fn round(window: &mut CongestionWindow, n: u64, feedback: Feedback, rtt: &Rtt) {
        window.on_feedback(Instant::START + Span::from_millis(n), feedback, rtt);
    }

    #[test]
    fn loss_within_the_ignored_share_is_no_signal() {
        let (mut window, rtt) = (window(), steady());
        for n in 0..20 {
            let acked = ByteCount::kib(100);
            round(
                &mut window,
                n,
                Feedback {
                    acked,
                    segments: 97,
                    lost: 3,
                    marks: 0,
                },
                &rtt,
            );
        }
        assert_eq!(window.bytes(), ByteCount::mib(1));
    }

    #[test]
    fn marks_shrink_the_window_by_half_their_share() {
        let (mut window, rtt) = (window(), steady());
        let before = window.bytes().get();
        round(
            &mut window,
            1,
            Feedback {
                segments: 100,
                marks: 100,
                ..Feedback::default()
            },
            &rtt,
        );
        assert_eq!(window.bytes().get(), before / 2);
    }

    #[test]
    fn absurd_mark_counts_halve_the_window() {
        let (mut window, rtt) = (window(), steady());
        let absurd = Feedback {
            segments: 1,
            marks: u32::MAX,
            ..Feedback::default()
        };
        round(&mut window, 0, Feedback::default(), &rtt);
        let before = window.bytes().get();
        for _ in 0..3 {
            window.on_feedback(Instant::START, absurd, &rtt);
        }
        round(&mut window, 1, absurd, &rtt);
        assert_eq!(window.bytes().get(), before / 2);
    }

    #[test]
    fn delay_shrinks_the_window_down_to_its_floor() {
        let mut rtt = steady();
        for _ in 0..100 {
            rtt.sample(Span::from_millis(5));
        }
        let mut window = window();
        for n in 0..100 {
            round(
                &mut window,
                n,
                Feedback {
                    segments: 1,
                    ..Feedback::default()
                },
                &rtt,
            );
        }
        assert_eq!(window.bytes().get(), 16 * 1440);
    }
}
