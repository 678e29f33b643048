//! Several regions of a fabric at once, one thread each, without changing a byte.
//!
//! Conservative windows (Chandy and Misra, 1979; Nicol, 1993): a packet needs at least the latency
//! of its wire to reach another region, so all regions may work on a window of that length
//! independently. At its end they exchange the packets that crossed. Threads wait for each other by
//! spinning for a moment, then yield: a shared machine deschedules them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use gradwire_protocol::units::{Instant, Span};

use crate::engine::calendar::END_OF_TIME;
use crate::engine::host::Host;
use crate::engine::region::{FabricRegion, RegionMail};

/// Rounds of spinning before a waiting thread yields its core.
const SPINS: u32 = 2_000;

/// Returns the CPU time of the calling thread; the caller of a run has the clock.
pub type Clock = fn() -> Span;

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    /// Simulated time.
    pub now: Instant,
    /// Flows received and tasks completed.
    pub done: u64,
    /// Events worked on.
    pub events: u64,
}

/// The state that the threads of a run share.
struct Exchange<C> {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    failed: AtomicBool,
    /// From each region to each region.
    mail: Vec<Mutex<Vec<RegionMail<C>>>>,
    /// When each region's next event happens, in picoseconds.
    next: Vec<AtomicU64>,
    events: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    lookahead: Span,
    end: Instant,
}

/// Sets a flag when its thread panics, so that the others do not wait for it.
struct PanicFlag<'a>(&'a AtomicBool);

impl Drop for PanicFlag<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Runs all regions, whose wires to each other take at least `lookahead`, until no event before
/// `end` is left. Calls `watch` after every window. Returns the CPU time that each thread took.
pub fn run<H: Host + Send>(
    regions: &mut [FabricRegion<'_, H>],
    lookahead: Span,
    end: Instant,
    clock: Clock,
    watch: &mut dyn FnMut(Glance),
) -> Vec<Span> {
    let exchange = Exchange::new(regions.len(), lookahead, end);
    std::thread::scope(|scope| {
        let exchange = &exchange;
        let mut numbered = regions.iter_mut().enumerate();
        let first = numbered.next();
        let others: Vec<_> = numbered
            .map(|(number, region)| {
                scope.spawn(move || exchange.work(number, region, clock, &mut |_| ()))
            })
            .collect();
        let first = first.map(|(number, region)| exchange.work(number, region, clock, watch));
        let others = others.into_iter().map(|other| match other.join() {
            Ok(time) => time,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first.into_iter().chain(others).collect()
    })
}

impl<C: Default + Send> Exchange<C> {
    fn new(threads: usize, lookahead: Span, end: Instant) -> Self {
        let numbers = || (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            mail: (0..threads * threads).map(|_| Mutex::default()).collect(),
            next: numbers(),
            events: numbers(),
            done: numbers(),
            lookahead,
            end,
        }
    }

    fn work<H: Host<Cargo = C>>(
        &self,
        number: usize,
        region: &mut FabricRegion<'_, H>,
        clock: Clock,
        watch: &mut dyn FnMut(Glance),
    ) -> Span {
        let _alarm = PanicFlag(&self.failed);
        let began = clock();
        loop {
            self.take_mail(number, region);
            let next = region.next_event().unwrap_or(END_OF_TIME);
            self.next[number].store(next.as_picos(), Ordering::Release);
            self.events[number].store(region.events, Ordering::Relaxed);
            self.done[number].store(region.done(), Ordering::Relaxed);
            self.meet();
            let sum = |counts: &[AtomicU64]| counts.iter().map(|n| n.load(Ordering::Relaxed)).sum();
            let first = self
                .next
                .iter()
                .map(|next| next.load(Ordering::Acquire))
                .min();
            let first = first.map_or(END_OF_TIME, Instant::from_picos);
            if first >= self.end {
                return clock().beyond(began);
            }
            watch(Glance {
                now: first,
                done: sum(&self.done),
                events: sum(&self.events),
            });
            region.run((first + self.lookahead).min(self.end), u64::MAX);
            self.leave_mail(number, region);
            self.meet();
        }
    }

    fn slot(&self, from: usize, to: usize) -> std::sync::MutexGuard<'_, Vec<RegionMail<C>>> {
        let slot = self.mail[from * self.threads + to].lock();
        slot.unwrap_or_else(PoisonError::into_inner)
    }

    fn leave_mail<H: Host<Cargo = C>>(&self, number: usize, region: &mut FabricRegion<'_, H>) {
        for (to, mail) in region.outbox.iter_mut().enumerate() {
            if !mail.is_empty() {
                self.slot(number, to).append(mail);
            }
        }
    }

    fn take_mail<H: Host<Cargo = C>>(&self, number: usize, region: &mut FabricRegion<'_, H>) {
        for from in 0..self.threads {
            let mut slot = self.slot(from, number);
            region.take(&mut slot);
        }
    }

    /// Waits until all threads have arrived.
    fn meet(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Release);
            self.round.store(round + 1, Ordering::Release);
            return;
        }
        let mut spins = 0;
        while self.round.load(Ordering::Acquire) == round {
            assert!(
                !self.failed.load(Ordering::Acquire),
                "another thread of the simulation has panicked"
            );
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
