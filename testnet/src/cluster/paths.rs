//! The network between the hosts: one path for each ordered pair, each with its own weather.
//!
//! Weather begins with a packet and not at a time, so that pauses of days cost no events: each
//! packet may be the first of a cut, of a reroute, or of a time in which full packets get lost.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::job::{Job, PacketOrder};
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Class, Entropy, Instant, Rate, Share, Span};
use gradwire_protocol::wire::{Flags, HEADER_BYTES, Header, PacketKind};

use super::draw::{self, pick, span_between};
use super::faults::{ClusterFault, FaultSet};
use super::program::segment_bytes;
use super::schedule::ClusterSchedule;
use crate::link::{Fate, LossyLink, Profile, Queue};

/// Each packet begins a cut, a reroute or a narrow time with this probability.
const WEATHER: f64 = 0.003;
/// The end of a message begins an outage with this probability.
const END_OUTAGE: f64 = 0.08;
/// Control packets are no longer than this, but for a few.
const CONTROL_BYTES: u64 = 180;
/// Share of the packets that straggle.
const STRAGGLE: f64 = 0.02;
/// Packets of the rival that a path catches up with at once.
const RIVAL_BURST: u32 = 200;

/// A copy of a packet that will arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarriedCopy {
    pub(crate) arrives: Instant,
    /// How much later than by the shortest way of its path.
    pub(crate) late: Span,
    pub(crate) ecn: Ecn,
}

/// All paths.
#[derive(Debug)]
pub(crate) struct ClusterPaths {
    ranks: u16,
    faults: FaultSet,
    gap: Span,
    /// Bytes of a full packet.
    full_bytes: u64,
    paths: Vec<ClusterPath>,
    healed: bool,
}

#[derive(Debug)]
struct ClusterPath {
    rng: ChaCha8Rng,
    link: LossyLink,
    rival: Option<Rival>,
    base: Span,
    /// What the way takes longer after reroutes.
    detour: Span,
    cut_until: Instant,
    narrow_until: Instant,
    narrow_bytes: u64,
    /// From now on, and even when all else heals, the path takes no longer packets.
    shrunk_to: Option<u64>,
    bleaches: bool,
    straggles: bool,
    /// If it keeps order: when the last packet of each class and entropy arrives.
    order: Option<BTreeMap<(Class, Entropy), Instant>>,
}

/// A TCP-like sender: a window per round trip, one packet more each time, half on a drop.
#[derive(Debug)]
struct Rival {
    window: u32,
    next: Instant,
    round_trip: Span,
}

impl ClusterPaths {
    /// The paths of a run with this job.
    pub(crate) fn of(schedule: &ClusterSchedule, job: &Job) -> Self {
        let ClusterSchedule {
            seed,
            faults,
            ranks,
            ..
        } = *schedule;
        let gap = job.transport.gap;
        let order = match faults.keeps_order(seed) {
            true => PacketOrder::Kept,
            false => PacketOrder::Auto,
        };
        let path = |at: u16| {
            let rng = draw::stream(
                seed,
                "path",
                u64::from(at / ranks) << 16 | u64::from(at % ranks),
            );
            ClusterPath::new(rng, faults, gap, order)
        };
        Self {
            ranks,
            faults,
            gap,
            full_bytes: (HEADER_BYTES + segment_bytes(job)) as u64,
            paths: (0..ranks * ranks).map(path).collect(),
            healed: false,
        }
    }

    /// Whether a path takes no full packet any more.
    pub(crate) fn has_shrunk(&self) -> bool {
        self.paths.iter().any(|path| path.shrunk_to.is_some())
    }

    /// The longest round trip between two ranks by the shortest ways.
    pub(crate) fn round_trip(&self) -> Span {
        let longest = self.paths.iter().map(|path| path.base).max();
        longest.unwrap_or_default() * 2
    }

    /// When the last packet arrives that later ones of a path that keeps order have to wait for.
    pub(crate) fn clear_at(&self) -> Instant {
        let lasts = self.paths.iter().filter_map(|path| path.order.as_ref());
        let last = lasts.flat_map(BTreeMap::values).max();
        last.copied().unwrap_or(Instant::START)
    }

    /// From now on every packet arrives, and none is late.
    pub(crate) fn heal(&mut self) {
        self.healed = true;
    }

    /// The copies of a packet that will arrive: none, one or two.
    pub(crate) fn carry(
        &mut self,
        now: Instant,
        pair: (u16, u16),
        header: &Header,
        ecn: Ecn,
    ) -> [Option<CarriedCopy>; 2] {
        let (from, to) = pair;
        let at = usize::from(from * self.ranks + to);
        let back = usize::from(to * self.ranks + from);
        let path = &mut self.paths[at];
        if self.healed && !path.takes(header.packet_bytes().get()) {
            return [None, None];
        }
        if self.healed {
            let arrives = path.in_order(header, now + path.base);
            let late = (arrives - now).beyond(path.base);
            return [Some(CarriedCopy { arrives, late, ecn }), None];
        }
        let is_end = header.kind == PacketKind::Probe && header.flags.has(Flags::ALL_SENT);
        if self.faults.has(ClusterFault::EndOutage) && is_end && path.rng.random_bool(END_OUTAGE) {
            let until = now + outage(&mut path.rng);
            path.cut_until = until;
            self.paths[back].cut_until = until;
        }
        let path = &mut self.paths[at];
        path.weather(now, self.faults);
        path.shrink(self.faults, self.full_bytes);
        path.carry(now, header, ecn, self.gap)
    }
}

/// How long a path is out: shorter than any peer's timeout in these jobs.
fn outage(rng: &mut ChaCha8Rng) -> Span {
    span_between(rng, Span::from_micros(100), Span::from_millis(3000))
}

impl ClusterPath {
    fn new(mut rng: ChaCha8Rng, faults: FaultSet, gap: Span, order: PacketOrder) -> Self {
        let far = faults.has(ClusterFault::Far);
        let (least, most) = match far {
            true => (Span::from_millis(2), Span::from_millis(50)),
            false => (Span::from_micros(2), Span::from_micros(500)),
        };
        let latency = span_between(&mut rng, least, most);
        let mut profile = Profile::perfect(latency);
        let share = |value: f64| Share::new(value).expect("drawn between 0 and 1");
        if faults.has(ClusterFault::Loss) {
            profile.drop = share(pick(&mut rng, &[0.001, 0.01, 0.05, 0.2]));
        }
        if faults.has(ClusterFault::Burst) {
            profile.drop = share(pick(&mut rng, &[0.005, 0.02, 0.1]));
            profile.burst = pick(&mut rng, &[3.0, 10.0, 30.0]);
        }
        if faults.has(ClusterFault::Duplicate) {
            profile.duplicate = share(pick(&mut rng, &[0.01, 0.1]));
        }
        if faults.has(ClusterFault::Jitter) {
            profile.jitter = gap.divided(pick(&mut rng, &[2, 5, 20]));
        }
        if faults.has(ClusterFault::Queue) || faults.has(ClusterFault::Rival) {
            profile.queue = Some(Queue {
                rate: Rate::from_bits_per_second(pick(&mut rng, &[100_000_000, 1_000_000_000])),
                threshold: ByteCount::new(pick(&mut rng, &[6_000, 30_000])),
                limit: ByteCount::new(pick(&mut rng, &[20_000, 60_000])),
            });
        }
        let bleaches = faults.has(ClusterFault::Bleach) && rng.random_bool(0.5);
        let rival = faults.has(ClusterFault::Rival).then(|| Rival {
            window: 2,
            next: Instant::START,
            round_trip: (latency * 2).max(Span::from_micros(100)),
        });
        Self {
            rng,
            link: LossyLink::new(profile),
            rival,
            base: latency,
            detour: Span::ZERO,
            cut_until: Instant::START,
            narrow_until: Instant::START,
            narrow_bytes: u64::MAX,
            shrunk_to: None,
            bleaches,
            straggles: faults.has(ClusterFault::Straggle),
            order: (order == PacketOrder::Kept).then(BTreeMap::new),
        }
    }

    fn weather(&mut self, now: Instant, faults: FaultSet) {
        if faults.has(ClusterFault::Cut) && self.cut_until <= now && self.rng.random_bool(WEATHER) {
            self.cut_until = now + outage(&mut self.rng);
        }
        if faults.has(ClusterFault::Mtu)
            && self.narrow_until <= now
            && self.rng.random_bool(WEATHER)
        {
            let most = Span::from_millis(200);
            self.narrow_until = now + span_between(&mut self.rng, Span::from_micros(100), most);
            self.narrow_bytes = self.rng.random_range(120..1000);
        }
        if faults.has(ClusterFault::Reroute) && self.rng.random_bool(WEATHER) {
            let longer = span_between(&mut self.rng, Span::from_micros(1), Span::from_millis(15));
            self.detour = pick(&mut self.rng, &[Span::ZERO, longer, longer]);
        }
    }

    /// From this packet on the path may lose full packets for ever. Control packets pass.
    fn shrink(&mut self, faults: FaultSet, full_bytes: u64) {
        let shrinks = faults.has(ClusterFault::MtuShrink) && self.shrunk_to.is_none();
        if shrinks && self.rng.random_bool(WEATHER) {
            let least = CONTROL_BYTES.max(full_bytes / 3);
            self.shrunk_to = Some(self.rng.random_range(least..full_bytes));
        }
    }

    /// Whether packets of this length pass.
    fn takes(&self, bytes: u64) -> bool {
        self.shrunk_to.is_none_or(|most| bytes <= most)
    }

    fn carry(
        &mut self,
        now: Instant,
        header: &Header,
        ecn: Ecn,
        gap: Span,
    ) -> [Option<CarriedCopy>; 2] {
        self.compete(now);
        let bytes = header.packet_bytes();
        let cut = now < self.cut_until;
        let narrow = now < self.narrow_until && bytes.get() > self.narrow_bytes;
        let fate = self.link.carry(now, bytes, ecn, &mut self.rng);
        let Fate::Arrives(first, ecn, again) = fate else {
            return [None, None];
        };
        if cut || narrow || !self.takes(bytes.get()) {
            return [None, None];
        }
        let ecn = if self.bleaches { Ecn::NotEct } else { ecn };
        [Some(first), again].map(|arrives| {
            let mut arrives = arrives? + self.detour;
            if self.straggles && self.rng.random_bool(STRAGGLE) {
                arrives = arrives + span_between(&mut self.rng, gap * 2, gap * 50);
            }
            let arrives = self.in_order(header, arrives);
            let late = (arrives - now).beyond(self.base);
            Some(CarriedCopy { arrives, late, ecn })
        })
    }

    /// When a packet arrives that would arrive then, if the path keeps order.
    fn in_order(&mut self, header: &Header, arrives: Instant) -> Instant {
        let Some(order) = &mut self.order else {
            return arrives;
        };
        let last = order.entry((header.class, header.entropy)).or_default();
        *last = arrives.max(*last);
        *last
    }

    /// The rival sends what its window allowed since the last packet.
    fn compete(&mut self, now: Instant) {
        let Some(rival) = &mut self.rival else {
            return;
        };
        let mut most = RIVAL_BURST;
        // Of a long pause only the last round trips matter.
        let recent = rival.round_trip * 4;
        if now - rival.next > recent {
            rival.next = now;
        }
        while rival.next <= now && most > 0 {
            let mut dropped = false;
            for _ in 0..rival.window.min(most) {
                let packet = ByteCount::new(1500);
                let fate = self.link.carry(now, packet, Ecn::NotEct, &mut self.rng);
                dropped |= matches!(fate, Fate::Dropped | Fate::Lost);
            }
            most = most.saturating_sub(rival.window);
            rival.window = match dropped {
                true => (rival.window / 2).max(1),
                false => rival.window + 1,
            };
            rival.next = rival.next + rival.round_trip;
        }
    }
}
