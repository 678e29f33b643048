//! A machine with everything that drives it: the loop of rounds, and sleeping.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use gradwire_protocol::machine::Machine;
use gradwire_protocol::units::{Instant, Span};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

use super::cores::{self, CoreUse, CoreWatch};
use super::counters::DriverCounters;
use super::foreign::ForeignWatch;
use super::guests::{DriverOrder, GuestTable};
use super::patience::{DrainWatch, IdlePatience};
use super::sending::FullPath;
use super::setup::{DriverSetup, MachineCommand, ProgressHook};
use super::shared::DriverShared;
use crate::faults::FaultInjector;
use crate::shm::HostNeighbours;
use crate::slot::PacketSlot;
use crate::wake::ThreadWaker;

/// Why a rank ends whose clock has reached its end.
const CLOCK_OVER: &str = "this rank has run for 212 days, the longest that its clock counts; start \
                          the job again from a checkpoint, and before that time passes";
/// Longest sleep, so that a lost wake-up delays but does not hang.
const SLEEP_MAX: Span = Span::from_millis(100);

/// The driver's clock: time since the driver started, by the nanosecond of the kernel's monotonic
/// clock at which it did. Not `std`'s, which costs 40 instructions more, several times a run.
pub(super) struct DriverClock(i64);

impl DriverClock {
    fn start() -> Self {
        Self(monotonic_nanos())
    }

    pub(super) fn now(&self) -> Instant {
        let nanos = monotonic_nanos().saturating_sub(self.0).max(0);
        Instant::START + Span::from_nanos(nanos.unsigned_abs())
    }

    fn is_over(&self) -> bool {
        self.now() > Instant::LAST
    }
}

fn monotonic_nanos() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    time.num_nanoseconds()
}

/// A machine with everything that drives it.
pub(super) struct DriverEngine<M> {
    pub(super) machine: M,
    pub(super) setup: DriverSetup,
    progress: ProgressHook<M>,
    orders: Receiver<DriverOrder<M>>,
    pub(super) guests: GuestTable,
    pub(super) foreign: ForeignWatch,
    pub(super) waker: Arc<ThreadWaker>,
    pub(super) shared: Arc<DriverShared>,
    pub(super) clock: DriverClock,
    pub(super) slot: PacketSlot,
    drain_watch: DrainWatch,
    /// The last path that took no more, during the pause after that.
    pub(super) full: Option<FullPath>,
    pub(super) rounds: u32,
    /// Whether all other ranks are reached through memory.
    pub(super) are_all_near: bool,
    patience: IdlePatience,
    cores: CoreWatch,
    pub(super) tally: DriverCounters,
}

impl<M> fmt::Debug for DriverEngine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverEngine").finish_non_exhaustive()
    }
}

impl<M: Machine> DriverEngine<M> {
    pub(super) fn new(
        machine: M,
        setup: DriverSetup,
        progress: ProgressHook<M>,
        orders: Receiver<DriverOrder<M>>,
    ) -> io::Result<Self> {
        let neighbours = setup.neighbours.as_ref();
        let are_all_near = neighbours.is_some_and(|near| near.reach_all(setup.peers.len()));
        Ok(Self {
            machine,
            are_all_near,
            patience: IdlePatience::new(setup.pace.idle),
            cores: CoreWatch::of(setup.pace),
            setup,
            progress,
            orders,
            guests: GuestTable::default(),
            foreign: ForeignWatch::default(),
            waker: Arc::new(ThreadWaker::new()?),
            shared: Arc::new(DriverShared::default()),
            clock: DriverClock::start(),
            slot: PacketSlot::new(),
            drain_watch: DrainWatch::default(),
            full: None,
            rounds: 0,
            tally: DriverCounters::default(),
        })
    }

    /// Runs `command`, after all commands submitted before it, and then rounds until `is_over`.
    pub(super) fn run(
        &mut self,
        command: Option<MachineCommand<M>>,
        mut is_over: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let mut spin = Span::ZERO;
        if let Some(command) = command {
            spin = self.setup.pace.caller_spin;
            self.run_commands();
            command(&mut self.machine, self.clock.now());
            self.send()?;
            (self.progress)(&mut self.machine);
        }
        while !is_over() && !self.shared.stop.load(Ordering::Relaxed) {
            if self.round()? {
                self.patience.found_work();
            } else if self.patience.is_over(self.clock.now(), spin) {
                self.arm()?;
                // Packets that arrived before arming wake no one, so look once more.
                self.rounds = 0;
                if !self.round()? && !is_over() {
                    self.sleep()?;
                }
                self.disarm()?;
                self.patience.slept();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// From here on commands and packets end a sleep.
    fn arm(&mut self) -> io::Result<()> {
        self.waker.arm();
        if let Some(neighbours) = &self.setup.neighbours {
            neighbours.bell().lie_down();
        }
        self.setup.sockets.arm()
    }

    /// From here on commands and packets cost no wake-up.
    fn disarm(&mut self) -> io::Result<()> {
        self.waker.disarm();
        if let Some(neighbours) = &self.setup.neighbours {
            neighbours.bell().get_up();
        }
        self.setup.sockets.disarm()
    }

    /// Runs one round, and does not sleep.
    pub(super) fn run_once(&mut self) -> io::Result<()> {
        if !self.shared.stop.load(Ordering::Relaxed) {
            self.round()?;
        }
        Ok(())
    }

    /// Runs the commands that wait, and takes and forgets guests; returns whether there were any.
    fn run_commands(&mut self) -> bool {
        let mut busy = false;
        while let Ok(order) = self.orders.try_recv() {
            match order {
                DriverOrder::Command(command) => command(&mut self.machine, self.clock.now()),
                DriverOrder::Guest(change) => {
                    self.let_foreign_in();
                    self.guests.apply(change);
                }
            }
            busy = true;
        }
        busy
    }

    /// Why driving has failed with this error.
    pub(super) fn reason(&self, error: &io::Error) -> String {
        match self.clock.is_over() {
            true => CLOCK_OVER.to_owned(),
            false => format!("{} failed: {error}", self.setup.sockets.subject()),
        }
    }

    /// Tells the machine that driving has failed, and so every operation that waits.
    pub(super) fn fail(&mut self, reason: &str) {
        self.publish();
        // The machine may panic while it ends; the failure is reported all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.machine.handle_end(self.clock.now(), reason);
            (self.progress)(&mut self.machine);
        }));
    }

    /// Runs one round; returns whether it did anything. Not inlined, so that a profile of rounds
    /// (`benches/packets.py`) finds it.
    #[inline(never)]
    fn round(&mut self) -> io::Result<bool> {
        let now = self.clock.now();
        if now > Instant::LAST {
            return Err(io::Error::other(CLOCK_OVER));
        }
        let (mut busy, drained) = self.receive()?;
        busy |= self.release_held();
        if let Some(read_by) = self.drain_watch.read_by(now, drained) {
            busy |= self.handle_timeout(read_by);
        }
        busy |= self.run_commands();
        busy |= self.send()?;
        self.rounds = self.rounds.wrapping_add(1);
        if busy {
            // First, since the progress hook may wake a thread that reads the counters.
            self.publish();
            (self.progress)(&mut self.machine);
        }
        Ok(busy)
    }

    /// Lets the machine's timeouts up to `now` happen; returns whether one was due.
    fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = self.machine.poll_timeout().is_some_and(|at| at <= now);
        if due {
            self.report_host_drops(now);
            self.machine.handle_timeout(now);
        }
        due
    }

    /// Tells the machine about packets that this host's kernel dropped, before a timeout may accept
    /// them as lost by the network. Drops from a time without tolerant messages are told with the
    /// next ones: a message that arrives early is posted, and turns out tolerant, only later.
    fn report_host_drops(&mut self, now: Instant) {
        if !self.machine.tolerates_loss() {
            return;
        }
        let drops = self.setup.sockets.ask_for_drops();
        if drops > self.tally.kernel_drops {
            self.tally.kernel_drops = drops;
            self.machine.handle_host_drops(now);
        }
    }

    /// Sleeps until a packet, a command, a timeout, room to send, or a packet held by faults.
    fn sleep(&mut self) -> io::Result<()> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let room = self.room_notice()?;
        let pause = self.full.map(|full| full.until);
        let faults = self.setup.faults.as_ref();
        let held = faults.and_then(FaultInjector::next_release);
        let next = [self.machine.poll_timeout(), held, pause]
            .into_iter()
            .flatten()
            .min();
        let most = next.map_or(SLEEP_MAX, |at| (at - self.clock.now()).min(SLEEP_MAX));
        self.tally.sleeps += 1;
        self.publish();
        let bell = self.setup.neighbours.as_ref().map(HostNeighbours::bell);
        let pipe = bell.as_ref().map(|bell| bell.descriptor());
        let sockets = self.setup.sockets.readiness();
        let now = self.clock.now();
        self.cores
            .sleeps(now, self.patience.spun(now), CoreUse::now);
        self.waker.sleep(sockets, (pipe, room), most);
        if self.cores.wakes(self.clock.now(), CoreUse::now) {
            cores::leave_core();
        }
        if let Some(bell) = bell {
            bell.drain();
        }
        Ok(())
    }

    /// Makes the counters visible to other threads.
    fn publish(&mut self) {
        let sockets = self.setup.sockets.counters();
        let faults = self.setup.faults.as_ref();
        let tally = &self.tally;
        self.shared.publish(DriverCounters {
            sent_packets: sockets.sent_packets + tally.sent_packets,
            send_calls: sockets.send_calls,
            kernel_drops: sockets.kernel_drops,
            faults_dropped: faults.map_or(0, FaultInjector::dropped),
            abandoned_packets: sockets.refused_packets,
            super_packets_refused: sockets.super_packets_refused,
            cores_lost: self.patience.cores_lost(),
            cores_left: self.cores.cores_left(),
            ..*tally
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_is_over_a_day_before_deadlines_saturate() {
        let day = Duration::from_secs(86_400).as_nanos() as i64;
        let started = |days| DriverClock(monotonic_nanos() - day * days);
        assert!(!started(212).is_over());
        assert!(started(213).is_over());
        assert!(started(10_000).is_over(), "the clock does not wrap");
        let deadline = Instant::LAST + Span::from_millis(3_600_000);
        assert!(deadline > Instant::LAST);
        assert!(deadline < deadline + Span::from_picos(1));
    }
}
