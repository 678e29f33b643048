//! How much the receiver of one message was told by PROBE, and when the message asks again.
//! `sender/asking.rs` has the rules.

use serde::{Deserialize, Serialize};

use super::history::PathRecord;
use crate::rtt::Rtt;
use crate::units::{Instant, Span, Stamp};

/// The longest wait between two probes of a message, unless 32 gaps of the job are shorter.
pub(super) const PROBE_WAIT_MAX: Span = Span::from_millis(20);

/// How often a message asks while its peer answers only others; then it rests.
const ASKED_IN_VAIN: u32 = 8;

/// This many PROBEs without a report are all long; after them every other one is short.
const LONG_UNANSWERED: u32 = 8;

/// Probes in haste since a segment of the message last left or arrived: later ones meet a receiver
/// that has nothing to say.
const HURRIED: u32 = 4;

/// How often a message marks ends that its receiver awaits before a PROBE is due.
const MARKED_AGAIN_MAX: u32 = 4;

/// The first wait of a message at its end doubles at most this often.
const END_DOUBLINGS: u32 = 6;

/// How long a message waits for a report.
#[derive(Clone, Copy)]
pub(super) struct ReportWait<'a> {
    pub(super) rtt: &'a Rtt,
    /// The job's.
    pub(super) gap: Span,
    pub(super) record: PathRecord,
    /// The first wait at the end of the message, where it pays to ask early.
    pub(super) at_end: Option<Span>,
}

impl ReportWait<'_> {
    /// This wait, or at the end of a message that has asked `asked` times a shorter one.
    pub(super) fn or_at_end(&self, wait: Span, asked: u32) -> Span {
        let doubled = |first: Span| first * (1 << asked.min(END_DOUBLINGS));
        self.at_end.map_or(wait, |first| wait.min(doubled(first)))
    }
}

/// How much the receiver knows about a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum SendStage {
    /// It has an unscheduled start, which waits for the window. The receiver need not know of it.
    Unsent,
    /// It has no unscheduled start: its first PROBE has to announce it.
    Unannounced,
    /// A PROBE has announced it, and it waits for its first grant.
    Announced,
    /// Some of its segments were sent.
    Sending,
    /// A PROBE has said that all of it was sent. At most a few repairs were sent since, which are
    /// likely to arrive.
    SaidAllSent,
}

/// Who asks about a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) enum ProbeDuty {
    /// The message itself, at its own time.
    Itself,
    /// It rests: its turn may come.
    Rests,
    /// It rests, and asks for all that rest until it is answered.
    ForAll,
}

/// The probes of one message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ProbeState {
    pub(super) stage: SendStage,
    pub(super) duty: ProbeDuty,
    /// When the next one is due, unless the message rests.
    pub(super) at: Instant,
    /// Probes since the last report.
    pub(super) unanswered: u32,
    /// When the first of those was sent.
    pub(super) asked: Instant,
    /// Probes since a segment of the message last left or arrived.
    pub(super) retries: u32,
    /// How often, since the last report, the peer answered other messages after this one asked.
    pub(super) vain: u32,
    /// Probes since the peer last answered, and when the first of them was sent.
    unheard: (u32, Instant),
    /// When the last one was sent; before it, when the first packet of the message was.
    pub(super) last: Instant,
    /// How often ends of paths that the receiver awaits were marked again.
    pub(super) marked_again: u32,
    /// Its end is marked from then on: before, packets of other messages are likely to follow it.
    pub(super) marks_from: Instant,
    /// Repairs since the last PROBE, sent behind the end of the message.
    pub(super) unmarked: u32,
    /// Bytes of the last PROBE that was not short.
    pub(super) long_bytes: u64,
    /// Stamp of the last PROBE that was sent.
    pub(super) marked: Stamp,
    /// Whether the receiver has said, since all was sent, that it awaits ends of paths.
    pub(super) is_awaited: bool,
    /// Whether the last PROBE left without marks on the other paths of the message.
    pub(super) is_alone: bool,
    /// How many holes the last one named.
    pub(super) holes_told: u32,
    /// Stamp of the first one since the message stopped making progress.
    pub(super) asked_still: Option<Stamp>,
    /// Whether the caller knows that the message makes no progress.
    pub(super) told_still: bool,
}

impl ProbeState {
    /// The probes of a message that begins now in this stage.
    pub(super) fn new(stage: SendStage, now: Instant, at: Instant) -> Self {
        Self {
            stage,
            duty: ProbeDuty::Itself,
            at,
            unanswered: 0,
            asked: now,
            retries: 0,
            vain: 0,
            unheard: (0, now),
            last: now,
            marked_again: 0,
            marks_from: now,
            unmarked: 0,
            long_bytes: 0,
            marked: Stamp::default(),
            is_awaited: false,
            is_alone: false,
            holes_told: 0,
            asked_still: None,
            told_still: false,
        }
    }

    /// Segments leave.
    pub(super) fn on_sent(&mut self) {
        self.stage = SendStage::Sending;
        self.retries = 0;
        self.marked_again = 0;
        self.is_awaited = false;
        self.duty = ProbeDuty::Itself;
        self.asked_still = None;
    }

    /// Whether a packet of the message has left, so that an answer may come.
    pub(super) fn awaits_answer(&self) -> bool {
        !matches!(self.stage, SendStage::Unsent | SendStage::Unannounced)
    }

    /// The peer last answered at `heard`, perhaps for another message although this one has asked.
    pub(super) fn count_vain(&mut self, heard: Instant) {
        self.vain += u32::from(self.unanswered > 0 && heard > self.last);
    }

    /// Whether an answer is missed rather because it was lost than because there is none.
    pub(super) fn hurries(&self) -> bool {
        self.retries <= HURRIED
    }

    /// Whether two at a time may follow an unanswered one, of a message with this many segments in
    /// flight. Without any, the receiver may have nothing to say.
    pub(super) fn asks_twice(&self, in_flight: u32) -> bool {
        self.hurries() || (in_flight > 0 && self.unanswered <= LONG_UNANSWERED)
    }

    /// Whether its peer answers only others.
    pub(super) fn asks_in_vain(&self) -> bool {
        self.vain >= ASKED_IN_VAIN
    }

    /// Whether the last one is short: it has no body, and does not say that all was sent. Where
    /// long packets vanish, the answer to a short one shows that the peer lives ([`crate::path`]).
    pub(super) fn is_short(&self) -> bool {
        self.unanswered > LONG_UNANSWERED && self.unanswered % 2 == 1
    }

    /// Whether the last one takes any path: those of the message may all have failed.
    pub(super) fn asks_elsewhere(&self) -> bool {
        !self.hurries() && self.unanswered % 2 == 1
    }

    /// Whether the receiver awaits ends of paths, and they may be marked again.
    pub(super) fn marks_again(&self) -> bool {
        self.is_awaited && self.marked_again < MARKED_AGAIN_MAX
    }

    /// A probe goes out to a peer that last answered at `heard`; returns how many did since then,
    /// and when the first did.
    pub(super) fn count_unheard(&mut self, now: Instant, heard: Instant) -> (u32, Instant) {
        let (count, first) = self.unheard;
        self.unheard = match count {
            1.. if first >= heard => (count + 1, first),
            _ => (1, now),
        };
        self.unheard
    }

    /// A probe goes out that names this many holes; the next one is due at `next`.
    pub(super) fn on_probe(&mut self, now: Instant, next: Instant, holes: u32) {
        if self.stage == SendStage::Unannounced {
            self.stage = SendStage::Announced;
        }
        if self.unanswered == 0 {
            self.asked = now;
        }
        self.unanswered += 1;
        self.unmarked = 0;
        self.retries += 1;
        self.last = now;
        self.at = next;
        self.holes_told = holes;
    }
}
