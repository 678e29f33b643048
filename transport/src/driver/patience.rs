//! Decides when a driver without work sleeps, and at which clock reading timeouts happen.

use gradwire_protocol::job::IdleMode;
use gradwire_protocol::units::{Instant, Span};

/// Bounds of the time without work after which the thread sleeps. Spinning longer takes the core
/// from the peer when ranks share cores, and gains little when they do not.
const SPIN_MIN: Span = Span::from_micros(5);
const SPIN_MAX: Span = Span::from_micros(40);
/// A spinning thread looks for work every few microseconds. If it did not for this long, others had
/// its core.
const CORE_LOST: Span = Span::from_micros(200);
/// After that it sleeps at once, for this many times as long as the core was away: after a single
/// interruption only briefly, since sleeping costs several times as much as spinning on an idle
/// core. If the thread soon loses its core again, that time doubles. So others take a few percent
/// of the time at most because of spinning.
const PENANCE_MIN: u64 = 4;
const PENANCE_MOST: u64 = 64;
const PENANCE_MAX: Span = Span::from_millis(1_000);
/// After reading for this long without seeing all sockets empty, timeouts happen all the same, at
/// the clock reading from before the first read: every packet that had arrived by then has been
/// read, since sockets are read in turns.
const FLOOD: Span = Span::from_millis(20);

/// Adapts how long to spin: longer after spinning found work, shorter after it found none, and not
/// at all while others want the core. The scheduler charges a thread for spinning: it has to wait
/// for a whole time slice of another one when it has work.
#[derive(Debug)]
pub(super) struct IdlePatience {
    idle: IdleMode,
    idle_since: Option<Instant>,
    /// The last look for work since then.
    looked: Instant,
    span: Span,
    /// The thread does not spin before this time, for it lost its core.
    spins_from: Instant,
    /// Up to here, losing it again counts as losing it all the time.
    lost_until: Instant,
    penance: u64,
    cores_lost: u64,
}

impl IdlePatience {
    pub(super) fn new(idle: IdleMode) -> Self {
        Self {
            idle,
            idle_since: None,
            looked: Instant::START,
            span: SPIN_MAX,
            spins_from: Instant::START,
            lost_until: Instant::START,
            penance: PENANCE_MIN,
            cores_lost: 0,
        }
    }

    /// How often others had the core while the thread looked for work.
    pub(super) fn cores_lost(&self) -> u64 {
        self.cores_lost
    }

    /// A round found work.
    pub(super) fn found_work(&mut self) {
        if self.idle_since.take().is_some() {
            self.span = (self.span * 2).min(SPIN_MAX);
        }
    }

    /// Whether it is time to sleep, after spinning for `least` or more.
    pub(super) fn is_over(&mut self, now: Instant, least: Span) -> bool {
        match self.idle {
            IdleMode::Busy => false,
            IdleMode::Adaptive => self.adapts_to(now, least),
            IdleMode::Block => true,
        }
    }

    fn adapts_to(&mut self, now: Instant, least: Span) -> bool {
        let looked = std::mem::replace(&mut self.looked, now);
        match self.idle_since {
            None => self.idle_since = Some(now),
            Some(_) if now - looked > CORE_LOST => {
                self.on_core_lost(now, now - looked);
            }
            Some(_) => {}
        }
        let since = self.idle_since.unwrap_or(now);
        now < self.spins_from || now - since > self.span.max(least)
    }

    /// How long the thread has looked for work.
    pub(super) fn spun(&self, now: Instant) -> Span {
        self.idle_since.map_or(Span::ZERO, |since| now - since)
    }

    fn on_core_lost(&mut self, now: Instant, away: Span) {
        self.cores_lost += 1;
        self.penance = match now < self.lost_until {
            true => (self.penance * 2).min(PENANCE_MOST),
            false => PENANCE_MIN,
        };
        let penance = (away * self.penance).min(PENANCE_MAX);
        self.spins_from = now + penance;
        self.lost_until = self.spins_from + penance * PENANCE_MIN;
    }

    /// The thread found no work and has slept.
    pub(super) fn slept(&mut self) {
        self.idle_since = None;
        self.span = self.span.divided(2).max(SPIN_MIN);
    }
}

/// Measures how long sockets have been read without all having been empty.
#[derive(Default)]
pub(super) struct DrainWatch {
    since: Option<Instant>,
}

impl DrainWatch {
    /// A clock reading by which every arrived packet has been read, if there is one, after a round
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

/// Whether a round read everything that had arrived.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Drained {
    /// All sockets were empty at the end.
    Fully,
    /// More packets may wait.
    Partly,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::START + Span::from_micros(micros)
    }

    #[test]
    fn spinning_adapts_to_the_work_it_finds() {
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
    fn a_thread_that_lost_its_core_while_spinning_sleeps_at_once() {
        let mut patience = IdlePatience::new(IdleMode::Adaptive);
        let least = Span::from_micros(10_000);
        for micros in [0, 200, 400] {
            assert!(
                !patience.is_over(at(micros), least),
                "looks are 200 us apart"
            );
        }
        assert!(patience.is_over(at(2_400), least), "2 ms without a look");
        assert_eq!(patience.cores_lost(), 1);
        patience.slept();
        for micros in [3_000, 5_000, 10_300] {
            assert!(patience.is_over(at(micros), least));
            patience.slept();
        }
        assert!(!patience.is_over(at(10_400), least), "8 ms later");
        patience.found_work();
        // Work itself may take long.
        assert!(!patience.is_over(at(500_000), least) && !patience.is_over(at(500_100), least));
    }

    /// Loses the core for 2 ms at `micros`, and returns when the thread spins again.
    fn spins_after_loss(patience: &mut IdlePatience, micros: u64) -> u64 {
        let least = Span::from_micros(10_000);
        assert!(!patience.is_over(at(micros), least));
        let mut now = micros + 2_000;
        while patience.is_over(at(now), least) {
            patience.slept();
            now += 100;
        }
        patience.slept();
        now
    }

    #[test]
    fn a_core_lost_again_and_again_ends_spinning() {
        let mut patience = IdlePatience::new(IdleMode::Adaptive);
        let mut now = 0;
        for penance in [8, 16, 32, 64, 128, 128] {
            let spins = spins_after_loss(&mut patience, now);
            assert_eq!(spins - now, 2_000 + penance * 1_000, "{penance} ms");
            now = spins;
        }
        let later = now + 1_000_000;
        let spins = spins_after_loss(&mut patience, later);
        assert_eq!(spins - later, 10_000, "a single interruption");
    }

    #[test]
    fn a_flood_delays_timeouts_only_briefly() {
        let mut reading = DrainWatch::default();
        assert_eq!(reading.read_by(at(10), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20), Drained::Fully), Some(at(20)));
        assert_eq!(reading.read_by(at(30), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20_030), Drained::Partly), None);
        assert_eq!(reading.read_by(at(20_031), Drained::Partly), Some(at(30)));
        assert_eq!(reading.read_by(at(20_032), Drained::Partly), None);
    }
}
