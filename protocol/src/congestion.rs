//! How many bytes may be in flight to one peer.
//!
//! 1. *Growth*: exponential until the first signal, then one packet per round trip, as TCP, so that
//!    both share a link. Above the window at which the last signal came, the growth doubles
//!    again and again (as the convex part of CUBIC, RFC 9438). Marked bytes add nothing, and a
//!    window that the sender does not fill does not grow (RFC 7661).
//! 2. *Marks*: the window shrinks by half of the smoothed share of CE marks, as DCTCP (Alizadeh et
//!    al., SIGCOMM 2010, section 3.3); the first time by half of the round trip's own share.
//! 3. *Delay* above a target shrinks it in proportion to the excess (Swift, Kumar et al., SIGCOMM
//!    2020, section 3.1), but not below [`DELAY_PACKETS_MIN`]: hosts delay packets, too. If the
//!    round trip does not follow ([`DelayTest`]), others fill the queue, or a host is late: then the
//!    cut is undone, and delay is ignored for a while, as in Copa's competitive mode (Arun and
//!    Balakrishnan, NSDI 2018, section 4).
//! 4. *Loss beside a queue* halves it, as Reno: a segment that had to arrive was lost while the
//!    round trip was [clearly](QUEUE_PART) longer than the least one. Not on a path that has ever
//!    marked: its queues speak by marks, and its losses are those of links.
//! 5. *Other loss* is no signal by itself: a job may tolerate it, and a bad link is not a queue. It
//!    shrinks the window only when more than [`LOSS_IGNORED`] of a round trip's segments are lost,
//!    then by half of that share: some switches drop before they build measurable delay.
//! 6. For a round trip after a cut, signals are about the window before it, and cut no more
//!    (RFC 8257, section 3.3).
//! 7. *False marks*: if all packets of [`FALSE_MARK_ROUNDS`] come marked though the window is at its
//!    least and no queue delays them, the path marks everything, and marks are ignored until some
//!    packets come without.
//! 8. *Idle* time halves the window again and again, down to the initial one: what was true of the
//!    path then may not be true now (RFC 7661). It grows back exponentially.

use crate::rtt::Rtt;
use crate::units::{ByteCount, Instant, Span};

/// Weight of a round trip's CE share in the smoothed share: DCTCP's g.
const MARK_WEIGHT: f64 = 1.0 / 16.0;
/// The largest share that delay may take from the window in a round trip: Swift's max_mdf.
const DELAY_CUT_MAX: f64 = 0.4;
/// Share that a loss beside a queue takes from the window: Reno's.
const QUEUE_LOSS_CUT: f64 = 0.5;
/// Share of a round trip's segments whose loss is no signal. Ten times as much as a link within its
/// specification loses, and as much as random loss by a bad link reaches.
pub const LOSS_IGNORED: f64 = 0.05;
/// A round trip is clearly longer than the least one by this part of the delay target.
const QUEUE_PART: u64 = 4;
/// Delay alone does not shrink the window below this many packets.
const DELAY_PACKETS_MIN: u64 = 16;
/// Quiet round trips above the last peak after which the growth doubles, for each packet of the
/// peak: the sawtooth of DCTCP is much shorter than that of Reno, which lasts half of this.
const DOUBLING_MARKED: f64 = 0.25;
const DOUBLING_UNMARKED: f64 = 1.0;
/// The least and the most of them, times the same.
const DOUBLING_ROUNDS: (f64, f64) = (16.0, 128.0);
/// A cut for delay has worked if the round trip has fallen by this part of it.
const DELAY_FOLLOWS: f64 = 0.6;
/// Round trips after a cut for delay until it must have worked.
const DELAY_TEST_ROUNDS: u64 = 2;
/// Round trips for which delay is ignored after a cut that did not work.
const DELAY_IGNORED_ROUNDS: u32 = 256;
/// After a signal, a run takes one part in so many of the window: bursts into a queue cost others.
const RUNS_PER_WINDOW: u64 = 4;
/// Round trips after which marks on all packets are false.
const FALSE_MARK_ROUNDS: u32 = 64;
/// A round trip without a queue exceeds the least one by a quarter, and this part of the delay
/// target, at most.
const NO_QUEUE_PART: u64 = 16;
/// An idle period is this many times the wait for an answer, and this many gaps of the job.
const IDLE_WAITS: u64 = 4;
const IDLE_GAPS: u64 = 10;

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
    /// Those of them that have to arrive.
    pub lost_needed: u32,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: ByteCount,
}

/// The congestion window of one peer.
#[derive(Clone, Debug)]
pub struct CongestionWindow {
    limits: WindowLimits,
    bytes: u64,
    mark_share: f64,
    /// Growth is exponential below this.
    linear_above: u64,
    /// The window at the last signal.
    peak: u64,
    /// Quiet round trips above the peak.
    beyond_peak: u32,
    round: Feedback,
    /// Marks of the round trip, also those that are ignored.
    round_marks: u32,
    round_ends: Instant,
    /// Until then signals are about the window before the last cut.
    answered_until: Instant,
    /// Whether the path has ever marked.
    has_marked: bool,
    /// Round trips in a row of which all packets were marked for no reason.
    falsely_marked: u32,
    delay_test: Option<DelayTest>,
    /// Round trips for which delay is ignored.
    delay_ignored: u32,
    /// The last acknowledgement.
    heard: Instant,
}

/// A cut for delay whose effect is awaited.
#[derive(Clone, Copy, Debug)]
struct DelayTest {
    until: Instant,
    /// The window before the cut.
    bytes: u64,
    /// The longest round trip that counts as an effect.
    most: Span,
}

impl CongestionWindow {
    /// A window at its initial size.
    pub fn new(limits: WindowLimits) -> Self {
        let most = limits.most.get();
        Self {
            limits,
            bytes: limits.initial.get().min(most).max(limits.packet.get()),
            mark_share: 0.0,
            linear_above: most,
            peak: most,
            beyond_peak: 0,
            round: Feedback::default(),
            round_marks: 0,
            round_ends: Instant::START,
            answered_until: Instant::START,
            has_marked: false,
            falsely_marked: 0,
            delay_test: None,
            delay_ignored: 0,
            heard: Instant::START,
        }
    }

    /// Bytes that may be in flight.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.bytes)
    }

    /// The most packets that leave in a row.
    pub fn run_packets(&self) -> u64 {
        match self.is_exponential() {
            true => u64::MAX,
            false => (self.bytes / self.limits.packet.get() / RUNS_PER_WINDOW).max(1),
        }
    }

    /// Takes the news of an acknowledgement.
    pub fn on_feedback(&mut self, now: Instant, mut feedback: Feedback, rtt: &Rtt) {
        self.heard = now;
        self.round_marks = self.round_marks.saturating_add(feedback.marks);
        if self.ignores_marks() {
            feedback.marks = 0;
        }
        self.round.acked += feedback.acked;
        // A peer may report any number of marks.
        self.round.segments = self.round.segments.saturating_add(feedback.segments);
        self.round.marks = self.round.marks.saturating_add(feedback.marks);
        self.round.lost = self.round.lost.saturating_add(feedback.lost);
        self.round.lost_needed = self.round.lost_needed.saturating_add(feedback.lost_needed);
        if feedback.in_flight.get() * 2 >= self.bytes {
            self.grow(&feedback);
        }
        self.has_marked |= feedback.marks > 0;
        let queue_loss = feedback.lost_needed > 0 && !self.has_marked && self.has_queue(rtt);
        if queue_loss {
            self.cut(now, QUEUE_LOSS_CUT, rtt);
        } else if feedback.marks > 0 && !self.is_exponential() {
            self.cut(now, self.mark_share / 2.0, rtt);
        }
        if now >= self.round_ends {
            self.end_round(now, rtt);
            self.round_ends = now + rtt.smoothed();
        }
    }

    /// Several probes in a row were not answered: the window starts again, at its least size.
    pub fn on_silence(&mut self) {
        self.bytes = self.floor(1);
        self.linear_above = self.limits.most.get();
    }

    /// Data is to be sent while none is in flight; nothing was heard for perhaps a long time.
    pub fn on_restart(&mut self, now: Instant, rtt: &Rtt, gap: Span) {
        let initial = self.limits.initial.get();
        if self.bytes <= initial {
            return;
        }
        let period = (rtt.answer_wait() * IDLE_WAITS).max(gap * IDLE_GAPS);
        let idle = now - self.heard;
        let halvings = idle.as_picos() / period.as_picos().max(1);
        if halvings > 0 {
            self.linear_above = self.linear_above.max(self.bytes);
            self.bytes = (self.bytes >> halvings.min(63)).max(initial);
            self.heard = now;
        }
    }

    fn floor(&self, packets: u64) -> u64 {
        (self.limits.packet.get() * packets).min(self.limits.most.get())
    }

    /// Whether the path marks packets for no reason.
    pub fn ignores_marks(&self) -> bool {
        self.falsely_marked >= FALSE_MARK_ROUNDS
    }

    fn judge_marks(&mut self, round: &Feedback, rtt: &Rtt) {
        let marks = std::mem::take(&mut self.round_marks);
        if round.segments == 0 {
            return;
        }
        let most = rtt.least() + rtt.least().divided(4);
        let most = most + self.limits.delay_target.divided(NO_QUEUE_PART);
        let reason = self.bytes > self.floor(2) || rtt.smoothed() > most;
        if marks < round.segments {
            self.falsely_marked = 0;
        } else if self.ignores_marks() || !reason {
            self.falsely_marked = self.falsely_marked.saturating_add(1);
        } else {
            self.falsely_marked = 0;
        }
    }

    fn is_exponential(&self) -> bool {
        self.bytes < self.linear_above
    }

    fn grow(&mut self, feedback: &Feedback) {
        let segments = u64::from(feedback.segments.max(1));
        let unmarked = segments.saturating_sub(u64::from(feedback.marks));
        let acked = feedback.acked.get() * unmarked / segments;
        let by = if self.is_exponential() {
            acked
        } else {
            let packet = self.limits.packet.get();
            let (least, most) = DOUBLING_ROUNDS;
            let peak = (self.peak as f64 / packet as f64).clamp(least, most);
            let rounds = match self.has_marked {
                true => peak * DOUBLING_MARKED,
                false => peak * DOUBLING_UNMARKED,
            };
            let packets = 1_u64 << (self.beyond_peak / rounds as u32).min(16);
            (packet * packets * acked / self.bytes.max(1)).min(acked)
        };
        self.bytes = (self.bytes + by).min(self.limits.most.get());
    }

    fn end_round(&mut self, now: Instant, rtt: &Rtt) {
        let round = std::mem::take(&mut self.round);
        self.judge_marks(&round, rtt);
        let seen = f64::from(round.segments.max(1));
        let marked = (f64::from(round.marks) / seen).min(1.0);
        let lost = f64::from(round.lost) / (seen + f64::from(round.lost));
        if lost > LOSS_IGNORED {
            self.cut(now, lost / 2.0, rtt);
        } else if marked > 0.0 && self.is_exponential() {
            // The smoothed share would hardly contain the first marks yet.
            self.mark_share = self.mark_share.max(marked);
            self.cut(now, marked / 2.0, rtt);
        } else if now >= self.answered_until {
            self.beyond_peak += u32::from(self.bytes > self.peak);
        }
        self.mark_share += (marked - self.mark_share) * MARK_WEIGHT;
        self.look_at_delay(now, rtt);
    }

    fn look_at_delay(&mut self, now: Instant, rtt: &Rtt) {
        if let Some(test) = self.delay_test
            && now >= test.until
        {
            self.delay_test = None;
            if rtt.smoothed() > test.most {
                self.bytes = self.bytes.max(test.bytes);
                self.delay_ignored = DELAY_IGNORED_ROUNDS;
            }
        }
        if self.delay_ignored > 0 {
            self.delay_ignored -= 1;
            return;
        }
        let floor = self.floor(DELAY_PACKETS_MIN) as f64;
        let cut = self.delay_cut(rtt).min(1.0 - floor / self.bytes as f64);
        if cut <= 0.0 || now < self.answered_until {
            return;
        }
        let followed = 1.0 - cut * DELAY_FOLLOWS;
        self.delay_test = Some(DelayTest {
            until: now + rtt.smoothed() * DELAY_TEST_ROUNDS,
            bytes: self.bytes,
            most: Span::from_picos((rtt.smoothed().as_picos() as f64 * followed) as u64),
        });
        self.cut(now, cut, rtt);
    }

    /// Takes this share from the window, unless the signal is about the window before the last cut.
    fn cut(&mut self, now: Instant, share: f64, rtt: &Rtt) {
        if now < self.answered_until {
            return;
        }
        self.answered_until = now + rtt.smoothed();
        self.peak = self.bytes;
        self.beyond_peak = 0;
        let kept = (self.bytes as f64 * (1.0 - share)) as u64;
        self.bytes = kept.max(self.floor(1));
        self.linear_above = self.bytes;
    }

    /// Whether a queue delays packets.
    fn has_queue(&self, rtt: &Rtt) -> bool {
        let delay = rtt.smoothed().beyond(rtt.least());
        delay > self.limits.delay_target.divided(QUEUE_PART)
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
