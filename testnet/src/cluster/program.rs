//! The job of a seed, and the operations of its ranks in one order that is the same everywhere.
//!
//! Each rank submits its operations in that order, a few at a time, so that no two ranks wait for
//! each other for ever. Sums that may lose contributions belong to a tensor that lives from step to
//! step; a tensor has one operation at a time.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::limits::CommunicatorLimits;
use gradwire_collectives::operation::{Collective, Group};
use gradwire_protocol::job::{
    CodecName, CodecTerms, GrantWindow, HoleFilling, Job, Mtu, PacketOrder, PacketSecurity,
    ReduceAlgorithm, SendWindow,
};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::settings::EndpointLimits;
use gradwire_protocol::units::{
    ByteCount, MessageId, MessageKey, PathNumber, Rank, Share, Span, Step,
};

use super::draw::{self, pick, span_between};
use super::faults::{ClusterFault, FaultSet};
use super::schedule::ClusterSchedule;

/// Peers may be silent for this long: longer than all outages of a run together.
const PEER_TIMEOUT: Span = Span::from_millis(3_600_000);
/// And so long where a path may take no full packets any more.
const PEER_TIMEOUT_SHRUNK: Span = Span::from_millis(60_000);
/// The longest pause of most seeds: time stamps of 32 bits wrap twice in it.
const PAUSE_MAX: Span = Span::from_millis(3 * 3_600_000);
/// The longest pause of clocks that are about to end.
const PAUSE_AT_END_MAX: Span = Span::from_millis(3_600_000);
/// One seed in this many pauses for days, which costs as much as a hundred others.
const PAUSES_DAYS: u64 = 32;
/// Parts of messages from here on are of messages from rank to rank.
const MESSAGE_PARTS: u16 = 1 << 15;
/// The codecs of which tensors draw one.
const CODECS: [CodecName; 5] = [
    CodecName::Onebit,
    CodecName::Tbq,
    CodecName::Terngrad,
    CodecName::Topk,
    CodecName::Blockfloat,
];
/// Bytes of a packet beside its payload: IP, UDP, and the header.
const OVERHEAD: u32 = 112;

/// A rule for holes and everything else that an operation's tensor keeps from step to step.
#[derive(Clone, Debug)]
pub(crate) struct PlannedTensor {
    pub(crate) group: usize,
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) holes: HoleFilling,
    pub(crate) elements: usize,
    pub(crate) tolerance: Share,
    pub(crate) codec: CodecTerms,
}

/// One operation of the program.
#[derive(Clone, Debug)]
pub(crate) struct PlannedOperation {
    pub(crate) index: usize,
    pub(crate) group: Group,
    pub(crate) sequence: u32,
    pub(crate) collective: PlannedCollective,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// Elements of one rank's block or tensor.
    pub(crate) elements: usize,
    pub(crate) holes: HoleFilling,
    pub(crate) codec: CodecTerms,
    /// What each rank of the job tolerates.
    pub(crate) tolerances: Vec<Share>,
    /// The tensor that lives from step to step, if it may lose contributions.
    pub(crate) tensor: Option<usize>,
    pub(crate) step: Step,
    /// How long each rank of the job waits before it submits.
    pub(crate) delays: Vec<Span>,
    /// The chunk of all ranks, if it was changed by then.
    pub(crate) chunk: Option<ByteCount>,
    /// Whether the blocks of an all-to-all differ in length.
    pub(crate) is_uneven: bool,
}

/// A collective, or a message from one rank to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PlannedCollective {
    Group(Collective),
    Message {
        from: Rank,
        to: Rank,
        tag: u16,
        receipt: Receipt,
    },
}

/// How a message is received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Receipt {
    Named,
    AnySource,
    Never,
}

impl PlannedOperation {
    /// The key of its tensor; 0 would name none.
    pub(crate) fn tensor_key(&self) -> Option<u64> {
        self.tensor.map(|at| 1 + at as u64)
    }

    /// The ranks that submit it.
    pub(crate) fn ranks(&self) -> Vec<Rank> {
        match self.collective {
            PlannedCollective::Group(_) => self.group.ranks.to_vec(),
            PlannedCollective::Message {
                from,
                receipt: Receipt::Never,
                ..
            } => vec![from],
            PlannedCollective::Message { from, to, .. } => vec![from, to],
        }
    }

    /// Whether contributions are encoded.
    pub(crate) fn is_encoded(&self) -> bool {
        self.codec.name != CodecName::None
    }

    /// Whether it never ends.
    pub(crate) fn is_unmatched(&self) -> bool {
        matches!(
            self.collective,
            PlannedCollective::Message {
                receipt: Receipt::Never,
                ..
            }
        )
    }

    /// Whether a message belongs to it.
    pub(crate) fn owns(&self, key: MessageKey) -> bool {
        let (group, sequence, part) = key.parts();
        if group != self.group.id {
            return false;
        }
        match self.collective {
            PlannedCollective::Group(_) => part < MESSAGE_PARTS && sequence == self.sequence,
            PlannedCollective::Message { tag, .. } => {
                part >= MESSAGE_PARTS && sequence >> 16 == u32::from(tag)
            }
        }
    }

    /// Elements that one seat sends another in an all-to-all.
    pub(crate) fn block(&self, from: usize, to: usize) -> usize {
        match self.is_uneven {
            true => self.elements * ((from * 5 + to * 3 + self.index) % 4) / 3,
            false => self.elements,
        }
    }

    /// A rank's place in the group.
    pub(crate) fn seat(&self, rank: Rank) -> usize {
        let seat = self.group.ranks.iter().position(|&other| other == rank);
        seat.expect("the rank takes part")
    }
}

/// The job and its operations.
#[derive(Clone, Debug)]
pub(crate) struct ClusterProgram {
    pub(crate) job: Job,
    pub(crate) hosts: Vec<u16>,
    groups: Vec<Group>,
    pub(crate) tensors: Vec<PlannedTensor>,
    pub(crate) operations: Vec<PlannedOperation>,
    /// How many operations each rank has on their way at most.
    pub(crate) windows: Vec<usize>,
    /// The id of the first message between two ranks.
    pub(crate) first_message: MessageId,
    /// The number of the first packet of each path.
    pub(crate) first_number: PathNumber,
    /// How much each rank remembers.
    pub(crate) limits: (EndpointLimits, CommunicatorLimits),
    first_step: Step,
    /// The operation of each message but those from rank to rank, by group and sequence.
    by_sequence: BTreeMap<(u16, u32), usize>,
}

impl ClusterProgram {
    /// The program of a run.
    pub(crate) fn of(schedule: &ClusterSchedule) -> Self {
        let ClusterSchedule { seed, ranks, .. } = *schedule;
        let job = job(&mut draw::stream(seed, "job", 0));
        let mut rng = draw::stream(seed, "program", 0);
        let hosts = match rng.random_bool(0.7) {
            true => Vec::new(),
            false => (0..ranks).map(|rank| rank / 2).collect(),
        };
        let groups = groups(&mut rng, ranks);
        let segment = segment_bytes(&job);
        let tensors = (0..3).map(|_| tensor(&mut rng, &groups, segment));
        let mut program = Self {
            tensors: tensors.collect(),
            hosts,
            job,
            operations: Vec::new(),
            windows: (0..ranks).map(|_| rng.random_range(1..=4)).collect(),
            groups,
            first_message: MessageId(1),
            first_number: PathNumber(0),
            limits: (EndpointLimits::USUAL, CommunicatorLimits::USUAL),
            first_step: Step(0),
            by_sequence: BTreeMap::new(),
        };
        program.set_out(schedule);
        let mut first_sequence = 0;
        if schedule.faults.has(ClusterFault::IdEdge) {
            program.first_message = MessageId(u32::MAX - rng.random_range(0..40));
            first_sequence = u32::MAX - rng.random_range(0..6);
        }
        let mut sequences = vec![first_sequence; program.groups.len()];
        for index in 0..schedule.operations {
            let mut rng = draw::stream(seed, "operation", index as u64);
            let operation = program.draw(&mut rng, index, segment);
            program.operations.push(operation);
            let last = program.operations.last_mut().expect("just pushed");
            let sequence = &mut sequences[usize::from(last.group.id)];
            last.sequence = *sequence;
            *sequence = sequence.wrapping_add(1);
            last.disturb(seed, schedule.faults, ranks);
        }
        program.indexed()
    }

    /// Applies the faults that concern the start of the job.
    fn set_out(&mut self, schedule: &ClusterSchedule) {
        let mut rng = draw::stream(schedule.seed, "set-out", 0);
        let (number, step) = (rng.random_range(0..200), rng.random_range(0..4));
        if schedule.faults.has(ClusterFault::NumberEdge) {
            self.first_number = PathNumber(u32::MAX - number);
        }
        if schedule.faults.has(ClusterFault::StepEdge) {
            self.first_step = Step(u32::MAX - step);
        }
        let mut rng = draw::stream(schedule.seed, "parity", 0);
        self.job.transport.parity = match rng.random_range(0..5) {
            0 => ParityRule::None,
            1 => ParityRule::Share(Share::new(0.1).expect("a share")),
            2 => ParityRule::Share(Share::ALL),
            _ => ParityRule::Auto,
        };
        if schedule.faults.has(ClusterFault::KeptOrder) {
            self.job.transport.order = PacketOrder::Kept;
        }
        if schedule.faults.has(ClusterFault::MtuShrink) {
            self.job.transport.peer_timeout = PEER_TIMEOUT_SHRUNK;
        }
        if schedule.faults.has(ClusterFault::SmallLimits) {
            self.limits = small_limits(schedule);
        }
        if schedule.faults.has(ClusterFault::Impatience) {
            self.lose_patience(schedule);
        }
        if schedule.faults.has(ClusterFault::Codec) {
            self.encode(schedule);
        }
    }

    /// Sums are encoded, and ranks owe what was not sent.
    fn encode(&mut self, schedule: &ClusterSchedule) {
        let mut rng = draw::stream(schedule.seed, "codec", 0);
        for tensor in &mut self.tensors {
            if let Collective::Reduce { .. } = tensor.collective {
                tensor.collective = Collective::AllReduce;
            }
            tensor.holes = HoleFilling::ErrorFeedback;
            let name = pick(&mut rng, &CODECS);
            let share = Share::new(pick(&mut rng, &[0.02, 0.2])).expect("a share");
            tensor.codec = CodecTerms {
                name,
                share,
                min_tensor: ByteCount::new(0),
            };
        }
    }

    /// Sums wait for late contributions as long as usual, as far as a few steps tell.
    fn lose_patience(&mut self, schedule: &ClusterSchedule) {
        let mut rng = draw::stream(schedule.seed, "patience", 0);
        self.job.collectives.patience = Some(pick(&mut rng, &[1.0, 1.2, 2.0]));
        self.limits.1.learning = rng.random_range(1..=2);
        for tensor in &mut self.tensors {
            (tensor.holes, tensor.dtype) = (HoleFilling::ErrorFeedback, DType::F64);
        }
    }

    /// Adds an all-to-all of all ranks, of this many bytes for each; gives its index.
    pub(crate) fn add_epilogue(&mut self, bytes: usize) -> usize {
        let index = self.operations.len();
        let (group, ranks) = (self.groups[0].clone(), self.windows.len());
        let of_group = |planned: &&PlannedOperation| planned.group.id == group.id;
        let last = self.operations.iter().rev().find(of_group);
        let sequence = last.map_or(0, |planned| planned.sequence.wrapping_add(1));
        self.operations.push(PlannedOperation {
            index,
            sequence,
            collective: PlannedCollective::Group(Collective::AllToAll),
            dtype: DType::U8,
            op: ReduceOp::Sum,
            elements: bytes,
            holes: HoleFilling::Rescale,
            codec: CodecTerms::NONE,
            tolerances: vec![Share::NONE; ranks],
            tensor: None,
            step: self.first_step,
            delays: vec![Span::ZERO; ranks],
            chunk: None,
            is_uneven: false,
            group,
        });
        let planned = &self.operations[index];
        self.by_sequence
            .insert((planned.group.id, planned.sequence), index);
        index
    }

    /// The program, in which [`ClusterProgram::find`] finds operations.
    fn indexed(mut self) -> Self {
        let mut chunk = None;
        for planned in &mut self.operations {
            let name = (planned.group.id, planned.sequence);
            self.by_sequence.insert(name, planned.index);
            chunk = planned.chunk.or(chunk);
            planned.chunk = chunk;
        }
        self
    }

    /// The operation that a message belongs to.
    pub(crate) fn find(&self, key: MessageKey) -> Option<&PlannedOperation> {
        let (group, sequence, part) = key.parts();
        let index = match part < MESSAGE_PARTS {
            true => *self.by_sequence.get(&(group, sequence))?,
            false => (sequence >> 16) as usize,
        };
        self.operations.get(index)
    }

    /// A training job: every minute three buckets of gradients are averaged, every hour rank 0
    /// evaluates for twenty minutes while the others wait for it.
    pub(crate) fn training(seed: u64, ranks: u16, hours: u64) -> Self {
        let mut job = job(&mut draw::stream(seed, "job", 0));
        job.loss.step_tolerance = None;
        let group = Group {
            id: 0,
            ranks: (0..ranks).map(Rank).collect(),
        };
        let rules = [
            HoleFilling::Rescale,
            HoleFilling::Previous,
            HoleFilling::ErrorFeedback,
        ];
        let tensor = |holes| PlannedTensor {
            group: 0,
            collective: Collective::AllReduce,
            dtype: DType::F64,
            op: ReduceOp::Avg,
            holes,
            elements: 1_500,
            tolerance: Share::new(0.1).expect("a share"),
            codec: CodecTerms::NONE,
        };
        let mut program = Self {
            tensors: rules.map(tensor).to_vec(),
            hosts: Vec::new(),
            job,
            operations: Vec::new(),
            windows: vec![3; usize::from(ranks)],
            groups: vec![group],
            first_message: MessageId(1),
            first_number: PathNumber(0),
            limits: (EndpointLimits::USUAL, CommunicatorLimits::USUAL),
            first_step: Step(0),
            by_sequence: BTreeMap::new(),
        };
        for step in 0..hours * 40 {
            let evaluates = step % 40 == 39;
            for at in 0..rules.len() + usize::from(evaluates) {
                program.train(step as u32, at);
            }
        }
        program.indexed()
    }

    /// Adds a bucket of a training step, or the barrier after an evaluation.
    fn train(&mut self, step: u32, at: usize) {
        let index = self.operations.len();
        let ranks = self.windows.len();
        let tensor = self.tensors.get(at);
        let mut delays = vec![Span::ZERO; ranks];
        match (tensor, at) {
            (None, _) => delays[0] = Span::from_millis(20 * 60_000),
            (Some(_), 0) => delays.fill(Span::from_millis(60_000)),
            (Some(_), _) => delays.fill(Span::from_millis(20)),
        }
        self.operations.push(PlannedOperation {
            index,
            group: self.groups[0].clone(),
            sequence: index as u32,
            collective: PlannedCollective::Group(
                tensor.map_or(Collective::Barrier, |tensor| tensor.collective),
            ),
            dtype: DType::F64,
            op: ReduceOp::Avg,
            elements: tensor.map_or(0, |tensor| tensor.elements),
            holes: tensor.map_or(HoleFilling::Rescale, |tensor| tensor.holes),
            codec: CodecTerms::NONE,
            tolerances: vec![tensor.map_or(Share::NONE, |tensor| tensor.tolerance); ranks],
            tensor: tensor.map(|_| at),
            step: Step(step),
            delays,
            chunk: None,
            is_uneven: false,
        });
    }

    /// How many ranks a group has.
    pub(crate) fn group_size(&self, group: usize) -> usize {
        self.groups[group].ranks.len()
    }

    fn draw(&self, rng: &mut ChaCha8Rng, index: usize, segment: usize) -> PlannedOperation {
        let groups = &self.groups;
        let group = groups[rng.random_range(0..groups.len())].clone();
        let lossy = rng.random_bool(0.55);
        let at = rng.random_range(0..self.tensors.len());
        let tensor = &self.tensors[at];
        let mut planned = PlannedOperation {
            index,
            sequence: 0,
            collective: PlannedCollective::Group(Collective::Barrier),
            dtype: pick(
                rng,
                &[DType::F32, DType::F64, DType::I32, DType::I64, DType::U8],
            ),
            op: ReduceOp::Sum,
            elements: elements(rng, segment),
            holes: HoleFilling::Rescale,
            codec: CodecTerms::NONE,
            tolerances: Vec::new(),
            tensor: None,
            step: Step(self.first_step.0.wrapping_add(index as u32 / 3)),
            delays: Vec::new(),
            chunk: None,
            is_uneven: false,
            group,
        };
        planned.collective = any_collective(rng, &planned.group, index);
        if planned.dtype != DType::U8 && !planned.dtype.is_float() {
            planned.op = pick(rng, &[ReduceOp::Sum, ReduceOp::Max, ReduceOp::BitXor]);
        } else if planned.dtype.is_float() {
            planned.op = pick(rng, &[ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min]);
        }
        let mut tolerance = Share::NONE;
        if let PlannedCollective::Message { .. } = planned.collective
            && planned.dtype.is_float()
            && lossy
        {
            tolerance = some_share(rng);
        } else if lossy {
            tolerance = tensor.tolerance;
            planned = PlannedOperation {
                group: groups[tensor.group].clone(),
                collective: PlannedCollective::Group(tensor.collective),
                dtype: tensor.dtype,
                op: tensor.op,
                elements: tensor.elements,
                holes: tensor.holes,
                codec: tensor.codec,
                tensor: Some(at),
                ..planned
            };
        }
        planned.tolerances = vec![tolerance; self.windows.len()];
        planned
    }
}

impl PlannedOperation {
    /// Applies the faults that concern the program.
    fn disturb(&mut self, seed: u64, faults: FaultSet, ranks: u16) {
        let mut rng = draw::stream(seed, "disturb", self.index as u64);
        self.delays = vec![Span::ZERO; usize::from(ranks)];
        if faults.has(ClusterFault::SmallLimits) {
            // Groups are at different steps: ranks return to a step that they may have forgotten.
            let ahead = u32::from(self.group.id) % 3;
            self.step = Step(self.step.0.wrapping_add(ahead));
        }
        let lossy = self.tolerances.iter().any(|tolerance| !tolerance.is_none());
        if faults.has(ClusterFault::Unequal) && lossy {
            // A collective is lossy on all ranks or on none, since that chooses its algorithm.
            let least = match self.tensor {
                Some(_) => Share::new(0.0001).expect("a share"),
                None => Share::NONE,
            };
            for tolerance in &mut self.tolerances {
                *tolerance = pick(&mut rng, &[*tolerance, least, Share::ALL]);
            }
        }
        let (seconds, hours) = (Span::from_millis(1000), Span::from_millis(10 * 3_600_000));
        if faults.has(ClusterFault::Idle) && rng.random_bool(0.2) {
            let pause = span_between(&mut rng, seconds, hours * 7);
            self.delays.fill(pause);
        }
        if faults.has(ClusterFault::LatePosting) && rng.random_bool(0.2) {
            let late = rng.random_range(0..ranks);
            self.delays[usize::from(late)] = span_between(&mut rng, seconds, hours);
        }
        if faults.has(ClusterFault::Chunk) && rng.random_bool(0.3) {
            self.chunk = Some(ByteCount::new(rng.random_range(3000..40_000)));
        }
        let is_all_to_all = self.collective == PlannedCollective::Group(Collective::AllToAll);
        self.is_uneven = faults.has(ClusterFault::Uneven) && is_all_to_all;
        // A receive from any rank waits for the others when the sender has died.
        if let PlannedCollective::Message { receipt, .. } = &mut self.collective
            && faults.has(ClusterFault::Crash)
        {
            *receipt = Receipt::Named;
        }
        if let PlannedCollective::Message { receipt, .. } = &mut self.collective
            && faults.has(ClusterFault::Unmatched)
            && rng.random_bool(0.5)
        {
            *receipt = Receipt::Never;
        }
        let most = match seed.is_multiple_of(PAUSES_DAYS) {
            _ if faults.has(ClusterFault::ClockEnd) => PAUSE_AT_END_MAX,
            true => hours * 7,
            false => PAUSE_MAX,
        };
        for delay in &mut self.delays {
            *delay = most.min(*delay);
        }
    }
}

/// Limits that a few operations reach.
fn small_limits(schedule: &ClusterSchedule) -> (EndpointLimits, CommunicatorLimits) {
    let mut rng = draw::stream(schedule.seed, "limits", 0);
    let mut endpoint = EndpointLimits {
        closed_ranges: rng.random_range(1..4),
        steps: rng.random_range(1..4),
        clean_packets: rng.random_range(1..64),
        ..EndpointLimits::USUAL
    };
    let proof = rng.random_range(8..64);
    // Fewer packets prove nothing where packets overtake each other now and then.
    if schedule.faults.keeps_order(schedule.seed) {
        endpoint.order_proof = proof;
    }
    let communicator = CommunicatorLimits {
        completed: rng.random_range(1..4),
        plans: rng.random_range(1..4),
        ..CommunicatorLimits::USUAL
    };
    // Most ranks of these clusters have two to seven peers.
    endpoint.awake_peers = rng.random_range(1..8);
    (endpoint, communicator)
}

/// Payload bytes of a full packet.
pub(crate) fn segment_bytes(job: &Job) -> usize {
    let Mtu::Bytes(mtu) = job.transport.mtu else {
        unreachable!("these jobs say their MTU")
    };
    (mtu - OVERHEAD) as usize
}

/// The job's parameters: small packets and windows, so that few bytes do much.
fn job(rng: &mut ChaCha8Rng) -> Job {
    let mut job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    let transport = &mut job.transport;
    let segment = pick(rng, &[128, 256, 512, 1392]);
    transport.mtu = Mtu::Bytes(segment + OVERHEAD);
    let window = pick(rng, &[64, 256, 1024]);
    transport.window = SendWindow::Bytes(ByteCount::kib(window));
    transport.initial_window = ByteCount::kib(pick(rng, &[16, 64]));
    transport.unscheduled = ByteCount::new(pick(rng, &[1, 2_000, 16_384, 65_536]));
    if rng.random_bool(0.3) {
        let window = ByteCount::kib(pick(rng, &[16, 64, 256]));
        transport.grant_window = Some(GrantWindow::Bytes(window));
    }
    transport.entropies = pick(rng, &[1, 8, 64]);
    transport.spray_burst = pick(rng, &[1, 4, 46]);
    if transport.spray_burst == 4 {
        transport.speculative = transport.unscheduled;
    }
    transport.gap = Span::from_micros(pick(rng, &[100, 500, 1000, 5000]));
    transport.delay_target = Span::from_micros(pick(rng, &[50, 10_000]));
    transport.peer_timeout = PEER_TIMEOUT;
    job.loss.min_message = pick(rng, &[None, Some(0), Some(1000)]).map(ByteCount::new);
    job.loss.protected_share = Share::new(pick(rng, &[0.0, 0.1, 0.3])).expect("a share");
    if rng.random_bool(0.2) {
        job.loss.step_tolerance = Share::new(0.05);
    }
    job.collectives.chunk = ByteCount::new(pick(rng, &[4000, 16_000, 1 << 20]));
    job.collectives.algorithm = pick(
        rng,
        &[
            ReduceAlgorithm::Auto,
            ReduceAlgorithm::Auto,
            ReduceAlgorithm::Direct,
            ReduceAlgorithm::Ring,
            ReduceAlgorithm::HalvingDoubling,
            ReduceAlgorithm::Hierarchical,
        ],
    );
    job
}

/// The group of all ranks, and two random ones.
fn groups(rng: &mut ChaCha8Rng, ranks: u16) -> Vec<Group> {
    let mut groups = vec![(0..ranks).map(Rank).collect::<Vec<_>>()];
    for _ in 0..2 {
        let mut members: Vec<Rank> = (0..ranks).map(Rank).collect();
        let size = rng.random_range(2..=members.len());
        while members.len() > size {
            members.remove(rng.random_range(0..members.len()));
        }
        let turn = rng.random_range(0..members.len());
        members.rotate_left(turn);
        groups.push(members);
    }
    let numbered = (0..).zip(groups);
    let group = |(id, ranks): (u16, Vec<Rank>)| Group {
        id,
        ranks: ranks.into(),
    };
    numbered.map(group).collect()
}

fn some_share(rng: &mut ChaCha8Rng) -> Share {
    Share::new(pick(rng, &[0.02, 0.1, 0.3, 1.0])).expect("a share")
}

/// A tensor that lives from step to step.
fn tensor(rng: &mut ChaCha8Rng, groups: &[Group], segment: usize) -> PlannedTensor {
    let group = rng.random_range(0..groups.len());
    let root = pick(rng, &groups[group].ranks);
    let holes = pick(
        rng,
        &[
            HoleFilling::Rescale,
            HoleFilling::Zero,
            HoleFilling::Previous,
            HoleFilling::ErrorFeedback,
        ],
    );
    // Sums of many ranks, or of what several steps owe, need more digits.
    let dtype = match holes {
        HoleFilling::ErrorFeedback => DType::F64,
        _ if groups[group].ranks.len() > 4 => DType::F64,
        _ => pick(rng, &[DType::F32, DType::F64]),
    };
    PlannedTensor {
        group,
        collective: pick(
            rng,
            &[
                Collective::AllReduce,
                Collective::AllReduce,
                Collective::ReduceScatter,
                Collective::Reduce { root },
            ],
        ),
        dtype,
        op: pick(rng, &[ReduceOp::Sum, ReduceOp::Avg]),
        holes,
        elements: elements(rng, segment).max(1),
        tolerance: some_share(rng),
        codec: CodecTerms::NONE,
    }
}

/// Elements of a tensor: from none to some dozens of packets.
fn elements(rng: &mut ChaCha8Rng, segment: usize) -> usize {
    let most = segment * pick(rng, &[1, 4, 20, 60, 120]) / 8;
    match rng.random_bool(0.05) {
        true => 0,
        false => rng.random_range(1..=most),
    }
}

fn any_collective(rng: &mut ChaCha8Rng, group: &Group, index: usize) -> PlannedCollective {
    let root = pick(rng, &group.ranks);
    let other = pick(rng, &group.ranks);
    let draw = rng.random_range(0..14);
    let receipt = match rng.random_bool(0.3) {
        true => Receipt::AnySource,
        false => Receipt::Named,
    };
    PlannedCollective::Group(match draw {
        0 | 1 => Collective::AllReduce,
        2 => Collective::Broadcast { root },
        3 => Collective::AllGather,
        4 => Collective::ReduceScatter,
        5 => Collective::Reduce { root },
        6 => Collective::Gather { root },
        7 => Collective::Scatter { root },
        8 => Collective::AllToAll,
        9 => Collective::Barrier,
        _ if root != other => {
            return PlannedCollective::Message {
                from: root,
                to: other,
                tag: index as u16,
                receipt,
            };
        }
        _ => Collective::AllReduce,
    })
}
