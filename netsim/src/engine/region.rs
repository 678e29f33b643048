//! The loop: a region's hosts, switches and ports, and the events that happen to them.
//!
//! The way of a packet:
//! 1. A host hands it over (`pump`).
//! 2. It waits at a port (`offer`). An idle port sends at once and costs no event of its own; a
//!    busy one is visited again when its wire is free.
//! 3. It goes on the wire (`launch`).
//! 4. It arrives at a switch, whose element may take it (`pass_element`) and which chooses the next
//!    port (`forward`), or at a host (`deliver`).
//!
//! The state of a region depends only on its events, and their order only on times and numbers, so
//! a run gives the same results however it is divided into regions, and on any number of threads.

use gradwire_fabric::policy::{Balance, ServiceOrder};
use gradwire_fabric::routing::PortId;
use gradwire_fabric::topology::{Device, HostSpells, LinkState, LinkWay};
use gradwire_protocol::loss::LossProcess;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{Dscp, Instant, Span};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::engine::calendar::{Calendar, END_OF_TIME, TimedEvent};
use crate::engine::element::{ElementVerdict, OptionalElement};
use crate::engine::flows::{FlowRecord, Flows};
use crate::engine::happening::Happening;
use crate::engine::host::{Envelope, Host, Load};
use crate::engine::packets::{PacketArena, PacketIndex, SimPacket};
use crate::engine::port::{Pausing, PortQueues, QUEUES, QueueVerdict};
use crate::engine::spells::PortSpells;
use crate::engine::turns::PortTurns;
use crate::engine::wiring::Wiring;
use crate::results::outcome::QueueSample;

/// Adaptive switches compare backlogs in grades of 2^21 ps, 2.1 us, and draw among equals: hosts
/// send in step, so a comparison to the picosecond would always choose the same port.
const BACKLOG_GRADE_BITS: u32 = 21;
/// Events between one and that whose packet is asked for meanwhile.
const PREFETCHED_AHEAD: usize = 2;
/// Bytes of a pause frame on the wire.
const PAUSE_FRAME_BYTES: u16 = 84;

/// An event of another region.
#[derive(Clone, Copy, Debug)]
pub struct RegionMail {
    /// The region that it goes to.
    pub target: u16,
    event: TimedEvent,
}

impl RegionMail {
    /// When the event happens.
    pub fn at(&self) -> Instant {
        self.event.at
    }

    /// The packet that arrives, if it is one.
    pub fn packet(&self) -> Option<PacketIndex> {
        match Happening::of(self.event) {
            Happening::Arrival { packet, .. } => Some(packet),
            _ => None,
        }
    }

    /// The same mail, with its packet elsewhere.
    pub fn with_packet(mut self, packet: PacketIndex) -> Self {
        self.event.data = packet.0;
        self
    }
}

/// One region of a run. Ports, hosts and switches lie at their places ([`Wiring::port_place`],
/// [`Wiring::hosts`], [`Wiring::switches`]) in its lists.
#[derive(Debug)]
pub struct FabricRegion<'w, H: Host> {
    wiring: &'w Wiring,
    number: u16,
    calendar: Calendar,
    /// The packets of all regions of a thread, while this one runs.
    pub packets: PacketArena<H::Cargo>,
    ports: Vec<PortQueues>,
    /// By port, if not all queues are strict.
    turns: Vec<PortTurns>,
    hosts: Vec<H>,
    /// When each host is due to be woken.
    armed: Vec<Instant>,
    flows: Flows<'w>,
    /// Bytes that each switch holds, where its ports share memory or pause others.
    held: Vec<u64>,
    /// Bytes that wait, by the port opposite to the ingress and by queue, if ports pause others.
    from_ingress: Vec<[u32; QUEUES]>,
    /// By port, if any loses packets.
    losses: Vec<Option<Box<(LossProcess, ChaCha8Rng)>>>,
    /// By port, if any has spells.
    spells: Vec<Option<Box<PortSpells>>>,
    links_down: u32,
    /// By switch, if any has one.
    elements: Vec<OptionalElement<H::Cargo>>,
    /// When the next sample of queues is due, and the time between samples.
    next_sample: Instant,
    sample_every: Span,
    /// Depths of queues over time.
    pub samples: Vec<QueueSample>,
    /// Mail to other regions.
    pub outbox: Vec<RegionMail>,
    /// Events worked on.
    pub events: u64,
    /// Time of the last one.
    pub now: Instant,
}

impl<'w, H: Host> FabricRegion<'w, H> {
    /// Region `number` of the wiring, with its hosts in order. `gap` is the mean time between its
    /// events.
    pub fn new(
        wiring: &'w Wiring,
        number: u16,
        hosts: Vec<H>,
        flows: Flows<'w>,
        gap: Span,
    ) -> Self {
        let ports = wiring.ports_of[usize::from(number)].len();
        let mut region = Self {
            wiring,
            number,
            calendar: Calendar::new(gap),
            packets: PacketArena::default(),
            ports: vec![PortQueues::default(); ports],
            turns: match wiring.turns {
                Some(_) => vec![PortTurns::default(); ports],
                None => Vec::new(),
            },
            armed: vec![END_OF_TIME; hosts.len()],
            hosts,
            flows,
            held: match wiring.shared.is_some() || wiring.pause.is_some() {
                true => vec![0; wiring.switches.of(number).len()],
                false => Vec::new(),
            },
            from_ingress: match wiring.pause {
                Some(_) => vec![[0; QUEUES]; ports],
                None => Vec::new(),
            },
            losses: Vec::new(),
            spells: Vec::new(),
            links_down: 0,
            elements: Vec::new(),
            next_sample: END_OF_TIME,
            sample_every: Span::ZERO,
            samples: Vec::new(),
            outbox: Vec::new(),
            events: 0,
            now: Instant::START,
        };
        region.prepare();
        region
    }

    fn prepare(&mut self) {
        let own = self.wiring.ports_of[usize::from(self.number)].iter();
        let own = own.map(|port| (port.index(), &self.wiring.wires[port.index()]));
        let seed = self.wiring.seed;
        if self.wiring.spells != HostSpells::default() {
            let spells = own.clone().map(|(port, wire)| {
                let seed = seed ^ (port as u64) << 40;
                PortSpells::of(&self.wiring.spells, (wire.from, wire.to), seed).map(Box::new)
            });
            self.spells = spells.collect();
        }
        if own.clone().any(|(_, wire)| !wire.loss.is_none()) {
            let losses = own.map(|(port, wire)| {
                (!wire.loss.is_none()).then(|| {
                    let process = LossProcess::new(wire.loss, 1.0);
                    let seed = seed ^ (port as u64) << 20;
                    Box::new((process, ChaCha8Rng::seed_from_u64(seed)))
                })
            });
            self.losses = losses.collect();
        }
        for change in &self.wiring.changes {
            let ways = [LinkWay::Forth, LinkWay::Back];
            for (port, way) in PortId::of_link(change.link).into_iter().zip(ways) {
                let own = self.wiring.wires[port.index()].home == self.number;
                if own && change.way.has(way) {
                    let state = change.state;
                    let change_of_port = Happening::LinkChange { port, state };
                    self.calendar.push(change_of_port.at(change.at));
                }
            }
        }
        for &host in self.wiring.hosts.of(self.number) {
            self.arm(host);
        }
    }

    /// Begins a flow of one of its hosts at a time.
    pub fn begin_at(&mut self, at: Instant, host: u32, flow: u32) {
        self.calendar
            .push(Happening::FlowBegin { host, flow }.at(at));
    }

    /// Puts elements into its switches, one place for each.
    pub fn place(&mut self, elements: Vec<OptionalElement<H::Cargo>>) {
        if elements.iter().any(Option::is_some) {
            self.elements = elements;
        }
    }

    /// Samples queues at this interval, from the start on.
    pub fn sample_every(&mut self, interval: Span) {
        self.next_sample = Instant::START;
        self.sample_every = interval.max(Span::from_picos(1));
    }

    /// A time before which nothing happens; `None` when no event is left, or when the run is over.
    pub fn next_event(&self) -> Option<Instant> {
        match self.flows.is_over() {
            true => None,
            false => self.calendar.not_before(),
        }
    }

    /// Flows received and tasks completed in this region.
    pub fn done(&self) -> u64 {
        self.flows.done()
    }

    /// Handles the events before `end`, at most about `budget` of them. Returns whether none of
    /// them is left.
    pub fn run(&mut self, end: Instant, budget: u64) -> bool {
        let stop = self.events.saturating_add(budget);
        while let Some(event) = self.calendar.pop_before(end) {
            if event.at >= self.next_sample {
                self.sample(event.at);
            }
            self.prefetch();
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

    /// Asks for the packet of an event that comes soon: in a large fabric it lies in no cache.
    #[inline]
    fn prefetch(&self) {
        let event = self.calendar.ahead(PREFETCHED_AHEAD).map(Happening::of);
        if let Some(Happening::Arrival { packet, .. }) = event {
            self.packets.prefetch(packet);
        }
    }

    /// Takes mail of another region.
    pub fn take(&mut self, mail: RegionMail) {
        self.calendar.push(mail.event);
    }

    #[inline]
    fn post(&mut self, target: u16, event: TimedEvent) {
        match target == self.number {
            true => self.calendar.push(event),
            false => self.outbox.push(RegionMail { target, event }),
        }
    }

    #[inline]
    fn happen(&mut self, event: TimedEvent) {
        match Happening::of(event) {
            Happening::Arrival { port, packet } => match self.wiring.wires[port.index()].to {
                Device::Switch(switch) => self.forward(port, switch, packet),
                Device::Host(host) => self.deliver(host, packet),
            },
            Happening::WireFree { port } => self.serve(port),
            Happening::HostWake { host } => self.wake(host),
            Happening::FlowBegin { host, flow } => self.begin(host, flow),
            Happening::Pause {
                port,
                queue,
                pausing,
            } => self.pause(port, queue, pausing),
            Happening::LinkChange { port, state } => self.change_link(port, state),
        }
    }

    fn forward(&mut self, ingress: PortId, switch: u32, index: PacketIndex) {
        let packet = self.packets.at(index);
        packet.ingress = ingress;
        if !self.elements.is_empty() && !self.pass_element(ingress, switch, index) {
            return;
        }
        let packet = *self.packets.at(index);
        match self.choose(switch, &packet) {
            Some(port) => self.offer(port, index),
            None => self.packets.release(index),
        }
    }

    /// Shows a packet to the element of a switch; returns whether the packet is to be routed.
    fn pass_element(&mut self, ingress: PortId, switch: u32, index: PacketIndex) -> bool {
        let Some(mut element) = self.elements[self.wiring.switches.place(switch)].take() else {
            return true;
        };
        let (packet, cargo) = self.packets.both(index);
        let verdict = element.arrive(ingress, packet, cargo);
        if let ElementVerdict::Copies(ports) = &verdict {
            for &port in ports {
                let mut packet = *self.packets.at(index);
                let cargo = element.copy(port, &mut packet, self.packets.cargo(index));
                let copy = self.packets.reserve();
                *self.packets.at(copy) = packet;
                *self.packets.cargo(copy) = cargo;
                self.offer(port, copy);
            }
        }
        self.elements[self.wiring.switches.place(switch)] = Some(element);
        if verdict != ElementVerdict::Route {
            self.packets.release(index);
        }
        verdict == ElementVerdict::Route
    }

    /// The port that a packet takes; `None` when there is no route.
    #[inline]
    fn choose(&self, switch: u32, packet: &SimPacket) -> Option<PortId> {
        let ports = self.wiring.routes.ports(switch, packet.destination);
        let (&first, rest) = ports.split_first()?;
        if rest.is_empty() {
            return Some(first);
        }
        if self.links_down > 0 {
            // Links fail rarely, so only a run with failures pays for a list.
            let up = ports.iter().copied();
            let up: Vec<PortId> = up
                .filter(|&port| !self.ports[self.wiring.port_place(port)].down)
                .collect();
            if !up.is_empty() {
                return Some(self.choose_among(switch, packet, &up));
            }
        }
        Some(self.choose_among(switch, packet, ports))
    }

    #[inline]
    fn choose_among(&self, switch: u32, packet: &SimPacket, ports: &[PortId]) -> PortId {
        let salt = (self.wiring.seed as u32) ^ switch.wrapping_mul(0x9E37_79B9);
        let hash = match self.wiring.balance {
            Balance::Ecmp => mix(packet.path ^ salt),
            Balance::Random | Balance::Adaptive => {
                mix(packet.path ^ salt ^ mix(self.now.as_picos() as u32))
            }
        };
        let start = scale(hash, ports.len());
        if self.wiring.balance != Balance::Adaptive {
            return ports[start];
        }
        let turned = ports[start..].iter().chain(&ports[..start]).copied();
        let least = turned.min_by_key(|&port| self.backlog(port) >> BACKLOG_GRADE_BITS);
        least.unwrap_or(ports[start])
    }

    /// Picoseconds until a port has sent all that it holds.
    fn backlog(&self, port: PortId) -> u64 {
        let (state, wire) = (
            &self.ports[self.wiring.port_place(port)],
            &self.wiring.wires[port.index()],
        );
        let waiting = (state.waiting * wire.picos_per_byte) >> 16;
        state.free_at.since(self.now).as_picos() + waiting
    }

    /// A packet wants to leave through a port.
    #[inline]
    fn offer(&mut self, port: PortId, index: PacketIndex) {
        let packet = *self.packets.at(index);
        let state = &self.ports[self.wiring.port_place(port)];
        if state.is_idle(self.now, packet.queue) {
            self.launch(port, index);
            return;
        }
        let limits = &self.wiring.limits[usize::from(self.wiring.wires[port.index()].limits)];
        let draw = mix(packet.path ^ self.now.as_picos() as u32);
        let verdict = state.judge(&packet, limits, self.room(port, packet.queue), draw);
        let counts =
            &mut self.ports[self.wiring.port_place(port)].record.classes[usize::from(packet.queue)];
        match verdict {
            QueueVerdict::Enter => self.enter(port, index),
            QueueVerdict::EnterMarked => {
                counts.marked += u64::from(packet.ecn == Ecn::Ect);
                self.packets.at(index).ecn = Ecn::Ce;
                self.enter(port, index);
            }
            QueueVerdict::Trim => {
                counts.trimmed += 1;
                self.trim(port, index);
            }
            QueueVerdict::DropEarly => {
                counts.dropped_early += 1;
                self.packets.release(index);
            }
            QueueVerdict::DropFull => {
                counts.dropped_full += 1;
                self.drop_or_evict(port, index);
            }
        }
    }

    /// Bytes that a port's queue may still take.
    #[inline]
    fn room(&self, port: PortId, queue: u8) -> u64 {
        let wire = &self.wiring.wires[port.index()];
        let state = &self.ports[self.wiring.port_place(port)];
        if self.wiring.pause.is_some() {
            // Pauses bound the bytes of every ingress.
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
        let free = bytes.saturating_sub(self.held[self.wiring.switches.place(switch)]);
        state.room_of(queue, free, alpha)
    }

    fn trim(&mut self, port: PortId, index: PacketIndex) {
        let bytes = self.wiring.trims_to.map_or(0, |bytes| bytes.get() as u16);
        let packet = self.packets.at(index);
        packet.load = Load::Trimmed;
        packet.bytes = packet.bytes.min(bytes);
        packet.queue = 0;
        self.offer(port, index);
    }

    /// The queue is full: drops the newcomer or, in a queue that serves by urgency, the least
    /// urgent packet.
    fn drop_or_evict(&mut self, port: PortId, index: PacketIndex) {
        let newcomer = *self.packets.at(index);
        if self.wiring.order == ServiceOrder::Urgency {
            let state = &mut self.ports[self.wiring.port_place(port)];
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
    fn enter(&mut self, port: PortId, index: PacketIndex) {
        let state = &mut self.ports[self.wiring.port_place(port)];
        state.enter(self.now, index, &mut self.packets);
        if !state.ready_due && state.can_serve() {
            state.ready_due = true;
            let at = state.free_at.max(self.now);
            self.calendar.push(Happening::WireFree { port }.at(at));
        }
        if self.wiring.shared.is_some() || self.wiring.pause.is_some() {
            self.on_entered(port, index);
        }
    }

    fn on_entered(&mut self, port: PortId, index: PacketIndex) {
        let packet = *self.packets.at(index);
        let Device::Switch(switch) = self.wiring.wires[port.index()].from else {
            return;
        };
        self.held[self.wiring.switches.place(switch)] += u64::from(packet.bytes);
        let Some(pause) = self.wiring.pause else {
            return;
        };
        let bytes = &mut self.from_ingress[self.wiring.port_place(packet.ingress.opposite())]
            [usize::from(packet.queue)];
        let before = u64::from(*bytes);
        *bytes += u32::from(packet.bytes);
        if before <= pause.above.get() && u64::from(*bytes) > pause.above.get() {
            self.send_pause(packet.ingress, packet.queue, Pausing::Stop);
        }
    }

    #[inline]
    fn on_left(&mut self, port: PortId, index: PacketIndex) {
        if self.wiring.shared.is_none() && self.wiring.pause.is_none() {
            return;
        }
        let packet = *self.packets.at(index);
        let Device::Switch(switch) = self.wiring.wires[port.index()].from else {
            return;
        };
        self.held[self.wiring.switches.place(switch)] -= u64::from(packet.bytes);
        let Some(pause) = self.wiring.pause else {
            return;
        };
        let bytes = &mut self.from_ingress[self.wiring.port_place(packet.ingress.opposite())]
            [usize::from(packet.queue)];
        let before = u64::from(*bytes);
        *bytes -= u32::from(packet.bytes);
        if before > pause.below.get() && u64::from(*bytes) <= pause.below.get() {
            self.send_pause(packet.ingress, packet.queue, Pausing::GoOn);
        }
    }

    /// Asks the port at the other end of `ingress` to pause or resume. The frame goes out at once:
    /// it takes its time on the wire, but does not wait for other packets.
    fn send_pause(&mut self, ingress: PortId, queue: u8, pausing: Pausing) {
        let back = &self.wiring.wires[ingress.opposite().index()];
        let at = self.now + back.transmit_time(PAUSE_FRAME_BYTES) + back.latency;
        let pause = Happening::Pause {
            port: ingress,
            queue,
            pausing,
        };
        self.post(back.target, pause.at(at));
    }

    /// Puts a packet on the wire.
    #[inline]
    fn launch(&mut self, port: PortId, index: PacketIndex) {
        let wire = &self.wiring.wires[port.index()];
        let state = &mut self.ports[self.wiring.port_place(port)];
        let packet = *self.packets.at(index);
        let mut takes = wire.transmit_time(packet.bytes);
        if let Some(Some(spells)) = self.spells.get_mut(self.wiring.port_place(port)) {
            takes = spells.stretched(self.now, takes);
        }
        state.free_at = self.now + takes;
        state.record.bytes += u64::from(packet.bytes);
        state.record.packets += 1;
        state.record.data_packets += u64::from(packet.load == Load::Data);
        let arrival = Happening::Arrival {
            port,
            packet: index,
        };
        let arrives = arrival.at(state.free_at + wire.latency);
        let lost = state.down || (!self.losses.is_empty() && self.loses(port));
        if lost {
            self.ports[self.wiring.port_place(port)].record.lost += 1;
            self.packets.release(index);
        } else {
            self.post(wire.target, arrives);
        }
    }

    fn loses(&mut self, port: PortId) -> bool {
        match &mut self.losses[self.wiring.port_place(port)] {
            Some(process) => process.0.loses(&mut process.1),
            None => false,
        }
    }

    /// A port's wire is free: the next packet goes.
    #[inline]
    fn serve(&mut self, port: PortId) {
        let state = &mut self.ports[self.wiring.port_place(port)];
        state.ready_due = false;
        if state.can_serve() {
            let queue = match &self.wiring.turns {
                None => state.ready().trailing_zeros() as usize,
                Some(rules) => {
                    self.turns[self.wiring.port_place(port)].choose(rules, state.ready())
                }
            };
            let index = state.leave(self.now, queue, self.wiring.order, &mut self.packets);
            if let Some(rules) = &self.wiring.turns {
                let bytes = self.packets.at(index).bytes;
                self.turns[self.wiring.port_place(port)].count(rules, queue, bytes);
            }
            self.on_left(port, index);
            self.launch(port, index);
            if self.ports[self.wiring.port_place(port)].can_serve() {
                self.return_when_free(port);
            }
        }
        if let Device::Host(host) = self.wiring.wires[port.index()].from {
            self.return_when_free(port);
            self.pump(host);
        }
    }

    /// Takes packets from a host as long as its port is idle: a host never sends ahead of its link,
    /// so that a control packet waits only for the packet on the wire.
    #[inline]
    fn pump(&mut self, host: u32) {
        let port = self.wiring.host_port[host as usize];
        let place = self.wiring.hosts.place(host);
        while self.ports[self.wiring.port_place(port)].is_free(self.now) {
            let index = self.packets.reserve();
            let cargo = self.packets.cargo(index);
            let Some(envelope) = self.hosts[place].transmit(self.now, cargo) else {
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
    fn return_when_free(&mut self, port: PortId) {
        let state = &mut self.ports[self.wiring.port_place(port)];
        if state.free_at > self.now && !state.ready_due {
            state.ready_due = true;
            let at = state.free_at;
            self.calendar.push(Happening::WireFree { port }.at(at));
        }
    }

    #[inline]
    fn address(&mut self, index: PacketIndex, envelope: &Envelope) {
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
    fn deliver(&mut self, host: u32, index: PacketIndex) {
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
        let receiver = &mut self.hosts[self.wiring.hosts.place(host)];
        receiver.receive(self.now, &envelope, self.packets.cargo(index));
        self.packets.release(index);
        self.settle(host);
    }

    /// After every event of a host: records the flows that have ended, sends, sets its alarm.
    #[inline]
    fn settle(&mut self, host: u32) {
        let mut started = false;
        let machine = &mut self.hosts[self.wiring.hosts.place(host)];
        while let Some(progress) = machine.progress() {
            self.flows.note(self.now, progress);
            started = true;
        }
        if started {
            while let Some((source, flow)) = self.flows.take_started() {
                let begin = Happening::FlowBegin { host: source, flow };
                self.calendar.push(begin.at(self.now));
            }
        }
        self.pump(host);
    }

    #[inline]
    fn arm(&mut self, host: u32) {
        let place = self.wiring.hosts.place(host);
        let Some(wish) = self.hosts[place].wakes_at() else {
            return;
        };
        let at = wish.max(self.now);
        if at < self.armed[place] {
            self.armed[place] = at;
            self.calendar.push(Happening::HostWake { host }.at(at));
        }
    }

    /// A host's alarm is due; the host may have asked for a later time since then.
    fn wake(&mut self, host: u32) {
        let place = self.wiring.hosts.place(host);
        if self.armed[place] != self.now {
            return;
        }
        self.armed[place] = END_OF_TIME;
        let machine = &mut self.hosts[place];
        if machine.wakes_at().is_some_and(|wish| wish <= self.now) {
            machine.wake(self.now);
            self.settle(host);
        } else {
            self.arm(host);
        }
    }

    fn begin(&mut self, host: u32, flow: u32) {
        let begin = self.flows.begin(self.now, flow);
        let place = self.wiring.hosts.place(host);
        self.hosts[place].begin(self.now, begin);
        self.settle(host);
    }

    fn pause(&mut self, port: PortId, queue: u8, pausing: Pausing) {
        let state = &mut self.ports[self.wiring.port_place(port)];
        state.pause(self.now, queue, pausing);
        if state.can_serve() && !state.ready_due {
            state.ready_due = true;
            let at = state.free_at.max(self.now);
            self.calendar.push(Happening::WireFree { port }.at(at));
        }
    }

    fn change_link(&mut self, port: PortId, state: LinkState) {
        let down = state == LinkState::Down;
        let was = std::mem::replace(&mut self.ports[self.wiring.port_place(port)].down, down);
        self.links_down += u32::from(!was && down);
        self.links_down -= u32::from(was && !down);
    }

    /// Takes the samples that are due before the events of `now`.
    pub fn sample(&mut self, now: Instant) {
        while self.next_sample <= now && self.next_sample < END_OF_TIME {
            let at = self.next_sample;
            let own = self.wiring.ports_of[usize::from(self.number)].iter();
            let waiting = own.zip(&self.ports).filter(|(_, state)| state.waiting > 0);
            self.samples
                .extend(waiting.map(|(port, state)| QueueSample {
                    at,
                    link: port.0,
                    bytes: state.waiting,
                }));
            self.next_sample = self.next_sample + self.sample_every;
        }
    }

    /// The hosts, ports and records of a region that has run.
    pub fn into_parts(self) -> (Vec<H>, Vec<PortQueues>, Vec<FlowRecord>) {
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

/// A number below `count` from a uniform hash.
#[inline]
fn scale(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}
