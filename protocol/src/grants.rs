//! How much all peers together may have on their way to this rank.
//!
//! Senders that do not know of each other overrun the last link to a rank that all of them send to
//! (incast). So beyond the unscheduled start of a message its receiver grants: as long as what was
//! granted and has not arrived is less than the grant window, the next message in turn is granted
//! another quantum (receiver-driven, as in NDP, Handley et al., SIGCOMM 2017, and Homa, Montazeri
//! et al., SIGCOMM 2018). What a sender has found lost is no longer on its way.

use std::collections::VecDeque;

use crate::units::{Instant, MessageId, Span};

/// A window is granted in this many parts: fewer control packets, a little more burst.
const QUANTA_PER_WINDOW: u64 = 6;

/// The messages that wait for grants, and what is on its way.
#[derive(Clone, Debug)]
pub struct Grants {
    window: u64,
    quantum: u64,
    expected: u64,
    waiting: VecDeque<(u32, MessageId)>,
    /// When a segment arrived last.
    arrived: Instant,
}

impl Grants {
    /// Grants of a window of `window` segments; `None`: everything is granted at once.
    pub fn new(window: Option<u64>) -> Self {
        let window = window.unwrap_or(u64::MAX);
        Self {
            window,
            quantum: (window / QUANTA_PER_WINDOW).clamp(1, 8),
            expected: 0,
            waiting: VecDeque::new(),
            arrived: Instant::START,
        }
    }

    /// A segment has arrived, from whomever.
    pub fn on_arrival(&mut self, now: Instant) {
        self.arrived = now;
    }

    /// When nothing will have arrived for `gap`, although something is on its way and messages
    /// wait: then it is lost.
    pub fn idle_at(&self, gap: Span) -> Option<Instant> {
        let waits = self.expected > 0 && !self.waiting.is_empty();
        waits.then(|| self.arrived + gap)
    }

    /// What was on its way is lost: grants go on without it, and are waited for as long.
    pub fn give_up(&mut self, now: Instant) {
        self.expected = 0;
        self.arrived = now;
    }

    /// Whether everything is granted at once.
    pub fn is_unlimited(&self) -> bool {
        self.window == u64::MAX
    }

    /// So many segments more are on their way.
    pub fn expect(&mut self, segments: u32) {
        self.expected += u64::from(segments);
    }

    /// So many segments are on their way no more.
    pub fn settle(&mut self, segments: u32) {
        self.expected = self.expected.saturating_sub(u64::from(segments));
    }

    /// A message of the peer at this place needs more than it was granted.
    pub fn wait(&mut self, place: u32, message: MessageId) {
        self.waiting.push_back((place, message));
    }

    /// The message that is granted something next, and how many segments at most.
    pub fn take(&mut self) -> Option<(u32, MessageId, u32)> {
        let room = self.window.saturating_sub(self.expected);
        if room < self.quantum {
            return None;
        }
        let (place, message) = self.waiting.pop_front()?;
        Some((place, message, self.quantum as u32))
    }
}
