//! Results of operations: their buffers, and the check once all ranks have a result.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::ReduceOp;
use gradwire_collectives::operation::{
    Collective, Completion, Layers, LossTerms, Operation, OperationOutcome, Splits,
};
use gradwire_protocol::job::{CodecTerms, HoleFilling};
use gradwire_protocol::units::{ByteCount, Instant, Rank};

use super::evidence::{Found, ToldHoles};
use super::numbers::{contributors, decode, encode, weight};
use super::program::{ClusterProgram, PlannedCollective, PlannedOperation, PlannedTensor, Receipt};
use super::residuals::{self, RankResidual};
use super::violation::ClusterCheck;

/// A receive's buffer before it: stays where a segment is missing.
const OLD: f64 = 99.0;

/// How an operation ended on one rank.
#[derive(Debug)]
pub(crate) struct RankResult {
    pub(crate) bytes: Vec<u8>,
    pub(crate) holes: Vec<(usize, usize)>,
    pub(crate) outcome: Result<OperationOutcome, String>,
    pub(crate) at: Instant,
    /// What the rank owes to the next step, if its tensor remembers that.
    pub(crate) owed: Option<RankResidual>,
}

impl RankResult {
    /// From a completion.
    pub(crate) fn of(completion: Completion, at: Instant) -> Self {
        let holes = completion.holes.iter();
        Self {
            bytes: completion.buffer.bytes().unwrap_or_default().to_vec(),
            holes: holes.map(|hole| (hole.offset, hole.bytes)).collect(),
            outcome: completion.result.map_err(|error| error.to_string()),
            at,
            owed: None,
        }
    }
}

/// The state of a tensor that lasts from step to step, as the checks compute it.
#[derive(Clone, Debug)]
pub(crate) struct TensorModel {
    /// By seat and element: weights that were lost and are owed to the next step.
    pub(crate) owed: Vec<Vec<u64>>,
    /// By element: the last result.
    previous: Option<Vec<f64>>,
    /// The chunk of the last operation, if it had been changed by then.
    chunk: Option<ByteCount>,
    /// An operation failed, so that the ranks' state is not known any more.
    pub(crate) is_unknown: bool,
}

impl TensorModel {
    pub(crate) fn of(tensor: &PlannedTensor, world: usize) -> Self {
        let elements = elements(tensor.collective, tensor.elements, world);
        Self {
            owed: vec![vec![0; elements]; world],
            previous: None,
            chunk: None,
            is_unknown: false,
        }
    }
}

/// Elements that are summed.
pub(crate) fn elements(collective: Collective, elements: usize, world: usize) -> usize {
    match collective {
        Collective::ReduceScatter => elements * world,
        _ => elements,
    }
}

/// The base of a tensor's digits. A sum times a count of ranks carries no digit over, so that sums
/// of different counts cannot be confused.
pub(crate) fn base(holes: HoleFilling) -> u64 {
    match holes {
        HoleFilling::ErrorFeedback => 256,
        _ => 32,
    }
}

/// A rank's element of an operation, as a number.
fn value(planned: &PlannedOperation, seat: usize, element: usize) -> f64 {
    let weight = weight(planned.index as u64, seat, element);
    let scale = match planned.tensor {
        Some(_) => base(planned.holes).pow(seat as u32),
        None => 1,
    };
    (weight * scale) as f64
}

/// The operation of a rank.
pub(crate) fn operation(planned: &PlannedOperation, rank: Rank) -> Operation {
    let (collective, buffer, input) = part(planned, rank);
    Operation {
        group: planned.group.clone(),
        sequence: planned.sequence,
        collective,
        dtype: planned.dtype,
        op: planned.op,
        buffer: Buffer::Owned(buffer),
        input: input.map(Buffer::Owned),
        splits: planned.is_uneven.then(|| splits(planned, rank)),
        loss: LossTerms {
            tolerance: planned.tolerances[usize::from(rank.0)],
            holes: planned.holes,
            codec: CodecTerms::NONE,
        },
        step: planned.step,
        layers: Layers::default(),
        tensor_key: (planned.tensor_key()).unwrap_or(1_000 + planned.index as u64),
        deadline: None,
    }
}

/// The lengths of a rank's blocks in an all-to-all.
fn splits(planned: &PlannedOperation, rank: Rank) -> Splits {
    let (seat, seats) = (planned.seat(rank), 0..planned.group.ranks.len());
    let bytes = |elements: usize| elements * planned.dtype.bytes();
    Splits {
        input: (seats.clone())
            .map(|to| bytes(planned.block(seat, to)))
            .collect(),
        output: seats.map(|from| bytes(planned.block(from, seat))).collect(),
    }
}

/// The elements that a rank gets in an all-to-all, by the seats that send them.
fn exchanged(planned: &PlannedOperation, seat: usize) -> Vec<f64> {
    let seats = 0..planned.group.ranks.len();
    let block = |from| {
        let elements = 0..planned.block(from, seat);
        elements.map(move |at| value(planned, from, block_start(planned, seat) + at))
    };
    seats.flat_map(block).collect()
}

/// The number of a block's first element: no block is twice as long as the mean.
fn block_start(planned: &PlannedOperation, to: usize) -> usize {
    to * planned.elements * 2
}

/// The collective of a rank in an operation, its buffer, and its input.
fn part(planned: &PlannedOperation, rank: Rank) -> (Collective, Vec<u8>, Option<Vec<u8>>) {
    let (seat, world, count) = (
        planned.seat(rank),
        planned.group.ranks.len(),
        planned.elements,
    );
    let dtype = planned.dtype;
    let values = |seat: usize, count: usize| {
        let values = (0..count).map(|element| value(planned, seat, element));
        encode(dtype, values)
    };
    let fill = |value: f64, count: usize| encode(dtype, std::iter::repeat_n(value, count));
    let in_place = |count: usize| {
        let mut buffer = fill(0.0, count * world);
        let block = values(seat, count);
        buffer[seat * block.len()..][..block.len()].copy_from_slice(&block);
        buffer
    };
    match planned.collective {
        PlannedCollective::Message { from, to, tag, .. } if rank == from => {
            (Collective::Send { to, tag }, values(seat, count), None)
        }
        PlannedCollective::Message {
            from, tag, receipt, ..
        } => {
            let receive = match receipt {
                Receipt::AnySource => Collective::ReceiveAny { tag },
                _ => Collective::Receive { from, tag },
            };
            (receive, fill(OLD, count), None)
        }
        PlannedCollective::Group(collective) => {
            let (buffer, input) = match collective {
                Collective::ReduceScatter => (fill(0.0, count), Some(values(seat, count * world))),
                Collective::Broadcast { root } if root != rank => (fill(0.0, count), None),
                Collective::AllGather => (in_place(count), None),
                Collective::Gather { root } if root == rank => (in_place(count), None),
                Collective::Scatter { root } => {
                    let input = (root == rank).then(|| values(seat, count * world));
                    (fill(0.0, count), input)
                }
                Collective::AllToAll => {
                    let taken = (0..world).map(|from| planned.block(from, seat)).sum();
                    let given = (0..world).flat_map(|to| {
                        let elements = 0..planned.block(seat, to);
                        elements.map(move |at| value(planned, seat, block_start(planned, to) + at))
                    });
                    (fill(0.0, taken), Some(encode(dtype, given)))
                }
                Collective::Barrier => (Vec::new(), None),
                _ => (values(seat, count), None),
            };
            (collective, buffer, input)
        }
    }
}

/// Checks an operation that has succeeded on all its ranks. `told` are the holes that receivers
/// named in its messages.
pub(crate) fn check(
    program: &ClusterProgram,
    planned: &PlannedOperation,
    results: &BTreeMap<Rank, RankResult>,
    told: ToldHoles,
    models: &mut [TensorModel],
) -> Result<(), Found> {
    let outcomes = results
        .values()
        .filter_map(|result| result.outcome.as_ref().ok());
    let (lost, missed) = outcomes.fold((0, 0), |(lost, missed), outcome| {
        (
            lost + outcome.lost_segments,
            missed + outcome.missed_segments,
        )
    });
    let named = told.segments;
    if lost != missed || lost != named {
        let detail = format!(
            "{}: receivers did without {lost} segments, STOP names {named}, senders heard \
             of {missed}",
            title(planned)
        );
        return Err((ClusterCheck::Conservation, detail));
    }
    match (planned.collective, planned.tensor) {
        (PlannedCollective::Message { from, to, .. }, _) => message(planned, results, (from, to)),
        (PlannedCollective::Group(_), Some(at)) => {
            let Some(missing) = sum(program, planned, results, &mut models[at])? else {
                return Ok(());
            };
            let width = planned.dtype.bytes() as u64;
            let bytes = missing.start() * width..=missing.end() * width;
            if !bytes.contains(&told.contribution_bytes) {
                let detail = format!(
                    "{}: {bytes:?} bytes of contributions are missing in the result, {} were named \
                     as holes",
                    title(planned),
                    told.contribution_bytes
                );
                return Err((ClusterCheck::Conservation, detail));
            }
            Ok(())
        }
        (PlannedCollective::Group(collective), None) => whole(planned, collective, results),
    }
}

/// An operation's name in reports.
pub(crate) fn title(planned: &PlannedOperation) -> String {
    let kind = match planned.collective {
        PlannedCollective::Group(collective) => collective.to_string(),
        PlannedCollective::Message { from, to, .. } => format!("message from {from} to {to}"),
    };
    let (index, group) = (planned.index, planned.group.id);
    format!("operation {index}, {kind} of group {group}")
}

fn wrong(planned: &PlannedOperation, rank: Rank, element: usize, values: (f64, f64)) -> Found {
    let (got, expected) = values;
    let detail = format!(
        "{}: element {element} at rank {rank} is {got}, expected {expected}",
        title(planned)
    );
    (ClusterCheck::Values, detail)
}

fn is_near(got: f64, expected: f64) -> bool {
    (got - expected).abs() <= 1e-5 * expected.abs().max(1.0)
}

/// A message: the receiver has the bytes that were sent, and its old values in the holes.
fn message(
    planned: &PlannedOperation,
    results: &BTreeMap<Rank, RankResult>,
    (from, to): (Rank, Rank),
) -> Result<(), Found> {
    let (sent, received) = (&results[&from], &results[&to]);
    if received.at > sent.at {
        let detail = format!(
            "{}: the send ended {} before the receive",
            title(planned),
            received.at - sent.at
        );
        return Err((ClusterCheck::SentMeansReceived, detail));
    }
    let (seat, width) = (planned.seat(from), planned.dtype.bytes());
    let got = decode(planned.dtype, &received.bytes);
    for (element, got) in got.into_iter().enumerate() {
        let is_hole = |&(offset, bytes): &(usize, usize)| {
            (offset..offset + bytes).contains(&(element * width))
        };
        let expected = match received.holes.iter().any(is_hole) {
            true => OLD,
            false => value(planned, seat, element),
        };
        if got != expected {
            return Err(wrong(planned, to, element, (got, expected)));
        }
    }
    Ok(())
}

/// A collective without loss.
fn whole(
    planned: &PlannedOperation,
    collective: Collective,
    results: &BTreeMap<Rank, RankResult>,
) -> Result<(), Found> {
    let world = planned.group.ranks.len();
    let count = planned.elements;
    let reduced = |element| reduce(planned, world, element);
    for (&rank, result) in results {
        let seat = planned.seat(rank);
        let exchanged = match collective {
            Collective::AllToAll => exchanged(planned, seat),
            _ => Vec::new(),
        };
        let seat_of = |root| planned.seat(root);
        for (at, got) in decode(planned.dtype, &result.bytes).into_iter().enumerate() {
            let expected = match collective {
                Collective::AllReduce => reduced(at),
                Collective::Reduce { root } if root == rank => reduced(at),
                Collective::ReduceScatter => reduced(seat * count + at),
                Collective::Broadcast { root } => value(planned, seat_of(root), at),
                Collective::AllGather => value(planned, at / count, at % count),
                Collective::Gather { root } if root == rank => {
                    value(planned, at / count, at % count)
                }
                Collective::Scatter { root } => value(planned, seat_of(root), seat * count + at),
                Collective::AllToAll => exchanged[at],
                _ => got,
            };
            if !is_near(got, expected) {
                return Err(wrong(planned, rank, at, (got, expected)));
            }
        }
    }
    Ok(())
}

fn reduce(planned: &PlannedOperation, world: usize, element: usize) -> f64 {
    let values = (0..world).map(|seat| value(planned, seat, element));
    match planned.op {
        ReduceOp::Avg => values.sum::<f64>() / world as f64,
        ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => values.fold(0.0, f64::max),
        ReduceOp::BitXor => values.fold(0, |bits, value| bits ^ value as u64) as f64,
        _ => values.sum(),
    }
}

/// A sum that may lose contributions. Gives how many contributions of elements are missing, if the
/// state of the tensor is known: a range, since a value may be the sum of more than one choice.
fn sum(
    program: &ClusterProgram,
    planned: &PlannedOperation,
    results: &BTreeMap<Rank, RankResult>,
    model: &mut TensorModel,
) -> Result<Option<RangeInclusive<u64>>, Found> {
    let Some(tensor) = planned.tensor.map(|at| &program.tensors[at]) else {
        return Ok(None);
    };
    let ranks = &planned.group.ranks;
    let holder = |element| residuals::holder(planned, ranks[0], element);
    if tensor.collective == Collective::AllReduce {
        let first = &results[&ranks[0]].bytes;
        if let Some(other) = ranks.iter().find(|rank| results[*rank].bytes != *first) {
            let detail = format!("{}: ranks {} and {other} differ", title(planned), ranks[0]);
            return Err((ClusterCheck::Values, detail));
        }
    }
    let decoded = results
        .iter()
        .map(|(&rank, result)| (rank, decode(planned.dtype, &result.bytes)));
    let decoded: BTreeMap<Rank, Vec<f64>> = decoded.collect();
    let count = elements(tensor.collective, planned.elements, ranks.len());
    // A change of chunk cuts the regions anew of which ranks keep the previous result: those that
    // were not cut so before have none, and are rescaled.
    let is_cut_anew = std::mem::replace(&mut model.chunk, planned.chunk) != planned.chunk;
    let (mut least, mut most) = (0, 0);
    let mut result = Vec::with_capacity(count);
    for element in 0..count {
        let (rank, at) = holder(element);
        let got = decoded[&rank][at];
        result.push(got);
        let weights = (0..ranks.len())
            .map(|seat| weight(planned.index as u64, seat, element) + model.owed[seat][element]);
        let digits: Vec<u64> = weights.collect();
        let previous = model.previous.as_ref().map(|previous| previous[element]);
        let by_rule = seats_of(planned, &digits, got, previous);
        let rescaled = match is_cut_anew {
            true => seats_of(planned, &digits, got, None),
            false => None,
        };
        let Some(seats) = by_rule.or(rescaled) else {
            if model.is_unknown {
                continue;
            }
            let detail = format!(
                "{}: element {at} at rank {rank} is {got}, which is no sum of the contributions \
                 {digits:?} (previous {previous:?})",
                title(planned)
            );
            return Err((ClusterCheck::Values, detail));
        };
        let missing = [seats, rescaled.unwrap_or(seats)];
        let missing = missing.map(|seats| u64::from(ranks.len() as u32 - seats.count_ones()));
        least += missing[0].min(missing[1]);
        most += missing[0].max(missing[1]);
        if planned.holes == HoleFilling::ErrorFeedback {
            for (seat, digit) in digits.into_iter().enumerate() {
                let came = seats >> seat & 1 == 1;
                model.owed[seat][element] = if came { 0 } else { digit };
            }
        }
    }
    model.previous = Some(result);
    if !model.is_unknown {
        residuals::check_owed(planned, results, &model.owed)?;
    }
    Ok((!model.is_unknown).then_some(least..=most))
}

/// The seats whose contributions a result has, by the tensor's rule for holes.
pub(crate) fn seats_of(
    planned: &PlannedOperation,
    digits: &[u64],
    got: f64,
    previous: Option<f64>,
) -> Option<u32> {
    let base = base(planned.holes);
    let world = digits.len() as f64;
    let is_mean = planned.op == ReduceOp::Avg;
    let counted = |sum: f64, came: u32| {
        contributors(sum, base, digits).filter(|seats| seats.count_ones() == came)
    };
    let all = digits.len() as u32;
    match (planned.holes, previous) {
        (HoleFilling::Zero | HoleFilling::ErrorFeedback, _) => {
            contributors(if is_mean { got * world } else { got }, base, digits)
        }
        (HoleFilling::Previous, Some(previous)) => (1..=all).rev().find_map(|came| {
            let stand_in = previous * f64::from(all - came);
            let sum = match is_mean {
                true => got * world - stand_in,
                false => got - stand_in / world,
            };
            counted(sum, came)
        }),
        (HoleFilling::Rescale | HoleFilling::Previous, _) => (1..=all).rev().find_map(|came| {
            let sum = got * f64::from(came);
            counted(if is_mean { sum } else { sum / world }, came)
        }),
    }
}
