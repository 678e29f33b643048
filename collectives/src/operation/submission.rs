//! An operation as its caller submits it.

use std::ops::Range;
use std::sync::Arc;

use gradwire_protocol::job::GradientTransform;
use gradwire_protocol::units::{Instant, Layer, Rank, Share, Step};

use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::holes::HoleFilling;
use crate::operation::buffer::Buffer;
use crate::operation::call::Call;
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

/// How much may be missing, and what stands in for it. Equal on all ranks.
///
/// Only sums and averages of floats can miss contributions, and only where each contribution goes
/// straight to the rank that sums it (direct algorithms, reduce). Messages of floats from rank to
/// rank can miss segments: where one is missing, the receiver's buffer keeps the bytes that it had,
/// and the completion says which these are; of the rules for holes, only error feedback matters to
/// them, since it is the sender's. Everything else is lossless whatever is said here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossTerms {
    /// The most of each contribution that may be missing; less where the job says how much layers
    /// bear, or is strict in a step.
    pub tolerance: Share,
    /// What stands in for it.
    pub holes: HoleFilling,
}

impl LossTerms {
    /// Nothing may be missing.
    pub const NONE: Self = Self {
        tolerance: Share::NONE,
        holes: HoleFilling::Rescale,
    };
}

/// Which layers of the model the tensor's bytes belong to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layers {
    /// Layers of the model; 0 when they are not known.
    pub count: u16,
    /// From which byte on which layer, in ascending order of bytes. Of a reduce-scatter, bytes of
    /// its input.
    pub spans: Vec<(usize, Layer)>,
}

impl Layers {
    /// The layers of some bytes: of the first byte, and each that begins among them.
    pub(crate) fn within(&self, bytes: Range<usize>) -> impl Iterator<Item = (usize, Layer)> {
        let after = self
            .spans
            .partition_point(|&(start, _)| start <= bytes.start);
        let inside = move |&(start, _): &(usize, Layer)| start < bytes.end;
        let from_first = self.spans[after.saturating_sub(1)..].iter().copied();
        from_first.take_while(inside)
    }
}

/// How many bytes of an all-to-all go from whom to whom.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Splits {
    /// Bytes for each rank of the group, in its order; together they are the input.
    pub input: Arc<[usize]>,
    /// Bytes from each rank of the group, in its order; together they are the buffer.
    pub output: Arc<[usize]>,
}

/// Something that the ranks of a group do together.
#[derive(Debug)]
pub struct Operation {
    /// Who.
    pub group: Group,
    /// Number of a collective in its group, equal on all its ranks and not in use. Point-to-point
    /// operations are counted by the communicator, per group, pair, direction and tag.
    pub sequence: u32,
    /// What.
    pub collective: Collective,
    /// The type of the elements.
    pub dtype: DType,
    /// How they are reduced, where they are.
    pub op: ReduceOp,
    /// The result, in and out.
    pub buffer: Buffer,
    /// The separate input that a reduce-scatter, an all-to-all and the root of a scatter have, and
    /// an all-gather and the root of a gather may have.
    pub input: Option<Buffer>,
    /// How an all-to-all is cut, unless evenly.
    pub splits: Option<Splits>,
    /// What may be missing.
    pub loss: LossTerms,
    /// Training step whose loss budget holds.
    pub step: Step,
    /// Layers of the tensor.
    pub layers: Layers,
    /// Names the tensor through the steps, for what is kept between them.
    pub tensor_key: u64,
    /// When the operation fails if it is not complete.
    pub deadline: Option<Instant>,
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

    /// Length of what this rank gives: its input, where that is shorter or all there is, or its
    /// buffer.
    pub(crate) fn given_bytes(&self) -> usize {
        let input = self.input.as_ref().map(Buffer::len);
        match (self.collective, input) {
            (Collective::AllGather, None) => self.buffer.len() / self.group.ranks.len().max(1),
            (Collective::Scatter { .. }, _) => self.buffer.len(),
            (_, input) => input.unwrap_or(self.buffer.len()),
        }
    }

    /// Its call, as the other ranks of the group must make it.
    pub fn call(&self) -> Call {
        let (collective, dtype) = (self.collective, self.dtype);
        let has_elements = collective != Collective::Barrier;
        Call {
            collective,
            op: collective.reduces().then_some(self.op),
            dtype: has_elements.then_some(dtype),
            elements: has_elements.then(|| self.given_bytes() / dtype.bytes()),
            transform: GradientTransform::None,
        }
    }

    /// How many like it came before: in the group, or with the same peer, direction and tag.
    fn number(&self) -> u32 {
        if self.collective.is_point_to_point() {
            u32::from(tag_and_count(self.sequence).1)
        } else {
            self.sequence
        }
    }

    /// Whether contributions may be missing at all.
    pub fn may_lose(&self) -> bool {
        let sums = self.collective.reduces() && self.op.can_miss_contributions();
        (sums || self.collective.is_point_to_point())
            && !self.loss.tolerance.is_none()
            && self.dtype.is_float()
    }

    /// Length of the tensor: of the longer one of buffer and input.
    pub fn tensor_bytes(&self) -> usize {
        self.buffer
            .len()
            .max(self.input.as_ref().map_or(0, Buffer::len))
    }

    /// The rank whose loss keeps it from completing, if any: one that it needs, or the first of all
    /// that may send. `me` is not lost.
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

    /// Whether it has no bytes, and means nothing without them.
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

    /// Length of one rank's block in the buffer; of the whole buffer where it is no row of blocks.
    pub(crate) fn block_bytes(&self, me: Rank) -> usize {
        let (buffer, world) = (self.buffer.len(), self.group.ranks.len());
        match self.collective {
            Collective::AllGather | Collective::AllToAll => buffer / world,
            Collective::Gather { root } if root == me => buffer / world,
            _ => buffer,
        }
    }
}
