//! When messages are probed, and how much their receiver was told by PROBE.
//!
//! 1. A message in doubt asks for itself: after [`Rtt::probe_wait`], and while no answer arrives,
//!    after waits that double up to [`PROBE_WAIT_MAX`]. Where many PROBEs go unanswered, every
//!    other one is short. On lossy paths, before a first answer, and at the end of a message on
//!    paths that are not proven clean, the waits begin with [`Rtt::retry_wait`], and after a
//!    segment has left or arrived the first one does not double. On lossy paths:
//!    - The first few PROBEs after a segment has left or arrived are in haste: after an unanswered
//!      one two leave at a time. While segments are in flight, two leave at a time a few times
//!      more.
//!    - The wait after an answer doubles, too, as long as no segment leaves or arrives.
//!    - Where it pays ([`Sender::haste_pays`]), two PROBEs ask at the end of a message, and an
//!      answer that does not explain all that is in flight there is soon followed by the next.
//!    - Where it pays ([`Sender::early_question_pays`]), a message of which all was sent asks after
//!      the smoothed round trip, if no other one to its peer is in flight.
//! 2. A message that makes no progress, as its receiver has confirmed, *rests*: the receiver
//!    reports when that changes. One resting message at a time asks, in turn, after waits that grow
//!    up to [`WATCH_WAIT_MAX`] ([`PeerWatch`]). This shows that the peer lives. It also finds a
//!    grant whose packet was lost: a receiver that answers a PROBE for a message that is not posted
//!    also reports all messages that it has granted. When a report is found lost, the resting
//!    message whose turn it is asks at once, and so does the oldest one that waits for a grant.
//!
//!    A message that has asked several times, while its peer answered only others, rests, too: the
//!    receiver has too many early messages to take it, and does not say when that changes. Such
//!    messages ask before others, after waits of up to [`VAIN_WAIT_MAX`].
//! 3. The peer is silent after [`SILENT_PROBES`] of one message without any report. Then one
//!    message asks for all, after waits of up to a part of the silence, and the window restarts.
//!    The first packet that answers ends the silence: all messages in doubt ask at once.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::Sender;
use super::history::PathRecord;
use super::message::{SendMessage, grant_wait};
use super::pace::LONE_COST;
use super::probe::{PROBE_WAIT_MAX, ProbeDuty, ReportWait, SendStage};
use super::tail::{self, PathEnds, TailMark};
use crate::machine::SegmentRun;
use crate::outlook::earlier;
use crate::rtt::Rtt;
use crate::settings::EndpointSettings;
use crate::units::{Class, Instant, PathNumber, Span, Stamp};
use crate::wire::{Flags, HEADER_BYTES, Header, PacketKind, PathMark};

/// The longest wait between two probes of a message, in gaps of the job.
const GAPS_UNANSWERED: u64 = 32;
/// The longest wait between two probes of a peer, unless [`WATCHES_PER_TIMEOUT`] is shorter.
const WATCH_WAIT_MAX: Span = Span::from_millis(1_000);
/// Minimum number of probes of a peer in `peer_timeout`, so that no peer that answers counts as
/// dead.
const WATCHES_PER_TIMEOUT: u64 = 4;
/// The longest wait between two probes of a peer while messages have asked in vain.
const VAIN_WAIT_MAX: Span = Span::from_millis(100);
/// Growth of the wait between two probes of messages that rest.
const WATCH_GROWTH: u64 = 4;
/// Unanswered probes of one message after which its peer is silent, if the first one was sent so
/// many waits ago.
const SILENT_PROBES: u32 = 3;
const SILENT_WAITS: u64 = 2;
/// A silent peer is probed after this part of its silence, which is also how much longer the
/// recovery takes.
const SILENCE_PART: u64 = 128;
/// After an answer that leaves segments of its end unexplained, a message asks again after the
/// smoothed round trip divided by this, where that pays.
const HASTE_PART: u64 = 4;
/// On paths that lose this share of packets, each end is marked twice at a time, and asks twice.
const MARKED_TWICE: f64 = 0.02;
/// At most this many paths are marked before the end of a message: where many begin to send to one,
/// a mark of each path would fill the last queue.
const MARKS_MIDWAY: usize = 8;
/// How long a peer whose round trip is not known must be silent before the window restarts, as in
/// RFC 6298 section 2.1.
const UNKNOWN_SILENCE: Span = Span::from_millis(1_000);

/// Ends of paths, with their places in a PROBE.
type EndMarks = SmallVec<[(u64, PathMark); 8]>;

/// One PROBE at a time for all messages that rest, or for all to a silent peer.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct PeerWatch {
    /// When one of the resting messages asks next, if any rests.
    at: Option<Instant>,
    /// The wait after it.
    wait: Span,
    /// Whether a lost report has let messages ask since the peer last made progress.
    has_asked_early: bool,
    /// While the peer is silent.
    silence: Option<PeerSilence>,
}

/// A peer that has not answered. A silence that ends leaves the waits of resting messages as long
/// as they are: otherwise a peer that answers late would be asked without end.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct PeerSilence {
    /// Since when it owes an answer.
    since: Instant,
    /// When it is asked next.
    at: Instant,
    /// The wait after that.
    wait: Span,
}

impl PeerWatch {
    /// A message to a peer that is probed after `wait` begins to rest.
    fn begin(&mut self, now: Instant, wait: Span) {
        self.at.get_or_insert_with(|| now + grant_wait(wait));
        self.hasten(now, wait);
    }

    /// The peer has made progress: if it is watched, it is asked soon.
    pub(super) fn hasten(&mut self, now: Instant, wait: Span) {
        self.has_asked_early = false;
        if let Some(at) = &mut self.at {
            self.wait = grant_wait(wait);
            *at = (now + self.wait).min(*at);
        }
    }

    /// A PROBE goes out; the next one is due after a longer wait, but not beyond `most`.
    fn advance(&mut self, now: Instant, most: Span) {
        self.wait = (self.wait * WATCH_GROWTH).min(most);
        self.at = Some(now + self.wait);
    }
}

impl PeerSilence {
    /// A PROBE goes out; the next one is due after twice the wait, but not beyond `most`.
    fn advance(&mut self, now: Instant, most: Span) {
        self.wait = (self.wait * 2).min(most);
        self.at = now + self.wait;
    }
}

impl Sender {
    /// No later than the next PROBE.
    #[inline]
    pub(super) fn next_probe(&self) -> Option<Instant> {
        match self.watch.silence {
            Some(silence) => Some(silence.at),
            None => earlier(self.probe_due, self.watch.at),
        }
    }

    pub(super) fn note_probe(&mut self, at: Instant) {
        self.probe_due = Some(self.probe_due.map_or(at, |due| due.min(at)));
    }

    /// The peer has not answered yet, and should within `wait`. Messages that await an answer ask,
    /// at the latest, this long after they began or after their last PROBE.
    pub(crate) fn ask_within(&mut self, wait: Span) {
        let mut first = None;
        for probe in self.messages.probes() {
            if probe.awaits_answer() {
                probe.at = probe.at.min(probe.last + wait);
                first = earlier(first, Some(probe.at));
            }
        }
        self.probe_due = earlier(self.probe_due, first);
    }

    /// A run of the message at `at` has left; returns when the message asks next.
    pub(super) fn schedule_probe(
        &mut self,
        now: Instant,
        at: usize,
        (rtt, gap): (&Rtt, Span),
    ) -> Instant {
        let wait = self.report_wait(at, (rtt, gap));
        let sending = &mut self.messages[at];
        let next = sending.next_probe(now, wait);
        sending.probe.at = next;
        self.note_probe(next);
        next
    }

    /// The next PROBE that is due, if any.
    pub(super) fn poll_probe(
        &mut self,
        now: Instant,
        rtt: &Rtt,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        if self.next_probe().is_none_or(|due| due > now) {
            return None;
        }
        let most = WATCH_WAIT_MAX.min(settings.peer_timeout.divided(WATCHES_PER_TIMEOUT));
        let wait = rtt.probe_wait(settings.gap);
        let longest = PROBE_WAIT_MAX.min(settings.gap * GAPS_UNANSWERED).max(wait);
        let at = if let Some(silent) = &mut self.watch.silence {
            let silence = now - silent.since;
            silent.advance(now, longest.max(silence.divided(SILENCE_PART)).min(most));
            if self.in_flight > 0 && (rtt.is_known() || silence >= UNKNOWN_SILENCE) {
                self.window.on_silence();
            }
            let first = self.longest_unasked(SendMessage::is_told);
            if first.is_none() {
                // Messages that rest are still asked about in turn.
                self.watch.silence = None;
            }
            first
        } else {
            self.wake_one(now, most);
            self.first_due(now)
        };
        let at = at?;
        self.begin(now, at);
        let report_wait = self.report_wait(at, (rtt, settings.gap));
        let sending = &mut self.messages[at];
        sending.probe.count_vain(self.heard);
        let unanswered = sending.probe.unanswered;
        let doubled = wait * (1 << unanswered.min(6));
        let usual = match sending.may_wait(report_wait) {
            true => doubled,
            false => {
                let hurries = u32::from(sending.probe.hurries());
                let asked = unanswered.saturating_sub(hurries);
                rtt.retry_wait(settings.gap, asked)
            }
        };
        let next = now + report_wait.or_at_end(usual, unanswered).min(longest);
        let is_news = sending.is_news() || sending.has_untold_holes();
        let stage = sending.probe.stage;
        sending.on_probe(now, next);
        // A probe with new information is no sign that the receiver holds the message up.
        if sending.stands_still() && !is_news {
            sending.probe.asked_still.get_or_insert_with(|| now.stamp());
            if !sending.probe.told_still {
                sending.probe.told_still = true;
                self.still.push(sending.key());
            }
        }
        let (unheard, first) = sending.probe.count_unheard(now, self.heard);
        if sending.probe.asks_in_vain() {
            let duty = std::mem::replace(&mut sending.probe.duty, ProbeDuty::Rests);
            if duty == ProbeDuty::Itself {
                self.watch.begin(now, wait);
            }
        }
        if unheard >= SILENT_PROBES && now - first >= wait * SILENT_WAITS {
            self.fall_silent(now, first, doubled.min(longest));
        }
        self.queue_probe(at, stage, rtt, settings);
        self.poll_queued(now, settings, body)
    }

    /// Lets one of the messages that rest ask, if the watch is due.
    fn wake_one(&mut self, now: Instant, most: Span) {
        if self.watch.at.is_none_or(|at| at > now) {
            return;
        }
        let rests = |sending: &SendMessage| sending.probe.duty == ProbeDuty::Rests;
        let in_vain =
            self.longest_unasked(|sending| rests(sending) && sending.probe.asks_in_vain());
        let Some(at) = in_vain.or_else(|| self.longest_unasked(rests)) else {
            self.watch.at = None;
            return;
        };
        let most = match in_vain {
            Some(_) => most.min(VAIN_WAIT_MAX),
            None => most,
        };
        self.watch.advance(now, most);
        let probe = &mut self.messages[at].probe;
        (probe.duty, probe.at) = (ProbeDuty::ForAll, now);
        self.note_probe(now);
    }

    /// The message whose own PROBE is due.
    fn first_due(&mut self, now: Instant) -> Option<usize> {
        if self.probe_due.is_none_or(|due| due > now) {
            return None;
        }
        let asks =
            |sending: &SendMessage| sending.is_told() && sending.probe.duty != ProbeDuty::Rests;
        let asking = self.messages.iter().filter(|(_, sending)| asks(sending));
        let times = asking.map(|(at, sending)| (at, sending.probe.at));
        let due = times.clone().find(|&(_, time)| time <= now);
        if due.is_none() {
            self.probe_due = times.map(|(_, time)| time).min();
        }
        due.map(|(at, _)| at)
    }

    /// Among the messages of this kind, the one that has not asked for the longest time.
    fn longest_unasked(&self, is_kind: impl Fn(&SendMessage) -> bool) -> Option<usize> {
        let of_kind = self.messages.iter().filter(|(_, sending)| is_kind(sending));
        let first = of_kind.min_by_key(|(_, sending)| sending.probe.last);
        first.map(|(at, _)| at)
    }

    /// The peer has not answered since `asked`; it is asked again after `wait`.
    fn fall_silent(&mut self, now: Instant, asked: Instant, wait: Span) {
        self.watch.silence.get_or_insert(PeerSilence {
            since: asked,
            at: now + wait,
            wait,
        });
    }

    /// A packet has arrived that answers this sender. After a silence, the messages that it does
    /// not answer ask at once.
    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard = now;
        if self.watch.silence.take().is_none() {
            return;
        }
        for probe in self.messages.probes() {
            if probe.unanswered > 0 {
                probe.count_vain(now);
                (probe.unanswered, probe.at) = (0, now);
            }
        }
        self.note_probe(now);
    }

    /// A report of the peer is lost. It may have granted a message that waits, so the oldest one
    /// asks, and one of those that rest. They ask so only once until a report brings progress:
    /// reports that overtake each other make others look lost, too.
    pub(super) fn ask_for_grants(&mut self, now: Instant) {
        if self.watch.has_asked_early || self.path.waits_until().is_some() {
            return;
        }
        self.watch.has_asked_early = true;
        if let Some(at) = &mut self.watch.at {
            *at = now.min(*at);
        }
        let waits = |sending: &SendMessage| {
            sending.is_told()
                && sending.probe.duty == ProbeDuty::Itself
                && sending.probe.unanswered == 0
                && sending.waits_for_grant()
        };
        let oldest = self.messages.iter().find(|(_, sending)| waits(sending));
        if let Some((at, _)) = oldest {
            self.messages[at].probe.at = now;
            self.note_probe(now);
        }
    }

    /// Whether it pays in the mean that so many packets leave only to save this time, in case that
    /// one is lost which they repeat or ask about.
    pub(super) fn haste_pays(&self, packets: u64, time: Span) -> bool {
        let is_lossy = self.history.record() == PathRecord::Lossy;
        is_lossy && self.packets_pay(packets, self.losses.share(), time)
    }

    /// Whether so many packets cost less than this time, which they save if one is lost of which
    /// `share` are.
    fn packets_pay(&self, packets: u64, share: f64, time: Span) -> bool {
        let cost = self.pace.lone() * (packets * LONE_COST);
        share > 0.0 && !tail::costs_more(share, cost, time)
    }

    /// How long the message at `at` waits for a report.
    pub(super) fn report_wait<'a>(&self, at: usize, (rtt, gap): (&'a Rtt, Span)) -> ReportWait<'a> {
        let record = self.history.record();
        let sending = &self.messages[at];
        let may_lack = sending.all_sent() && sending.in_flight() > 0;
        let asks_soon = record == PathRecord::Lossy
            && may_lack
            && self.early_question_pays(sending.in_flight(), (rtt, gap))
            && self.is_alone_in_flight(at);
        ReportWait {
            rtt,
            gap,
            record,
            at_end: asks_soon.then(|| rtt.smoothed()),
        }
    }

    /// Whether no other message to the peer has packets in flight. Packets of others would show the
    /// losses of this one, or may be more urgent and delay it.
    fn is_alone_in_flight(&self, at: usize) -> bool {
        let mut all = self.messages.iter();
        all.all(|(other, sending)| other == at || sending.in_flight() == 0)
    }

    /// Whether it pays to ask after the smoothed round trip about the last packets of an operation,
    /// of which so many are in flight: each path of theirs may get a PROBE, and two leave at least.
    fn early_question_pays(&self, in_flight: u32, (rtt, gap): (&Rtt, Span)) -> bool {
        let felt = tail::felt_share(self.losses.share(), self.ranks);
        let saved = rtt.retry_wait(gap, 0).beyond(rtt.smoothed());
        self.packets_pay(u64::from(in_flight.max(2)), felt, saved)
    }

    /// A report about a message has arrived that echoes a packet with this stamp.
    pub(super) fn on_answer(
        &mut self,
        now: Instant,
        at: usize,
        echo: Stamp,
        (rtt, gap): (&Rtt, Span),
    ) {
        let wait = self.report_wait(at, (rtt, gap));
        let ends_soon = wait.record == PathRecord::Lossy && self.messages[at].all_sent();
        let hastens = ends_soon && self.haste_pays(1, rtt.retry_wait(gap, 0));
        let sending = &mut self.messages[at];
        let mut probe_at = sending.next_probe(now, wait);
        let is_asked = sending.probe.stage == SendStage::SaidAllSent;
        if ends_soon && is_asked && echo < sending.probe.marked {
            // This report answers something else than the last PROBE.
            probe_at = probe_at.min(sending.probe.at);
        }
        // This report answers the last PROBE, and some segments are still in flight.
        let is_unclear = is_asked && echo >= sending.probe.marked && sending.in_flight() > 0;
        let is_overtaken = sending.probe.is_awaited && sending.probe.is_alone;
        if (hastens || is_overtaken) && is_unclear && sending.probe.hurries() {
            probe_at = probe_at.min(now + rtt.smoothed().divided(HASTE_PART));
        }
        if let Some(until) = self.path.waits_until().filter(|_| probe_at > now) {
            // A sender that has fallen back sends nothing before that, whatever the answer.
            probe_at = probe_at.max(until);
        }
        // The last PROBE is answered: a short one is sent after many long ones in vain.
        if sending.probe.unanswered > 0 && echo == sending.probe.marked {
            let bytes = sending.probe.long_bytes;
            match sending.probe.is_short() {
                true => self.path.on_lost(now, bytes),
                false => self.path.on_probe_arrived(bytes),
            }
        }
        let is_news = sending.has_untold_holes() || sending.probe.is_awaited;
        let may_rest = sending.stands_still() && !is_news;
        let was_in_vain = sending.probe.asks_in_vain();
        let probe = &mut sending.probe;
        (probe.unanswered, probe.vain) = (0, 0);
        probe.at = probe_at;
        // The answer to any PROBE since it stopped making progress suffices: on a path that is
        // longer than the wait, the last PROBE is never the one that is answered.
        let is_told = probe.asked_still.is_some_and(|first| echo >= first);
        if is_told && may_rest {
            // One that asked for all while none rested has no watch any more.
            if probe.duty == ProbeDuty::Itself || self.watch.at.is_none() {
                self.watch.begin(now, rtt.probe_wait(gap));
            }
            probe.duty = ProbeDuty::Rests;
        } else {
            if was_in_vain {
                probe.duty = ProbeDuty::Itself;
            }
            self.note_probe(probe_at);
        }
    }

    /// Queues a PROBE for the message at `at`, and before it a mark on each path where the message
    /// ends, unless marks are left out. `stage` is the message's stage before this PROBE was due.
    pub(super) fn queue_probe(
        &mut self,
        at: usize,
        stage: SendStage,
        rtt: &Rtt,
        settings: &EndpointSettings,
    ) {
        let is_first = stage == SendStage::Sending;
        let in_flight = self.ends_in_flight(at);
        self.messages[at].ends.clone_from(&in_flight);
        let mut ends = self.ends_to_mark(at, stage, in_flight);
        let has_none = ends.is_empty();
        ends.retain(|&mut end| !is_first || self.numbers.is_last(end));
        let leaves_out =
            is_first && self.leaves_out_marks(at, ends.len() as u32, (rtt, settings.gap));
        if leaves_out {
            // The lowest class, and of its paths the one that was used last.
            ends.sort_by_key(|end| Reverse(end.class));
            ends.truncate(1);
        }
        let probe = &mut self.messages[at].probe;
        (probe.is_alone, probe.marked_again) = (has_none || leaves_out, 0);
        if probe.asks_elsewhere() {
            ends.clear();
        }
        let class = self.messages[at].lowest_class(&settings.policy);
        let copies = self.asking_copies(at, (rtt, settings.gap));
        let of_class = ends.iter().filter(|end| end.class == class).count();
        // Of two, one takes another path than those of the ends.
        for _ in of_class.min(copies.div_ceil(2))..copies {
            ends.push(PathMark {
                class,
                entropy: self.spray.take_any(),
                number: PathNumber::default(),
            });
        }
        // Of the first ones, the last ones ask for all. A repeated one asks for its own path.
        let asks_from = match is_first {
            true => ends.len().saturating_sub(copies),
            false => 0,
        };
        self.queue_marks(at, ends, asks_from);
    }

    /// A run of the message at `at` leaves, which was at this stage. If these are repairs behind
    /// the end of a message that must arrive, its receiver need not be asked at once.
    pub(super) fn keep_stage(
        &mut self,
        at: usize,
        stage: SendStage,
        run: &SegmentRun,
        (rtt, gap): (&Rtt, Span),
    ) {
        let sending = &self.messages[at];
        let is_behind = stage == SendStage::SaidAllSent && run.repairs() == run.len();
        let unmarked = sending.probe.unmarked + run.len() as u32;
        if is_behind
            && sending.tolerance.is_none()
            && self.leaves_out_marks(at, unmarked, (rtt, gap))
        {
            let probe = &mut self.messages[at].probe;
            (probe.stage, probe.unmarked) = (stage, unmarked);
        }
    }

    /// Defers the marks of a lossless message whose last run has left, if marks cost more than they
    /// save: by half a round trip if other messages follow, else until an answer is due.
    pub(super) fn defer_marks(&mut self, now: Instant, at: usize, (rtt, gap): (&Rtt, Span)) {
        let sending = &mut self.messages[at];
        sending.probe.marks_from = now;
        if !sending.tolerance.is_none() || !sending.is_at_end() || sending.is_in_doubt() {
            return;
        }
        let (share, lone) = (self.losses.of_all(), self.pace.lone());
        let (share, later) = match self.messages.first_turn() {
            Some(_) => (share, rtt.smoothed().divided(2)),
            None => (tail::felt_share(share, self.ranks), rtt.answer_wait()),
        };
        let later = later.min(rtt.probe_wait(gap));
        if tail::costs_more(share, lone, later) {
            self.messages[at].probe.marks_from = now + later;
        }
    }

    /// Whether no marks follow so many packets of the message at `at`, since the next PROBE finds
    /// those that are lost. Most speculative packets may be.
    fn leaves_out_marks(&self, at: usize, packets: u32, (rtt, gap): (&Rtt, Span)) -> bool {
        let (share, lone) = (self.losses.of_all(), self.pace.lone());
        let sending = &self.messages[at];
        self.history.record() == PathRecord::Lossy
            && sending.all_sent()
            && !sending.is_in_doubt()
            && tail::leaves_out_marks(packets, share, lone, rtt.retry_wait(gap, 0))
    }

    /// The receiver waits for the ends of these paths of a message, counted as PROBE has named
    /// them: marks them again, unless the last marks may still be in flight. If there were none,
    /// the message soon asks again, with marks ([`Self::on_answer`]).
    pub(super) fn mark_awaited(&mut self, at: usize, awaited: u64, echo: Stamp) {
        let sending = &mut self.messages[at];
        if awaited == 0 {
            return;
        }
        sending.probe.is_awaited = true;
        if sending.probe.is_alone || echo < sending.probe.marked {
            return;
        }
        let is_awaited = |bit: u64| awaited.checked_shr(bit as u32).unwrap_or(0) & 1 == 1;
        let ends = (0..).zip(sending.ends.iter().copied());
        let (awaited, passed): (EndMarks, EndMarks) = ends.partition(|&(bit, _)| is_awaited(bit));
        if !sending.probe.marks_again() {
            return;
        }
        sending.probe.marked_again += 1;
        let copies = 1 + sending.probe.marked_again as usize;
        let message = sending.id();
        let again = awaited.iter().map(|&(_, end)| (end, copies));
        // A path that has passed its end tells when these marks should have passed, too.
        let alive = passed.last().map(|&(_, end)| (end, 1));
        let marks = again.chain(alive).flat_map(|(path, copies)| {
            let mark = TailMark {
                message,
                path,
                flags: Flags::NONE,
            };
            std::iter::repeat_n(mark, copies)
        });
        self.marks_due.extend(marks);
    }

    /// Queues a PROBE on each of these paths. Those from `asks_from` on ask for a report; the last
    /// one has the lowest class, so that it waits in queues as long as the data does.
    fn queue_marks(&mut self, at: usize, mut paths: PathEnds, asks_from: usize) {
        paths.sort_by_key(|path| path.class);
        let message = self.messages[at].id();
        let marks = paths.into_iter().enumerate().map(|(at, path)| TailMark {
            message,
            path,
            flags: if at >= asks_from {
                Flags::NONE
            } else {
                Flags::MARKER
            },
        });
        let copies = match self.losses.share() >= MARKED_TWICE {
            true => 2,
            false => 1,
        };
        let of_mark = |mark: &TailMark| match mark.flags.has(Flags::MARKER) {
            true => copies,
            false => 1,
        };
        let marks = marks.flat_map(|mark| std::iter::repeat_n(mark, of_mark(&mark)));
        self.marks_due.extend(marks);
    }

    /// How many PROBEs ask for a report at a time. On lossy paths two do once one got no answer,
    /// and at the end of a message where that costs less than it saves.
    fn asking_copies(&self, at: usize, (rtt, gap): (&Rtt, Span)) -> usize {
        let sending = &self.messages[at];
        let probe = &sending.probe;
        let was_in_vain = probe.unanswered > 1 && probe.asks_twice(sending.in_flight());
        let is_end = sending.all_sent() && sending.in_flight() > 0 && probe.hurries();
        let often_lost = self.losses.share() >= MARKED_TWICE;
        let pays = is_end && often_lost && self.haste_pays(1, rtt.retry_wait(gap, 0));
        match self.history.record() {
            PathRecord::Lossy if was_in_vain || pays => 2,
            _ => 1,
        }
    }

    /// Which of these ends of a message need a mark: on lossy paths all, and, behind the last
    /// packet that leaves, on unproven ones. `stage` is its stage before this PROBE was due.
    fn ends_to_mark(&self, at: usize, stage: SendStage, mut ends: PathEnds) -> PathEnds {
        let sending = &self.messages[at];
        let record = self.history.record();
        // A mark of an unproven path that no report answers is late rather than lost.
        let is_due = record == PathRecord::Lossy || stage == SendStage::Sending;
        let is_marked = (is_due && sending.needs_marks(record)) || sending.probe.is_awaited;
        if !is_marked && !sending.is_in_doubt() {
            ends.clear();
        }
        if sending.is_in_doubt() && !sending.all_sent() {
            // Others of its packets follow, which mark the other paths.
            ends.truncate(MARKS_MIDWAY);
        }
        ends
    }

    /// The last packet of a message that was sent, on each path on which one is in flight.
    fn ends_in_flight(&self, at: usize) -> PathEnds {
        let (sending, mut ends) = (&self.messages[at], PathEnds::new());
        let mut left = match sending.is_at_end() {
            true => sending.in_flight(),
            false => 0,
        };
        for (class, flights) in (0..).zip(&self.classes) {
            // The last packets are found first.
            for run in flights.flights.iter().rev() {
                if left == 0 {
                    break;
                }
                if run.message != sending.id() {
                    continue;
                }
                let (count, last) = (sending.current_of(run))
                    .fold((0, None), |(count, _), flight| (count + 1, Some(flight)));
                let Some(flight) = last else {
                    continue;
                };
                left = u32::saturating_sub(left, count);
                let path = PathMark {
                    class: Class(class),
                    entropy: flight.entropy,
                    number: flight.number,
                };
                if !ends.iter().any(|end| end.shares_path(path)) {
                    ends.push(path);
                }
            }
        }
        ends
    }

    /// The next PROBE that was queued.
    pub(super) fn poll_queued(
        &mut self,
        now: Instant,
        settings: &EndpointSettings,
        body: &mut Vec<u8>,
    ) -> Option<Header> {
        loop {
            let mark = self.marks_due.pop_front()?;
            // Only then does another packet leave as soon as this one has left.
            let is_followed = !self.marks_due.is_empty() || !self.parity_due.is_empty();
            let Some(at) = self.position(mark.message) else {
                continue;
            };
            let sending = &mut self.messages[at];
            sending.probe.marked = now.stamp();
            match is_followed {
                true => self.pace.on_lone(now),
                false => self.pace.on_next(now),
            }
            // Unless paths are lossy, a mark need not say again what the PROBE after it says.
            let is_bare =
                mark.flags.has(Flags::MARKER) && self.history.record() != PathRecord::Lossy;
            let is_short = sending.probe.is_short() || is_bare;
            match is_short {
                true => body.clear(),
                false => sending.write_probe(settings.segment_bytes as usize, body),
            }
            if !is_short {
                sending.probe.long_bytes = (HEADER_BYTES + body.len()) as u64;
            }
            let all_sent = match sending.all_sent() && !is_short {
                true => Flags::ALL_SENT,
                false => Flags::NONE,
            };
            let (class, entropy) = (mark.path.class, mark.path.entropy);
            self.counters.probes += 1;
            return Some(Header {
                kind: PacketKind::Probe,
                class,
                entropy,
                number: self.numbers.take(class, entropy, 1).number,
                flags: mark.flags.with(all_sent).with(sending.proof.flags()),
                segment: sending.sent().min(sending.segments() - 1),
                length: body.len() as u16,
                ..sending.template(now)
            });
        }
    }
}
