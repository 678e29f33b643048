//! How many bytes may be in flight to one peer.
//!
//! 1. *Growth*: exponential until the first signal, then one packet per round trip, as in TCP, so
//!    that both share a link. Above the window of the last signal, the growth rate doubles again
//!    and again (as in the convex part of CUBIC, RFC 9438). On a path that has marked, it grows by
//!    up to a third in the round trip after one without marks and without a queue (`spare`). Marked
//!    bytes add nothing, and a window that the sender does not fill does not grow (RFC 7661).
//! 2. *Marks*: the window shrinks by half of the smoothed share of CE marks, as in DCTCP (Alizadeh
//!    et al., SIGCOMM 2010, section 3.3); the first time by half of the round trip's own share. The
//!    first round trips count alike: a sender whose first packets found a short queue would
//!    otherwise keep a larger window than others for long. While *all* packets of a round trip so
//!    far have come marked, a queue stands: each mark takes its part of a packet at once, half of
//!    the smoothed share and at least a quarter, and nothing else cuts the window in that round
//!    trip. Cuts of whole round trips let a flow that began with more keep it.
//! 3. *Delay* above a target, or on long paths above half of the round trip, shrinks it in
//!    proportion to the excess (Swift, Kumar et al., SIGCOMM 2020, section 3.1), but not below
//!    `DELAY_PACKETS_MIN`: hosts delay packets, too. If the round trip does not follow
//!    (`DelayTrial`), others fill the queue, or a host is late: the cuts are undone, and delay is
//!    ignored until the next loss, or for a while, as in Copa's competitive mode (Arun and
//!    Balakrishnan, NSDI 2018, section 4).
//! 4. *Loss beside a queue* halves it, as Reno, once for all losses among the packets sent before
//!    (RFC 9002, section 7.3.1): a segment that had to arrive was lost while the round trip
//!    exceeded the minimum clearly, and by half of the longest recent delay. This does not apply to
//!    a path that has ever marked, or whose switches are known to mark ([`QueueSignal`]): its
//!    queues signal by marks, and its losses are those of links. Nor does it apply to losses that
//!    links explain (`links`), or on long paths to few losses while the window doubles and to
//!    segments that parity has restored: halved at each loss, the window of a path that takes 40 ms
//!    and loses 1 % would hold a dozen packets, as that of TCP's Reno does. If links turn out to
//!    explain the losses of earlier cuts there, the window grows back exponentially.
//! 5. *Other loss* is not a signal by itself: a job may tolerate it, and a bad link is not a queue.
//!    It shrinks the window only when clearly more than 5 % of the segments of a round trip are
//!    lost, or of several (`links`), then by half of their share: some switches drop before they
//!    build measurable delay. But a tolerated loss beside a queue counts as a mark: a queue that
//!    marks other packets drops droppable ones early.
//! 6. For a round trip after a cut, signals concern the window before the cut, so they cut no
//!    further (RFC 8257, section 3.3), but for marks of a standing queue.
//! 7. *False marks*: if all packets of `FALSE_MARK_ROUNDS` arrive marked though the window is at
//!    its minimum and no queue delays them, the path marks everything, and marks are ignored until
//!    some packets arrive without.
//! 8. Its *largest size* follows the path (`most`).
//! 9. *Idle* time halves the window again and again, down to the initial one: the path may have
//!    changed (RFC 7661). It grows back exponentially.

mod delay;
mod delay_trial;
mod links;
mod marks;
mod most;
mod spare;

use serde::{Deserialize, Serialize};

use self::delay_trial::DelayTrial;
use self::links::{CutDoubt, LinkLosses};
use self::spare::SpareCapacity;
use crate::job::{QueueSignal, SendWindow};
use crate::rtt::Rtt;
use crate::units::{ByteCount, Instant, Span, Stamp};

/// Weight of a round trip's CE share in the smoothed share: DCTCP's g.
const MARK_WEIGHT: f64 = 1.0 / 16.0;
/// Share that a loss beside a queue takes from the window: Reno's.
const QUEUE_LOSS_CUT: f64 = 0.5;
/// Delay alone does not shrink the window below this many packets.
const DELAY_PACKETS_MIN: u64 = 16;
/// Quiet round trips above the last peak after which the growth doubles, for each packet of the
/// peak: the sawtooth of DCTCP is much shorter than that of Reno, which lasts half of this.
const DOUBLING_MARKED: f64 = 0.2;
const DOUBLING_UNMARKED: f64 = 1.0;
/// The minimum and the maximum of these round trips, times the same.
const DOUBLING_ROUNDS: (f64, f64) = (16.0, 128.0);
/// Round trips for which delay is ignored after cuts without effect, and after a loss beside a
/// queue: other senders may have seen that loss, too, so that all try again at once.
const DELAY_IGNORED_ROUNDS: u32 = 256;
const DELAY_IGNORED_AFTER_LOSS: u32 = 3;
/// After a signal, a run takes at most the window divided by this: bursts into a queue harm other
/// senders.
const RUNS_PER_WINDOW: u64 = 4;
/// A sender waits for room for its window divided by this, so that runs are long; after a signal
/// for less, since other senders take the room that it leaves.
const ROOM_PART: u64 = 2;
const ROOM_PART_SIGNALLED: u64 = 16;
/// After a signal it waits for at most the room that the window gains in this time: where single
/// packets find room, long runs find a full queue.
const RUN_TIME: Span = Span::from_micros(500);
/// An idle period is this many times the wait for an answer, and this many gaps of the job.
const IDLE_WAITS: u64 = 4;
const IDLE_GAPS: u64 = 10;

/// Bounds of a window.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct WindowLimits {
    /// Its size at the start.
    pub initial: ByteCount,
    /// Its largest size.
    pub most: SendWindow,
    /// Bytes of a full packet.
    pub packet: ByteCount,
    /// How much the round trip may exceed the minimum before that is a signal.
    pub delay_target: Span,
    /// How long queues show.
    pub queues: QueueSignal,
}

/// The news of one acknowledgement.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Feedback {
    /// Bytes newly acknowledged.
    pub acked: ByteCount,
    /// Segments newly acknowledged.
    pub segments: u32,
    /// CE marks newly reported.
    pub marks: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// Those of them that no queue drops early, in place of a mark.
    pub lost_needed: u32,
    /// When the last of these was sent.
    pub lost_sent_at: Stamp,
    /// Those of them that parity has restored, which is told at the end of a message.
    pub restored: u32,
    /// A time before which these were sent.
    pub restored_before: Stamp,
    /// Bytes in flight before the acknowledgement.
    pub in_flight: ByteCount,
}

/// The losses of an acknowledgement that a queue may be to blame for.
#[derive(Clone, Copy)]
struct SeenLosses {
    all: u32,
    /// Those that must arrive.
    needed: u32,
    /// When the last of these was sent.
    sent_at: Stamp,
}

impl SeenLosses {
    fn all(feedback: &Feedback) -> Self {
        Self {
            all: feedback.lost,
            needed: feedback.lost_needed,
            sent_at: feedback.lost_sent_at.max(feedback.restored_before),
        }
    }

    /// Without those that parity has restored: they are told late, and some were only late.
    fn beside_parity(feedback: &Feedback) -> Self {
        Self {
            all: feedback.lost.saturating_sub(feedback.restored),
            needed: feedback.lost_needed.saturating_sub(feedback.restored),
            sent_at: feedback.lost_sent_at,
        }
    }
}

/// The congestion window of one peer.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CongestionWindow {
    limits: WindowLimits,
    bytes: u64,
    /// Its largest size on the path as it is known.
    most: u64,
    mark_share: f64,
    /// Round trips since the last one of exponential growth.
    share_rounds: u32,
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
    spare: SpareCapacity,
    /// [`RUN_TIME`] in round trips.
    run_rounds: f64,
    /// Until then signals concern the window before the last cut.
    answered_until: Instant,
    /// Losses of packets sent until then concern the window before the last cut for loss.
    losses_answered: Option<Stamp>,
    /// Whether the path has ever marked, or is known to mark.
    has_marked: bool,
    /// Consecutive round trips in which all packets were marked for no reason.
    falsely_marked: u32,
    /// Whether no queue was seen since the path became longer.
    is_path_new: bool,
    /// The longest recent queueing delay.
    delay_most: Span,
    delay_trial: Option<DelayTrial>,
    /// Round trips for which delay is ignored.
    delay_ignored: u32,
    links: LinkLosses,
    /// Cuts that were perhaps made for losses of links.
    doubt: Option<CutDoubt>,
    /// The last acknowledgement.
    heard: Instant,
}

impl CongestionWindow {
    /// A window at its initial size.
    pub fn new(limits: WindowLimits) -> Self {
        let most = limits.most.short().get();
        Self {
            limits,
            bytes: limits.initial.get().min(most).max(limits.packet.get()),
            most,
            mark_share: 0.0,
            share_rounds: 0,
            linear_above: most,
            peak: most,
            beyond_peak: 0,
            round: Feedback::default(),
            round_marks: 0,
            round_ends: Instant::START,
            spare: SpareCapacity::default(),
            run_rounds: f64::INFINITY,
            answered_until: Instant::START,
            losses_answered: None,
            has_marked: limits.queues == QueueSignal::Marks,
            falsely_marked: 0,
            is_path_new: false,
            delay_most: Span::default(),
            delay_trial: None,
            delay_ignored: 0,
            links: LinkLosses::default(),
            doubt: None,
            heard: Instant::START,
        }
    }

    /// Bytes that may be in flight.
    pub fn bytes(&self) -> ByteCount {
        ByteCount::new(self.bytes)
    }

    /// The maximum number of packets that leave in a row.
    pub fn run_packets(&self) -> u64 {
        match self.is_exponential() {
            true => u64::MAX,
            false => (self.bytes / self.limits.packet.get() / RUNS_PER_WINDOW).max(1),
        }
    }

    /// The most room, in packets, that a sender waits for.
    pub fn room_waited_for(&self) -> u64 {
        let packets = self.bytes / self.limits.packet.get();
        if self.is_exponential() {
            return packets / ROOM_PART;
        }
        (packets / ROOM_PART_SIGNALLED).min((packets as f64 * self.run_rounds) as u64)
    }

    /// Processes an acknowledgement; returns whether a queue is to blame for the losses in it.
    pub fn on_feedback(&mut self, now: Instant, mut feedback: Feedback, rtt: &Rtt) -> bool {
        self.heard = now;
        self.follow_path(rtt);
        self.links.note(&feedback);
        let is_long = rtt.is_long(self.limits.delay_target);
        let has_queue = self.has_queue(rtt) && !self.explains_losses(&feedback, rtt);
        match self.is_queue_full(rtt) {
            true => self.links.learn_queued(&feedback),
            false => self.links.learn_calm(&feedback),
        }
        let seen = match is_long {
            true => SeenLosses::beside_parity(&feedback),
            false => SeenLosses::all(&feedback),
        };
        let blames_queue = has_queue && seen.all > 0 && !self.has_marked;
        self.round_marks = self.round_marks.saturating_add(feedback.marks);
        if self.ignores_marks() {
            feedback.marks = 0;
        }
        self.has_marked |= feedback.marks > 0;
        if has_queue {
            let dropped = feedback.lost - feedback.lost_needed;
            feedback.marks = feedback.marks.saturating_add(dropped);
            feedback.segments = feedback.segments.saturating_add(dropped);
            feedback.lost -= dropped;
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
        let queue_loss = seen.needed > 0 && has_queue && !self.has_marked;
        let is_answered = |until| seen.sent_at <= until;
        if queue_loss && !self.losses_answered.is_some_and(is_answered) {
            let doubt = self.links.doubt(self.doubt, self.bytes);
            self.shrink(now, QUEUE_LOSS_CUT, rtt);
            self.doubt = is_long.then_some(doubt);
            self.links.on_blame();
            self.losses_answered = Some(now.stamp());
            self.delay_ignored = self.delay_ignored.min(DELAY_IGNORED_AFTER_LOSS);
        } else if feedback.marks > 0 && !self.is_exponential() {
            match self.has_standing_queue() {
                true => self.yield_to(now, &feedback, rtt),
                false => self.cut(now, self.mark_share / 2.0, rtt),
            }
        }
        if now >= self.round_ends {
            self.end_round(now, rtt);
            self.round_ends = now + rtt.smoothed();
        }
        blames_queue
    }

    /// Whether losses beside a queue are not the queue's. On short paths that needs a share of
    /// links that is known from many segments: a first burst into a shallow buffer loses half.
    /// There, losses that parity has restored count, too.
    fn explains_losses(&self, feedback: &Feedback, rtt: &Rtt) -> bool {
        match rtt.is_long(self.limits.delay_target) {
            true => (self.is_exponential() && self.links.are_few()) || self.links.explain_losses(0),
            false => self.links.are_known() && self.links.explain_losses(feedback.restored),
        }
    }

    /// Several probes in a row were not answered: the window restarts at its minimum size.
    pub fn on_silence(&mut self) {
        self.spare = SpareCapacity::default();
        self.bytes = self.floor(1);
        self.linear_above = self.most;
    }

    /// Data is to be sent while none is in flight; perhaps the peer has been silent for a long
    /// time.
    pub fn on_restart(&mut self, now: Instant, rtt: &Rtt, gap: Span) {
        self.spare.on_cut();
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

    /// The path has a longer minimum round trip: the window grows as fast as at the start, until a
    /// queue shows. If a queue of other senders was mistaken for a longer path, this would flood
    /// it.
    pub(crate) fn on_new_path(&mut self) {
        self.spare = SpareCapacity::default();
        self.linear_above = self.most;
        self.is_path_new = true;
        self.delay_trial = None;
        self.delay_ignored = 0;
    }

    /// The minimum size in bytes to which delay shrinks it.
    pub(crate) fn least(&self) -> u64 {
        self.floor(DELAY_PACKETS_MIN).min(self.bytes)
    }

    /// These bytes, which a short path has room for, on the path as it is known.
    pub(crate) fn stretched(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.most as f64 / self.limits.most.short().get() as f64) as u64
    }

    fn floor(&self, packets: u64) -> u64 {
        (self.limits.packet.get() * packets).min(self.limits.most.short().get())
    }

    /// Whether no signal has come since growth is exponential.
    pub(crate) fn is_exponential(&self) -> bool {
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
            (packet * packets * acked / self.bytes.max(1))
                .min(acked)
                .max(self.spare.growth(acked))
        };
        self.bytes = (self.bytes + by).min(self.most);
    }

    /// The largest size follows the path. Growth that no signal has ended goes on.
    fn follow_path(&mut self, rtt: &Rtt) {
        let before = std::mem::replace(&mut self.most, most::most_on(self.limits.most, rtt).get());
        if self.linear_above == before || self.linear_above > self.most {
            self.linear_above = self.most;
        }
        self.bytes = self.bytes.min(self.most);
    }

    /// If it turns out that links explain the losses for which the window was cut, it grows back
    /// exponentially.
    fn judge_cuts(&mut self) {
        let Some(doubt) = self.doubt else { return };
        let Some(is_undone) = self.links.explain_cuts(&doubt) else {
            return;
        };
        if is_undone {
            self.linear_above = self.linear_above.max(doubt.window);
        }
        self.doubt = None;
    }

    fn end_round(&mut self, now: Instant, rtt: &Rtt) {
        let round = std::mem::take(&mut self.round);
        self.links.end_round();
        self.judge_cuts();
        if self.is_path_new && self.has_queue(rtt) {
            self.is_path_new = false;
            self.linear_above = self.linear_above.min(self.bytes);
        }
        self.run_rounds = RUN_TIME.as_secs_f64() / rtt.smoothed().as_secs_f64();
        let marks = std::mem::take(&mut self.round_marks);
        self.judge_marks(marks, &round, rtt);
        let no_queue = match self.has_queue(rtt) {
            true => Span::ZERO,
            false => self.no_queue(rtt),
        };
        self.spare.end_round((marks, round.lost), no_queue, rtt);
        let seen = f64::from(round.segments.max(1));
        let marked = (f64::from(round.marks) / seen).min(1.0);
        if let Some(lost) = self.links.signal(round.segments, round.lost) {
            self.cut(now, lost / 2.0, rtt);
        } else if marked > 0.0 && self.is_exponential() {
            // The smoothed share would hardly contain the first marks yet.
            self.mark_share = self.mark_share.max(marked);
            self.share_rounds = 0;
            self.cut(now, marked / 2.0, rtt);
        } else if now >= self.answered_until {
            self.beyond_peak += u32::from(self.bytes > self.peak);
        }
        self.share_rounds = self.share_rounds.saturating_add(1);
        let weight = f64::from(self.share_rounds).recip().max(MARK_WEIGHT);
        self.mark_share += (marked - self.mark_share) * weight;
        self.look_at_delay(now, rtt);
    }

    /// Takes this share from the window, unless the signal concerns the window before the last cut.
    fn cut(&mut self, now: Instant, share: f64, rtt: &Rtt) {
        if now >= self.answered_until {
            self.shrink(now, share, rtt);
        }
    }

    fn shrink(&mut self, now: Instant, share: f64, rtt: &Rtt) {
        self.answered_until = now + rtt.smoothed();
        self.delay_trial = None;
        self.links.on_cut();
        self.spare.on_cut();
        if let Some(doubt) = &mut self.doubt {
            doubt.window = (doubt.window as f64 * (1.0 - share)) as u64;
        }
        self.peak = self.bytes;
        self.beyond_peak = 0;
        let kept = (self.bytes as f64 * (1.0 - share)) as u64;
        self.bytes = kept.max(self.floor(1));
        self.linear_above = self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const PACKET: u64 = 1440;
    const GAP: Span = Span::from_millis(1);

    pub(super) fn window() -> CongestionWindow {
        CongestionWindow::new(WindowLimits {
            initial: ByteCount::kib(256),
            most: SendWindow::Bytes(ByteCount::mib(1)),
            packet: ByteCount::new(PACKET),
            delay_target: Span::from_millis(1),
            queues: QueueSignal::Auto,
        })
    }

    /// A round trip that was 100 us at first, and then this long.
    pub(super) fn round_trip(now: Span) -> Rtt {
        let mut rtt = Rtt::new(Span::from_millis(1));
        rtt.sample(Span::from_micros(100));
        for _ in 0..100 {
            rtt.sample(now);
        }
        rtt
    }

    pub(super) fn steady() -> Rtt {
        round_trip(Span::from_micros(100))
    }

    pub(super) fn at(millis: u64) -> Instant {
        Instant::START + Span::from_millis(millis)
    }

    /// News of a full window.
    pub(super) fn news(
        window: &CongestionWindow,
        segments: u32,
        marks: u32,
        lost: u32,
    ) -> Feedback {
        Feedback {
            acked: ByteCount::new(u64::from(segments) * PACKET),
            segments,
            marks,
            lost,
            lost_needed: lost,
            lost_sent_at: Stamp::default(),
            restored: 0,
            restored_before: Stamp::default(),
            in_flight: window.bytes(),
        }
    }

    #[test]
    fn loss_within_the_ignored_share_is_no_signal() {
        let (mut window, rtt) = (window(), steady());
        for n in 0..20 {
            let feedback = news(&window, 97, 0, 3);
            window.on_feedback(at(n), feedback, &rtt);
        }
        assert_eq!(window.bytes(), ByteCount::mib(1));
    }

    #[test]
    fn loss_beside_a_queue_halves_the_window_unless_the_path_marks() {
        let queue = round_trip(Span::from_micros(900));
        for (marks, kept) in [(0, 0.5), (1, 0.9)] {
            let mut window = window();
            let feedback = news(&window, 97, marks, 1);
            let before = window.bytes().get() + feedback.acked.get();
            window.on_feedback(at(1), feedback, &queue);
            let share = window.bytes().get() as f64 / before as f64;
            assert!((share - kept).abs() < 0.1, "{share} of the window");
        }
    }

    #[test]
    fn losses_that_links_explain_halve_no_window() {
        // One of a hundred segments is lost while no queue is seen; then a queue shows.
        for (before, then, halves) in [(1, 1, false), (1, 2, false), (1, 13, true), (0, 1, true)] {
            let (mut window, mut path) = (window(), Rtt::new(GAP));
            path.sample(Span::from_millis(20));
            for n in 0..100 {
                window.on_feedback(at(20 * n), news(&window, 99, 0, before), &path);
            }
            let full = window.bytes();
            (0..100).for_each(|_| path.sample(Span::from_millis(26)));
            let blames = window.on_feedback(at(2_000), news(&window, 99, 0, then), &path);
            assert_eq!(blames, halves, "{before} %, then {then} %");
            assert_eq!(window.bytes() < full, halves, "{before} %, then {then} %");
        }
    }

    #[test]
    fn on_a_short_path_links_explain_losses_once_many_segments_have_come_in_calm() {
        for (rounds, halves) in [(19, true), (22, false)] {
            let (mut window, mut path) = (window(), steady());
            for n in 0..rounds {
                window.on_feedback(at(n), news(&window, 99, 0, 1), &path);
            }
            let full = window.bytes();
            (0..100).for_each(|_| path.sample(Span::from_micros(900)));
            let blames = window.on_feedback(at(rounds), news(&window, 99, 0, 1), &path);
            assert_eq!(blames, halves, "{rounds} round trips");
            assert_eq!(window.bytes() < full, halves, "{rounds} round trips");
        }
    }

    #[test]
    fn losses_of_one_window_halve_it_once() {
        let (mut window, queue) = (window(), round_trip(Span::from_micros(900)));
        let lost = |window: &CongestionWindow, sent| Feedback {
            lost_sent_at: at(sent).stamp(),
            in_flight: ByteCount::new(0),
            ..news(window, 97, 0, 1)
        };
        let before = window.bytes().get();
        for (now, sent, halvings) in [(10, 9, 1), (13, 9, 1), (14, 10, 1), (15, 11, 2)] {
            let feedback = lost(&window, sent);
            window.on_feedback(at(now), feedback, &queue);
            assert_eq!(
                window.bytes().get(),
                before >> halvings,
                "sent at {sent} ms"
            );
        }
    }

    #[test]
    fn loss_beside_a_full_shallow_queue_halves_the_window() {
        // A quarter of the delay target is more than such a queue holds.
        for (micros, kept) in [(300, 0.5), (150, 1.0)] {
            let mut window = window();
            let full = round_trip(Span::from_micros(300));
            window.on_feedback(at(1), Feedback::default(), &full);
            let feedback = Feedback {
                in_flight: ByteCount::new(0),
                ..news(&window, 97, 0, 1)
            };
            let before = window.bytes().get() as f64;
            window.on_feedback(at(2), feedback, &round_trip(Span::from_micros(micros)));
            assert_eq!(window.bytes().get() as f64 / before, kept, "{micros} us");
        }
    }

    #[test]
    fn small_cuts_for_delay_that_others_fill_are_undone() {
        let (mut window, path) = (window(), round_trip(Span::from_micros(1_300)));
        let (before, mut least) = (window.bytes().get(), u64::MAX);
        for n in 0..100 {
            window.on_feedback(at(n * 2), Feedback::default(), &path);
            least = least.min(window.bytes().get());
        }
        assert_eq!(window.bytes().get(), before);
        assert!(least < before && least > before / 3, "{least} of {before}");
    }

    #[test]
    fn delay_alone_leaves_sixteen_packets_and_marks_leave_one() {
        let (mut window, mut path) = (window(), round_trip(Span::from_millis(5)));
        for n in 0..100 {
            window.on_feedback(at(n * 20), Feedback::default(), &path);
            // The round trip follows, so the queue is this sender's own.
            let share = window.bytes().get() as f64 / ByteCount::kib(256).get() as f64;
            path = round_trip(Span::from_micros(1_200 + (5_000.0 * share) as u64));
        }
        assert!(window.bytes().get() >= 16 * PACKET);
        for n in 0..40 {
            let packets = (window.bytes().get() / PACKET) as u32;
            let feedback = news(&window, packets, packets, 0);
            window.on_feedback(at(2_000 + n), feedback, &steady());
        }
        assert!(window.bytes().get() < 3 * PACKET, "{}", window.bytes());
    }

    #[test]
    fn delay_that_a_cut_does_not_shorten_is_ignored() {
        let (mut window, late) = (window(), round_trip(Span::from_millis(5)));
        let before = window.bytes();
        window.on_feedback(at(0), Feedback::default(), &late);
        assert!(window.bytes() < before);
        for n in 1..4 {
            window.on_feedback(at(n * 20), Feedback::default(), &late);
        }
        assert_eq!(window.bytes(), before, "the cuts are undone");
        window.on_feedback(at(80), Feedback::default(), &late);
        assert_eq!(window.bytes(), before);
    }

    #[test]
    fn a_window_grows_by_a_packet_in_a_round_trip_after_a_signal() {
        let (mut window, rtt) = (window(), steady());
        let marked = news(&window, 100, 100, 0);
        window.on_feedback(at(1), marked, &rtt);
        let before = window.bytes().get();
        let packets = (before / PACKET) as u32;
        let feedback = news(&window, packets, 0, 0);
        window.on_feedback(at(2), feedback, &rtt);
        let grown = window.bytes().get() - before;
        assert!((PACKET - 50..=PACKET).contains(&grown), "by {grown} bytes");
    }

    #[test]
    fn a_window_that_is_not_filled_does_not_grow() {
        let (mut window, rtt) = (window(), steady());
        let before = window.bytes();
        let feedback = Feedback {
            in_flight: ByteCount::kib(100),
            ..news(&window, 50, 0, 0)
        };
        window.on_feedback(at(1), feedback, &rtt);
        assert_eq!(window.bytes(), before);
    }

    #[test]
    fn an_idle_window_decays_to_the_initial_one_and_grows_back() {
        let (mut window, rtt) = (window(), steady());
        for n in 0..10 {
            let feedback = news(&window, 200, 0, 0);
            window.on_feedback(at(n), feedback, &rtt);
        }
        assert_eq!(window.bytes(), ByteCount::mib(1));
        window.on_restart(at(15), &rtt, GAP);
        assert_eq!(window.bytes(), ByteCount::mib(1), "a pause of 6 ms");
        window.on_restart(at(20), &rtt, GAP);
        assert_eq!(window.bytes(), ByteCount::kib(512), "one period of 10 ms");
        window.on_restart(at(100_000), &rtt, GAP);
        assert_eq!(window.bytes(), ByteCount::kib(256));
        let feedback = news(&window, 180, 0, 0);
        window.on_feedback(at(100_001), feedback, &rtt);
        assert!(window.bytes() > ByteCount::kib(500), "{}", window.bytes());
    }
}
