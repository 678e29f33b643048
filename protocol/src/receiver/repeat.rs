//! Repeats grants: if the report that carries a grant is lost, its sender waits until it probes.
//!
//! 1. A grant is *heard* when more segments of its message have arrived than were granted before
//!    it, or when PROBE says that more were sent.
//! 2. When no segment has come from the peer for a wait, each message whose grant is not heard
//!    reports again. The waits double, and there are at most [`REPEATS_MAX`] repeats until a
//!    segment comes. While segments of other messages come, the sender asks: it finds by their
//!    reports that an earlier one is lost.
//! 3. The length of the wait:
//!    - Usually twice the longest time that the peer should take to answer a grant, and a margin:
//!      a sender that has halved its window is silent for a round trip. Once packets of this rank
//!      were lost, the margin is left out.
//!    - Once packets of the peer were lost, twice the usual time, with up to [`REPEATS_LOSSY`]
//!      repeats.
//!    - Before the first answer, [`GAPS_UNKNOWN`] gaps, with one repeat: the path may be long.
//!      Once packets of this rank were lost, at most twice the usual time in which other peers
//!      have answered their first grants, with up to [`REPEATS_MAX`] repeats.
//! 4. Once packets were lost, the answer to a PROBE repeats all grants that should have been heard
//!    by then: the prober may be waiting for one of them, and a lost grant occupies a part of the
//!    grant window. Answers to these repeats are not timed (Karn's rule, RFC 6298 section 3).

use serde::{Deserialize, Serialize};

use super::message::ReceiveMessage;
use super::{RankResources, Receiver};
use crate::outlook::earlier;
use crate::rtt::Rtt;
use crate::units::{Instant, Span};

/// Repeats until a segment comes. Then the sender asks, by `sender/asking.rs`.
const REPEATS_MAX: u32 = 5;
/// The same once packets of the peer were lost: repeats may be lost, too.
const REPEATS_LOSSY: u32 = 8;
/// Gaps until a grant goes again while it is not known how long an answer takes.
const GAPS_UNKNOWN: u64 = 2;
/// Answers that should have come until a grant goes again.
const ANSWERS_AWAITED: u64 = 2;
/// No wait is longer: an answer of seconds is a host that stood still.
const WAIT_MAX: Span = Span::from_millis(1_000);
/// Messages that repeat their grants at a time, so that thousands of them make no flood.
const REPEATED_TOGETHER: usize = 8;

/// A grant that its sender may not have heard of.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct UnheardGrant {
    /// The segments that were granted before it.
    pub(super) before: u32,
    /// When its sender was told.
    pub(super) told: Instant,
    /// How often it was told again.
    pub(super) repeats: u32,
}

/// The grants to one peer, and how long it takes to answer them.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct GrantWatch {
    answers: Rtt,
    /// Whether packets were lost, the peer's or reports to it.
    is_lossy: bool,
    /// When a segment came last, a grant was made or repeated.
    since: Instant,
    repeats: u32,
    /// No later than the next repeat.
    due: Option<Instant>,
}

impl GrantWatch {
    /// Of a peer that was granted nothing.
    pub(super) fn new() -> Self {
        Self {
            answers: Rtt::new(Span::ZERO),
            is_lossy: false,
            since: Instant::START,
            repeats: 0,
            due: None,
        }
    }

    /// A segment has come.
    #[inline]
    pub(super) fn on_segment(&mut self, now: Instant) {
        self.since = now;
        self.repeats = 0;
    }

    /// A packet is lost: a path of the peer has skipped it, or a segment has come again.
    pub(super) fn on_loss(&mut self) {
        self.is_lossy = true;
    }

    /// A grant was made.
    pub(super) fn on_grant(&mut self, lent: &RankResources<'_>) {
        self.since = lent.now;
        if self.repeats < self.most(lent) {
            let due = lent.now + self.wait(lent);
            self.due = earlier(self.due, Some(due));
        }
    }

    /// A grant was heard after so long. If its report was lost, a later one was heard: a sample
    /// that is too long counts for little more than the longest that was expected, so that it
    /// hardly lengthens the next wait, yet a path that has become longer is learned.
    pub(super) fn on_answer(&mut self, took: Span, lent: &mut RankResources<'_>) {
        if self.answers.is_known() {
            let most = self.answers.answer_wait() + self.answers.smoothed().divided(4);
            self.answers.sample(took.min(most));
            return;
        }
        self.answers.sample(took);
        if let Some(of_rank) = &mut lent.first_answers {
            of_rank.sample(took);
        }
    }

    /// No later than the next repeat.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The time has come to look whether grants go again; tells whether they do.
    pub(super) fn look(&mut self, lent: &RankResources<'_>) -> bool {
        let (now, at) = (lent.now, self.since + self.wait(lent));
        if at > now {
            self.due = Some(at);
            return false;
        }
        self.repeats += 1;
        self.since = now;
        self.due = (self.repeats < self.most(lent)).then(|| now + self.wait(lent));
        true
    }

    /// All grants are heard.
    pub(super) fn rest(&mut self) {
        self.due = None;
    }

    /// How often grants go again until a segment comes.
    fn most(&self, lent: &RankResources<'_>) -> u32 {
        match (self.answers.is_known(), self.is_lossy) {
            (false, _) if !lent.has_lost() => 1,
            (false, _) | (true, false) => REPEATS_MAX,
            (true, true) => REPEATS_LOSSY,
        }
    }

    fn wait(&self, lent: &RankResources<'_>) -> Span {
        let gap = lent.settings.gap;
        let first = match self.answers.is_known() {
            true if self.is_lossy => self.answers.smoothed() * ANSWERS_AWAITED,
            true if lent.has_lost() => self.answers.answer_wait() * ANSWERS_AWAITED,
            true => self.answers.answer_wait() * ANSWERS_AWAITED + Rtt::reaction(gap),
            false => first_grant_wait(lent),
        };
        first.min(WAIT_MAX) * (1 << self.repeats)
    }
}

/// How long a peer is awaited that has answered no grant yet.
fn first_grant_wait(lent: &RankResources<'_>) -> Span {
    let unknown = lent.settings.gap * GAPS_UNKNOWN;
    match &lent.first_answers {
        Some(others) if others.is_known() => unknown.min(others.smoothed() * ANSWERS_AWAITED),
        _ => unknown,
    }
}

impl Receiver {
    /// Reports grants again that are not heard, if it is time.
    pub(super) fn repeat_grants(&mut self, lent: &RankResources<'_>) {
        if self.granted.due().is_none_or(|due| due > lent.now) {
            return;
        }
        if !self.messages.iter().any(ReceiveMessage::has_unheard_grant) {
            self.granted.rest();
        } else if self.granted.look(lent) {
            self.tell_again(lent, Span::ZERO, |_| {});
        }
    }

    /// A PROBE has come: its sender may wait for grants that it should have heard by now.
    pub(super) fn tell_overdue(&mut self, lent: &RankResources<'_>) {
        let GrantWatch {
            answers, is_lossy, ..
        } = &self.granted;
        if *is_lossy && answers.is_known() {
            let usual = answers.smoothed();
            self.tell_again(lent, usual, ReceiveMessage::time_no_answer);
        }
    }

    /// Tells grants again that are not heard although they were told at least `age` ago, and does
    /// something else with their messages.
    fn tell_again(
        &mut self,
        lent: &RankResources<'_>,
        age: Span,
        also: impl Fn(&mut ReceiveMessage),
    ) {
        let (now, most) = (lent.now, self.granted.most(lent));
        let messages = self.messages.iter_mut();
        let unheard = messages.filter_map(|receiving| {
            let is_told = receiving.tell_grant_again(now, age, most);
            is_told.then_some(receiving)
        });
        for receiving in unheard.take(REPEATED_TOGETHER) {
            also(receiving);
            self.deadlines = self.deadlines.with(receiving);
            self.counters.repeated_grants += 1;
        }
    }

    /// The sender asks about a message that only waits, perhaps for all such messages: reports
    /// again which of them are granted. The first report may have been lost.
    pub(super) fn tell_grants(&mut self, now: Instant) {
        for receiving in &mut self.messages {
            if receiving.is_posted() && receiving.expected() > 0 {
                receiving.report.ack_now(now);
                self.deadlines = self.deadlines.with(receiving);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Ledger;
    use crate::grants::{GrantNeed, Grants};
    use crate::machine::SegmentRun;
    use crate::sender::Sender;
    use crate::sender::tests::{request, settings};
    use crate::units::{MessageSerial, Rank, Share};

    /// The wait before each repeat of a grant, in microseconds. The peer answers grants within
    /// `answers`, and other peers answered their first within `first_answers`. `None`: none has.
    fn waits(answers: Option<u64>, first_answers: Option<u64>) -> Vec<u64> {
        let settings = settings();
        let (mut ledger, mut grants) = (Ledger::new(Share::NONE), Grants::new(Some(64), 8));
        let mut others = Rtt::new(Span::ZERO);
        if let Some(micros) = first_answers {
            others.sample(Span::from_micros(micros));
        }
        let mut lent = RankResources {
            now: Instant::START,
            settings: &settings,
            ledger: &mut ledger,
            grants: &mut grants,
            place: 0,
            gap: settings.gap,
            overtaking: settings.gap,
            hold: Span::ZERO,
            first_answers: first_answers.is_some().then_some(&mut others),
        };
        let mut watch = GrantWatch::new();
        for micros in answers.into_iter().cycle().take(50) {
            watch.on_answer(Span::from_micros(micros), &mut lent);
        }
        watch.on_grant(&lent);
        let mut waits = Vec::new();
        while let Some(due) = watch.due() {
            waits.push((due - lent.now).as_micros());
            lent.now = due;
            assert!(watch.look(&lent));
        }
        waits
    }

    #[test]
    fn a_peer_that_never_answered_is_told_again_after_the_time_of_others() {
        assert_eq!(waits(None, None), [2_000], "its path may be long");
        assert_eq!(waits(None, Some(30)), [60, 120, 240, 480, 960]);
        assert_eq!(waits(None, Some(5_000))[0], 2_000, "at most");
    }

    #[test]
    fn a_peer_that_answers_is_told_again_sooner_once_packets_of_the_rank_are_lost() {
        assert_eq!(waits(Some(30), None)[0], 360);
        assert_eq!(waits(Some(30), Some(5_000))[0], 60);
    }

    #[test]
    fn a_message_that_a_probe_announced_is_granted_beyond_what_has_come() {
        let (settings, now) = (settings(), Instant::START);
        let (mut sender, rtt) = (Sender::new(Rank(1), &settings, 1), Rtt::new(settings.gap));
        sender.send(now, request(&settings, 100), &settings);
        let burst = sender.poll_data(now, &rtt, &settings, &mut SegmentRun::default());
        let header = burst.expect("it has a start").template;

        let mut message = ReceiveMessage::new(now, MessageSerial(1), &header, &settings);
        message.announce(3);
        message.on_data(&header, 20, &mut Ledger::new(Share::NONE));
        let (more, need) = message.grant(now, 8);
        assert_eq!((more, need), (8, GrantNeed::More));
        assert_eq!(message.expected(), 8);
    }
}
