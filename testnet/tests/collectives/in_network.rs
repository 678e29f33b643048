//! All-reduces that an aggregator sums: ranks of two jobs and one aggregator, over links that lose,
//! double and reorder packets, while the aggregator works, starts again, or falls silent. Values
//! are whole numbers, so a sum is right or wrong, and never near.

use std::collections::BTreeMap;

use gradwire_collectives::aggregation::aggregator::AggregatorMachine;
use gradwire_collectives::aggregation::network_sums::{
    AggregatorPair, NetworkSums, SumCounts, TENSOR_MIN,
};
use gradwire_collectives::aggregation::packets::SumPath;
use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{Job, Mtu, PacketSecurity, ReduceAlgorithm};
use gradwire_protocol::machine::{Datagram, Ecn, Machine, Payload, Transmit};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Rank, Span};
use gradwire_protocol::wire::{HEADER_BYTES, Header};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::world::{all_reduce, reduced, tensor, value};

const OPERATIONS: u32 = 3;
/// From the aggregator's fault to the end of all operations.
const FALLBACK: Span = Span::from_millis(2_000);

/// The aggregator's fate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AggregatorFate {
    Works,
    /// It ends, which its connections tell, and starts again with nothing.
    StartsAgain,
    /// It does not answer any more.
    FallsSilent,
    /// It was never there.
    Missing,
}

/// A rank without its driver.
struct SumRank {
    communicator: Communicator,
    sums: NetworkSums,
    results: Vec<Vec<u8>>,
}

impl SumRank {
    /// Takes the operations that have ended.
    fn pump(&mut self, now: Instant) {
        loop {
            let ended = match self.sums.poll_completion() {
                Some(ended) => Some(ended),
                None => match self.communicator.poll_completion() {
                    Some(ended) => self.sums.take(now, &mut self.communicator, ended),
                    None => return,
                },
            };
            if let Some(ended) = ended {
                let Buffer::Owned(bytes) = ended.buffer else {
                    panic!("tests own their buffers")
                };
                ended.result.expect("nothing fails");
                self.results.push(bytes);
            }
        }
    }
}

/// Where a packet goes: to a rank of a job, or to the aggregator.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    Rank(usize, usize),
    Aggregator,
}

struct SumWorld {
    random: ChaCha8Rng,
    now: Instant,
    loss: f64,
    job: Job,
    jobs: Vec<Vec<SumRank>>,
    aggregator: AggregatorMachine,
    is_silent: bool,
    /// The rank of each pair.
    pairs: BTreeMap<JobId, (usize, usize)>,
    flights: BTreeMap<(Instant, u64), (Receiver, Vec<u8>)>,
    sent: u64,
    bytes: usize,
}

fn small_packets() -> Job {
    let mut job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    job.transport.mtu = Mtu::Bytes(1500);
    job.collectives.algorithm = ReduceAlgorithm::InNetwork;
    job
}

fn packets(transmit: &Transmit<'_>) -> Vec<Vec<u8>> {
    let packet = |index| {
        let header = transmit.header(index);
        let mut packet = vec![0; HEADER_BYTES];
        header.encode(&mut packet);
        packet.extend_from_slice(transmit.payload(&header).bytes().unwrap_or_default());
        packet
    };
    (0..transmit.packets()).map(packet).collect()
}

impl SumWorld {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let job = small_packets();
        let jobs = [11, 12].map(|number| {
            let world_size = random.random_range(2..=5);
            let rank = |rank| {
                let identity = Identity {
                    rank: Rank(rank),
                    world_size,
                    job: JobId(number),
                    epoch: 0,
                };
                let endpoint = Endpoint::new(identity, &job, seed + u64::from(rank));
                let communicator = Communicator::new(endpoint, &job);
                SumRank {
                    sums: NetworkSums::new(&communicator, &job),
                    communicator,
                    results: Vec::new(),
                }
            };
            (0..world_size).map(rank).collect()
        });
        Self {
            now: Instant::START,
            loss: [0.0, 0.001, 0.01, 0.05][random.random_range(0..4)],
            jobs: jobs.into(),
            aggregator: AggregatorMachine::new(SumPath::of(&job)),
            is_silent: false,
            pairs: BTreeMap::new(),
            flights: BTreeMap::new(),
            sent: 0,
            bytes: TENSOR_MIN + 4 * random.random_range(0..40_000),
            random,
            job,
        }
    }

    /// All ranks pair with the aggregator.
    fn connect(&mut self) {
        for job in 0..self.jobs.len() {
            for rank in 0..self.jobs[job].len() {
                self.sent += 1;
                let pair = JobId(1_000 + self.sent as u32);
                self.aggregator.admit(pair);
                self.pairs.insert(pair, (job, rank));
                let receive_buffer = 1 << 20;
                let own = AggregatorPair {
                    pair,
                    receive_buffer,
                };
                self.jobs[job][rank].sums.connect(own);
            }
        }
    }

    fn restart(&mut self) {
        self.aggregator = AggregatorMachine::new(SumPath::of(&self.job));
        self.pairs.clear();
        for rank in self.jobs.iter_mut().flatten() {
            rank.sums.disconnect(self.now, &mut rank.communicator);
        }
    }

    fn fly(&mut self, to: Receiver, packet: &[u8]) {
        let copies = match self.random.random_bool(self.loss) {
            true => 0,
            false => 1 + u64::from(self.random.random_bool(self.loss)),
        };
        for _ in 0..copies {
            self.sent += 1;
            let delay = Span::from_micros(self.random.random_range(20..200));
            let key = (self.now + delay, self.sent);
            self.flights.insert(key, (to, packet.to_vec()));
        }
    }

    /// Sends the packets of all.
    fn send(&mut self) {
        let now = self.now;
        let mut leaving = Vec::new();
        for (number, job) in self.jobs.iter_mut().enumerate() {
            for rank in job {
                while let Some(transmit) = rank.sums.poll_transmit(now) {
                    leaving.push((Receiver::Aggregator, packets(&transmit)));
                }
                while let Some(transmit) = rank.communicator.poll_transmit(now) {
                    let to = Receiver::Rank(number, usize::from(transmit.to.0));
                    leaving.push((to, packets(&transmit)));
                }
            }
        }
        while let Some(transmit) = self.aggregator.poll_transmit(now) {
            if let Some(&(job, rank)) = self.pairs.get(&transmit.template.job) {
                leaving.push((Receiver::Rank(job, rank), packets(&transmit)));
            }
        }
        for (to, packets) in leaving {
            packets.iter().for_each(|packet| self.fly(to, packet));
        }
    }

    fn deliver(&mut self, to: Receiver, packet: &[u8]) {
        let (header, payload) = Header::decode(packet).expect("it is a packet");
        let datagram = Datagram {
            header,
            payload: Payload::Bytes(payload),
            ecn: Ecn::Ect,
        };
        match to {
            Receiver::Aggregator if self.is_silent => {}
            Receiver::Aggregator => self.aggregator.handle_datagram(self.now, datagram),
            Receiver::Rank(job, rank) => {
                let rank = &mut self.jobs[job][rank];
                if rank.sums.is_pair(header.job) {
                    let run = datagram.into();
                    rank.sums.handle_run(self.now, &mut rank.communicator, &run);
                } else {
                    rank.communicator.handle_datagram(self.now, datagram);
                }
            }
        }
    }

    /// Goes on to the next event, or to `until` if that comes before.
    fn step(&mut self, until: Instant) {
        self.send();
        let ranks = self.jobs.iter().flatten();
        let timeouts =
            ranks.flat_map(|rank| [rank.sums.poll_timeout(), rank.communicator.poll_timeout()]);
        let flight = self.flights.first_key_value().map(|((at, _), _)| *at);
        let next = timeouts.flatten().chain(flight).min();
        self.now = next.unwrap_or(until).min(until).max(self.now);
        while let Some(first) = self.flights.first_entry()
            && first.key().0 <= self.now
        {
            let (to, packet) = first.remove();
            self.deliver(to, &packet);
        }
        let now = self.now;
        for rank in self.jobs.iter_mut().flatten() {
            if rank.communicator.poll_timeout().is_some_and(|at| at <= now) {
                rank.communicator.handle_timeout(now);
            }
            rank.sums.handle_timeout(now, &mut rank.communicator);
            rank.pump(now);
        }
    }

    fn submit(&mut self, sequence: u32) {
        let elements = self.bytes / 4;
        for job in &mut self.jobs {
            let world_size = job.len() as u16;
            for (rank, seat) in job.iter_mut().zip(0..) {
                let values = (0..elements).map(|index| value(seat, index));
                let operation = all_reduce(world_size, sequence, tensor(DType::F32, values));
                let submitted = rank
                    .sums
                    .submit(self.now, &mut rank.communicator, operation);
                submitted.expect("a valid operation");
                rank.pump(self.now);
            }
        }
    }

    fn is_done(&self) -> bool {
        let ranks = self.jobs.iter().flatten();
        ranks
            .into_iter()
            .all(|rank| rank.results.len() == OPERATIONS as usize)
    }

    /// Runs all operations; returns when they have ended.
    fn run(&mut self, fate: AggregatorFate) -> Span {
        if fate != AggregatorFate::Missing {
            self.connect();
        }
        (0..OPERATIONS).for_each(|sequence| self.submit(sequence));
        let fault = self.now + Span::from_micros(self.random.random_range(0..6_000));
        let mut is_over = false;
        let limit = self.now + Span::from_millis(20_000);
        while !self.is_done() {
            assert!(self.now < limit, "operations are still on their way");
            self.step(if is_over { limit } else { fault.min(limit) });
            if !is_over && self.now >= fault {
                is_over = true;
                match fate {
                    AggregatorFate::Works | AggregatorFate::Missing => {}
                    AggregatorFate::FallsSilent => self.is_silent = true,
                    AggregatorFate::StartsAgain => {
                        self.restart();
                        self.connect();
                    }
                }
            }
        }
        self.now - fault
    }

    /// How the sums of each job have ended, alike on all ranks.
    fn counts(&self) -> Vec<SumCounts> {
        let plain = |rank: &SumRank| SumCounts {
            sent: 0,
            again: 0,
            ..rank.sums.counts()
        };
        let of_job = |job: &Vec<SumRank>| {
            let first = plain(&job[0]);
            assert!(job.iter().all(|rank| plain(rank) == first), "ranks agree");
            first
        };
        self.jobs.iter().map(of_job).collect()
    }

    fn check(&self) {
        for job in &self.jobs {
            let ranks = job.len() as u16;
            let exact = |index| reduced(ReduceOp::Sum, ranks, index);
            let wanted = tensor(DType::F32, (0..self.bytes / 4).map(exact));
            let results = job.iter().flat_map(|rank| &rank.results);
            for result in results {
                assert!(*result == wanted, "a sum is wrong");
            }
        }
    }
}

/// Runs worlds of these seeds, and hands over how the sums of their jobs have ended.
fn worlds(seeds: std::ops::Range<u64>, fate: AggregatorFate, judge: impl Fn(SumCounts)) {
    for seed in seeds {
        let mut world = SumWorld::new(seed);
        let described = format!("seed {seed}, {fate:?}, loss {}", world.loss);
        println!("{described}");
        let took = world.run(fate);
        world.check();
        assert!(took < FALLBACK, "{described}: {took} after the fault");
        world.counts().into_iter().for_each(&judge);
    }
}

#[test]
fn an_aggregator_sums_exactly_over_bad_links() {
    worlds(0..12, AggregatorFate::Works, |counts| {
        assert_eq!(counts.in_network, u64::from(OPERATIONS), "{counts:?}");
    });
}

#[test]
fn an_aggregator_that_starts_again_loses_no_sum() {
    worlds(0..12, AggregatorFate::StartsAgain, |counts| {
        let all = counts.in_network + counts.failed + counts.not_started;
        assert_eq!(all, u64::from(OPERATIONS), "{counts:?}");
    });
}

#[test]
fn ranks_leave_a_silent_aggregator_together() {
    worlds(0..12, AggregatorFate::FallsSilent, |counts| {
        let all = counts.in_network + counts.failed + counts.not_started;
        assert_eq!(all, u64::from(OPERATIONS), "{counts:?}");
    });
}

#[test]
fn without_an_aggregator_ranks_sum_alone() {
    worlds(0..2, AggregatorFate::Missing, |counts| {
        assert_eq!(counts.not_started, u64::from(OPERATIONS), "{counts:?}");
    });
}
