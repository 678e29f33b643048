//! When a driver without work sleeps, and by which clock it lets timeouts happen.

use gradwire_protocol::job::IdleMode;
use gradwire_protocol::units::{Instant, Span};

/// Time without work before the thread sleeps, at least and at most. Spinning longer steals the
/// core from the peer when ranks share cores, and gains little when they do not.
const SPIN_MIN: Span = Span::from_micros(5);
const SPIN_MAX: Span = Span::from_micros(40);
/// After reading for this long without seeing all sockets empty, timeouts happen all the same, at
/// the clock from before the first read: what had arrived by then has been read, in turns.
const FLOOD: Span = Span::from_millis(20);
/// How long to spin: longer after work came while spinning, shorter after none did.
#[derive(Debug)]
pub(super) struct IdlePatience {
    idle: IdleMode,
    idle_since: Option<Instant>,
    span: Span,
}

impl IdlePatience {
    pub(super) fn new(idle: IdleMode) -> Self {
        Self {
            idle,
            idle_since: None,
            span: SPIN_MAX,
        }
    }

    /// There was something to do.
    pub(super) fn found_work(&mut self) {
        if self.idle_since.take().is_some() {
            self.span = (self.span * 2).min(SPIN_MAX);
        }
    }

    /// Whether it is time to sleep.
    pub(super) fn is_over(&mut self, now: Instant, least: Span) -> bool {
        match self.idle {
            IdleMode::Busy => false,
            IdleMode::Adaptive => now - *self.idle_since.get_or_insert(now) > self.span.max(least),
            IdleMode::Block => true,
        }
    }

    /// There was nothing to do, and the thread has slept.
    pub(super) fn slept(&mut self) {
        self.idle_since = None;
        self.span = self.span.divided(2).max(SPIN_MIN);
    }
}

/// Since when sockets are being read without all having been seen empty.
#[derive(Default)]
pub(super) struct DrainWatch {
    since: Option<Instant>,
}

impl DrainWatch {
    /// A clock by which everything that had arrived has been read, if there is one, after a round
    /// that began at `now`.
    pub(super) fn read_by(&mut self, now: Instant, drained: Drained) -> Option<Instant> {
        let since = *self.since.get_or_insert(now);
        let read_by = match drained {
            Drained::Fully => now,
            Drained::Partly if now - since > FLOOD => since,
            Drained::Partly => return None,
        };
        self.since = None;
        Some(read_by)
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Drained {
    /// All sockets were seen empty.
    Fully,
    /// More may wait.
    Partly,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::START + Span::from_micros(micros)
    }

    #[test]
    fn spinning_gets_shorter_when_it_finds_nothing_and_longer_when_it_pays() {
        let mut patience = IdlePatience::new(IdleMode::Adaptive);
        assert!(
            !patience.is_over(at(0), Span::ZERO)
                && !patience.is_over(at(40), Span::ZERO)
                && patience.is_over(at(41), Span::ZERO)
        );
        for _ in 0..10 {
            patience.slept();
        }
        assert!(!patience.is_over(at(100), Span::ZERO) && patience.is_over(at(106), Span::ZERO));
        patience.found_work();
        assert!(!patience.is_over(at(200), Span::ZERO) && !patience.is_over(at(210), Span::ZERO));
        assert!(patience.is_over(at(211), Span::ZERO));
    }

    #[test]
    fn timeouts_wait_for_what_has_arrived_but_a_flood_does_not_stop_time() {
        let mut reading = DrainWatch::default();
        assert_eq!(reading.read_by(at(10), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20), Drained::Fully), Some(at(20)));
        assert_eq!(reading.read_by(at(30), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20_030), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20_031), Drained::Partly), Some(at(30)));
        assert_eq!(reading.read_by(at(20_032), Drained::Partly), None);
    }
}
