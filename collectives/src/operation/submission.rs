//! An operation as its caller submits it.

use std::ops::Range;
use std::sync::Arc;

use gradwire_protocol::job::CodecTerms;
use gradwire_protocol::units::{Instant, Layer, Rank, Share, Step};

use crate::numbers::codec::Codec;
use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::holes::HoleFilling;
use crate::operation::buffer::Buffer;
use crate::operation::call::{Call, ContributionForm};
use crate::operation::collective::Collective;
use crate::operation::label::{OperationLabel, tag_and_count};

/// Ranks that work together, in an order that all of them agree on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Number of the group, equal on all its ranks.
    pub id: u16,
    /// Its ranks, each once.
    pub ranks: Arc<[Rank]>,
}

/// How much may be missing, how holes are filled, and how values are shortened. Must be equal on
/// all ranks.
///
/// - Sums and averages of floats can miss contributions, but only if each contribution goes
///   straight to the rank that sums it (direct algorithms, reduce).
/// - Point-to-point messages of floats can miss segments. The receiver's buffer keeps its old bytes
///   there, and the completion lists them. Of the rules for holes only error feedback applies,
///   since it is the sender's.
/// - All other operations are lossless, whatever stands here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossTerms {
    /// Largest share of each contribution that may be missing. It is smaller if the job limits the
    /// layer's tolerance or is strict in the step.
    pub tolerance: Share,
    /// How holes are filled.
    pub holes: HoleFilling,
    /// How values are encoded between hosts: sums and averages of floats, by all-reduce and
    /// reduce-scatter. Other operations must name no codec.
    pub codec: CodecTerms,
}

impl LossTerms {
    /// A lossless operation.
    pub const NONE: Self = Self {
        tolerance: Share::NONE,
        holes: HoleFilling::Rescale,
        codec: CodecTerms::NONE,
    };
}

/// The layers of the model that the tensor's bytes belong to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layers {
    /// Number of layers of the model; 0 if they are not known.
    pub count: u16,
    /// The byte where each layer begins, in ascending order. For a reduce-scatter these are bytes
    /// of its input.
    pub spans: Vec<(usize, Layer)>,
}

impl Layers {
    /// The layers of a range of bytes: that of the first byte, and each that begins in the range.
    pub(crate) fn within(&self, bytes: Range<usize>) -> impl Iterator<Item = (usize, Layer)> {
        let after = self
            .spans
            .partition_point(|&(start, _)| start <= bytes.start);
        let inside = move |&(start, _): &(usize, Layer)| start < bytes.end;
        let from_first = self.spans[after.saturating_sub(1)..].iter().copied();
        from_first.take_while(inside)
    }
}

/// How many bytes of an all-to-all go to and come from each rank.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Splits {
    /// Bytes for each rank of the group, in its order; together they are the input.
    pub input: Arc<[usize]>,
    /// Bytes from each rank of the group, in its order; together they are the buffer.
    pub output: Arc<[usize]>,
}

/// An operation that the ranks of a group do together.
#[derive(Debug)]
pub struct Operation {
    /// The ranks that take part.
    pub group: Group,
    /// Number of a collective in its group, equal on all its ranks and not in use. Point-to-point
    /// operations are counted by the communicator, per group, pair, direction and tag.
    pub sequence: u32,
    /// The collective or point-to-point operation.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// How elements are reduced, if they are.
    pub op: ReduceOp,
    /// The result, in and out.
    pub buffer: Buffer,
    /// The separate input that a reduce-scatter, an all-to-all and the root of a scatter have, and
    /// an all-gather and the root of a gather may have.
    pub input: Option<Buffer>,
    /// How an all-to-all is cut, unless evenly.
    pub splits: Option<Splits>,
    /// How much may be missing.
    pub loss: LossTerms,
    /// Training step whose loss budget holds.
    pub step: Step,
    /// Layers of the tensor.
    pub layers: Layers,
    /// Identifies the tensor from step to step, for state that is kept between steps; 0 if nothing
    /// does. Then holes are rescaled, and the errors of a codec are not made up for.
    pub tensor_key: u64,
    /// The operation fails if it is not complete by then.
    pub deadline: Option<Instant>,
}

/// Whether codecs are defined for operations of this kind.
pub fn takes_codec(collective: Collective, op: ReduceOp, dtype: DType) -> bool {
    let is_exchange = matches!(
        collective,
        Collective::AllReduce | Collective::ReduceScatter
    );
    is_exchange && op.can_miss_contributions() && dtype.is_float()
}

impl Operation {
    /// Its name.
    pub fn label(&self) -> OperationLabel {
        OperationLabel {
            call: self.call(),
            group: self.group.id,
            sequence: self.number(),
        }
    }

    /// How many bytes this rank contributes: its input, its block of the buffer, or its buffer.
    pub(crate) fn given_bytes(&self) -> usize {
        let input = self.input.as_ref().map(Buffer::len);
        match (self.collective, input) {
            (Collective::AllGather, None) => self.buffer.len() / self.group.ranks.len().max(1),
            (Collective::Scatter { .. }, _) => self.buffer.len(),
            (_, input) => input.unwrap_or(self.buffer.len()),
        }
    }

    /// Its call, which the other ranks of the group must make, too.
    pub fn call(&self) -> Call {
        let (collective, dtype) = (self.collective, self.dtype);
        let has_elements = collective != Collective::Barrier;
        Call {
            collective,
            op: collective.reduces().then_some(self.op),
            dtype: has_elements.then_some(dtype),
            elements: has_elements.then(|| self.given_bytes() / dtype.bytes()),
            form: ContributionForm::Plain,
        }
    }

    /// Its number in the group, or among messages with the same peer, direction and tag.
    fn number(&self) -> u32 {
        if self.collective.is_point_to_point() {
            u32::from(tag_and_count(self.sequence).1)
        } else {
            self.sequence
        }
    }

    /// Whether anything may be missing at all.
    pub fn may_lose(&self) -> bool {
        let sums = self.collective.reduces() && self.op.can_miss_contributions();
        (sums || self.collective.is_point_to_point())
            && !self.loss.tolerance.is_none()
            && self.dtype.is_float()
    }

    /// How its holes are filled. A tensor without a key has no other step, from which a value could
    /// come or to which it could go.
    pub(crate) fn holes(&self) -> HoleFilling {
        match self.loss.holes {
            HoleFilling::Previous | HoleFilling::ErrorFeedback if self.tensor_key == 0 => {
                HoleFilling::Rescale
            }
            holes => holes,
        }
    }

    /// The codec of the messages that leave a host; `None` if the tensor is too short for it.
    pub fn codec(&self) -> Option<Codec> {
        let is_long = self.tensor_bytes() as u64 >= self.loss.codec.min_tensor.get();
        Codec::of(self.loss.codec).filter(|_| is_long && self.can_be_encoded())
    }

    /// Whether codecs are defined for it.
    pub fn can_be_encoded(&self) -> bool {
        takes_codec(self.collective, self.op, self.dtype)
    }

    /// Length of the tensor: that of the buffer or of the input, whichever is longer.
    pub fn tensor_bytes(&self) -> usize {
        self.buffer
            .len()
            .max(self.input.as_ref().map_or(0, Buffer::len))
    }

    /// The lost rank that keeps it from completing, if any. A receive from any rank is stopped only
    /// if all other ranks are lost; then this is the first of them. `me` is not lost.
    pub(crate) fn stopped_by(&self, me: Rank, is_lost: impl Fn(Rank) -> bool) -> Option<Rank> {
        let mut others = self
            .participants()
            .iter()
            .copied()
            .filter(|&rank| rank != me);
        if self.collective.any_source_tag().is_none() {
            return others.find(|&rank| is_lost(rank));
        }
        let first = others.next()?;
        (is_lost(first) && others.all(is_lost)).then_some(first)
    }

    /// Whether it has no bytes and needs no other rank. A barrier, an all-to-all and point-to-point
    /// operations tell their peers something even without bytes.
    pub(crate) fn needs_nobody(&self) -> bool {
        let waits = matches!(self.collective, Collective::Barrier | Collective::AllToAll)
            || self.collective.is_point_to_point();
        self.buffer.is_empty() && !waits
    }

    /// The ranks that take part.
    pub(crate) fn participants(&self) -> &[Rank] {
        let named = self
            .collective
            .named_rank()
            .filter(|_| self.collective.is_point_to_point());
        let at = named.and_then(|peer| self.group.ranks.iter().position(|&rank| rank == peer));
        at.map_or(&self.group.ranks, |at| &self.group.ranks[at..=at])
    }

    /// Length of one rank's block in the buffer, or of the buffer if it does not consist of blocks.
    pub(crate) fn block_bytes(&self, me: Rank) -> usize {
        let (buffer, world) = (self.buffer.len(), self.group.ranks.len());
        match self.collective {
            Collective::AllGather | Collective::AllToAll => buffer / world,
            Collective::Gather { root } if root == me => buffer / world,
            _ => buffer,
        }
    }
}
