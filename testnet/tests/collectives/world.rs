//! Ranks that are joined by a simulated network, and tensors to give them.

use half::{bf16, f16};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{
    Collective, Completion, Group, Layers, LossTerms, Operation, OperationOutcome, SubmitError,
};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{CodecTerms, HoleFilling, Job, Mtu, PacketSecurity};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{ByteCount, Instant, JobId, Rank, Share, Span, Step};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::{Ended, Network};

/// Payload bytes of a packet in these tests.
pub(crate) const SEGMENT: usize = 128;

/// A job of small packets and small chunks, whose messages are all long enough to lose packets.
pub(crate) fn small_job() -> Job {
    let mut job = Job {
        security: PacketSecurity::None,
        ..Job::default()
    };
    job.transport.mtu = Mtu::Bytes(SEGMENT as u32 + 112);
    job.collectives.chunk = ByteCount::new(1000);
    job.loss.min_message = Some(ByteCount::new(0));
    job.loss.protected_share = Share::NONE;
    job
}

/// A network that loses, reorders and duplicates.
pub(crate) fn rough(drop: f64) -> Profile {
    Profile::rough(share(drop))
}

pub(crate) fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

/// A lossless all-reduce of a sum of f32 over all of `ranks`; each test changes the part that it
/// tests.
pub(crate) fn all_reduce(ranks: u16, sequence: u32, buffer: Vec<u8>) -> Operation {
    Operation {
        group: Group {
            id: 0,
            ranks: (0..ranks).map(Rank).collect(),
        },
        sequence,
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        buffer: Buffer::Owned(buffer),
        input: None,
        splits: None,
        loss: LossTerms::NONE,
        step: Step(sequence),
        layers: Layers::default(),
        tensor_key: 5,
        deadline: None,
    }
}

/// A tolerance and the rule for holes.
pub(crate) fn tolerating(tolerance: f64, holes: HoleFilling) -> LossTerms {
    LossTerms {
        tolerance: share(tolerance),
        holes,
        codec: CodecTerms::NONE,
    }
}

/// Whole numbers, or quotients of floats, as a tensor of `dtype`.
pub(crate) fn tensor(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let bytes = |value: f64| match dtype {
        DType::U8 | DType::I8 => vec![value as i64 as u8],
        DType::I16 | DType::U16 => (value as i64 as i16).to_le_bytes().to_vec(),
        DType::I32 | DType::U32 => (value as i64 as i32).to_le_bytes().to_vec(),
        DType::I64 | DType::U64 => (value as i64).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
    };
    values.into_iter().flat_map(bytes).collect()
}

/// Small whole numbers that differ by rank and place.
pub(crate) fn value(rank: u16, index: usize) -> f64 {
    ((index * 5 + usize::from(rank) * 3) % 4 + 1) as f64
}

/// The first values of a rank.
pub(crate) fn values(rank: u16, elements: usize) -> impl Iterator<Item = f64> {
    (0..elements).map(move |index| value(rank, index))
}

/// Reduces the values of all ranks at one place.
pub(crate) fn reduced(op: ReduceOp, ranks: u16, index: usize) -> f64 {
    let all = (0..ranks).map(|rank| value(rank, index));
    let bits = |combine: fn(i64, i64) -> i64| {
        let bits = (0..ranks).map(|rank| value(rank, index) as i64);
        bits.reduce(combine).expect("a rank") as f64
    };
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Avg => all.sum::<f64>() / f64::from(ranks),
        ReduceOp::Product => all.product(),
        ReduceOp::Min => all.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => all.fold(0.0, f64::max),
        ReduceOp::BitAnd => bits(|a, b| a & b),
        ReduceOp::BitOr => bits(|a, b| a | b),
        ReduceOp::BitXor => bits(|a, b| a ^ b),
    }
}

/// The reduction of the first values of all ranks, as a tensor.
pub(crate) fn reduction(dtype: DType, op: ReduceOp, ranks: u16, elements: usize) -> Vec<u8> {
    tensor(dtype, (0..elements).map(|index| reduced(op, ranks, index)))
}

/// The values of a tensor of f32.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (elements, _) = bytes.as_chunks::<4>();
    elements
        .iter()
        .map(|element| f32::from_le_bytes(*element))
        .collect()
}

/// Ranks of one job and the network between them.
pub(crate) struct World {
    pub(crate) network: Network<Communicator>,
    pub(crate) ranks: u16,
}

impl World {
    pub(crate) fn new(ranks: u16, job: &Job, profile: Profile, seed: u64) -> Self {
        let apart: Vec<u16> = (0..ranks).collect();
        Self::on_hosts(&apart, job, profile, seed)
    }

    /// Ranks of which rank i is on host `host_of_rank[i]`; links are alike everywhere.
    pub(crate) fn on_hosts(host_of_rank: &[u16], job: &Job, profile: Profile, seed: u64) -> Self {
        let ranks = host_of_rank.len() as u16;
        let hosts = (0..ranks).map(|rank| {
            let (rank, job_id) = (Rank(rank), JobId(7));
            let identity = Identity {
                rank,
                world_size: ranks,
                job: job_id,
                epoch: 1,
            };
            let endpoint = Endpoint::new(identity, job, seed + u64::from(rank.0));
            Communicator::new(endpoint, job).with_hosts(host_of_rank.to_vec())
        });
        Self {
            network: Network::new(hosts.collect(), profile, seed),
            ranks,
        }
    }

    pub(crate) fn submit(&mut self, rank: u16, operation: Operation) -> Result<(), SubmitError> {
        let submitted = self.network.command(Rank(rank), |communicator, now| {
            communicator.submit(now, operation)
        });
        submitted.map(|_| ())
    }

    /// Submits one operation on every rank.
    pub(crate) fn submit_all(&mut self, mut operation: impl FnMut(u16) -> Operation) {
        for rank in 0..self.ranks {
            self.submit(rank, operation(rank))
                .expect("a valid operation");
        }
    }

    /// Runs until no operation is pending.
    pub(crate) fn run(&mut self) {
        let deadline = self.network.now() + Span::from_millis(20_000);
        let idle = |ranks: &[Communicator]| ranks.iter().all(|rank| rank.pending() == 0);
        let ended = self.network.run(deadline, idle);
        assert_eq!(ended, Ended::Reached, "operations are still pending");
    }

    /// The next completion of a rank.
    pub(crate) fn completion(&mut self, rank: u16) -> Option<Completion> {
        self.network
            .command(Rank(rank), |communicator, _| communicator.poll_completion())
    }

    /// The next result of a rank, which must be there.
    pub(crate) fn result(&mut self, rank: u16) -> (Vec<u8>, OperationOutcome) {
        let completion = self.completion(rank).expect("the operation has ended");
        let outcome = completion.result.expect("the operation succeeded");
        let Buffer::Owned(bytes) = completion.buffer else {
            panic!("tests own their buffers")
        };
        (bytes, outcome)
    }

    /// Runs one operation on all ranks and returns the results by rank.
    pub(crate) fn perform(
        &mut self,
        operation: impl FnMut(u16) -> Operation,
    ) -> Vec<(Vec<u8>, OperationOutcome)> {
        self.submit_all(operation);
        self.run();
        (0..self.ranks).map(|rank| self.result(rank)).collect()
    }

    pub(crate) fn at(&self, span: Span) -> Instant {
        self.network.now() + span
    }
}
