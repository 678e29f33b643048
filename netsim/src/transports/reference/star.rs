//! A network for tests of single transports: hosts around one switch, and a verdict on each packet.
//!
//! Every host has a link of 100 Gb/s and 1 us to the switch and back. The switch serves control
//! packets first, then data by urgency, then by arrival.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Instant, Layer, Rate, Span};

use super::cargo::{CargoKind, ReferenceCargo};
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::transports::settings::ReferenceSettings;

const RATE: Rate = Rate::from_gbps(100);
const LATENCY: Span = Span::from_micros(1);

/// The settings of a host of the star.
pub(crate) fn settings() -> ReferenceSettings {
    ReferenceSettings {
        payload: 4086,
        header: 64,
        control: 64,
        framing: 0,
        // Two links: 2 x (332 ns + 1 us) there, 2 x (5.12 ns + 1 us) back.
        base_rtt: Span::from_picos(4_674_240),
        rate: RATE,
        full_queue: Span::from_micros(42),
        seed: 1,
    }
}

/// Time of a flow alone, to its sender, over two links: (n-1) S + S + S_last + 2 d + 2 (A + d).
pub(crate) fn alone(bytes: u64) -> Instant {
    let settings = settings();
    let packets = settings.packets(ByteCount::new(bytes));
    let last = settings.packet_bytes(ByteCount::new(bytes), packets - 1);
    let last = RATE.transmit_time(ByteCount::new(u64::from(last)));
    let answer = RATE.transmit_time(ByteCount::new(64));
    Instant::START + settings.packet_time() * u64::from(packets) + last + (answer + LATENCY * 2) * 2
}

/// The switch's decision about a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum StarVerdict {
    Pass,
    Mark,
    Trim,
    Drop,
}

/// Decides the fate of a packet, given how many data packets wait for its port.
pub(crate) type Judge = Box<dyn FnMut(&Envelope, &ReferenceCargo, usize) -> StarVerdict>;

/// Loses nothing.
pub(crate) fn passing() -> Judge {
    Box::new(|_, _, _| StarVerdict::Pass)
}

/// Loses the data packet of this number.
pub(crate) fn losing(number: u32) -> Judge {
    Box::new(
        move |_, cargo, _| match cargo.kind == CargoKind::Data && cargo.number == number {
            true => StarVerdict::Drop,
            false => StarVerdict::Pass,
        },
    )
}

/// Loses every nth data packet.
pub(crate) fn losing_data(nth: u32) -> Judge {
    let mut count = 0;
    Box::new(move |envelope, _, _| {
        count += u32::from(envelope.load == Load::Data);
        match envelope.load == Load::Data && count % nth == 0 {
            true => StarVerdict::Drop,
            false => StarVerdict::Pass,
        }
    })
}

/// Trims data packets that find this many others waiting.
pub(crate) fn trimming(depth: usize) -> Judge {
    Box::new(
        move |envelope, _, waiting| match envelope.load == Load::Data && waiting >= depth {
            true => StarVerdict::Trim,
            false => StarVerdict::Pass,
        },
    )
}

/// Loses every third packet of any kind; `judge` decides about the others.
pub(crate) fn losing_third(mut judge: Judge) -> Judge {
    let mut count = 0;
    Box::new(move |envelope, cargo, waiting| {
        count += 1;
        match count % 3 == 0 {
            true => StarVerdict::Drop,
            false => judge(envelope, cargo, waiting),
        }
    })
}

#[derive(Debug)]
enum Event {
    HostLinkFree(usize),
    Wake(usize),
    AtSwitch(Envelope, ReferenceCargo),
    PortFree(usize),
    Arrives(Envelope, ReferenceCargo),
}

/// A packet's place in a queue: control first, then urgency, then arrival.
type Place = (bool, u32, u64);

#[derive(Default)]
struct Wire {
    busy: bool,
    queue: BTreeMap<Place, (Envelope, ReferenceCargo)>,
}

/// The network.
pub(crate) struct Star<H> {
    pub(crate) hosts: Vec<H>,
    pub(crate) now: Instant,
    /// The progress that hosts reported, and when.
    pub(crate) log: Vec<(Instant, HostProgress)>,
    /// Maximum number of data packets that waited for one port.
    pub(crate) deepest: usize,
    judge: Judge,
    links: Vec<bool>,
    ports: Vec<Wire>,
    events: BTreeMap<(Instant, u64), Event>,
    wakes: BTreeSet<(Instant, usize)>,
    count: u64,
}

impl<H: Host<Cargo = ReferenceCargo>> Star<H> {
    pub(crate) fn new(hosts: Vec<H>, judge: Judge) -> Self {
        Self {
            now: Instant::START,
            log: Vec::new(),
            deepest: 0,
            judge,
            links: vec![false; hosts.len()],
            ports: hosts.iter().map(|_| Wire::default()).collect(),
            events: BTreeMap::new(),
            wakes: BTreeSet::new(),
            count: 0,
            hosts,
        }
    }

    /// Begins a flow now.
    pub(crate) fn begin(&mut self, source: usize, flow: u32, destination: u32, bytes: u64) {
        let bytes = ByteCount::new(bytes);
        let begin = Begin {
            flow,
            destination,
            bytes,
            layer: Layer(0),
            layer_count: 0,
        };
        self.hosts[source].begin(self.now, begin);
        self.after(source);
    }

    /// Runs until no event is left or `limit` is reached.
    pub(crate) fn run(&mut self, limit: Instant) {
        while let Some(event) = self
            .events
            .first_entry()
            .filter(|event| event.key().0 <= limit)
        {
            let ((at, _), event) = event.remove_entry();
            self.now = at;
            self.handle(event);
        }
        self.now = limit;
    }

    /// When a flow's sender knew that it had arrived.
    pub(crate) fn acknowledged(&self, flow: u32) -> Instant {
        let entry = self
            .log
            .iter()
            .find(|(_, said)| *said == HostProgress::Acknowledged { flow });
        entry
            .unwrap_or_else(|| panic!("flow {flow} is acknowledged: {:?}", self.log))
            .0
    }

    /// Asserts that a flow that has the star of two hosts alone takes the time of [`alone`].
    pub(crate) fn assert_closed_form(mut self) {
        self.begin(0, 0, 1, 2_000_000);
        self.run(Instant::from_picos(u64::MAX));
        assert_eq!(self.acknowledged(0), alone(2_000_000));
    }

    /// Asserts that seven flows to the last of eight hosts take the time of its link, of which 5 %
    /// are left for the rest, and that no packet arrives twice.
    pub(crate) fn assert_incast(mut self) {
        for source in 0..7 {
            self.begin(source, source as u32, 7, 1_000_000);
        }
        self.run(Instant::from_picos(u64::MAX));
        let ideal = alone(7_000_000).since(Instant::START).as_secs_f64();
        let ends = (0..7).map(|flow| self.acknowledged(flow));
        let took = ends.max().expect("seven flows").since(Instant::START);
        let took = took.as_secs_f64();
        assert!(took < 1.05 * ideal, "took {took}, ideal {ideal}");
        assert_eq!(self.hosts[7].counts().duplicates, 0);
    }

    /// Asserts that two flows to the last of three hosts share its link and end together.
    pub(crate) fn assert_shared_link(&mut self) {
        self.begin(0, 0, 2, 20_000_000);
        self.begin(1, 1, 2, 20_000_000);
        self.run(Instant::from_picos(u64::MAX));
        let both = alone(40_000_000).since(Instant::START).as_secs_f64();
        for flow in [0, 1] {
            let took = self.acknowledged(flow).since(Instant::START).as_secs_f64();
            let off = took / both - 1.0;
            assert!(off.abs() < 0.05, "flow {flow}: {took} of {both}");
        }
    }

    /// Asserts that two flows to the last of three hosts arrive.
    pub(crate) fn assert_two_arrive(mut self) {
        self.begin(0, 0, 2, 500_000);
        self.begin(1, 1, 2, 500_000);
        self.run(Instant::from_picos(u64::MAX));
        self.acknowledged(0);
        self.acknowledged(1);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::HostLinkFree(host) => {
                self.links[host] = false;
                self.after(host);
            }
            Event::Wake(host) => {
                self.wakes.remove(&(self.now, host));
                self.hosts[host].wake(self.now);
                self.after(host);
            }
            Event::AtSwitch(envelope, cargo) => self.switch(envelope, cargo),
            Event::PortFree(port) => {
                self.ports[port].busy = false;
                self.serve(port);
            }
            Event::Arrives(envelope, mut cargo) => {
                let host = envelope.destination as usize;
                self.hosts[host].receive(self.now, &envelope, &mut cargo);
                self.after(host);
            }
        }
    }

    fn after(&mut self, host: usize) {
        let mut cargo = ReferenceCargo::default();
        if !self.links[host]
            && let Some(envelope) = self.hosts[host].transmit(self.now, &mut cargo)
        {
            self.links[host] = true;
            let left = self.now + RATE.transmit_time(ByteCount::new(u64::from(envelope.bytes)));
            self.at(left, Event::HostLinkFree(host));
            self.at(left + LATENCY, Event::AtSwitch(envelope, cargo));
        }
        while let Some(progress) = self.hosts[host].progress() {
            self.log.push((self.now, progress));
        }
        if let Some(at) = self.hosts[host].wakes_at() {
            assert!(at >= self.now, "host {host} wants to be woken in the past");
            if self.wakes.insert((at, host)) {
                self.at(at, Event::Wake(host));
            }
        }
    }

    fn switch(&mut self, mut envelope: Envelope, cargo: ReferenceCargo) {
        let port = envelope.destination as usize;
        let waiting = self.ports[port]
            .queue
            .keys()
            .filter(|place| place.0)
            .count();
        match (self.judge)(&envelope, &cargo, waiting) {
            StarVerdict::Pass => {}
            StarVerdict::Mark => envelope.ecn = Ecn::Ce,
            StarVerdict::Trim => (envelope.load, envelope.bytes) = (Load::Trimmed, 64),
            StarVerdict::Drop => return,
        }
        self.count += 1;
        let place = (envelope.load == Load::Data, envelope.urgency, self.count);
        self.ports[port].queue.insert(place, (envelope, cargo));
        self.deepest = self.deepest.max(waiting);
        self.serve(port);
    }

    fn serve(&mut self, port: usize) {
        if self.ports[port].busy {
            return;
        }
        let Some((_, (envelope, cargo))) = self.ports[port].queue.pop_first() else {
            return;
        };
        self.ports[port].busy = true;
        let left = self.now + RATE.transmit_time(ByteCount::new(u64::from(envelope.bytes)));
        self.at(left, Event::PortFree(port));
        self.at(left + LATENCY, Event::Arrives(envelope, cargo));
    }
}
