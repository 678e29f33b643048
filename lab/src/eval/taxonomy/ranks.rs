//! The training of a cell: ranks in this process run the programs of a workload with values.
//!
//! - The programs are those that the simulator runs; here each task also computes. Gradients and
//!   models travel through gradwire's own `Communicator`, in packets that the links of `testnet`
//!   lose and reorder.
//! - A worker computes its gradient on the model that it has when a forward pass begins. An update
//!   changes the model when it comes.
//! - Workers have speeds, drawn from the seed. Simulated time decides which update comes first, so
//!   the same seed trains the same model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{
    Collective, Completion, Group, Layers, LossTerms, Operation, OperationId,
};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{CodecTerms, HoleFilling, Job, Mtu, PacketSecurity, ReduceAlgorithm};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{ByteCount, Instant, JobId, Rank, Share, Span, Step};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::{Ended, Network};
use gradwire_workloads::order::{TaskWaits, collective_numbers};
use gradwire_workloads::training::{StepEnds, StepPart};
use gradwire_workloads::workload::{CollectiveKind, Program, Task, Work, Workload};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::cells::{ExchangePattern, ModelPlace, TrainingCell};
use super::learning::{LearningProblem, PARAMETERS};
use super::plan::{CellPlan, TEAM};
use super::trained::{LEARNING_RATE, TrainedModel, mean};
use crate::error::LabError;

/// Payload bytes of a packet: a message of this small model still has several.
const SEGMENT: u32 = 256;
/// Bytes of a packet beside its payload.
const HEADERS: u32 = 112;
/// Share of packets that a link loses.
const DROP: f64 = 0.02;
/// Time on a link, and the most that chance adds to it.
const LATENCY: Span = Span::from_micros(10);
const JITTER: Span = Span::from_micros(5);
/// Simulated time in which a training that works has ended.
const LIMIT: Span = Span::from_millis(60_000);
/// What all workers together move towards the centre of a gossip in a step (EASGD's beta).
const ELASTICITY: f32 = 0.9;

/// Trains the model of a cell whose sums are made by hosts.
///
/// # Errors
/// [`LabError::Check`] when an operation fails or the training does not end.
pub(super) fn train(
    plan: CellPlan,
    problem: &LearningProblem,
    seed: u64,
) -> Result<TrainedModel, LabError> {
    let workload = plan.training();
    let mut ranks = TrainingRanks::new(plan, problem, (&workload, seed));
    ranks.run()?;
    Ok(ranks.trained())
}

/// All ranks of a training, and the network between them.
struct TrainingRanks<'a> {
    plan: CellPlan,
    problem: &'a LearningProblem,
    steps: &'a StepEnds,
    groups: Vec<Group>,
    network: Network<Communicator>,
    ranks: Vec<TrainingRank<'a>>,
    /// Computations that end, with their rank and task.
    computing: BTreeSet<(Instant, usize, u32)>,
    rules: LearningRules,
    lost: u64,
    expected: u64,
    ahead: u32,
}

/// How values change a model.
#[derive(Clone, Copy)]
struct LearningRules {
    own: OwnLearning,
    /// The share of the way to an average that a model goes.
    pull: f32,
}

/// When a gradient changes the model of its own worker, and its weight in a sum.
#[derive(Clone, Copy)]
enum OwnLearning {
    /// At once, and the model is averaged.
    AtOnce,
    /// In its team's sum, and the leader's model is averaged.
    WithTeam(f32),
    /// In the sum of all.
    WithAll(f32),
}

impl LearningRules {
    fn of(cell: TrainingCell, workers: usize) -> Self {
        let is_gossip = cell.architecture == ModelPlace::Gossip;
        Self {
            own: match cell.pattern {
                ExchangePattern::Hierarchical if is_gossip => {
                    OwnLearning::WithTeam(1.0 / TEAM as f32)
                }
                _ if is_gossip => OwnLearning::AtOnce,
                _ => OwnLearning::WithAll(1.0 / workers as f32),
            },
            pull: match cell.pattern {
                // Each worker is pulled to the centre, and the centre to every worker.
                ExchangePattern::Star => 2.0 * ELASTICITY / workers as f32,
                _ => 1.0,
            },
        }
    }
}

/// One rank: its program, and its values.
struct TrainingRank<'a> {
    tasks: &'a [Task],
    waits: TaskWaits,
    ready: VecDeque<u32>,
    numbers: Vec<u32>,
    operations: BTreeMap<OperationId, UnderWay>,
    /// Its number among the workers; none for servers and the centre.
    worker: Option<usize>,
    /// Computing time over that of the plan.
    speed: f64,
    model: Vec<f32>,
    /// The model that the last forward pass began with.
    seen: Vec<f32>,
    /// Gradients, or sums of a team's, by step, until they have been exchanged.
    gradients: BTreeMap<u32, Vec<f32>>,
    /// The step of the last forward pass.
    step: u32,
}

/// The place of a rank in a group: servers and leaders are the first of theirs.
#[derive(Clone, Copy, Eq, PartialEq)]
enum GroupPlace {
    First,
    Other,
}

/// An operation that has not ended.
struct UnderWay {
    task: u32,
    /// The given values.
    given: Vec<f32>,
}

impl<'a> TrainingRanks<'a> {
    fn new(
        plan: CellPlan,
        problem: &'a LearningProblem,
        (workload, seed): (&'a Workload, u64),
    ) -> Self {
        let job = job(workload.algorithm);
        let world_size = workload.programs.len() as u16;
        let machine = |rank: u16| {
            let identity = Identity {
                rank: Rank(rank),
                world_size,
                job: JobId(1),
                epoch: 1,
            };
            Communicator::new(Endpoint::new(identity, &job, seed + u64::from(rank)), &job)
        };
        let profile = Profile {
            jitter: JITTER,
            drop: Share::new(DROP).expect("it is a share"),
            ..Profile::perfect(LATENCY)
        };
        let groups = workload.groups.iter().enumerate().map(|(id, hosts)| Group {
            id: id as u16,
            ranks: hosts.iter().map(|&host| Rank(host as u16)).collect(),
        });
        let steps = workload.step_ends.first();
        let steps = steps.expect("a training has steps");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let ranks = workload.programs.iter().map(|program| {
            let worker = steps.workers.iter();
            let worker = worker
                .clone()
                .position(|worker| worker.host == program.host);
            TrainingRank::new(program, worker, random.random_range(1.0..2.0))
        });
        Self {
            plan,
            problem,
            steps,
            groups: groups.collect(),
            ranks: ranks.collect(),
            network: Network::new((0..world_size).map(machine).collect(), profile, seed),
            computing: BTreeSet::new(),
            rules: LearningRules::of(plan.cell, steps.workers.len()),
            lost: 0,
            expected: 0,
            ahead: 0,
        }
    }

    fn run(&mut self) -> Result<(), LabError> {
        let end = Instant::START + LIMIT;
        loop {
            for rank in 0..self.ranks.len() {
                self.go_on(rank)?;
            }
            let next = self.computing.first().copied();
            let until = next.map_or(end, |(at, ..)| at);
            let pending = pending(self.network.hosts());
            if next.is_none() && pending == 0 {
                return Ok(());
            }
            let reached = |hosts: &[Communicator]| self::pending(hosts) < pending;
            if self.network.run(until, reached) == Ended::Reached {
                continue;
            }
            let Some((at, rank, task)) = self.computing.pop_first() else {
                let name = self.plan.cell.name();
                return Err(LabError::Check(format!(
                    "{name}: {pending} operations of the training do not end"
                )));
            };
            self.network.run_until(at);
            self.end(rank, task, None);
        }
    }

    /// Starts and ends all tasks of a rank that can start or end now.
    fn go_on(&mut self, rank: usize) -> Result<(), LabError> {
        loop {
            let completion = self.network.command(Rank(rank as u16), |communicator, _| {
                communicator.poll_completion()
            });
            if let Some(completion) = completion {
                self.complete(rank, completion)?;
            } else if let Some(task) = self.ranks[rank].ready.pop_front() {
                self.start(rank, task)?;
            } else {
                return Ok(());
            }
        }
    }

    fn complete(&mut self, rank: usize, completion: Completion) -> Result<(), LabError> {
        let outcome = completion
            .result
            .map_err(|error| LabError::Check(format!("{}: {error}", self.plan.cell.name())))?;
        self.lost += outcome.lost_segments;
        self.expected += outcome.expected_segments;
        let under_way = self.ranks[rank].operations.remove(&completion.id);
        let UnderWay { task, given } = under_way.expect("each operation ends once");
        let bytes = completion.buffer.bytes().expect("it owns its bytes");
        let (values, _) = bytes.as_chunks::<4>();
        let result = values.iter().map(|one| f32::from_le_bytes(*one)).collect();
        self.end(rank, task, Some(&Exchanged { given, result }));
        Ok(())
    }

    fn start(&mut self, number: usize, task: u32) -> Result<(), LabError> {
        let rank = &mut self.ranks[number];
        let released = rank.waits.start(task);
        rank.ready.extend(released);
        let content = &rank.tasks[task as usize];
        let (kind, group) = match content.work {
            Work::Compute { span, .. } => {
                let took = Span::from_picos((span.as_picos() as f64 * rank.speed) as u64);
                self.computing
                    .insert((self.network.now() + took, number, task));
                if StepPart::of(content) == Some(StepPart::Forward) {
                    self.begin_step(number, content.step);
                }
                return Ok(());
            }
            Work::Collective { kind, group, .. } => (kind, group as usize),
            Work::Send { .. } | Work::Receive { .. } => return Ok(()),
        };
        let group = self.groups[group].clone();
        let place = match group.ranks[0] == Rank(number as u16) {
            true => GroupPlace::First,
            false => GroupPlace::Other,
        };
        let given = rank.given(content, place);
        let operation = Operation {
            sequence: rank.numbers[task as usize],
            step: Step(content.step),
            ..operation((kind, group), &given, self.plan.trained_tolerance())
        };
        let operation = match StepPart::of(content) {
            Some(StepPart::Average) => Operation {
                op: ReduceOp::Avg,
                ..operation
            },
            _ => operation,
        };
        let submitted = self
            .network
            .command(Rank(number as u16), |communicator, now| {
                communicator.submit(now, operation)
            });
        let id = submitted
            .map_err(|error| LabError::Check(format!("{}: {error}", self.plan.cell.name())))?;
        let under_way = UnderWay { task, given };
        self.ranks[number].operations.insert(id, under_way);
        Ok(())
    }

    /// A worker begins a forward pass.
    fn begin_step(&mut self, number: usize, step: u32) {
        let rank = &mut self.ranks[number];
        rank.step = step;
        rank.seen.clone_from(&rank.model);
        let workers = self.ranks.iter().filter(|rank| rank.worker.is_some());
        let last = workers.map(|rank| rank.step).min().unwrap_or(step);
        self.ahead = self.ahead.max(step - last);
    }

    /// A task ends, with the values that it brings.
    fn end(&mut self, number: usize, task: u32, exchanged: Option<&Exchanged>) {
        let content = &self.ranks[number].tasks[task as usize];
        match exchanged {
            None if StepPart::of(content) == Some(StepPart::Backward) => {
                self.end_step(number, content.step);
            }
            None => {}
            Some(exchanged) => self.update(number, content, exchanged),
        }
        let rank = &mut self.ranks[number];
        let released = rank.waits.end(task);
        rank.ready.extend(released);
    }

    /// A worker has its gradient.
    fn end_step(&mut self, number: usize, step: u32) {
        let rank = &mut self.ranks[number];
        let worker = rank.worker.expect("only workers compute");
        let seat = (worker, self.steps.workers.len());
        let gradient = self.problem.gradient(&rank.seen, seat);
        match self.rules.own {
            OwnLearning::AtOnce => rank.learn(&gradient, 1.0),
            OwnLearning::WithTeam(_) | OwnLearning::WithAll(_) => {
                rank.gradients.insert(step, gradient);
            }
        }
    }

    /// An exchange of a rank brings new values.
    fn update(&mut self, number: usize, content: &Task, exchanged: &Exchanged) {
        let is_first = match content.work {
            Work::Collective { group, .. } => {
                self.groups[group as usize].ranks[0] == Rank(number as u16)
            }
            _ => false,
        };
        let rank = &mut self.ranks[number];
        let result = &exchanged.result;
        match (StepPart::of(content), self.rules.own) {
            (Some(StepPart::Collect), OwnLearning::WithTeam(weight)) if is_first => {
                rank.learn(result, weight);
            }
            (Some(StepPart::Collect), _) if is_first => {
                rank.gradients.insert(content.step, result.clone());
            }
            (Some(StepPart::AllReduce), OwnLearning::WithAll(weight)) => rank.learn(result, weight),
            (Some(StepPart::Push), OwnLearning::WithAll(weight)) if is_first => {
                rank.learn(result, weight);
            }
            (Some(StepPart::Average), _) => rank.approach(exchanged, self.rules.pull),
            (Some(StepPart::Pull | StepPart::Spread), _) if !is_first => {
                rank.model.clone_from(result);
            }
            _ => {}
        }
    }

    /// The model of the server or the centre, or the mean of all workers' models.
    fn trained(&self) -> TrainedModel {
        let workers = self.ranks.iter().filter(|rank| rank.worker.is_some());
        let models: Vec<&[f32]> = workers.map(|rank| rank.model.as_slice()).collect();
        let first = &self.ranks[0];
        let model = match first.worker {
            None => first.model.clone(),
            Some(_) => mean(&models),
        };
        TrainedModel {
            lost: self.lost,
            expected: self.expected,
            ahead: self.ahead,
            ..TrainedModel::new(self.problem, &model, &models)
        }
    }
}

/// The values that a rank gave to an exchange, and those that it got.
struct Exchanged {
    given: Vec<f32>,
    result: Vec<f32>,
}

impl<'a> TrainingRank<'a> {
    fn new(program: &'a Program, worker: Option<usize>, speed: f64) -> Self {
        let waits = TaskWaits::new(&program.tasks);
        Self {
            tasks: &program.tasks,
            ready: waits.free().collect(),
            waits,
            numbers: collective_numbers(&program.tasks),
            operations: BTreeMap::new(),
            worker,
            speed,
            model: vec![0.0; PARAMETERS],
            seen: Vec::new(),
            gradients: BTreeMap::new(),
            step: 0,
        }
    }

    /// The values that it gives to an exchange.
    fn given(&mut self, content: &Task, place: GroupPlace) -> Vec<f32> {
        let gives_model = match StepPart::of(content) {
            Some(StepPart::Average) => true,
            Some(StepPart::Pull | StepPart::Spread) => place == GroupPlace::First,
            _ => false,
        };
        if gives_model {
            return self.model.clone();
        }
        // Servers give nothing to a push, and receivers of a model have no gradient.
        let is_receiver = matches!(
            StepPart::of(content),
            Some(StepPart::Pull | StepPart::Spread)
        );
        let gradient = match is_receiver {
            true => None,
            false => self.gradients.remove(&content.step),
        };
        gradient.unwrap_or_else(|| vec![0.0; PARAMETERS])
    }

    /// Goes down a gradient, or a sum of some.
    fn learn(&mut self, gradient: &[f32], weight: f32) {
        for (value, slope) in self.model.iter_mut().zip(gradient) {
            *value -= LEARNING_RATE * weight * slope;
        }
    }

    /// Goes towards an average, from the model that was given to it.
    fn approach(&mut self, exchanged: &Exchanged, share: f32) {
        let moves = exchanged.result.iter().zip(&exchanged.given);
        for (value, (average, given)) in self.model.iter_mut().zip(moves) {
            *value += share * (average - given);
        }
    }
}

/// A job of small packets, whose messages are all long enough to lose some. Its gap is the round
/// trip, as for a fabric without queues: the default gap is longer than a step, and a worker that
/// waits for it averages a model that is steps old.
fn job(algorithm: Option<ReduceAlgorithm>) -> Job {
    let mut job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    job.transport.mtu = Mtu::Bytes(SEGMENT + HEADERS);
    job.transport.gap = (LATENCY + JITTER) * 2;
    job.loss.min_message = Some(ByteCount::new(0));
    job.loss.protected_share = Share::NONE;
    if let Some(algorithm) = algorithm {
        job.collectives.algorithm = algorithm;
    }
    job
}

fn operation((kind, group): (CollectiveKind, Group), given: &[f32], tolerance: Share) -> Operation {
    let root = |root: u32| group.ranks[root as usize];
    let collective = match kind {
        CollectiveKind::Reduce { root: at } => Collective::Reduce { root: root(at) },
        CollectiveKind::Broadcast { root: at } => Collective::Broadcast { root: root(at) },
        _ => Collective::AllReduce,
    };
    Operation {
        group,
        sequence: 0,
        collective,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        buffer: Buffer::Owned(bytemuck::cast_slice(given).to_vec()),
        input: None,
        splits: None,
        loss: LossTerms {
            tolerance,
            holes: HoleFilling::Rescale,
            codec: CodecTerms::NONE,
        },
        step: Step(0),
        layers: Layers::default(),
        tensor_key: 1,
        deadline: None,
    }
}

fn pending(hosts: &[Communicator]) -> usize {
    hosts.iter().map(Communicator::pending).sum()
}
