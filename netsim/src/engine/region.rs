//! The loop: one thread's hosts, switches and ports, and the events that happen to them.
//!
//! A packet's way: a host gives it (`pump`), it waits at a port (`offer`), goes on the wire
//! (`launch`), arrives at a switch that chooses the next port, and in the end at a host. A port
//! that is idle sends at once and costs no event of its own; a busy one is visited again when its
//! wire is free.
//!
//! Everything here depends on the events of the region alone, and their order on times and
//! numbers alone: the same run on another number of threads is the same run.

use gradwire_fabric::policy::{Balance, Order};
use gradwire_protocol::loss::LossProcess;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Dscp, Instant};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::engine::calendar::{Calendar, Event};
use crate::engine::flows::{Flows, Record};
use crate::engine::host::{Envelope, Host, Load};
use crate::engine::packets::{Packet, Packets};
use crate::engine::port::{Pausing, Port, QUEUES, Verdict};
use crate::engine::wiring::Wiring;
use crate::results::outcome::QueueSample;
use gradwire_fabric::topology::{Device, LinkState};

/// What an event is, in the order in which events of one time happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
enum Kind {
    /// A link fails or comes back; of a port.
    Change = 0,
    /// A pause frame arrives; at a port.
    Pause = 1,
    /// A packet arrives; through a port.
    Arrive = 2,
    /// A port's wire is free.
    Ready = 3,
    /// A flow begins; at a host.
    Begin = 4,
    /// A host wants to be woken.
    Wake = 5,
}

impl Kind {
    #[inline]
    const fn of(event: Event) -> Self {
        match event.key >> NUMBER_BITS {
            0 => Self::Change,
            1 => Self::Pause,
            2 => Self::Arrive,
            3 => Self::Ready,
            4 => Self::Begin,
            _ => Self::Wake,
        }
    }
}

const NUMBER_BITS: u32 = 29;
/// Adaptive switches compare backlogs in grades of 2^21 ps, 2.1 us, and draw among equals: hosts
/// send in step, so the least backlog to the picosecond would always be the same port's.
const BACKLOG_GRADE_BITS: u32 = 21;
/// Bytes of a pause frame on the wire.
const PAUSE_FRAME_BYTES: u16 = 84;

const fn event(at: u64, kind: Kind, number: u32, data: u32) -> Event {
    Event {
        at,
        key: (kind as u32) << NUMBER_BITS | number,
        data,
    }
}

/// Something that goes to another region.
#[derive(Debug)]
pub struct Mail<C> {
    event: Event,
    packet: Option<(Packet, C)>,
}

/// One thread's part of a run.
#[derive(Debug)]
pub struct Region<'w, H: Host> {
    wiring: &'w Wiring,
    number: u8,
    calendar: Calendar,
    packets: Packets<H::Cargo>,
    /// All ports of the fabric, of which this region uses its own.
    ports: Vec<Port>,
    hosts: Vec<Option<H>>,
    /// When each host is due to be woken.
    armed: Vec<u64>,
    flows: Flows<'w>,
    /// Bytes that each switch holds, where its ports share memory.
    held: Vec<u64>,
    /// Bytes that wait, by ingress port and queue, where ports pause each other.
    from_ingress: Vec<[u32; QUEUES]>,
    losses: Vec<Option<Box<(LossProcess, ChaCha8Rng)>>>,
    links_down: u32,
    /// When queues are written down next, and how often that happens.
    next_sample: u64,
    sample_every: u64,
    /// What was written down of queues.
    pub samples: Vec<QueueSample>,
    /// What goes to each region.
    pub outbox: Vec<Vec<Mail<H::Cargo>>>,
    /// Events worked on.
    pub events: u64,
    /// Time of the last one.
    pub now: u64,
}

impl<'w, H: Host> Region<'w, H> {
    /// Region `number` of `regions`, with its hosts in place and all others `None`. `gap` is the
    /// mean time between its events in picoseconds.
    pub fn new(
        wiring: &'w Wiring,
        number: u8,
        hosts: Vec<Option<H>>,
        flows: Flows<'w>,
        gap: u64,
    ) -> Self {
        let ports = wiring.wires.len();
        let regions = wiring.wires.iter().map(|wire| wire.home).max();
        let regions = usize::from(regions.unwrap_or(0)) + 1;
        let mut region = Self {
            wiring,
            number,
            calendar: Calendar::new(gap),
            packets: Packets::default(),
            ports: vec![Port::default(); ports],
            armed: vec![u64::MAX; hosts.len()],
            hosts,
            flows,
            held: vec![0; wiring.switches as usize],
            from_ingress: match wiring.pause {
                Some(_) => vec![[0; QUEUES]; ports],
                None => Vec::new(),
            },
            losses: Vec::new(),
            links_down: 0,
            next_sample: u64::MAX,
            sample_every: u64::MAX,
            samples: Vec::new(),
            outbox: (0..regions).map(|_| Vec::new()).collect(),
            events: 0,
            now: 0,
        };
        region.prepare();
        region
    }

    fn prepare(&mut self) {
        for (port, wire) in self.wiring.wires.iter().enumerate() {
            let process = (!wire.loss.is_none()).then(|| {
                let seed = self.wiring.seed ^ (port as u64) << 20;
                let process = LossProcess::new(wire.loss, 1.0);
                Box::new((process, ChaCha8Rng::seed_from_u64(seed)))
            });
            self.losses.push(process);
        }
        if self.losses.iter().all(Option::is_none) {
            self.losses = Vec::new();
        }
        for change in &self.wiring.changes {
            for port in [2 * change.link, 2 * change.link + 1] {
                if self.wiring.wires[port as usize].home == self.number {
                    let down = u32::from(change.state == LinkState::Down);
                    let at = change.at.as_picos();
                    self.calendar.push(event(at, Kind::Change, port, down));
                }
            }
        }
        for (at, host, flow) in self.flows.due_at_times() {
            if self.wiring.host_region[host as usize] == self.number {
                self.calendar.push(event(at, Kind::Begin, host, flow));
            }
        }
        for host in 0..self.hosts.len() as u32 {
            if self.hosts[host as usize].is_some() {
                self.arm(host);
            }
        }
    }

    /// Writes queues down every `span` picoseconds.
    pub fn sample_every(&mut self, span: u64) {
        (self.next_sample, self.sample_every) = (0, span.max(1));
    }

    /// When the next event happens.
    ///
    /// `None` when nothing happens any more, or when all has ended that must.
    pub fn next_event(&mut self) -> Option<u64> {
        match self.flows.is_over() {
            true => None,
            false => self.calendar.first(),
        }
    }

    /// Flows that have been received here and tasks that are complete.
    pub fn done(&self) -> u64 {
        self.flows.done()
    }

    /// Lets everything happen that lies before `end`, but at most about `budget` events; tells
    /// whether it all has.
    pub fn run(&mut self, end: u64, budget: u64) -> bool {
        let stop = self.events.saturating_add(budget);
        while let Some(event) = self.calendar.pop_before(end) {
            if event.at >= self.next_sample {
                self.sample(event.at);
            }
            self.now = event.at;
            self.events += 1;
            self.happen(event);
            if self.flows.is_over() {
                return true;
            }
            if self.events >= stop {
                return false;
            }
        }
        true
    }

    /// Takes what came from other regions.
    pub fn take(&mut self, mail: &mut Vec<Mail<H::Cargo>>) {
        for Mail { mut event, packet } in mail.drain(..) {
            if let Some((packet, cargo)) = packet {
                event.data = self.packets.reserve();
                *self.packets.at(event.data) = packet;
                *self.packets.cargo(event.data) = cargo;
            }
            self.calendar.push(event);
        }
    }

    #[inline]
    fn happen(&mut self, event: Event) {
        let number = event.key & ((1 << NUMBER_BITS) - 1);
        match Kind::of(event) {
            Kind::Arrive => match self.wiring.wires[number as usize].to {
                Device::Switch(switch) => self.forward(number, switch, event.data),
                Device::Host(host) => self.deliver(host, event.data),
            },
            Kind::Ready => self.serve(number),
            Kind::Wake => self.wake(number),
            Kind::Begin => self.begin(number, event.data),
            Kind::Pause => self.pause(number, event.data),
            Kind::Change => self.change(number, event.data),
        }
    }

    fn forward(&mut self, ingress: u32, switch: u32, index: u32) {
        let packet = self.packets.at(index);
        packet.ingress = ingress;
        let packet = *packet;
        match self.choose(switch, &packet) {
            Some(port) => self.offer(port, index),
            None => self.packets.release(index),
        }
    }

    /// The port that a packet takes; `None` when there is no route.
    #[inline]
    fn choose(&self, switch: u32, packet: &Packet) -> Option<u32> {
        let ports = self.wiring.routes.ports(switch, packet.destination);
        let (&first, rest) = ports.split_first()?;
        if rest.is_empty() {
            return Some(first);
        }
        if self.links_down > 0 {
            let up = ports.iter().copied();
            let up: Vec<u32> = up.filter(|&port| !self.ports[port as usize].down).collect();
            if !up.is_empty() {
                return Some(self.choose_among(switch, packet, &up));
            }
        }
        Some(self.choose_among(switch, packet, ports))
    }

    #[inline]
    fn choose_among(&self, switch: u32, packet: &Packet, ports: &[u32]) -> u32 {
        let salt = (self.wiring.seed as u32) ^ switch.wrapping_mul(0x9E37_79B9);
        let hash = match self.wiring.balance {
            Balance::Ecmp => mix(packet.path ^ salt),
            Balance::Random | Balance::Adaptive => mix(packet.path ^ salt ^ mix(self.now as u32)),
        };
        let start = scale(hash, ports.len());
        if self.wiring.balance != Balance::Adaptive {
            return ports[start];
        }
        let turned = ports[start..].iter().chain(&ports[..start]).copied();
        let least = turned.min_by_key(|&port| self.backlog(port) >> BACKLOG_GRADE_BITS);
        least.unwrap_or(ports[start])
    }

    /// Picoseconds until a port has sent what it has.
    fn backlog(&self, port: u32) -> u64 {
        let (state, wire) = (
            &self.ports[port as usize],
            &self.wiring.wires[port as usize],
        );
        let waiting = (state.waiting * wire.picos_per_byte) >> 16;
        state.free_at.saturating_sub(self.now) + waiting
    }

    /// A packet wants to leave through a port.
    #[inline]
    fn offer(&mut self, port: u32, index: u32) {
        let packet = *self.packets.at(index);
        let state = &self.ports[port as usize];
        if state.is_idle(self.now, packet.queue) {
            self.launch(port, index);
            return;
        }
        let limits = &self.wiring.limits[usize::from(self.wiring.wires[port as usize].limits)];
        let verdict = state.judge(&packet, limits, self.room(port, packet.queue));
        let counts = &mut self.ports[port as usize].record.classes[usize::from(packet.queue)];
        match verdict {
            Verdict::Enter => self.enter(port, index),
            Verdict::EnterMarked => {
                counts.marked += u64::from(packet.ecn == Ecn::Ect);
                self.packets.at(index).ecn = Ecn::Ce;
                self.enter(port, index);
            }
            Verdict::Trim => {
                counts.trimmed += 1;
                self.trim(port, index);
            }
            Verdict::DropEarly => {
                counts.dropped_early += 1;
                self.packets.release(index);
            }
            Verdict::DropFull => {
                counts.dropped_full += 1;
                self.drop_or_evict(port, index);
            }
        }
    }

    /// Bytes that a port's queue may still take.
    #[inline]
    fn room(&self, port: u32, queue: u8) -> u64 {
        let wire = &self.wiring.wires[port as usize];
        let state = &self.ports[port as usize];
        if self.wiring.pause.is_some() {
            // Pauses bound what every ingress holds.
            return u64::MAX;
        }
        let (Some((bytes, alpha)), Device::Switch(switch)) = (self.wiring.shared, wire.from) else {
            let limits = &self.wiring.limits[usize::from(wire.limits)];
            let free = limits.bytes.saturating_sub(state.waiting);
            return match limits.alpha {
                Some(alpha) if queue > 0 => state.room_of(queue, free, alpha),
                _ => free,
            };
        };
        let free = bytes.saturating_sub(self.held[switch as usize]);
        state.room_of(queue, free, alpha)
    }

    fn trim(&mut self, port: u32, index: u32) {
        let bytes = self.wiring.trims_to.map_or(0, |bytes| bytes.get() as u16);
        let packet = self.packets.at(index);
        packet.load = Load::Trimmed;
        packet.bytes = packet.bytes.min(bytes);
        packet.queue = 0;
        self.offer(port, index);
    }

    /// There is no room: the newcomer goes, or where queues are ordered the least urgent.
    fn drop_or_evict(&mut self, port: u32, index: u32) {
        let newcomer = *self.packets.at(index);
        if self.wiring.order == Order::Urgency {
            let state = &mut self.ports[port as usize];
            if let Some(worst) = state.evict(self.now, &newcomer, &mut self.packets) {
                self.on_left(port, worst);
                self.packets.release(worst);
                self.enter(port, index);
                return;
            }
        }
        self.packets.release(index);
    }

    #[inline]
    fn enter(&mut self, port: u32, index: u32) {
        let state = &mut self.ports[port as usize];
        state.enter(self.now, index, &mut self.packets);
        if !state.ready_due && state.can_serve() {
            state.ready_due = true;
            let at = state.free_at.max(self.now);
            self.calendar.push(event(at, Kind::Ready, port, 0));
        }
        if self.wiring.shared.is_some() || self.wiring.pause.is_some() {
            self.on_entered(port, index);
        }
    }

    fn on_entered(&mut self, port: u32, index: u32) {
        let packet = *self.packets.at(index);
        let Device::Switch(switch) = self.wiring.wires[port as usize].from else {
            return;
        };
        self.held[switch as usize] += u64::from(packet.bytes);
        let Some(pause) = self.wiring.pause else {
            return;
        };
        let bytes = &mut self.from_ingress[packet.ingress as usize][usize::from(packet.queue)];
        let before = u64::from(*bytes);
        *bytes += u32::from(packet.bytes);
        if before <= pause.above.get() && u64::from(*bytes) > pause.above.get() {
            self.send_pause(packet.ingress, packet.queue, Pausing::Stop);
        }
    }

    #[inline]
    fn on_left(&mut self, port: u32, index: u32) {
        if self.wiring.shared.is_none() && self.wiring.pause.is_none() {
            return;
        }
        let packet = *self.packets.at(index);
        let Device::Switch(switch) = self.wiring.wires[port as usize].from else {
            return;
        };
        self.held[switch as usize] -= u64::from(packet.bytes);
        let Some(pause) = self.wiring.pause else {
            return;
        };
        let bytes = &mut self.from_ingress[packet.ingress as usize][usize::from(packet.queue)];
        let before = u64::from(*bytes);
        *bytes -= u32::from(packet.bytes);
        if before > pause.below.get() && u64::from(*bytes) <= pause.below.get() {
            self.send_pause(packet.ingress, packet.queue, Pausing::GoOn);
        }
    }

    /// Asks the port at the other end of `ingress` to stop or go on. The frame goes out at once: it
    /// takes its time on the wire, but does not wait behind packets.
    fn send_pause(&mut self, ingress: u32, queue: u8, pausing: Pausing) {
        let back = &self.wiring.wires[(ingress ^ 1) as usize];
        let at = self.now + back.transmit_time(PAUSE_FRAME_BYTES) + back.latency;
        let stop = u32::from(pausing == Pausing::Stop);
        let event = event(at, Kind::Pause, ingress, u32::from(queue) << 1 | stop);
        self.post(back.target, event);
    }

    fn post(&mut self, target: u8, event: Event) {
        if target == self.number {
            self.calendar.push(event);
        } else {
            let packet = None;
            self.outbox[usize::from(target)].push(Mail { event, packet });
        }
    }

    /// Puts a packet on the wire.
    #[inline]
    fn launch(&mut self, port: u32, index: u32) {
        let wire = &self.wiring.wires[port as usize];
        let state = &mut self.ports[port as usize];
        let packet = *self.packets.at(index);
        state.free_at = self.now + wire.transmit_time(packet.bytes);
        state.record.bytes += u64::from(packet.bytes);
        state.record.packets += 1;
        state.record.data_packets += u64::from(packet.load == Load::Data);
        let arrives = event(state.free_at + wire.latency, Kind::Arrive, port, index);
        let lost = state.down || (!self.losses.is_empty() && self.loses(port));
        if lost {
            self.ports[port as usize].record.lost += 1;
            self.packets.release(index);
        } else if wire.target == self.number {
            self.calendar.push(arrives);
        } else {
            let cargo = std::mem::take(self.packets.cargo(index));
            let packet = Some((packet, cargo));
            self.packets.release(index);
            self.outbox[usize::from(wire.target)].push(Mail {
                event: arrives,
                packet,
            });
        }
    }

    fn loses(&mut self, port: u32) -> bool {
        match &mut self.losses[port as usize] {
            Some(process) => process.0.loses(&mut process.1),
            None => false,
        }
    }

    /// A port's wire is free: the next packet goes.
    #[inline]
    fn serve(&mut self, port: u32) {
        let state = &mut self.ports[port as usize];
        state.ready_due = false;
        if state.can_serve() {
            let index = state.leave(self.now, self.wiring.order, &mut self.packets);
            self.on_left(port, index);
            self.launch(port, index);
            if self.ports[port as usize].can_serve() {
                self.return_when_free(port);
            }
        }
        if let Device::Host(host) = self.wiring.wires[port as usize].from {
            self.return_when_free(port);
            self.pump(host);
        }
    }

    /// Takes packets from a host as long as its port is idle: a host never sends ahead of its link,
    /// so that a control packet waits for the packet on the wire and for nothing else.
    #[inline]
    fn pump(&mut self, host: u32) {
        let port = self.wiring.host_port[host as usize];
        while self.ports[port as usize].is_free(self.now) {
            let Some(sender) = &mut self.hosts[host as usize] else {
                return;
            };
            let index = self.packets.reserve();
            let now = Instant::from_picos(self.now);
            let cargo = self.packets.cargo(index);
            let Some(envelope) = sender.transmit(now, cargo) else {
                self.packets.release(index);
                break;
            };
            self.address(index, &envelope);
            self.offer(port, index);
            self.return_when_free(port);
        }
        self.arm(host);
    }

    /// Visits a port again when its wire is free.
    #[inline]
    fn return_when_free(&mut self, port: u32) {
        let state = &mut self.ports[port as usize];
        if state.free_at > self.now && !state.ready_due {
            state.ready_due = true;
            let at = state.free_at;
            self.calendar.push(event(at, Kind::Ready, port, 0));
        }
    }

    #[inline]
    fn address(&mut self, index: u32, envelope: &Envelope) {
        let queue = self.wiring.queue_of_dscp[usize::from(envelope.dscp.0 & 63)];
        let pair = mix(envelope.source) ^ mix(envelope.destination).rotate_left(7);
        let packet = self.packets.at(index);
        packet.source = envelope.source;
        packet.destination = envelope.destination;
        packet.path = mix(pair ^ u32::from(envelope.entropy).wrapping_mul(0x85EB_CA6B));
        packet.urgency = envelope.urgency;
        packet.bytes = envelope.bytes.min(u32::from(u16::MAX)) as u16;
        packet.entropy = envelope.entropy;
        packet.queue = queue;
        packet.dscp = envelope.dscp.0;
        packet.ecn = envelope.ecn;
        packet.load = envelope.load;
    }

    #[inline]
    fn deliver(&mut self, host: u32, index: u32) {
        let packet = *self.packets.at(index);
        let envelope = Envelope {
            source: packet.source,
            destination: packet.destination,
            bytes: u32::from(packet.bytes),
            dscp: Dscp(packet.dscp),
            ecn: packet.ecn,
            entropy: packet.entropy,
            load: packet.load,
            urgency: packet.urgency,
        };
        let now = Instant::from_picos(self.now);
        if let Some(receiver) = &mut self.hosts[host as usize] {
            receiver.receive(now, &envelope, self.packets.cargo(index));
        }
        self.packets.release(index);
        self.settle(host);
    }

    /// After anything has happened to a host: what has ended, what it sends, when it wakes.
    #[inline]
    fn settle(&mut self, host: u32) {
        let mut started = false;
        if let Some(machine) = &mut self.hosts[host as usize] {
            while let Some(progress) = machine.progress() {
                self.flows.note(self.now, progress);
                started = true;
            }
        }
        if started {
            while let Some((source, flow)) = self.flows.take_started() {
                self.calendar
                    .push(event(self.now, Kind::Begin, source, flow));
            }
        }
        self.pump(host);
    }

    #[inline]
    fn arm(&mut self, host: u32) {
        let Some(machine) = &self.hosts[host as usize] else {
            return;
        };
        let Some(wish) = machine.wakes_at() else {
            return;
        };
        let at = wish.as_picos().max(self.now);
        if at < self.armed[host as usize] {
            self.armed[host as usize] = at;
            self.calendar.push(event(at, Kind::Wake, host, 0));
        }
    }

    /// A host's time has come, or had come before it asked for a later one.
    fn wake(&mut self, host: u32) {
        if self.armed[host as usize] != self.now {
            return;
        }
        self.armed[host as usize] = u64::MAX;
        let now = Instant::from_picos(self.now);
        let Some(machine) = &mut self.hosts[host as usize] else {
            return;
        };
        if machine.wakes_at().is_some_and(|wish| wish <= now) {
            machine.wake(now);
            self.settle(host);
        } else {
            self.arm(host);
        }
    }

    fn begin(&mut self, host: u32, flow: u32) {
        let begin = self.flows.begin(self.now, flow);
        if let Some(machine) = &mut self.hosts[host as usize] {
            machine.begin(Instant::from_picos(self.now), begin);
        }
        self.settle(host);
    }

    fn pause(&mut self, port: u32, data: u32) {
        let pausing = match data & 1 {
            1 => Pausing::Stop,
            _ => Pausing::GoOn,
        };
        let state = &mut self.ports[port as usize];
        state.pause(self.now, (data >> 1) as u8, pausing);
        if state.can_serve() && !state.ready_due {
            state.ready_due = true;
            let at = state.free_at.max(self.now);
            self.calendar.push(event(at, Kind::Ready, port, 0));
        }
    }

    fn change(&mut self, port: u32, down: u32) {
        let state = &mut self.ports[port as usize];
        let was = std::mem::replace(&mut state.down, down == 1);
        self.links_down += u32::from(!was && down == 1);
        self.links_down -= u32::from(was && down == 0);
    }

    /// Writes down what waits, as it is before anything happens at `now`.
    pub fn sample(&mut self, now: u64) {
        while self.next_sample <= now {
            let at = Instant::from_picos(self.next_sample);
            let waiting = self.ports.iter().enumerate();
            let waiting = waiting.filter(|(_, state)| state.waiting > 0);
            self.samples
                .extend(waiting.map(|(port, state)| QueueSample {
                    at,
                    link: port as u32,
                    bytes: state.waiting,
                }));
            self.next_sample += self.sample_every;
        }
    }

    /// The region's hosts, ports and records, once it has run.
    pub fn into_parts(self) -> (Vec<Option<H>>, Vec<Port>, Vec<Record>) {
        (self.hosts, self.ports, self.flows.into_records())
    }
}

/// Spreads the bits of a number: the finaliser of MurmurHash3 (Appleby, public domain).
#[inline]
fn mix(value: u32) -> u32 {
    let value = (value ^ value >> 16).wrapping_mul(0x85EB_CA6B);
    let value = (value ^ value >> 13).wrapping_mul(0xC2B2_AE35);
    value ^ value >> 16
}

/// A number below `count` from an even hash.
#[inline]
fn scale(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}
