//! Trials of the policies: jobs whose packets are lost, doubled and reordered on every hop, drawn
//! from a seed. Each member must get each sum once, with every contribution in it once.

use gradwire_protocol::units::{Instant, Span};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::hashed::{HashedSums, SumServer};
use super::slots::{KnownSum, SlottedSums};
use super::tree::{NextHop, TreeSwitch};
use super::worker::{SumWorker, WorkerTerms};
use super::{Aggregator, Contributors, PartialSum, SumKind, SumOutcome, SumPacket, TreePlace};

const WINDOW: u32 = 8;
/// Packets that go over a hop in a step, in which one member sends at most one.
const HOPS: usize = 8;
/// Steps after which a contribution is sent again.
const TIMEOUT: u64 = 300;
/// The packets that may overtake each other on a hop.
const OVERTAKING: usize = 24;

/// The policies under trial.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tried {
    SwitchMl,
    NetReduce,
    /// ATP with this many aggregators.
    Atp(usize),
}

impl Tried {
    fn element(self) -> Box<dyn Aggregator> {
        match self {
            Self::SwitchMl => Box::new(SlottedSums::new(2 * WINDOW, KnownSum::GoesBack)),
            Self::NetReduce => Box::new(SlottedSums::new(2 * WINDOW, KnownSum::GoesOn)),
            Self::Atp(aggregators) => Box::new(HashedSums::new(aggregators)),
        }
    }
}

/// A device: switches come first, then the hosts of all members, job by job.
type Device = usize;

/// A packet on a hop.
#[derive(Clone, Copy)]
struct Hop {
    from: Device,
    to: Device,
    destination: Device,
    packet: SumPacket,
}

struct TrialJob {
    trees: Vec<TreeSwitch<Device>>,
    workers: Vec<SumWorker>,
    server: SumServer,
    first_host: Device,
}

struct Trial {
    random: ChaCha8Rng,
    tried: Tried,
    loss: f64,
    leaves: usize,
    elements: Vec<Box<dyn Aggregator>>,
    jobs: Vec<TrialJob>,
    hops: Vec<Hop>,
    steps: u64,
}

impl Trial {
    fn new(seed: u64, tried: Tried) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let loss = 10_f64.powi(-1 - (seed % 4) as i32);
        // Without leaves, all hosts are at the root.
        let leaves = [0, 2, 3][random.random_range(0..3)];
        let mut first_host = leaves + 1;
        let jobs = (0..2).map(|job| {
            let members = random.random_range(2..=6);
            let own = TrialJob::new(job, members, leaves, first_host);
            first_host += members;
            own
        });
        Self {
            jobs: jobs.collect(),
            random,
            tried,
            loss,
            leaves,
            elements: (0..=leaves).map(|_| tried.element()).collect(),
            hops: Vec::new(),
            steps: 0,
        }
    }

    /// Runs both jobs to their end.
    fn run(&mut self) {
        while !self.jobs.iter().all(TrialJob::is_done) {
            self.steps += 1;
            assert!(self.steps < 500_000, "the trial does not end");
            let job = self.random.random_range(0..2);
            let seat = self.random.random_range(0..self.jobs[job].workers.len());
            self.let_send(job, seat);
            for _ in 0..HOPS {
                let among = self.hops.len().min(OVERTAKING);
                if among > 0 {
                    let hop = self.hops.remove(self.random.random_range(0..among));
                    self.carry(hop);
                }
            }
        }
    }

    fn let_send(&mut self, job: usize, seat: usize) {
        let now = Instant::START + Span::from_nanos(self.steps);
        let own = &mut self.jobs[job];
        let Some(mut packet) = own.workers[seat].send(now) else {
            return;
        };
        let members = own.workers.len();
        let (mut from, mut destination) = (seat, 0);
        if self.tried == Tried::NetReduce {
            // A member that misses a sum makes the other end of its connection go back.
            if packet.kind == SumKind::Again {
                from = (seat + members - 1) % members;
                if !own.workers[from].may_send(packet.number) {
                    return;
                }
            }
            packet.sum = PartialSum::of(from);
            destination = (from + 1) % members;
        }
        let host = own.first_host + from;
        let destination = own.first_host + destination;
        let leaf = self.leaf(host);
        self.push(host, leaf, destination, packet);
    }

    /// The switch of a host.
    fn leaf(&self, host: Device) -> Device {
        match self.leaves {
            0 => 0,
            leaves => 1 + host % leaves,
        }
    }

    fn push(&mut self, from: Device, to: Device, destination: Device, packet: SumPacket) {
        let copies = match self.random.random_bool(self.loss) {
            true => 0,
            false => 1 + usize::from(self.random.random_bool(0.02)),
        };
        let hop = Hop {
            from,
            to,
            destination,
            packet,
        };
        self.hops.extend(std::iter::repeat_n(hop, copies));
    }

    fn carry(&mut self, hop: Hop) {
        match hop.to <= self.leaves {
            true => self.at_switch(hop),
            false => self.at_host(hop),
        }
    }

    fn at_switch(&mut self, hop: Hop) {
        let (switch, mut packet) = (hop.to, hop.packet);
        let tree = &self.jobs[packet.job as usize].trees[switch];
        match tree.arrive(&mut *self.elements[switch], &mut packet, hop.from) {
            NextHop::Nowhere => {}
            NextHop::Destination => {
                let leaf = self.leaf(hop.destination);
                let next = match (leaf == switch, switch) {
                    (true, _) => hop.destination,
                    (false, 0) => leaf,
                    (false, _) => 0,
                };
                self.push(switch, next, hop.destination, packet);
            }
            NextHop::Ports(ports) => {
                for port in ports {
                    self.push(switch, port, hop.destination, packet);
                }
            }
        }
    }

    fn at_host(&mut self, hop: Hop) {
        let mut packet = hop.packet;
        let (job, seat) = {
            let own = &mut self.jobs[packet.job as usize];
            (packet.job as usize, hop.to - own.first_host)
        };
        if matches!(packet.kind, SumKind::Result | SumKind::Answer) {
            self.jobs[job].take(seat, &packet);
            return;
        }
        assert!(matches!(self.tried, Tried::Atp(_)), "only ATP has a server");
        // The member that sent it is not known any more; the one that misses the sum asks itself.
        let own = &mut self.jobs[job];
        let place = TreePlace {
            below: Contributors::all(own.workers.len()),
            ..TreePlace::default()
        };
        match own.server.arrive(&place, &mut packet) {
            SumOutcome::Multicast => {
                own.take(seat, &packet);
                self.push(hop.to, hop.from, hop.to, packet);
            }
            SumOutcome::Reply => {
                for destination in own.first_host..own.first_host + own.workers.len() {
                    self.push(hop.to, hop.from, destination, packet);
                }
            }
            _ => {}
        }
    }
}

impl TrialJob {
    fn new(job: u32, members: usize, leaves: usize, first_host: Device) -> Self {
        let mut trees = vec![TreeSwitch::new(None)];
        trees.extend((0..leaves).map(|_| TreeSwitch::new(Some(0))));
        for seat in 0..members {
            let host = first_host + seat;
            let leaf = host.checked_rem(leaves).map_or(0, |leaf| leaf + 1);
            trees[leaf].add_member(host, seat);
        }
        for leaf in 1..=leaves {
            let below = trees[leaf].below();
            if below != Contributors::default() {
                trees[0].add_switch(leaf, below);
            }
        }
        let terms = WorkerTerms {
            window: WINDOW,
            timeout: Span::from_nanos(TIMEOUT),
        };
        let worker = |seat| SumWorker::new(job, seat, 0..60, terms);
        Self {
            trees,
            workers: (0..members).map(worker).collect(),
            server: SumServer::default(),
            first_host,
        }
    }

    fn is_done(&self) -> bool {
        self.workers.iter().all(SumWorker::is_done)
    }

    fn take(&mut self, seat: usize, packet: &SumPacket) {
        let exact = PartialSum {
            who: Contributors::all(self.workers.len()),
            twice: false,
        };
        assert_eq!(packet.sum, exact, "seat {seat} gets {packet:?}");
        self.workers[seat].take(packet.job, packet.number);
    }
}

/// Runs trials; a panic names its seed.
fn trials(seeds: std::ops::Range<u64>, tried: impl Fn(u64) -> Tried) {
    for seed in seeds {
        let tried = tried(seed);
        let result = std::panic::catch_unwind(move || Trial::new(seed, tried).run());
        assert!(result.is_ok(), "seed {seed}, {tried:?}");
    }
}

#[test]
fn slots_count_every_contribution_once() {
    trials(0..1_500, |_| Tried::SwitchMl);
}

#[test]
fn sums_in_place_of_packets_count_every_contribution_once() {
    trials(0..1_500, |_| Tried::NetReduce);
}

#[test]
fn few_aggregators_or_none_count_every_contribution_once() {
    trials(0..1_500, |seed| {
        Tried::Atp([0, 1, 7, 64][seed as usize / 4 % 4])
    });
}
