//! The training of a cell whose sums are made by a switch: SwitchML's slots, or ATP's aggregators
//! and server.
//!
//! Workers, switch and server are the machines of `gradwire_collectives::aggregation`; here is one
//! switch between them, whose links lose and reorder packets. A sum is known by its contributors:
//! when a worker gets one that has everyone once, it adds the values of all. The arithmetic of a
//! switch (whole numbers, a common exponent) is not modelled.

use std::collections::{BTreeMap, VecDeque};

use gradwire_collectives::aggregation::hashed::{HashedSums, SumServer};
use gradwire_collectives::aggregation::slots::{KnownSum, SlottedSums};
use gradwire_collectives::aggregation::tree::{NextHop, TreeSwitch};
use gradwire_collectives::aggregation::worker::{SumWorker, WorkerTerms};
use gradwire_collectives::aggregation::{
    Aggregator, Contributors, PartialSum, SumKind, SumOutcome, SumPacket, TreePlace,
};
use gradwire_protocol::units::{Instant, Span};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cells::{ModelPlace, Timing};
use super::learning::{LearningProblem, PARAMETERS};
use super::plan::{CellPlan, STALE_STEPS, TRAINED_STEPS};
use super::trained::{LEARNING_RATE, TrainedModel};
use crate::error::LabError;

const WORKERS: usize = 8;
/// Values of a packet.
const VALUES: usize = 64;
const WINDOW: u32 = 16;
/// Aggregators of ATP's switch: fewer than packets in flight, so that some fall back to the server.
const AGGREGATORS: usize = 10;
const LATENCY: Span = Span::from_micros(10);
/// A packet takes up to so much longer.
const JITTER_NS: u64 = 5_000;
const TIMEOUT: Span = Span::from_micros(100);
const DROP: f64 = 0.02;
/// Number of the switch among devices; workers have those below.
const SWITCH: usize = WORKERS;
/// The worker whose host is ATP's server.
const SERVER: usize = 0;
/// Events of one sum at most.
const EVENTS_MAX: u32 = 1_000_000;

/// Trains the model of a cell whose sums are made by a switch.
///
/// # Errors
/// [`LabError::Check`] when a sum is wrong or does not come.
pub(super) fn train(
    plan: CellPlan,
    problem: &LearningProblem,
    seed: u64,
) -> Result<TrainedModel, LabError> {
    let mut rack = SummingRack::new(plan, seed);
    let stale = match plan.cell.timing {
        Timing::BoundedStale => STALE_STEPS as usize,
        Timing::Synchronous | Timing::Asynchronous => 0,
    };
    let mut models = vec![vec![0.0; PARAMETERS]; WORKERS];
    let mut sums: VecDeque<Vec<Vec<f32>>> = VecDeque::new();
    for step in 0..TRAINED_STEPS {
        let workers = models.iter().enumerate();
        let gradients = workers.map(|(worker, model)| problem.gradient(model, (worker, WORKERS)));
        let gradients: Vec<Vec<f32>> = gradients.collect();
        sums.push_back(rack.sum(step, &gradients)?);
        let left = if step + 1 == TRAINED_STEPS { 0 } else { stale };
        while sums.len() > left {
            let sum = sums.pop_front().unwrap_or_default();
            models
                .iter_mut()
                .zip(&sum)
                .for_each(|(model, sum)| learn(model, sum));
        }
    }
    let workers: Vec<&[f32]> = models.iter().map(Vec::as_slice).collect();
    Ok(TrainedModel {
        ahead: stale as u32,
        ..TrainedModel::new(problem, workers[0], &workers)
    })
}

fn learn(model: &mut [f32], sum: &[f32]) {
    for (value, slope) in model.iter_mut().zip(sum) {
        *value -= LEARNING_RATE / WORKERS as f32 * slope;
    }
}

/// Workers at a switch.
struct SummingRack {
    name: String,
    random: ChaCha8Rng,
    now: Instant,
    tree: TreeSwitch<usize>,
    element: Box<dyn Aggregator>,
    server: SumServer,
    workers: Vec<SumWorker>,
    /// Packets on their way, by arrival and order of sending.
    flying: BTreeMap<(Instant, u32), FlyingSum>,
    sent: u32,
}

#[derive(Clone, Copy)]
struct FlyingSum {
    from: usize,
    to: usize,
    destination: usize,
    packet: SumPacket,
}

impl SummingRack {
    fn new(plan: CellPlan, seed: u64) -> Self {
        let mut tree = TreeSwitch::new(None);
        (0..WORKERS).for_each(|seat| tree.add_member(seat, seat));
        Self {
            name: plan.cell.name(),
            random: ChaCha8Rng::seed_from_u64(seed),
            now: Instant::START,
            tree,
            element: match plan.cell.architecture {
                ModelPlace::Servers => Box::new(HashedSums::new(AGGREGATORS)),
                _ => Box::new(SlottedSums::new(2 * WINDOW, KnownSum::GoesBack)),
            },
            server: SumServer::default(),
            workers: Vec::new(),
            flying: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Sums the gradients of a step; returns the sum that each worker got.
    fn sum(&mut self, step: u32, gradients: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, LabError> {
        let packets = PARAMETERS.div_ceil(VALUES) as u32;
        let numbers = step * packets..(step + 1) * packets;
        let terms = WorkerTerms {
            window: WINDOW,
            timeout: TIMEOUT,
        };
        let worker = |seat| SumWorker::new(0, seat, numbers.clone(), terms);
        self.workers = (0..WORKERS).map(worker).collect();
        let mut results = vec![vec![0.0; PARAMETERS]; WORKERS];
        for _ in 0..EVENTS_MAX {
            self.send();
            if self.workers.iter().all(SumWorker::is_done) {
                return Ok(results);
            }
            let Some((seat, packet)) = self.advance() else {
                continue;
            };
            if self.take(seat, &packet)? {
                let first = (packet.number - numbers.start) as usize * VALUES;
                for at in first..(first + VALUES).min(PARAMETERS) {
                    results[seat][at] = gradients.iter().map(|one| one[at]).sum();
                }
            }
        }
        Err(LabError::Check(format!(
            "{}: a sum does not come",
            self.name
        )))
    }

    /// Lets all workers send what they may.
    fn send(&mut self) {
        for seat in 0..WORKERS {
            while let Some(packet) = self.workers[seat].send(self.now) {
                self.push(seat, SWITCH, SERVER, packet);
            }
        }
    }

    /// Goes to the next arrival or timeout; returns a result that has come to a worker.
    fn advance(&mut self) -> Option<(usize, SumPacket)> {
        let wakes = self.workers.iter().filter_map(SumWorker::wakes_at).min();
        let arrives = self.flying.first_key_value().map(|(&(at, _), _)| at);
        if let Some(wakes) = wakes.filter(|wakes| arrives.is_none_or(|at| *wakes <= at)) {
            self.now = self.now.max(wakes);
            return None;
        }
        let ((at, _), flying) = self.flying.pop_first()?;
        self.now = at;
        match flying.to {
            SWITCH => {
                self.at_switch(flying);
                None
            }
            seat => self.at_host(seat, flying.packet),
        }
    }

    fn at_switch(&mut self, flying: FlyingSum) {
        let FlyingSum {
            from,
            destination,
            mut packet,
            ..
        } = flying;
        let element = &mut *self.element;
        match self.tree.arrive(element, &mut packet, from) {
            NextHop::Nowhere => {}
            NextHop::Destination => self.push(SWITCH, destination, destination, packet),
            NextHop::Ports(ports) => {
                for port in ports {
                    self.push(SWITCH, port, destination, packet);
                }
            }
        }
    }

    /// Returns the result that a host's worker gets; a contribution goes to the server there.
    fn at_host(&mut self, seat: usize, mut packet: SumPacket) -> Option<(usize, SumPacket)> {
        if matches!(packet.kind, SumKind::Result | SumKind::Answer) {
            return Some((seat, packet));
        }
        let place = TreePlace {
            below: Contributors::all(WORKERS),
            ..TreePlace::default()
        };
        match self.server.arrive(&place, &mut packet) {
            SumOutcome::Multicast => {
                self.push(seat, SWITCH, seat, packet);
                Some((seat, packet))
            }
            SumOutcome::Reply => {
                for worker in 0..WORKERS {
                    self.push(seat, SWITCH, worker, packet);
                }
                None
            }
            _ => None,
        }
    }

    /// A worker takes a result; returns whether it is new.
    fn take(&mut self, seat: usize, packet: &SumPacket) -> Result<bool, LabError> {
        let exact = PartialSum {
            who: Contributors::all(WORKERS),
            twice: false,
        };
        if packet.sum != exact {
            let name = &self.name;
            return Err(LabError::Check(format!(
                "{name}: worker {seat} got the sum of {:?}",
                packet.sum
            )));
        }
        Ok(self.workers[seat].take(packet.job, packet.number))
    }

    fn push(&mut self, from: usize, to: usize, destination: usize, packet: SumPacket) {
        let jitter = Span::from_nanos(self.random.random_range(0..=JITTER_NS));
        if self.random.random_bool(DROP) {
            return;
        }
        self.sent += 1;
        let flying = FlyingSum {
            from,
            to,
            destination,
            packet,
        };
        let at = self.now + LATENCY + jitter;
        self.flying.insert((at, self.sent), flying);
    }
}
