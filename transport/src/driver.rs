//! What drives a rank's machine, with sockets and shared memory.
//!
//! A round: read the clock, drain all rings and sockets, let the machine's timeouts happen at that
//! clock (so that no packet that had arrived by then looks lost), run commands, send, tell
//! progress. After some rounds with nothing to do whoever drives sleeps until a packet, a command
//! or a timeout. Other threads talk to the machine by commands, closures that run between two
//! rounds; there are no locks on the way of a packet.
//!
//! One thread drives at a time. That is the driver's own, until a thread that has to wait for the
//! outcome of its command [drives itself](DriverLink::drive): it saves two changes of threads,
//! which cost more than a small message. The driver's thread comes back when no caller has driven
//! for a millisecond.

mod counters;
mod patience;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_protocol::job::IdleMode;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, Span};
use gradwire_protocol::wire::{HEADER_BYTES, Header};

use crate::address::Address;
use crate::faults::{FaultInjector, FaultVerdict};
use crate::seal::{PacketRejection, Seal};
use crate::shm::HostNeighbours;
use crate::slot::PacketSlot;
use crate::udp::SuperPacket;
use crate::wake::ThreadWaker;
use crate::wires::{ArrivalMode, WireThreads, Wires};

pub use counters::DriverCounters;
use patience::{DrainWatch, Drained, IdlePatience};

/// Super-packets read before timeouts and sending get their turn again.
const ARRIVALS_PER_ROUND: usize = 16;
/// The same where every packet comes alone.
const SINGLES_PER_ROUND: usize = 256;
/// Packets read from a neighbour's ring before the others get their turn again.
const PACKETS_PER_RING: usize = 16;
/// Runs sent before the sockets are drained again: acknowledgements open the window.
const RUNS_PER_ROUND: usize = 16;
/// Commands that may wait; the next one blocks its thread.
const COMMANDS_WAITING: usize = 1024;
/// How long the driver's thread stays away after a caller has driven.
const NAP: Duration = Duration::from_millis(1);
/// Rounds of a rank with neighbours between two looks at its sockets: a look is a system call.
const SOCKETS_EVERY: u32 = 8;
/// Longest sleep, so that a lost wake-up is no hang.
const SLEEP_MAX: Span = Span::from_millis(100);
/// How often a full send buffer is waited for before the run is left to repair.
const FULL_WAITS: u32 = 100;

/// What runs between two rounds.
pub type MachineCommand<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

/// What a driver needs besides its machine.
pub struct DriverSetup {
    /// The rank's sockets.
    pub sockets: Wires,
    /// Data addresses of every rank, one per entropy; this rank's own are not used.
    pub peers: Vec<Vec<Address>>,
    /// What protects packets.
    pub seal: Seal,
    /// Faults on purpose, if any.
    pub faults: Option<FaultInjector>,
    /// The ranks that are reached through memory, if any.
    pub neighbours: Option<HostNeighbours>,
    /// What is done without work.
    pub idle: IdleMode,
    /// How long a caller who waits looks for work at least before it sleeps, when it may sleep:
    /// being woken takes longer than a small message. Nothing where ranks share cores.
    pub caller_spin: Span,
}

/// Counts of what a driver did, readable at any time.
#[derive(Debug, Default)]
struct DriverShared {
    sent_packets: AtomicU64,
    send_calls: AtomicU64,
    received_packets: AtomicU64,
    receive_calls: AtomicU64,
    malformed_packets: AtomicU64,
    foreign_packets: AtomicU64,
    old_epoch_packets: AtomicU64,
    unknown_senders: AtomicU64,
    forged_packets: AtomicU64,
    replayed_packets: AtomicU64,
    kernel_drops: AtomicU64,
    faults_dropped: AtomicU64,
    abandoned_packets: AtomicU64,
    stop: AtomicBool,
    /// Whether a caller drives, or is about to.
    called: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// The driver has stopped, or its machine has panicked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the driver thread has stopped: {reason}")]
pub struct DriverStopped {
    /// Why.
    pub reason: String,
}

/// The way to a driver's machine from other threads. Dropping it stops the driver.
#[derive(Debug)]
pub struct DriverLink<M> {
    commands: SyncSender<MachineCommand<M>>,
    bell: Arc<ThreadWaker>,
    shared: Arc<DriverShared>,
    engine: Arc<Mutex<Option<DriverEngine<M>>>>,
    threads: WireThreads,
    thread: Option<JoinHandle<()>>,
}

/// What runs after every round that did something.
pub type ProgressHook<M> = Box<dyn FnMut(&mut M) + Send>;

/// Starts driving `machine`. `progress` runs on whatever thread drives.
///
/// # Errors
/// When the thread or its bell cannot be made.
pub fn spawn<M: Machine + Send + 'static>(
    machine: M,
    setup: DriverSetup,
    progress: impl FnMut(&mut M) + Send + 'static,
) -> io::Result<DriverLink<M>> {
    let (commands, waiting) = sync_channel(COMMANDS_WAITING);
    let bell = Arc::new(ThreadWaker::new()?);
    let shared = Arc::new(DriverShared::default());
    let threads = setup.sockets.threads();
    let engine = DriverEngine {
        machine,
        patience: IdlePatience::new(setup.idle),
        setup,
        progress: Box::new(progress),
        commands: waiting,
        bell: Arc::clone(&bell),
        shared: Arc::clone(&shared),
        clock: DriverClock::start(),
        slot: PacketSlot::new(),
        reading: DrainWatch::default(),
        rounds: 0,
        tally: DriverCounters::default(),
    };
    let engine = Arc::new(Mutex::new(Some(engine)));
    let (driven, seen) = (Arc::clone(&engine), Arc::clone(&shared));
    let body = move || {
        while !seen.stop.load(Ordering::SeqCst) {
            if seen.called.load(Ordering::SeqCst) {
                std::thread::park_timeout(NAP);
                continue;
            }
            let mut engine = driven.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = || seen.called.load(Ordering::Relaxed);
            // Why it ended is written down for whoever asks.
            let _ = turn(&mut engine, None, wanted);
        }
        // Whatever waits learns by being dropped that it will not end.
        *driven.lock().unwrap_or_else(PoisonError::into_inner) = None;
        seen.ended("it was asked to".to_owned());
    };
    let thread = std::thread::Builder::new()
        .name("gradwire-driver".to_owned())
        .spawn(body)?;
    Ok(DriverLink {
        commands,
        bell,
        shared,
        engine,
        threads,
        thread: Some(thread),
    })
}

impl DriverShared {
    /// Nothing is driven any more, for this reason unless there was one before.
    fn ended(&self, reason: String) -> DriverStopped {
        self.stop.store(true, Ordering::SeqCst);
        let failure = self.failure.lock();
        let mut failure = failure.unwrap_or_else(PoisonError::into_inner);
        let reason = failure.get_or_insert(reason).clone();
        DriverStopped { reason }
    }
}

/// Lets the engine do a command and rounds until `is_over`. An engine that fails, or whose machine
/// panics, is no more.
fn turn<M: Machine>(
    engine: &mut Option<DriverEngine<M>>,
    command: Option<MachineCommand<M>>,
    is_over: impl FnMut() -> bool,
) -> Result<(), DriverStopped> {
    let Some(running) = engine else {
        return Err(DriverStopped {
            reason: "it has ended".to_owned(),
        });
    };
    let shared = Arc::clone(&running.shared);
    let result = catch_unwind(AssertUnwindSafe(|| running.run(command, is_over)));
    let reason = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            let reason = format!("{} failed: {error}", running.setup.sockets.subject());
            running.fail(&reason);
            reason
        }
        Err(panic) => format!("its machine panicked: {}", panic_text(panic.as_ref())),
    };
    *engine = None;
    Err(shared.ended(reason))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_else(|| "without a message".to_owned())
}

impl<M: Machine> DriverLink<M> {
    /// Runs `command` and drives the machine on this thread until `is_done`, which is asked between
    /// rounds. When another caller drives, or only the driver's own thread can, that one runs the
    /// command, and this returns at once.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn drive(
        &self,
        command: MachineCommand<M>,
        is_done: impl FnMut() -> bool,
    ) -> Result<(), DriverStopped> {
        if self.threads == WireThreads::First || self.shared.called.swap(true, Ordering::SeqCst) {
            return self.submit(command);
        }
        // The driver's thread may sleep with the engine in its hands.
        self.bell.ring();
        let result = {
            let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            turn(&mut engine, Some(command), is_done)
        };
        self.shared.called.store(false, Ordering::SeqCst);
        result.map_err(|_| self.stopped())
    }
}

impl<M> DriverLink<M> {
    /// Calls the driver's thread back at once, for what nobody waits for driving.
    pub fn hand_back(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Runs `command` on the driver's thread between two rounds. Blocks while too many wait; never
    /// call it from `progress` or from another command.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn submit(&self, command: MachineCommand<M>) -> Result<(), DriverStopped> {
        self.commands.send(command).map_err(|_| self.stopped())?;
        self.bell.ring();
        if !self.shared.called.load(Ordering::SeqCst) {
            self.hand_back();
        }
        Ok(())
    }

    fn stopped(&self) -> DriverStopped {
        let failure = self
            .shared
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        DriverStopped {
            reason: failure.clone().unwrap_or_else(|| "it is ending".to_owned()),
        }
    }

    /// What was counted up to the last round.
    pub fn counters(&self) -> DriverCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriverCounters {
            sent_packets: read(&self.shared.sent_packets),
            send_calls: read(&self.shared.send_calls),
            received_packets: read(&self.shared.received_packets),
            receive_calls: read(&self.shared.receive_calls),
            malformed_packets: read(&self.shared.malformed_packets),
            foreign_packets: read(&self.shared.foreign_packets),
            old_epoch_packets: read(&self.shared.old_epoch_packets),
            unknown_senders: read(&self.shared.unknown_senders),
            forged_packets: read(&self.shared.forged_packets),
            replayed_packets: read(&self.shared.replayed_packets),
            kernel_drops: read(&self.shared.kernel_drops),
            faults_dropped: read(&self.shared.faults_dropped),
            abandoned_packets: read(&self.shared.abandoned_packets),
        }
    }

    /// Stops the driver and waits until its thread has ended. Gives back why it stopped.
    pub fn stop(&mut self) -> DriverStopped {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.bell.ring();
        self.hand_back();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.stopped()
    }
}

impl<M> Drop for DriverLink<M> {
    fn drop(&mut self) {
        self.stop();
    }
}

struct DriverClock(std::time::Instant);

impl DriverClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the driver is where time comes from"
    )]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn now(&self) -> Instant {
        Instant::START + Span::from_nanos(self.0.elapsed().as_nanos() as u64)
    }
}

/// A machine with everything that drives it.
struct DriverEngine<M> {
    machine: M,
    setup: DriverSetup,
    progress: ProgressHook<M>,
    commands: Receiver<MachineCommand<M>>,
    bell: Arc<ThreadWaker>,
    shared: Arc<DriverShared>,
    clock: DriverClock,
    slot: PacketSlot,
    reading: DrainWatch,
    rounds: u32,
    patience: IdlePatience,
    tally: DriverCounters,
}

impl<M> fmt::Debug for DriverEngine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl<M: Machine> DriverEngine<M> {
    /// Does a command, after those that came before it, and rounds until `is_over`.
    fn run(
        &mut self,
        command: Option<MachineCommand<M>>,
        mut is_over: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let mut spin = Span::ZERO;
        if let Some(command) = command {
            spin = self.setup.caller_spin;
            self.obey();
            command(&mut self.machine, self.clock.now());
            self.send()?;
            (self.progress)(&mut self.machine);
        }
        while !is_over() && !self.shared.stop.load(Ordering::Relaxed) {
            if self.round()? {
                self.patience.found_work();
            } else if self.patience.is_over(self.clock.now(), spin) {
                self.lie_down()?;
                // What came before the bells were armed did not ring them.
                self.rounds = 0;
                if !self.round()? && !is_over() {
                    self.sleep();
                }
                self.get_up()?;
                self.patience.slept();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn lie_down(&mut self) -> io::Result<()> {
        self.bell.lie_down();
        if let Some(neighbours) = &self.setup.neighbours {
            neighbours.alarm().lie_down();
        }
        self.setup.sockets.lie_down()
    }

    fn get_up(&mut self) -> io::Result<()> {
        self.bell.get_up();
        if let Some(neighbours) = &self.setup.neighbours {
            neighbours.alarm().get_up();
        }
        self.setup.sockets.get_up()
    }

    /// Runs the commands that wait; tells whether there were any.
    fn obey(&mut self) -> bool {
        let mut busy = false;
        while let Ok(command) = self.commands.try_recv() {
            command(&mut self.machine, self.clock.now());
            busy = true;
        }
        busy
    }

    /// Lets the machine know that it is over, and whoever waits for it.
    fn fail(&mut self, reason: &str) {
        self.publish();
        // The same holds for a machine that panics now.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.machine.handle_end(self.clock.now(), reason);
            (self.progress)(&mut self.machine);
        }));
    }

    /// One round; tells whether it did anything.
    fn round(&mut self) -> io::Result<bool> {
        let now = self.clock.now();
        let (mut busy, drained) = self.receive()?;
        busy |= self.release_held();
        if let Some(read_by) = self.reading.read_by(now, drained) {
            busy |= self.let_time_pass(read_by);
        }
        busy |= self.obey();
        busy |= self.send()?;
        self.rounds = self.rounds.wrapping_add(1);
        if busy {
            // Before: whoever hears of progress may look at the counters.
            self.publish();
            (self.progress)(&mut self.machine);
        }
        Ok(busy)
    }

    fn let_time_pass(&mut self, now: Instant) -> bool {
        let due = self.machine.poll_timeout().is_some_and(|at| at <= now);
        if due {
            self.tell_host_drops(now);
            self.machine.handle_timeout(now);
        }
        due
    }

    fn tell_host_drops(&mut self, now: Instant) {
        let sockets = &mut self.setup.sockets;
        if !self.machine.tolerates_loss() {
            self.tally.kernel_drops = sockets.counters().kernel_drops;
            return;
        }
        let drops = sockets.ask_for_drops();
        if drops > self.tally.kernel_drops {
            self.tally.kernel_drops = drops;
            self.machine.handle_host_drops(now);
        }
    }

    fn sleep(&mut self) {
        if self.shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let held = self
            .setup
            .faults
            .as_ref()
            .and_then(FaultInjector::next_release);
        let next = [self.machine.poll_timeout(), held]
            .into_iter()
            .flatten()
            .min();
        let most = next.map_or(SLEEP_MAX, |at| (at - self.clock.now()).min(SLEEP_MAX));
        self.publish();
        let alarm = self.setup.neighbours.as_ref().map(HostNeighbours::alarm);
        let pipe = alarm.as_ref().map(|alarm| alarm.descriptor());
        self.bell.sleep(self.setup.sockets.readiness(), pipe, most);
        if let Some(alarm) = alarm {
            alarm.drain();
        }
    }

    /// Reads what neighbours have written.
    fn read_rings(&mut self) -> (bool, Drained) {
        let Some(neighbours) = &mut self.setup.neighbours else {
            return (false, Drained::Fully);
        };
        let (mut busy, mut drained) = (false, Drained::Fully);
        for ring in 0..neighbours.len() {
            for read in 0..=PACKETS_PER_RING {
                let Some(packet) = neighbours.peek(ring) else {
                    break;
                };
                if read == PACKETS_PER_RING {
                    drained = Drained::Partly;
                    break;
                }
                let datagram = Datagram {
                    header: packet.header,
                    payload: Payload::Bytes(packet.payload),
                    ecn: Ecn::Ect,
                };
                self.machine.handle_datagram(self.clock.now(), datagram);
                neighbours.release(ring);
                self.tally.received_packets += 1;
                busy = true;
            }
        }
        (busy, drained)
    }

    fn receive(&mut self) -> io::Result<(bool, Drained)> {
        let (read, rings) = self.read_rings();
        if self.setup.neighbours.is_some() && !self.rounds.is_multiple_of(SOCKETS_EVERY) {
            return Ok((read, Drained::Partly));
        }
        let (received, sockets) = self.drain_sockets()?;
        let drained = match rings {
            Drained::Fully => sockets,
            Drained::Partly => Drained::Partly,
        };
        Ok((read | received, drained))
    }

    /// Tells whether a packet was taken. Garbage is no work: who waits while it floods in sleeps as
    /// without it, and leaves the core to whom it waits for.
    fn drain_sockets(&mut self) -> io::Result<(bool, Drained)> {
        let (mut reads, before) = (0, self.tally.received_packets);
        let most = match self.setup.sockets.arrivals() {
            ArrivalMode::Glued => ARRIVALS_PER_ROUND,
            ArrivalMode::Single => SINGLES_PER_ROUND,
        };
        while reads < most {
            let readable = self.setup.sockets.readable()?;
            if readable.is_empty() {
                let taken = self.tally.received_packets > before;
                return Ok((taken, Drained::Fully));
            }
            for index in readable {
                reads += 1;
                if let Some(arrival) = self.setup.sockets.receive(index, &mut self.slot)? {
                    self.tally.receive_calls += 1;
                    self.split(&arrival);
                }
            }
        }
        let taken = self.tally.received_packets > before;
        Ok((taken, Drained::Partly))
    }

    /// Hands the packets of a super-packet over one by one, through the faults if there are any.
    fn split(&mut self, arrival: &SuperPacket) {
        let now = self.clock.now();
        self.tally.malformed_packets += u64::from(arrival.bytes == 0);
        let mut slot = std::mem::take(&mut self.slot);
        for packet in arrival.packets(&mut slot) {
            match self.judge(now, packet, arrival.ecn) {
                FaultVerdict::Pass => self.pass_on(now, packet, arrival),
                FaultVerdict::Drop => {}
                FaultVerdict::Hold(span) => {
                    if let Some(faults) = &mut self.setup.faults {
                        faults.hold(now + span, packet, arrival.ecn);
                    }
                }
                FaultVerdict::Duplicate => {
                    let mut twin = packet.to_vec();
                    self.pass_on(now, packet, arrival);
                    self.pass_on(now, &mut twin, arrival);
                }
                FaultVerdict::Corrupt(bit) => {
                    packet[bit / 8] ^= 1 << (bit % 8);
                    self.pass_on(now, packet, arrival);
                }
            }
        }
        self.slot = slot;
    }

    fn judge(&mut self, now: Instant, packet: &[u8], ecn: Ecn) -> FaultVerdict {
        let Some(faults) = &mut self.setup.faults else {
            return FaultVerdict::Pass;
        };
        let seal = &mut self.setup.seal;
        let look = || {
            seal.read(packet)
                .ok()
                .map(|header| (header.source, header.kind))
        };
        faults.arrive(now);
        faults.judge(look, (ecn, packet.len()))
    }

    /// Hands a packet over, as late as the faults want all packets to be.
    fn pass_on(&mut self, now: Instant, packet: &mut [u8], arrival: &SuperPacket) {
        match &mut self.setup.faults {
            Some(faults) if faults.delay() > Span::ZERO => {
                faults.hold(now + faults.delay(), packet, arrival.ecn);
            }
            _ => self.deliver(now, packet, arrival.ecn, Some(arrival.from)),
        }
    }

    fn release_held(&mut self) -> bool {
        let mut busy = false;
        let now = self.clock.now();
        while let Some(mut held) = self.setup.faults.as_mut().and_then(|f| f.release(now)) {
            self.deliver(now, &mut held.packet, held.ecn, None);
            busy = true;
        }
        busy
    }

    /// Hands one packet to the machine if it is sound. `from` is checked where it is known.
    fn deliver(&mut self, now: Instant, packet: &mut [u8], ecn: Ecn, from: Option<Address>) {
        let header = match self.accept(packet, from) {
            Ok(header) => header,
            Err(refused) => return self.tally.count(refused),
        };
        self.tally.received_packets += 1;
        let payload = Payload::Bytes(&packet[HEADER_BYTES..][..usize::from(header.length)]);
        self.machine.handle_datagram(
            now,
            Datagram {
                header,
                payload,
                ecn,
            },
        );
    }

    /// Opens a packet, if it is sound; what costs least is looked at first.
    fn accept(
        &mut self,
        packet: &mut [u8],
        from: Option<Address>,
    ) -> Result<Header, PacketRejection> {
        let header = self.setup.seal.read(packet)?;
        let peer = self.setup.peers.get(usize::from(header.source.0));
        let path = usize::from(header.entropy.0);
        let expected = peer.and_then(|addresses| addresses.get(path % addresses.len().max(1)));
        let expected = expected.ok_or(PacketRejection::UnknownSender)?;
        if from.is_some_and(|from| !expected.is_source(&from)) {
            return Err(PacketRejection::UnknownSender);
        }
        self.setup.seal.open(&header, packet)?;
        Ok(header)
    }

    fn send(&mut self) -> io::Result<bool> {
        let mut busy = false;
        for _ in 0..RUNS_PER_ROUND {
            let now = self.clock.now();
            let Some(transmit) = self.machine.poll_transmit(now) else {
                break;
            };
            busy = true;
            let DriverSetup {
                sockets,
                peers,
                seal,
                neighbours,
                ..
            } = &mut self.setup;
            if let Some(neighbours) = neighbours.as_mut().filter(|near| near.reaches(transmit.to)) {
                let sent = neighbours.send(&transmit, 0);
                self.tally.sent_packets += sent as u64;
                self.tally.abandoned_packets += (transmit.packets() - sent) as u64;
                continue;
            }
            let peer = &peers[usize::from(transmit.to.0)];
            let (mut sent, mut waits) = (0, 0);
            loop {
                sent = sockets.send(&transmit, sent, (peer, seal))?;
                if sent == transmit.packets() || waits == FULL_WAITS {
                    break;
                }
                waits += 1;
                sockets.wait_to_send(transmit.entropy, Span::from_millis(1))?;
            }
            self.tally.abandoned_packets += (transmit.packets() - sent) as u64;
        }
        Ok(busy)
    }

    fn publish(&mut self) {
        let sockets = self.setup.sockets.counters();
        let dropped = self.setup.faults.as_ref().map_or(0, FaultInjector::dropped);
        let shared = &self.shared;
        for (counter, value) in [
            (
                &shared.sent_packets,
                sockets.sent_packets + self.tally.sent_packets,
            ),
            (&shared.send_calls, sockets.send_calls),
            (&shared.received_packets, self.tally.received_packets),
            (&shared.receive_calls, self.tally.receive_calls),
            (&shared.malformed_packets, self.tally.malformed_packets),
            (&shared.foreign_packets, self.tally.foreign_packets),
            (&shared.old_epoch_packets, self.tally.old_epoch_packets),
            (&shared.unknown_senders, self.tally.unknown_senders),
            (&shared.forged_packets, self.tally.forged_packets),
            (&shared.replayed_packets, self.tally.replayed_packets),
            (&shared.kernel_drops, sockets.kernel_drops),
            (&shared.faults_dropped, dropped),
            (
                &shared.abandoned_packets,
                self.tally.abandoned_packets + sockets.refused_packets,
            ),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}
