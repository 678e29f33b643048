//! A rank's host: its clock, its receive queues, and its driver, step by step.
//!
//! A round of the driver reads all packets that the queues show, lets timeouts happen by the clock
//! as it was before the first read, runs commands, and sends. Between any two steps the host may
//! stop for a while. While it stops packets go on arriving.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use gradwire_collectives::communicator::Communicator;
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, Rank, Span};
use gradwire_protocol::wire::Header;

use super::clock::HostClock;
use super::draw::{self, pick, span_between};
use super::faults::{ClusterFault, FaultSet};

/// A host stops after a step with this probability.
const FREEZE: f64 = 0.004;
/// A host's own queue is full for a run with this probability.
const UNSENT: f64 = 0.01;
/// A host drops arrived packets with this probability.
const HOST_DROP: f64 = 0.01;
/// Where paths do not keep order, packets come up late only after a pause of more gaps than this:
/// the longest wait for stragglers and one gap more. A receiver cannot see a shorter pause of its
/// own host, since a driver that sleeps looks alike, and a gap that ends meanwhile may make holes
/// of packets that come up later still (docs/limits.md). Paths that keep order need no gap, so
/// there packets come up late after every pause.
const GAPS_STALLED: u64 = 18;
/// An arriving packet finds a network card that starts anew with this probability.
const NIC_RESET: f64 = 0.001;
/// Rounds without work after which a driver spins.
pub(crate) const IDLE_ROUNDS_MAX: u32 = 2_000;

/// A packet that has arrived at a host.
#[derive(Clone, Debug)]
pub(crate) struct ArrivedPacket {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    pub(crate) ecn: Ecn,
}

/// What becomes of a packet that arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HostArrival {
    /// The driver can read it at once.
    Shown,
    /// Its queue shows it so much later.
    Late(Span),
    /// The host stands still, and shows it so much later.
    Stalled(Span),
    /// The host drops it.
    Dropped,
    /// The host drops it, and never tells its driver.
    Vanished,
}

/// The step that a driver does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DriverStep {
    /// It sleeps until a packet, a timeout or a command.
    Sleep,
    Receive,
    Timeouts,
    Commands,
    Send,
}

/// A host and its rank.
#[derive(Debug)]
pub(crate) struct ClusterHost {
    pub(crate) rank: Rank,
    pub(crate) communicator: Communicator,
    pub(crate) clock: HostClock,
    pub(crate) step: DriverStep,
    pub(crate) is_dead: bool,
    /// When the driver must look at its commands.
    pub(crate) command_at: Option<Instant>,
    /// When the last read of the queues began.
    pub(crate) read_at: Instant,
    /// Whether the round did anything.
    pub(crate) worked: bool,
    pub(crate) idle_rounds: u32,
    /// When messages ended with holes of which no STOP has told yet.
    pub(crate) decided: Option<Instant>,
    /// When holes were accepted of which no BITMAP has told yet.
    pub(crate) reserved: Option<Instant>,
    /// Segments that are lost, and bytes of holes that may still arrive.
    holes_before: (u64, u64),
    ready_at: Instant,
    next: Option<Instant>,
    queue: BTreeMap<(Instant, u64), ArrivedPacket>,
    arrived: u64,
    dropped: u64,
    dropped_told: u64,
    rng: ChaCha8Rng,
    faults: FaultSet,
    step_time: Span,
    queue_delay: Span,
    gap: Span,
    /// Packets that arrive before come up then: half a gap after a long pause.
    shown_from: Instant,
    /// By receive queue: when its last packet comes up, which later ones do not overtake.
    tails: [Instant; 2],
    /// Until then the host's own queue takes no packet.
    pub(crate) full_until: Instant,
    /// Until then its network card starts anew.
    down_until: Instant,
}

impl ClusterHost {
    pub(crate) fn new(
        communicator: Communicator,
        clock: HostClock,
        seed: u64,
        faults: FaultSet,
    ) -> Self {
        let gap = communicator.endpoint().settings().gap;
        let rank = communicator.endpoint().settings().identity.rank;
        let mut rng = draw::stream(seed, "host", u64::from(rank.0));
        let mut step_time = Span::ZERO;
        if faults.has(ClusterFault::Slow) && rng.random_bool(0.5) {
            step_time = span_between(&mut rng, Span::from_micros(1), Span::from_micros(300));
        }
        let mut queue_delay = Span::ZERO;
        if faults.has(ClusterFault::LateQueue) && rng.random_bool(0.5) {
            queue_delay = span_between(&mut rng, Span::from_micros(10), Span::from_millis(20));
        }
        Self {
            rank,
            communicator,
            clock,
            step: DriverStep::Sleep,
            is_dead: false,
            command_at: Some(Instant::START),
            read_at: Instant::START,
            worked: false,
            idle_rounds: 0,
            decided: None,
            reserved: None,
            holes_before: (0, 0),
            ready_at: Instant::START,
            next: Some(Instant::START),
            queue: BTreeMap::new(),
            arrived: 0,
            dropped: 0,
            dropped_told: 0,
            rng,
            faults,
            step_time,
            queue_delay,
            gap,
            shown_from: Instant::START,
            tails: [Instant::START; 2],
            full_until: Instant::START,
            down_until: Instant::START,
        }
    }

    /// When the driver does its next step.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_dead)
    }

    /// A packet arrives.
    pub(crate) fn arrive(&mut self, now: Instant, packet: ArrivedPacket) -> HostArrival {
        if self.faults.has(ClusterFault::HostDrop) && self.rng.random_bool(HOST_DROP) {
            self.dropped += 1;
            return HostArrival::Dropped;
        }
        if self.faults.has(ClusterFault::SilentDrop) && self.rng.random_bool(HOST_DROP) {
            return HostArrival::Vanished;
        }
        let mut shown = now.max(self.shown_from);
        let is_late = packet.header.entropy.0 % 2 == 1 && self.queue_delay > Span::ZERO;
        if is_late && shown == now {
            shown = now + self.queue_delay;
        }
        let tail = &mut self.tails[usize::from(is_late)];
        *tail = shown.max(*tail);
        shown = *tail;
        let arrival = match shown - now {
            Span::ZERO => HostArrival::Shown,
            held if is_late => HostArrival::Late(held),
            held => HostArrival::Stalled(held),
        };
        self.arrived += 1;
        self.queue.insert((shown, self.arrived), packet);
        self.look_again(now);
        arrival
    }

    /// Draws whether the network card starts anew now; gives the packets that are gone then, with
    /// the times at which they would have come up.
    pub(crate) fn draw_reset(&mut self, now: Instant) -> Vec<(Instant, Header)> {
        let can_reset = self.faults.has(ClusterFault::NicReset) && !self.is_down(now);
        if !can_reset || !self.rng.random_bool(NIC_RESET) {
            return Vec::new();
        }
        let most = Span::from_millis(1000);
        self.down_until = now + span_between(&mut self.rng, Span::from_micros(100), most);
        let gone = std::mem::take(&mut self.queue).into_iter();
        gone.map(|((shown, _), packet)| (shown, packet.header))
            .collect()
    }

    /// Whether its network card starts anew, and neither sends nor receives.
    pub(crate) fn is_down(&self, now: Instant) -> bool {
        now < self.down_until
    }

    /// Draws whether the host's own queue is full for the next run: then it takes this number,
    /// modulo the packets of the run, and no more for a while.
    pub(crate) fn draw_room(&mut self) -> Option<(usize, Span)> {
        if !self.faults.has(ClusterFault::Unsent) || !self.rng.random_bool(UNSENT) {
            return None;
        }
        let pause = span_between(&mut self.rng, Span::from_micros(20), Span::from_millis(300));
        Some((self.rng.random_range(0..64), pause))
    }

    /// Reads every packet that the queues show, and gives each to `read` before the machine.
    pub(crate) fn receive(&mut self, now: Instant, mut read: impl FnMut(&Header)) {
        let reading = self.clock.reading(now);
        self.read_at = now;
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let packet = entry.remove();
            read(&packet.header);
            let datagram = Datagram {
                header: packet.header,
                payload: Payload::Bytes(&packet.payload),
                ecn: packet.ecn,
            };
            self.communicator.handle_datagram(reading, datagram);
            self.worked = true;
            self.note_holes();
        }
    }

    /// Lets timeouts happen up to the last read.
    pub(crate) fn time_out(&mut self) {
        let reading = self.clock.reading(self.read_at);
        let is_due = |at: Instant| at <= reading;
        if !self.communicator.poll_timeout().is_some_and(is_due) {
            return;
        }
        if self.communicator.tolerates_loss() && self.dropped > self.dropped_told {
            self.dropped_told = self.dropped;
            self.communicator.handle_host_drops(reading);
        }
        self.communicator.handle_timeout(reading);
        self.note_holes();
    }

    /// The machine may have accepted holes, by what it had read.
    pub(crate) fn note_holes(&mut self) {
        let lost = self.communicator.counters().receiver.lost_segments;
        let reserved = self.communicator.endpoint().ledger().total().reserved_bytes;
        let (lost_before, reserved_before) = self.holes_before;
        if lost > lost_before {
            self.decided.get_or_insert(self.read_at);
        }
        if reserved > reserved_before {
            self.reserved.get_or_insert(self.read_at);
        }
        self.holes_before = (lost, reserved);
    }

    /// Goes on to `step`, perhaps after a pause.
    pub(crate) fn go_on(&mut self, now: Instant, step: DriverStep) {
        self.step = step;
        self.ready_at = now + self.step_time;
        let stops = [ClusterFault::Freeze, ClusterFault::StallBelow];
        if stops.into_iter().any(|fault| self.faults.has(fault)) && self.rng.random_bool(FREEZE) {
            let most = pick(
                &mut self.rng,
                &[Span::from_millis(10), Span::from_millis(3000)],
            );
            let pause = span_between(&mut self.rng, Span::from_micros(50), most);
            self.ready_at = self.ready_at + pause;
            let is_seen =
                pause > self.gap * GAPS_STALLED || self.faults.has(ClusterFault::KeptOrder);
            if self.faults.has(ClusterFault::StallBelow) && is_seen {
                self.shown_from = self.ready_at + self.gap.divided(2);
            }
        }
        self.look_again(now);
    }

    /// Finds out when the next step is.
    pub(crate) fn look_again(&mut self, now: Instant) {
        if self.step != DriverStep::Sleep {
            self.next = Some(self.ready_at);
            return;
        }
        let packet = self.queue.first_key_value().map(|(&(at, _), _)| at);
        let timeout = self.communicator.poll_timeout();
        let timeout = timeout.map(|reading| self.clock.when(now, reading));
        let room = (self.full_until > now).then_some(self.full_until);
        let wakes = [packet, timeout, self.command_at, room];
        let first = wakes.into_iter().flatten().min();
        self.next = first.map(|at| at.max(self.ready_at).max(now));
    }

    /// From now on the host does every step at once, and drops no packet.
    pub(crate) fn heal(&mut self, now: Instant) {
        self.faults = FaultSet::NONE;
        self.step_time = Span::ZERO;
        self.queue_delay = Span::ZERO;
        self.shown_from = self.shown_from.min(now);
        self.full_until = self.full_until.min(now);
        self.down_until = self.down_until.min(now);
        // Packets that wait come up now, before those that arrive from now on.
        self.tails = [now; 2];
        let queue = std::mem::take(&mut self.queue).into_iter();
        let queue = queue.map(|((shown, number), packet)| ((shown.min(now), number), packet));
        self.queue = queue.collect();
        self.ready_at = self.ready_at.min(now);
        self.look_again(now);
    }
}
