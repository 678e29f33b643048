//! Packets at fixed mean rates: no window, no repair, no answer.
//!
//! A sender that does not react shows best how a fabric treats tagged packets. Each
//! [`PacketStream`] is a Poisson process of its own, so that streams of equal rates do not
//! synchronize; all draws come from a seed. `gradwire switch probe` sends the same [`Departures`]
//! through sockets, so that a real fabric and a simulated one carry the same packets at the same
//! times.

use std::collections::VecDeque;

use gradwire_fabric::policy::QosPolicy;
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp, Instant, Rate, Span};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::engine::calendar::END_OF_TIME;
use crate::engine::flows::Flows;
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::engine::partition::Partition;
use crate::engine::port::{PortQueues, QUEUES};
use crate::engine::region::FabricRegion;
use crate::engine::wiring::Wiring;
use crate::results::outcome::{ClassCounts, TransportCounts};
use gradwire_fabric::topology::{Device, Fabric};
use gradwire_workloads::workload::Workload;

/// Packets of a kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PacketStream {
    /// Their DSCP.
    pub dscp: Dscp,
    /// Their ECN bits.
    pub ecn: Ecn,
    /// Mean rate of their payload.
    pub rate: Rate,
    /// Bytes of the payload of each, at least 1.
    pub payload: u32,
}

/// Streams from one host to another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Traffic {
    /// The streams.
    pub streams: Vec<PacketStream>,
    /// The host that sends.
    pub source: u32,
    /// The host that receives.
    pub destination: u32,
    /// For how long packets are sent.
    pub length: Span,
    /// Seed of the gaps between packets.
    pub seed: u64,
}

/// When a packet is sent, and of which stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Departure {
    /// Time since the start.
    pub after: Span,
    /// Index of its stream.
    pub stream: usize,
}

/// The packets of some traffic, in order of time.
#[derive(Clone, Debug)]
pub struct Departures {
    next: Vec<Next>,
    length: Span,
}

#[derive(Clone, Debug)]
struct Next {
    after: Span,
    /// Mean gap in picoseconds; `None` for a stream without a rate.
    gap: Option<f64>,
    rng: ChaCha8Rng,
}

impl Departures {
    /// Of this traffic.
    pub fn of(traffic: &Traffic) -> Self {
        let streams = traffic.streams.iter().zip(0_u64..);
        let next = streams.map(|(stream, number)| {
            let payload = ByteCount::new(u64::from(stream.payload));
            let sends = stream.rate.as_bits_per_second() > 0;
            let mut next = Next {
                after: Span::default(),
                gap: sends.then(|| stream.rate.transmit_time(payload).as_picos() as f64),
                rng: ChaCha8Rng::seed_from_u64(traffic.seed ^ number << 32),
            };
            next.advance();
            next
        });
        Self {
            next: next.collect(),
            length: traffic.length,
        }
    }
}

impl Next {
    /// Draws the gap to the next packet.
    fn advance(&mut self) {
        let drawn = -(1.0 - self.rng.random::<f64>()).ln();
        self.after = match self.gap {
            Some(gap) => self.after + Span::from_picos((drawn * gap) as u64),
            None => Span::from_picos(u64::MAX),
        };
    }
}

impl Iterator for Departures {
    type Item = Departure;

    fn next(&mut self) -> Option<Departure> {
        let soonest = self.next.iter_mut().enumerate();
        let (stream, next) = soonest.min_by_key(|(_, next)| next.after)?;
        if next.after >= self.length {
            return None;
        }
        let after = next.after;
        next.advance();
        Some(Departure { after, stream })
    }
}

/// The fate of a stream's packets.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamFate {
    /// Packets that left their host.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that arrived with CE.
    pub marked: u64,
    /// Time of each packet from when it was due until it arrived, in order of arrival.
    pub delays: Vec<Span>,
}

/// The fate of all packets of some traffic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fates {
    /// By stream.
    pub streams: Vec<StreamFate>,
    /// Counters of the queues, summed over all switch ports, highest queue first.
    pub queues: [ClassCounts; QUEUES],
}

/// Sends traffic over a checked fabric whose switches follow `policy`, until the last packet has
/// arrived or is lost.
///
/// # Panics
/// When the traffic's hosts are not the fabric's.
pub fn send(fabric: &Fabric, policy: &QosPolicy, traffic: &Traffic) -> Fates {
    assert!(traffic.source.max(traffic.destination) < fabric.hosts);
    let wiring = Wiring::new(fabric, policy, Partition::whole(fabric), traffic.seed);
    let hosts = (0..fabric.hosts).map(|id| OpenLoop::new(id, fabric, traffic));
    let workload = Workload::default();
    let mut region = FabricRegion::new(
        &wiring,
        0,
        hosts.collect(),
        Flows::new(&workload),
        Span::from_picos(1_000_000),
    );
    let ends = region.run(END_OF_TIME, u64::MAX);
    assert!(ends, "without a limit no event is left");
    let (hosts, ports, _) = region.into_parts();
    let mut fates = Fates {
        streams: vec![StreamFate::default(); traffic.streams.len()],
        ..Fates::default()
    };
    for host in hosts {
        for (total, own) in fates.streams.iter_mut().zip(host.fates) {
            total.add(own);
        }
    }
    for (wire, port) in wiring.wires.iter().zip(&ports) {
        if matches!(wire.from, Device::Switch(_)) {
            fates.count(port);
        }
    }
    fates
}

impl StreamFate {
    fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.marked += other.marked;
        self.delays.extend(other.delays);
    }
}

impl Fates {
    fn count(&mut self, port: &PortQueues) {
        for (total, own) in self.queues.iter_mut().zip(&port.record.classes) {
            total.queued += own.queued;
            total.dropped_early += own.dropped_early;
            total.dropped_full += own.dropped_full;
            total.trimmed += own.trimmed;
            total.marked += own.marked;
        }
    }
}

/// The content of a packet: its stream, and when it was due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parcel {
    stream: usize,
    due: Instant,
}

/// A host that sends its departures when they are due, and counts the arrivals.
#[derive(Debug)]
pub struct OpenLoop {
    host: u32,
    destination: u32,
    framing: u32,
    streams: Vec<PacketStream>,
    departures: Option<Departures>,
    next: Option<Departure>,
    due: VecDeque<Departure>,
    fates: Vec<StreamFate>,
}

impl OpenLoop {
    fn new(host: u32, fabric: &Fabric, traffic: &Traffic) -> Self {
        let mut departures = (host == traffic.source).then(|| Departures::of(traffic));
        Self {
            host,
            destination: traffic.destination,
            framing: fabric.framing,
            streams: traffic.streams.clone(),
            next: departures.as_mut().and_then(Iterator::next),
            departures,
            due: VecDeque::new(),
            fates: vec![StreamFate::default(); traffic.streams.len()],
        }
    }
}

impl Host for OpenLoop {
    type Cargo = Parcel;

    fn begin(&mut self, _now: Instant, _begin: Begin) {}

    fn receive(&mut self, now: Instant, envelope: &Envelope, parcel: &mut Parcel) {
        let fate = &mut self.fates[parcel.stream];
        fate.received += 1;
        fate.marked += u64::from(envelope.ecn == Ecn::Ce);
        fate.delays.push(now.since(parcel.due));
    }

    fn wake(&mut self, now: Instant) {
        while let Some(departure) = self.next
            && Instant::START + departure.after <= now
        {
            self.due.push_back(departure);
            self.next = self.departures.as_mut().and_then(Iterator::next);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.next.map(|departure| Instant::START + departure.after)
    }

    fn transmit(&mut self, _now: Instant, parcel: &mut Parcel) -> Option<Envelope> {
        let Departure { after, stream } = self.due.pop_front()?;
        *parcel = Parcel {
            stream,
            due: Instant::START + after,
        };
        let fate = &mut self.fates[stream];
        fate.sent += 1;
        let PacketStream {
            dscp, ecn, payload, ..
        } = self.streams[stream];
        Some(Envelope {
            source: self.host,
            destination: self.destination,
            bytes: payload + self.framing,
            dscp,
            ecn,
            entropy: fate.sent as u16,
            load: Load::Data,
            urgency: 0,
        })
    }

    fn progress(&mut self) -> Option<HostProgress> {
        None
    }

    fn counts(&self) -> TransportCounts {
        let sum = |count: fn(&StreamFate) -> u64| self.fates.iter().map(count).sum();
        TransportCounts {
            sent: sum(|fate| fate.sent),
            marks: sum(|fate| fate.marked),
            ..TransportCounts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::job::Job;

    use super::*;
    use gradwire_fabric::fitting::policy_of_job;

    fn stream(dscp: u8, ecn: Ecn, mbps: u64) -> PacketStream {
        PacketStream {
            dscp: Dscp(dscp),
            ecn,
            rate: Rate::from_bits_per_second(mbps * 1_000_000),
            payload: 1_000,
        }
    }

    fn traffic(streams: &[PacketStream]) -> Traffic {
        Traffic {
            streams: streams.to_vec(),
            source: 0,
            destination: 1,
            length: Span::from_millis(1_000),
            seed: 7,
        }
    }

    #[test]
    fn departures_have_the_rate_of_their_stream_and_repeat_by_their_seed() {
        let two = [stream(34, Ecn::Ect, 8), stream(26, Ecn::NotEct, 16)];
        let traffic = traffic(&two);
        let all: Vec<Departure> = Departures::of(&traffic).collect();
        assert!(all.is_sorted_by_key(|departure| departure.after));
        let of = |stream| all.iter().filter(|one| one.stream == stream).count();
        assert!((900..=1_100).contains(&of(0)), "{}", of(0));
        assert!((1_850..=2_150).contains(&of(1)), "{}", of(1));
        assert!(Departures::of(&traffic).eq(all));
    }

    #[test]
    fn a_stream_without_a_rate_sends_nothing() {
        assert_eq!(
            Departures::of(&traffic(&[stream(34, Ecn::Ect, 0)])).count(),
            0
        );
    }

    /// Control and two classes; the first of these alone needs more than the link's 100 Mb/s.
    #[test]
    fn what_a_full_queue_cannot_carry_is_dropped_if_droppable_and_marked_if_not() {
        let mut fabric = Fabric::from_shape("single:2@100M,latency=1ms").expect("a fabric");
        // The sender's link is faster, so that the queue builds up at the switch.
        fabric.links[0].rate = Rate::from_gbps(1);
        let policy = policy_of_job(&Job::default(), &fabric);
        let streams = [
            stream(40, Ecn::Ect, 5),
            stream(34, Ecn::Ect, 60),
            stream(34, Ecn::NotEct, 60),
            stream(0, Ecn::Ect, 2),
        ];
        let fates = send(&fabric, &policy, &traffic(&streams));
        let [control, protected, droppable, last] = &fates.streams[..] else {
            panic!("a fate for each stream");
        };
        assert_eq!((control.received, control.marked), (control.sent, 0));
        assert_eq!(protected.received, protected.sent);
        assert_eq!(last.received, last.sent);
        let counted = fates.queues[1];
        assert_eq!(droppable.sent - droppable.received, counted.dropped_early);
        assert_eq!(protected.marked, counted.marked);
        assert_eq!(droppable.marked, 0);
        // The wire carries 100 Mb/s less framing and control; the rest of the 120 Mb/s is dropped.
        let dropped = counted.dropped_early as f64 / droppable.sent as f64;
        let marked = counted.marked as f64 / protected.sent as f64;
        assert!((0.44..0.56).contains(&dropped), "{dropped}");
        assert!((marked - dropped).abs() < 0.05, "{marked} {dropped}");
        let worst = |fate: &StreamFate| fate.delays.iter().max().copied();
        assert!(worst(control) < worst(protected));
    }
}
