//! Hosts, links between all pairs of them, and the loop that drives them in simulated time.

use std::fmt::Write as _;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload};
use gradwire_protocol::units::{Instant, Rank, Span};
use gradwire_protocol::wire::Header;

use crate::arrivals::ArrivalQueue;
use crate::link::{Fate, LossyLink, Profile};

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// No packet is on the wire and no machine has a deadline.
    Idle,
    /// The caller's condition is true.
    Reached,
    /// Simulated time ran out.
    TimedOut,
}

/// Machines joined by links, one for each ordered pair.
#[derive(Debug)]
pub struct Network<M> {
    now: Instant,
    hosts: Vec<M>,
    /// How far each host's clock is ahead of simulated time.
    clocks: Vec<Span>,
    links: Vec<LossyLink>,
    flying: ArrivalQueue<Flying>,
    rng: ChaCha8Rng,
    trace: Option<String>,
    delivered: u64,
}

#[derive(Debug)]
struct Flying {
    to: usize,
    header: Header,
    bytes: Option<Vec<u8>>,
    length: usize,
    ecn: Ecn,
}

impl<M: Machine> Network<M> {
    /// Makes a network of `hosts`, host i being rank i, with links of one nature.
    pub fn new(hosts: Vec<M>, profile: Profile, seed: u64) -> Self {
        let links = vec![LossyLink::new(profile); hosts.len() * hosts.len()];
        Self {
            now: Instant::START,
            clocks: vec![Span::ZERO; hosts.len()],
            hosts,
            links,
            flying: ArrivalQueue::new(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            trace: None,
            delivered: 0,
        }
    }

    /// Makes each host's clock start at that reading; without it all clocks start at zero.
    ///
    /// # Panics
    /// When there is not one reading per host.
    #[must_use]
    pub fn with_clocks(mut self, readings: Vec<Span>) -> Self {
        assert_eq!(readings.len(), self.hosts.len(), "one reading per host");
        self.clocks = readings;
        self
    }

    /// The time on a host's clock.
    fn clock(&self, host: usize) -> Instant {
        self.now + self.clocks[host]
    }

    /// Records the fate of every packet from now on.
    pub fn record(&mut self) {
        self.trace = Some(String::new());
    }

    /// Returns the record: one line a packet with time, kind, ranks, message, segment and fate.
    pub fn trace(&self) -> &str {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Packets delivered so far.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The hosts, by rank.
    pub fn hosts(&self) -> &[M] {
        &self.hosts
    }

    /// Gives one link another nature.
    pub fn set_link(&mut self, from: Rank, to: Rank, profile: Profile) {
        let at = usize::from(from.0) * self.hosts.len() + usize::from(to.0);
        self.links[at] = LossyLink::new(profile);
    }

    /// Gives a command to a host and sends its packets.
    pub fn command<R>(&mut self, host: Rank, command: impl FnOnce(&mut M, Instant) -> R) -> R {
        let at = usize::from(host.0);
        let now = self.clock(at);
        let result = command(&mut self.hosts[at], now);
        self.pump(at);
        result
    }

    /// Runs until `at`; all earlier events have happened then.
    pub fn run_until(&mut self, at: Instant) {
        self.run(at, |_| false);
        self.now = self.now.max(at);
    }

    /// Runs until no event is left, `reached` is true, or `deadline` passes.
    pub fn run(&mut self, deadline: Instant, mut reached: impl FnMut(&[M]) -> bool) -> Ended {
        loop {
            if reached(&self.hosts) {
                return Ended::Reached;
            }
            let arrival = self.flying.next_at();
            let wake = self.earliest_wake();
            let next = match (arrival, wake) {
                (None, None) => return Ended::Idle,
                (arrival, wake) => arrival
                    .unwrap_or(Instant::from_picos(u64::MAX))
                    .min(wake.map_or(Instant::from_picos(u64::MAX), |(at, _)| at)),
            };
            if next > deadline {
                return Ended::TimedOut;
            }
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now) {
                self.deliver();
            } else if let Some((_, host)) = wake {
                let now = self.clock(host);
                self.hosts[host].handle_timeout(now);
                self.pump(host);
            }
        }
    }

    fn earliest_wake(&self) -> Option<(Instant, usize)> {
        let wakes = self.hosts.iter().enumerate();
        wakes
            .filter_map(|(host, machine)| {
                let start = Instant::START + self.clocks[host];
                Some((Instant::START + (machine.poll_timeout()? - start), host))
            })
            .min()
    }

    fn deliver(&mut self) {
        let Some(flying) = self.flying.pop() else {
            return;
        };
        let payload = match &flying.bytes {
            Some(bytes) => Payload::Bytes(bytes),
            None => Payload::Length(flying.length),
        };
        let datagram = Datagram {
            header: flying.header,
            payload,
            ecn: flying.ecn,
        };
        self.delivered += 1;
        let now = self.clock(flying.to);
        self.hosts[flying.to].handle_datagram(now, datagram);
        self.pump(flying.to);
    }

    fn pump(&mut self, from: usize) {
        let (count, now) = (self.hosts.len(), self.clock(from));
        while let Some(transmit) = self.hosts[from].poll_transmit(now) {
            let to = usize::from(transmit.to.0);
            for index in 0..transmit.packets() {
                let header = transmit.header(index);
                let payload = transmit.payload(&header);
                let link = &mut self.links[from * count + to];
                let bytes = header.packet_bytes();
                let fate = link.carry(self.now, bytes, transmit.ecn, &mut self.rng);
                if let Some(trace) = &mut self.trace {
                    write_line(trace, self.now, &header, (from, to), fate);
                }
                let Fate::Arrives(at, ecn, again) = fate else {
                    continue;
                };
                for at in [Some(at), again].into_iter().flatten() {
                    let flying = Flying {
                        to,
                        header,
                        bytes: payload.bytes().map(<[u8]>::to_vec),
                        length: payload.len(),
                        ecn,
                    };
                    self.flying.push(at, flying);
                }
            }
        }
    }
}

fn write_line(trace: &mut String, now: Instant, header: &Header, pair: (usize, usize), fate: Fate) {
    let (ps, kind) = (now.as_picos(), header.kind);
    let (from, to) = pair;
    let (message, segment) = (header.message, header.segment);
    writeln!(
        trace,
        "{ps} {kind:?} {from}->{to} message {message} segment {segment} {fate:?}"
    )
    .expect("a String takes everything");
}
