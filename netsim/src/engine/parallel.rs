//! The regions of a fabric, window by window, on one thread or several, without changing a byte.
//!
//! Conservative windows (Chandy and Misra, 1979; Nicol, 1993): a packet needs at least the latency
//! of its wire to reach another region, so all regions may work on a window of that length
//! independently. At its end they exchange the packets that crossed. Where regions take turns
//! (`Partition::turns`), windows are twice as long. A thread works on its regions one after the
//! other. Threads wait for each other by spinning for a moment, then yield: a shared machine
//! deschedules them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gradwire_protocol::units::{Instant, Span};

use crate::engine::calendar::END_OF_TIME;
use crate::engine::host::Host;
use crate::engine::packets::{PacketArena, SimPacket};
use crate::engine::region::{FabricRegion, RegionMail};

/// Rounds of spinning before a waiting thread yields its core.
const SPINS: u32 = 2_000;

/// Number of events between two reports of progress.
const GLANCE_EVENTS: u64 = 1 << 18;

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

/// How far regions may run.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    /// How many turns regions take: 1 or 2.
    pub turns: usize,
    /// Least latency between two regions.
    pub lookahead: Span,
    /// When the run is stopped.
    pub end: Instant,
}

impl Horizon {
    /// How far the regions of a turn may run, given the time before which nothing happens in those
    /// of each turn. What they send comes back to them no sooner than it has crossed as many links
    /// as there are turns, and what the others send no sooner than it has crossed one.
    fn window_end(&self, turn: usize, next: &[Instant]) -> Instant {
        let answers = (0..self.turns).fold(next[turn], |at, _| at + self.lookahead);
        let others = (0..self.turns).filter(|&other| other != turn);
        let news = others.map(|other| next[other] + self.lookahead).min();
        answers.min(news.unwrap_or(END_OF_TIME)).min(self.end)
    }
}

/// How far the regions of a turn run.
#[derive(Clone, Copy, Debug)]
struct Window {
    turn: usize,
    end: Instant,
}

/// The regions of one thread.
struct ThreadRegions<'p, 'w, H: Host> {
    /// Number of the thread.
    number: usize,
    regions: &'p mut [FabricRegion<'w, H>],
    /// Number of the first of them.
    base: usize,
    /// Before this time nothing happens in each.
    due: Vec<Instant>,
    /// Their packets.
    packets: PacketArena<H::Cargo>,
}

impl<'p, 'w, H: Host> ThreadRegions<'p, 'w, H> {
    fn new(number: usize, regions: &'p mut [FabricRegion<'w, H>], base: usize) -> Self {
        let due = regions.iter().map(next_event).collect();
        Self {
            number,
            regions,
            base,
            due,
            packets: PacketArena::default(),
        }
    }

    /// The places of its regions of a turn.
    fn of_turn(&self, turn: usize, turns: usize) -> impl Iterator<Item = usize> + use<'w, H> {
        ((turn + self.base) % turns..self.regions.len()).step_by(turns)
    }

    /// Before this time nothing happens in its regions of a turn.
    fn next(&self, turn: usize, turns: usize) -> Instant {
        let due = self.of_turn(turn, turns).map(|at| self.due[at]);
        due.min().unwrap_or(END_OF_TIME)
    }

    fn events(&self) -> u64 {
        self.regions.iter().map(|region| region.events).sum()
    }

    fn done(&self) -> u64 {
        self.regions.iter().map(|region| region.done()).sum()
    }

    fn deliver(&mut self, mail: RegionMail) {
        let at = usize::from(mail.target) - self.base;
        self.due[at] = self.due[at].min(mail.at());
        debug_assert!(
            mail.at() >= self.regions[at].now,
            "no wire is shorter than the window"
        );
        self.regions[at].take(mail);
    }

    fn receive(&mut self, ThreadMail { mail, packet }: ThreadMail<H::Cargo>) {
        match packet {
            Some(packet) => {
                let index = self.packets.insert(packet);
                self.deliver(mail.with_packet(index));
            }
            None => self.deliver(mail),
        }
    }

    fn hand_over(&mut self, mail: RegionMail) -> ThreadMail<H::Cargo> {
        let packet = mail.packet().map(|index| self.packets.remove(index));
        ThreadMail { mail, packet }
    }
}

/// An event of another thread's region, with its packet.
struct ThreadMail<C> {
    mail: RegionMail,
    packet: Option<(SimPacket, C)>,
}

fn next_event<H: Host>(region: &FabricRegion<'_, H>) -> Instant {
    region.next_event().unwrap_or(END_OF_TIME)
}

/// The state that the threads of a run share.
struct Exchange<C> {
    /// [`regions_per_thread`].
    share: usize,
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    failed: AtomicBool,
    /// To each thread.
    mail: Vec<Mutex<Vec<ThreadMail<C>>>>,
    /// For each thread the times, in picoseconds, before which nothing happens in its regions of
    /// each turn.
    next: Vec<Vec<AtomicU64>>,
    events: Vec<AtomicU64>,
    done: Vec<AtomicU64>,
    horizon: Horizon,
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

/// Regions of each thread; the last may have fewer. Of those in two turns each thread has as many.
pub fn regions_per_thread(regions: usize, threads: usize) -> usize {
    regions.div_ceil(threads)
}

/// Runs all regions on this many threads until no event before the end is left. Calls `watch` now
/// and then. Returns the CPU time that each thread took.
pub fn run<H: Host + Send>(
    regions: &mut [FabricRegion<'_, H>],
    threads: usize,
    horizon: Horizon,
    clock: Clock,
    watch: &mut dyn FnMut(Glance),
) -> Vec<Span> {
    let exchange = Exchange::new(regions.len(), threads, horizon);
    std::thread::scope(|scope| {
        let exchange = &exchange;
        let mut numbered = regions.chunks_mut(exchange.share).enumerate();
        let first = numbered.next();
        let others: Vec<_> = numbered
            .map(|(number, part)| {
                scope.spawn(move || exchange.work(number, part, clock, &mut |_| ()))
            })
            .collect();
        let first = first.map(|(number, part)| exchange.work(number, part, clock, watch));
        let others = others.into_iter().map(|other| match other.join() {
            Ok(time) => time,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first.into_iter().chain(others).collect()
    })
}

impl<C: Default + Send> Exchange<C> {
    fn new(regions: usize, threads: usize, horizon: Horizon) -> Self {
        let share = regions_per_thread(regions, threads);
        let threads = regions.div_ceil(share);
        let numbers = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            share,
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            mail: (0..threads).map(|_| Mutex::default()).collect(),
            next: (0..threads).map(|_| numbers(horizon.turns)).collect(),
            events: numbers(threads),
            done: numbers(threads),
            horizon,
        }
    }

    fn work<H: Host<Cargo = C>>(
        &self,
        number: usize,
        regions: &mut [FabricRegion<'_, H>],
        clock: Clock,
        watch: &mut dyn FnMut(Glance),
    ) -> Span {
        let _alarm = PanicFlag(&self.failed);
        let began = clock();
        let mut part = ThreadRegions::new(number, regions, number * self.share);
        let mut leaving: Vec<_> = (0..self.threads).map(|_| Vec::new()).collect();
        let mut next_glance = GLANCE_EVENTS;
        for turn in (0..self.horizon.turns).cycle() {
            for mail in self.mail_to(number).drain(..) {
                part.receive(mail);
            }
            let next = self.agree(&part);
            let first = next.iter().copied().min().unwrap_or(END_OF_TIME);
            if first >= self.horizon.end {
                break;
            }
            let glance = self.glance(first);
            if glance.events >= next_glance {
                next_glance = glance.events + GLANCE_EVENTS;
                watch(glance);
            }
            let window = Window {
                turn,
                end: self.horizon.window_end(turn, &next),
            };
            self.run_window(&mut part, window, &mut leaving, watch);
            self.meet();
        }
        clock().beyond(began)
    }

    /// Waits for the other threads. Returns the times before which nothing happens in the regions
    /// of each turn.
    fn agree<H: Host<Cargo = C>>(&self, part: &ThreadRegions<'_, '_, H>) -> Vec<Instant> {
        let turns = 0..self.horizon.turns;
        for turn in turns.clone() {
            let next = part.next(turn, self.horizon.turns);
            self.next[part.number][turn].store(next.as_picos(), Ordering::Release);
        }
        self.events[part.number].store(part.events(), Ordering::Relaxed);
        self.done[part.number].store(part.done(), Ordering::Relaxed);
        self.meet();
        let first_of = |turn: usize| {
            let next = self
                .next
                .iter()
                .map(|next| next[turn].load(Ordering::Acquire));
            next.min().map_or(END_OF_TIME, Instant::from_picos)
        };
        turns.map(first_of).collect()
    }

    fn glance(&self, now: Instant) -> Glance {
        let sum = |counts: &[AtomicU64]| counts.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        Glance {
            now,
            done: sum(&self.done),
            events: sum(&self.events),
        }
    }

    /// Runs the events of a window, and hands the mail over.
    fn run_window<H: Host<Cargo = C>>(
        &self,
        part: &mut ThreadRegions<'_, '_, H>,
        window: Window,
        leaving: &mut [Vec<ThreadMail<C>>],
        watch: &mut dyn FnMut(Glance),
    ) {
        for at in part.of_turn(window.turn, self.horizon.turns) {
            if part.due[at] >= window.end {
                continue;
            }
            let region = &mut part.regions[at];
            std::mem::swap(&mut region.packets, &mut part.packets);
            while !region.run(window.end, GLANCE_EVENTS) {
                let glance = self.glance(region.now);
                watch(Glance {
                    done: glance.done.max(region.done()),
                    events: glance.events.max(region.events),
                    ..glance
                });
            }
            std::mem::swap(&mut region.packets, &mut part.packets);
            part.due[at] = next_event(region);
            let mut outbox = std::mem::take(&mut region.outbox);
            for mail in outbox.drain(..) {
                let to = usize::from(mail.target) / self.share;
                match to == part.number {
                    true => part.deliver(mail),
                    false => leaving[to].push(part.hand_over(mail)),
                }
            }
            part.regions[at].outbox = outbox;
        }
        for (to, mail) in leaving.iter_mut().enumerate() {
            if !mail.is_empty() {
                self.mail_to(to).append(mail);
            }
        }
    }

    fn mail_to(&self, thread: usize) -> MutexGuard<'_, Vec<ThreadMail<C>>> {
        let mail = self.mail[thread].lock();
        mail.unwrap_or_else(PoisonError::into_inner)
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
