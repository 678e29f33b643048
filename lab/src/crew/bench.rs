//! The measurements of one rank: collectives in a loop, between barriers, each result checked.
//!
//! A result is checked only when all ranks have theirs: where ranks share cores, a check would take
//! the time of those that are still busy. Rivals' programs have the same barriers.

use std::collections::BTreeMap;
use std::time::Duration;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{
    Collective, Group, Layers, LossTerms, Operation, OperationOutcome, takes_codec,
};
use gradwire_protocol::job::{CodecName, CodecTerms, HoleFilling};
use gradwire_protocol::units::{Layer, Rank, Span, Step};
use gradwire_runtime::{EndError, EndedOperation, LocalRank, RankCounters, RankTask};
use nix::time::{ClockId, clock_gettime};

use super::exercise::Exercise;
use super::kind::PerfCollective;
use super::memory;
use super::messages::{BucketsRound, Layering, Measured, Round};
use super::pattern::{self, Deviations, InexactSum, OwedSums};

/// How long one operation may take.
const OPERATION_PATIENCE: Span = Span::from_millis(120_000);
/// How long to drive for one operation.
const WAIT_PATIENCE: Duration = Duration::from_secs(120);
/// The key under which state of the round's one tensor is kept between steps. Keys of buckets
/// follow it.
const TENSOR_KEY: u64 = 1;

/// A rank that does collectives in a loop.
#[derive(Debug)]
pub struct RankBench {
    rank: LocalRank,
    group: Group,
    collectives: u32,
    step: u32,
    /// By key, the tensors whose missing values come with later steps.
    owed: BTreeMap<u64, OwedSums>,
}

impl RankBench {
    /// A bench over all ranks of a job.
    pub fn new(rank: LocalRank, world: u16) -> Self {
        let ranks = (0..world).map(Rank).collect();
        Self {
            rank,
            group: Group { id: 0, ranks },
            collectives: 0,
            step: 0,
            owed: BTreeMap::new(),
        }
    }

    /// The rank.
    pub fn rank(&self) -> &LocalRank {
        &self.rank
    }

    /// The kind of wire that carries packets between the ranks.
    pub fn wire(&self) -> &'static str {
        self.rank.wire()
    }

    /// Does the collectives of a round, each between barriers, and checks each result.
    ///
    /// # Errors
    /// [`EndError`] of the first that fails.
    pub fn round(&mut self, round: &Round) -> Result<Measured, EndError> {
        let seat = (self.rank.rank().0, self.world());
        let exercise = Exercise::new(round.kind, seat, round.bytes);
        let before = self.rank.counters();
        let mut measured = Measured::default();
        let mut buffer = exercise.buffer.clone();
        let mut input = exercise.input.clone();
        for _ in 0..round.iterations {
            buffer.copy_from_slice(&exercise.buffer);
            self.barrier()?;
            let done = self.exercise(&exercise, (buffer, input))?;
            (buffer, input) = (done.buffer, done.input);
            measured.times_us.push(done.micros);
            if round.kind == PerfCollective::Barrier {
                measured.barrier_ns.push(done.span_ns);
            }
            measured.add_losses(&done.outcome);
            self.barrier()?;
            self.check(&mut measured, &buffer, &exercise, TENSOR_KEY);
        }
        Ok(self.counted(measured, before))
    }

    /// The sum of all ranks' tensors of 32-bit floats, and the microseconds that it took.
    ///
    /// # Errors
    /// [`EndError`] when it fails, as it does when the sizes differ.
    pub fn sum(&mut self, tensor: Vec<u8>) -> Result<(Vec<u8>, f64), EndError> {
        self.step += 1;
        let operation = self.collective(Collective::AllReduce, (tensor, None));
        let (ended, took) = self.timed(operation)?;
        Ok((bytes_of(ended.buffer), micros(took)))
    }

    /// Does many all-reduces at once, from the last layer to the first, and checks each result.
    ///
    /// # Errors
    /// [`EndError`] of the first that fails.
    pub fn buckets(&mut self, buckets: &BucketsRound) -> Result<Measured, EndError> {
        let seat = (self.rank.rank().0, self.world());
        let exercise = Exercise::new(PerfCollective::AllReduce, seat, buckets.bytes);
        let tensors = vec![exercise.buffer.clone(); usize::from(buckets.count)];
        let before = self.rank.counters();
        self.step += 1;
        self.barrier()?;
        let start = now_ns();
        let (tell, told) = std::sync::mpsc::channel();
        let mut tickets = Vec::new();
        for (layer, tensor) in (0..buckets.count).zip(tensors).rev() {
            let mut operation = self.collective(Collective::AllReduce, (tensor, None));
            operation.tensor_key = bucket_key(layer);
            if buckets.layering == Layering::Known {
                operation.layers = Layers {
                    count: buckets.count,
                    spans: vec![(0, Layer(layer))],
                };
            }
            let tell = tell.clone();
            let done = move |result| {
                // The receiver is gone when another operation has failed.
                let _ = tell.send((layer, now_ns(), result));
            };
            tickets.push(self.rank.submit(task(operation), Box::new(done)));
        }
        drop(tell);
        // The front layers are needed first.
        for ticket in tickets.iter().rev() {
            self.rank.wait(ticket, WAIT_PATIENCE);
        }
        let mut measured = Measured {
            times_us: vec![0.0; usize::from(buckets.count)],
            ..Measured::default()
        };
        let mut results = Vec::new();
        for (layer, ended_ns, result) in told {
            let EndedOperation {
                buffer, outcome, ..
            } = result?;
            measured.times_us[usize::from(layer)] = (ended_ns - start) as f64 / 1e3;
            measured.add_losses(&outcome);
            results.push((layer, bytes_of(buffer)));
        }
        self.barrier()?;
        for (layer, result) in results {
            self.check(&mut measured, &result, &exercise, bucket_key(layer));
        }
        Ok(self.counted(measured, before))
    }

    fn world(&self) -> u16 {
        self.group.ranks.len() as u16
    }

    /// Adds the counters since `before` to a measurement.
    fn counted(&self, measured: Measured, before: RankCounters) -> Measured {
        let counted = self.rank.counters() - before;
        Measured {
            sent_segments: counted.sent_segments,
            lost_segments: counted.lost_segments,
            repaired_segments: counted.repaired_segments,
            ledger_lost_segments: counted.ledger_lost_segments,
            faults_dropped: counted.faults_dropped,
            kernel_drops: counted.kernel_drops,
            segment_bytes: u64::from(self.rank.segment_bytes()),
            resident_bytes: memory::resident_bytes(),
            ..measured
        }
    }

    /// Checks the result of an exercise with the tensor of this key.
    fn check(&mut self, measured: &mut Measured, result: &[u8], exercise: &Exercise, key: u64) {
        let Some(expected) = &exercise.expected else {
            return;
        };
        let (world, job) = (self.world(), self.rank.job());
        let may_miss = exercise.kind.reduces() && !job.tolerance.is_none();
        let compare = |estimate| pattern::deviations(result, expected, world, estimate);
        let found = match job.holes {
            HoleFilling::ErrorFeedback if may_miss => {
                let owed = self.owed.entry(key).or_default();
                owed.deviations(result, expected)
            }
            HoleFilling::Rescale => compare(InexactSum::Rescaled),
            HoleFilling::Zero | HoleFilling::Previous | HoleFilling::ErrorFeedback => {
                compare(InexactSum::Partial)
            }
        };
        let found = match job.codec().name {
            CodecName::None => found,
            _ if !exercise.kind.reduces() => found,
            // Encoded values are near the sum, which other tests check; ranks must agree on them.
            _ => Deviations::default(),
        };
        measured.estimated_elements += found.estimated;
        measured.wrong_elements += if may_miss {
            found.wrong
        } else {
            found.estimated
        };
        if exercise.kind == PerfCollective::AllReduce {
            let is_exact = result == expected.exact;
            let hash = if is_exact { 0 } else { pattern::hash(result) };
            measured.hashes.push(hash);
        }
    }

    fn barrier(&mut self) -> Result<(), EndError> {
        let barrier = self.collective(Collective::Barrier, (Vec::new(), None));
        self.rank.run(task(barrier)).map(drop)
    }

    fn exercise(
        &mut self,
        exercise: &Exercise,
        (buffer, input): Tensors,
    ) -> Result<Done, EndError> {
        let Some(collective) = exercise.collective else {
            return self.ping_pong((buffer, input));
        };
        self.step += 1;
        let operation = self.collective(collective, (buffer, input));
        let (start, (ended, took)) = (now_ns(), self.timed(operation)?);
        Ok(Done {
            micros: micros(took),
            span_ns: (start, now_ns()),
            buffer: bytes_of(ended.buffer),
            input: ended.input.map(bytes_of),
            outcome: ended.outcome,
        })
    }

    /// Rank 0 sends and rank 1 answers; the time is half of both. Other ranks look on.
    fn ping_pong(&mut self, (buffer, input): Tensors) -> Result<Done, EndError> {
        let Some(message) = input else {
            return Ok(Done {
                buffer,
                ..Done::default()
            });
        };
        let rank = self.rank.rank().0;
        let (to, from) = (Rank(rank ^ 1), Rank(rank ^ 1));
        let send = self.operation(Collective::Send { to, tag: 0 }, 0, (message, None));
        let receive = self.operation(Collective::Receive { from, tag: 0 }, 0, (buffer, None));
        let (sent, received, micros) = if rank == 0 {
            let (sent, went) = self.timed(send)?;
            let (received, came) = self.timed(receive)?;
            (sent, received, micros(went + came) / 2.0)
        } else {
            let received = self.rank.run(task(receive))?;
            (self.rank.run(task(send))?, received, 0.0)
        };
        Ok(Done {
            micros,
            buffer: bytes_of(received.buffer),
            input: Some(bytes_of(sent.buffer)),
            ..Done::default()
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the command measures time")]
    fn timed(&self, operation: Operation) -> Result<(EndedOperation, Duration), EndError> {
        let start = std::time::Instant::now();
        let ended = self.rank.run(task(operation))?;
        Ok((ended, start.elapsed()))
    }

    fn collective(&mut self, collective: Collective, tensors: Tensors) -> Operation {
        self.collectives += 1;
        self.operation(collective, self.collectives, tensors)
    }

    fn operation(
        &self,
        collective: Collective,
        sequence: u32,
        (buffer, input): Tensors,
    ) -> Operation {
        let job = self.rank.job();
        let is_gradient = takes_codec(collective, ReduceOp::Sum, DType::F32);
        let tolerant = LossTerms {
            tolerance: job.tolerance,
            holes: job.holes,
            codec: if is_gradient {
                job.codec()
            } else {
                CodecTerms::NONE
            },
        };
        let reduces = collective.reduces();
        Operation {
            group: self.group.clone(),
            sequence,
            collective,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer: Buffer::Owned(buffer),
            input: input.map(Buffer::Owned),
            splits: None,
            loss: if reduces { tolerant } else { LossTerms::NONE },
            step: Step(self.step),
            layers: Layers::default(),
            tensor_key: TENSOR_KEY,
            deadline: None,
        }
    }
}

impl Measured {
    fn add_losses(&mut self, outcome: &OperationOutcome) {
        self.operations_lost_segments += outcome.lost_segments;
        self.max_lost_share = self.max_lost_share.max(outcome.max_lost_share.get());
    }
}

/// Buffer and input of an operation.
type Tensors = (Vec<u8>, Option<Vec<u8>>);

/// The outcome of one iteration.
#[derive(Debug, Default)]
struct Done {
    micros: f64,
    span_ns: (u64, u64),
    buffer: Vec<u8>,
    input: Option<Vec<u8>>,
    outcome: OperationOutcome,
}

/// The key under which state of a layer's bucket is kept.
fn bucket_key(layer: u16) -> u64 {
    TENSOR_KEY + 1 + u64::from(layer)
}

fn task(operation: Operation) -> RankTask {
    RankTask {
        operation,
        timeout: Some(OPERATION_PATIENCE),
    }
}

fn bytes_of(buffer: Buffer) -> Vec<u8> {
    let Buffer::Owned(bytes) = buffer else {
        unreachable!("an owned buffer comes back")
    };
    bytes
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Nanoseconds by a clock that all processes of this machine share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}
