//! What an operation is, what is refused at once, and how it can end.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use gradwire_protocol::units::{Instant, Layer, Rank, Share, Span, Step};

use crate::agreement::Mismatch;
use crate::buffer::Buffer;
use crate::call::Call;
use crate::dtype::{DType, ReduceOp};
use crate::holes::{Hole, HoleFilling};
use crate::matching::tag_and_count;

/// Ranks that work together, in an order that all of them agree on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Group {
    /// Number of the group, equal on all its ranks.
    pub id: u16,
    /// Its ranks, each once.
    pub ranks: Arc<[Rank]>,
}

/// What the ranks of a group do together, or two of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Collective {
    /// Every rank gets the reduction of all buffers, in place.
    AllReduce,
    /// Every rank gets the root's buffer.
    Broadcast {
        /// The rank that has it.
        root: Rank,
    },
    /// Every rank gets the inputs of all ranks, in the group's order: the buffer is as long as all
    /// inputs. Without an input the own block is taken from its place in the buffer.
    AllGather,
    /// Rank number i of the group gets the reduction of block i of all inputs: the input is as long
    /// as all buffers.
    ReduceScatter,
    /// The root gets the reduction of all buffers, in place. The other buffers hold undefined
    /// values afterwards: their own, and of large tensors some of the result.
    Reduce {
        /// The rank that gets it.
        root: Rank,
    },
    /// The root gets the buffers of all ranks, in the group's order: its buffer is as long as one
    /// block per rank, the others' are the blocks. The root's own block is its input, or without
    /// one is taken from its place in the buffer. No other rank has an input.
    Gather {
        /// The rank that gets them.
        root: Rank,
    },
    /// Rank number i of the group gets block i of the root's input, which is as long as all
    /// buffers. No other rank has an input.
    Scatter {
        /// The rank that has it.
        root: Rank,
    },
    /// Rank number i of the group gets block i of all inputs, in the group's order: input and
    /// buffer have one block per rank, all of one length, or of the lengths that [`Splits`] say.
    AllToAll,
    /// Nobody goes on before everybody is here. The buffer is not used.
    Barrier,
    /// The buffer goes to one rank.
    Send {
        /// The rank that receives.
        to: Rank,
        /// Of the messages to that rank in the group, those with the same tag are received in the
        /// order of sending.
        tag: u16,
    },
    /// The buffer comes from one rank. It is as long as the one that was sent.
    Receive {
        /// The rank that sends.
        from: Rank,
        /// The tag that it gives.
        tag: u16,
    },
    /// The buffer comes from any other rank of the group: the first message to be announced that no
    /// [`Collective::Receive`] has claimed, whether before or after this was submitted. It waits
    /// while one other rank is there that may send; from the first packet on it needs the rank
    /// whose message it takes.
    ReceiveAny {
        /// The tag that the sender gives.
        tag: u16,
    },
}

impl Collective {
    /// The peer of a point-to-point operation or the root of a collective that has one.
    pub fn named_rank(self) -> Option<Rank> {
        match self {
            Self::Broadcast { root: rank }
            | Self::Reduce { root: rank }
            | Self::Gather { root: rank }
            | Self::Scatter { root: rank }
            | Self::Send { to: rank, .. }
            | Self::Receive { from: rank, .. } => Some(rank),
            Self::AllReduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Barrier
            | Self::ReceiveAny { .. } => None,
        }
    }

    /// Whether only two ranks of the group take part.
    pub const fn is_point_to_point(self) -> bool {
        matches!(
            self,
            Self::Send { .. } | Self::Receive { .. } | Self::ReceiveAny { .. }
        )
    }

    /// The rank that a receive has its buffer from.
    pub(crate) const fn source(self) -> Option<Rank> {
        match self {
            Self::Receive { from, .. } => Some(from),
            _ => None,
        }
    }

    /// The tag of a receive from any rank.
    pub(crate) const fn any_source_tag(self) -> Option<u16> {
        match self {
            Self::ReceiveAny { tag } => Some(tag),
            _ => None,
        }
    }

    /// Whether elements are computed with.
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Self::AllReduce | Self::ReduceScatter | Self::Reduce { .. }
        )
    }
}

impl Collective {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Reduce { .. } => "reduce",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Send { .. } => "send",
            Self::Receive { .. } | Self::ReceiveAny { .. } => "receive",
        }
    }

    /// Writes from or to which rank it is, where one is named: " from rank 1".
    pub(crate) fn write_direction(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broadcast { root } | Self::Scatter { root } => write!(f, " from rank {root}"),
            Self::Reduce { root } | Self::Gather { root } => write!(f, " to rank {root}"),
            Self::Send { to, tag } => write!(f, " to rank {to}, tag {tag}"),
            Self::Receive { from, tag } => write!(f, " from rank {from}, tag {tag}"),
            Self::ReceiveAny { tag } => write!(f, " from any rank, tag {tag}"),
            Self::AllReduce
            | Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Barrier => Ok(()),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        self.write_direction(f)
    }
}

/// How much may be missing, and what stands in for it. Equal on all ranks.
///
/// Only sums and averages of floats can miss contributions, and only where each contribution goes
/// straight to the rank that sums it (direct algorithms, reduce). Messages of floats from rank to
/// rank can miss segments: where one is missing, the receiver's buffer keeps the bytes that it had,
/// and the completion says which these are; of the rules for holes, only error feedback matters to
/// them, since it is the sender's. Everything else is lossless whatever is said here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The most of each contribution that may be missing; less where the job says how much layers
    /// bear, or is strict in a step.
    pub tolerance: Share,
    /// What stands in for it.
    pub holes: HoleFilling,
}

impl Loss {
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
    pub loss: Loss,
    /// Training step whose loss budget holds.
    pub step: Step,
    /// Layers of the tensor.
    pub layers: Layers,
    /// Names the tensor through the steps, for what is kept between them.
    pub tensor_key: u64,
    /// When the operation fails if it is not complete.
    pub deadline: Option<Instant>,
}

/// Number of an operation on this rank.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OperationId(pub u64);

/// Why an operation was refused. Nothing was sent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// An earlier failure left the ranks in different states.
    #[error("the communicator was aborted ({reason}); start the job again to go on")]
    Aborted {
        /// What happened.
        reason: String,
    },
    /// A rank of the group is gone.
    #[error("rank {rank} was lost ({reason}); {label} needs it")]
    PeerLost {
        /// The rank.
        rank: Rank,
        /// How it was lost.
        reason: String,
        /// The operation.
        label: Label,
    },
    /// This rank or a named rank is not in the group.
    #[error("rank {rank} is not in group {group}, whose ranks are {ranks:?}")]
    NotInGroup {
        /// The rank.
        rank: Rank,
        /// The group.
        group: u16,
        /// The group's ranks.
        ranks: Vec<u16>,
    },
    /// A rank is in the group more than once.
    #[error("rank {rank} is in group {group} more than once; a group has each rank once")]
    RankTwice {
        /// The rank.
        rank: Rank,
        /// The group.
        group: u16,
    },
    /// A send to or a receive from the own rank, or from any other where there is none.
    #[error("{label} on rank {rank} itself; point-to-point operations need another rank")]
    ToItself {
        /// The operation.
        label: Label,
        /// This rank.
        rank: Rank,
    },
    /// The reduction does not exist for the type.
    #[error(
        "{op} is not defined for {dtype}: avg needs a float type (sum, then divide, for integers), \
         band, bor and bxor an integer type"
    )]
    Undefined {
        /// The reduction.
        op: ReduceOp,
        /// The type.
        dtype: DType,
    },
    /// A buffer ends within an element.
    #[error("{label}: {bytes} bytes are not a multiple of the {element} bytes of a {dtype}")]
    NotWholeElements {
        /// The operation.
        label: Label,
        /// Length of the buffer.
        bytes: usize,
        /// Length of an element.
        element: usize,
        /// The type.
        dtype: DType,
    },
    /// Buffer and input do not fit each other.
    #[error("{label}: an input of {input} bytes and a buffer of {buffer} bytes; {rule}")]
    InputSize {
        /// The operation.
        label: Label,
        /// Length of the input; 0 when there is none.
        input: usize,
        /// Length of the buffer.
        buffer: usize,
        /// What is allowed.
        rule: &'static str,
    },
    /// The splits of an all-to-all contradict themselves, or something else has some.
    #[error("{label}: {given}; {rule}")]
    Splits {
        /// The operation.
        label: Label,
        /// What was given.
        given: String,
        /// What is allowed.
        rule: &'static str,
    },
    /// The same sequence number is on its way.
    #[error("{label} is on its way already; each operation of a group has a number of its own")]
    SequenceInUse {
        /// The operation.
        label: Label,
    },
    /// The layers are not in order.
    #[error("{label}: layer spans start at bytes {before} and then {after}; they must ascend")]
    LayersNotAscending {
        /// The operation.
        label: Label,
        /// Start of a span.
        before: usize,
        /// Start of the one behind it.
        after: usize,
    },
}

/// How an operation can fail after it was submitted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OperationError {
    /// A rank that takes part is gone.
    #[error("rank {rank} was lost ({reason}) during {label}")]
    PeerLost {
        /// The rank.
        rank: Rank,
        /// How it was lost.
        reason: String,
        /// The operation.
        label: Label,
    },
    /// It took longer than its deadline allows.
    #[error("{0}")]
    TimedOut(Box<TimedOut>),
    /// A peer is in another operation, or in one of another shape or type.
    #[error("{0}")]
    Mismatch(Box<Mismatch>),
    /// Another operation failed, or somebody gave up.
    #[error("{label} was aborted: {reason}")]
    Aborted {
        /// The operation.
        label: Label,
        /// Why.
        reason: String,
    },
}

/// An operation that took longer than its deadline allows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TimedOut {
    /// The operation.
    pub label: Label,
    /// How long it took until now, and how long it might take; `None` where it has not started,
    /// since nobody has sent what it receives.
    pub took: Option<(Span, Span)>,
    /// What it still needed.
    pub progress: Progress,
    /// Where the other ranks say that they are, if they were asked.
    pub verdict: Option<String>,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            label,
            took,
            progress,
            verdict,
        } = self;
        let Progress {
            waits_for,
            received,
            expected,
        } = progress;
        write!(f, "{label}: Timed out ")?;
        if let Some((elapsed, limit)) = took {
            write!(f, "after {elapsed} of {limit} ")?;
        }
        write!(
            f,
            "waiting for ranks {waits_for:?}, {received} of {expected} bytes were received"
        )?;
        match verdict {
            Some(verdict) => write!(f, "; {verdict}"),
            None => Ok(()),
        }
    }
}

/// What a completed operation did on this rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Segments that others were to send to this rank.
    pub expected_segments: u64,
    /// Of these, segments that this rank did without.
    pub lost_segments: u64,
    /// The largest share of one message's segments that this rank did without.
    pub max_lost_share: Share,
    /// Segments that this rank had to send.
    pub sent_segments: u64,
    /// Of these, segments that others did without.
    pub missed_segments: u64,
    /// The rank that a receive has its buffer from.
    pub source: Option<Rank>,
}

/// What an operation that has not completed still needs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// Ranks that have not sent or not received everything, in ascending order.
    pub waits_for: Vec<u16>,
    /// Bytes received.
    pub received: u64,
    /// Bytes to receive.
    pub expected: u64,
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Which operation.
    pub id: OperationId,
    /// Its buffer; the result if it succeeded, undefined values if not.
    pub buffer: Buffer,
    /// Its input, unchanged.
    pub input: Option<Buffer>,
    /// Of a receive that may lose: what of the buffer is as it was, in ascending order.
    pub holes: Vec<Hole>,
    /// How it ended.
    pub result: Result<Outcome, OperationError>,
    /// What it still needed when it failed.
    pub unfinished: Option<Progress>,
}

/// An operation's name in messages: "all_reduce(sum) of 1000 f32, group 0, sequence 7".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Label {
    /// What.
    pub call: Call,
    /// In which group.
    pub group: u16,
    /// Which one of it.
    pub sequence: u32,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            group,
            sequence,
        } = self;
        write!(f, "{call}, group {group}, sequence {sequence}")
    }
}

impl Operation {
    /// Its name.
    pub fn label(&self) -> Label {
        Label {
            call: Call::of(self),
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

    /// That a receive from any rank ran out of time before there was a message.
    pub(crate) fn unmatched(&self, me: Rank) -> OperationError {
        let others = self.group.ranks.iter().filter(|&&rank| rank != me);
        OperationError::TimedOut(Box::new(TimedOut {
            label: self.label(),
            took: None,
            progress: Progress {
                waits_for: others.map(|rank| rank.0).collect(),
                received: 0,
                expected: self.buffer.len() as u64,
            },
            verdict: None,
        }))
    }

    /// Checks of the tensor what one rank can check alone, once the group is known to be right.
    pub(crate) fn check_tensor(&self, me: Rank) -> Result<(), SubmitError> {
        self.check_sizes(me)?;
        let descending = self
            .layers
            .spans
            .windows(2)
            .find(|pair| pair[0].0 > pair[1].0);
        if let Some(&[(before, _), (after, _)]) = descending {
            return Err(SubmitError::LayersNotAscending {
                label: self.label(),
                before,
                after,
            });
        }
        Ok(())
    }

    /// Checks the group and gives the seat of rank `me`.
    pub(crate) fn check_group(&self, me: Rank) -> Result<usize, SubmitError> {
        let group = &self.group;
        let seat_of = |rank: Rank| {
            let seat = group.ranks.iter().position(|&other| other == rank);
            seat.ok_or_else(|| {
                let ranks = group.ranks.iter().map(|rank| rank.0).collect();
                SubmitError::NotInGroup {
                    rank,
                    group: group.id,
                    ranks,
                }
            })
        };
        let mut sorted = group.ranks.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SubmitError::RankTwice {
                rank: twice[0],
                group: group.id,
            });
        }
        if let Some(named) = self.collective.named_rank() {
            seat_of(named)?;
        }
        let alone = group.ranks.len() == 1 || self.collective.named_rank() == Some(me);
        if self.collective.is_point_to_point() && alone {
            return Err(SubmitError::ToItself {
                label: self.label(),
                rank: me,
            });
        }
        seat_of(me)
    }

    fn check_sizes(&self, me: Rank) -> Result<(), SubmitError> {
        let (dtype, op, label) = (self.dtype, self.op, self.label());
        if self.collective.reduces() && !op.is_defined_for(dtype) {
            return Err(SubmitError::Undefined { op, dtype });
        }
        if let Some(rule) = self.broken_rule(me) {
            return Err(SubmitError::InputSize {
                label,
                input: self.input.as_ref().map_or(0, Buffer::len),
                buffer: self.buffer.len(),
                rule,
            });
        }
        let element = dtype.bytes();
        let mut blocks = match &self.splits {
            None => vec![self.block_bytes(me)],
            Some(splits) => {
                self.check_splits(splits, me)?;
                [&*splits.input, &*splits.output].concat()
            }
        }
        .into_iter();
        let broken = blocks.find(|bytes| !bytes.is_multiple_of(element));
        broken.map_or(Ok(()), |bytes| {
            Err(SubmitError::NotWholeElements {
                label,
                bytes,
                element,
                dtype,
            })
        })
    }

    /// Checks splits in a group that is known to be right.
    fn check_splits(&self, splits: &Splits, me: Rank) -> Result<(), SubmitError> {
        let fault = |given, rule| {
            let label = self.label();
            Err(SubmitError::Splits { label, given, rule })
        };
        let Splits { input, output } = splits;
        if self.collective != Collective::AllToAll {
            return fault("splits were given".to_owned(), "only all_to_all has splits");
        }
        let world = self.group.ranks.len();
        if (input.len(), output.len()) != (world, world) {
            let given = format!(
                "{} input splits and {} output splits in a group of {world} ranks",
                input.len(),
                output.len()
            );
            return fault(given, "give one of each for each rank");
        }
        let lengths = [
            self.input.as_ref().map_or(0, Buffer::len),
            self.buffer.len(),
        ];
        for ((name, splits), bytes) in [("input", input), ("output", output)].iter().zip(lengths) {
            let sum = splits
                .iter()
                .fold(0_usize, |sum, split| sum.saturating_add(*split));
            if sum != bytes {
                let given = format!("{name} splits of {sum} bytes for {bytes} bytes");
                return fault(given, "they must be as long as the tensor");
            }
        }
        let own = self.group.ranks.iter().position(|&rank| rank == me);
        let own = own.map(|seat| (input[seat], output[seat]));
        if let Some((to, from)) = own.filter(|(to, from)| to != from) {
            let given = format!("rank {me} splits off {to} bytes for itself and expects {from}");
            return fault(given, "both must be equal");
        }
        Ok(())
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

    /// The rule that input and buffer of this rank break, if they do.
    fn broken_rule(&self, me: Rank) -> Option<&'static str> {
        let (buffer, world) = (self.buffer.len(), self.group.ranks.len());
        let input = self.input.as_ref().map(Buffer::len);
        let (holds, rule) = match (self.collective, input) {
            (Collective::AllGather, None) => (
                buffer.is_multiple_of(world),
                "in place, the buffer is as long as one block per rank",
            ),
            (Collective::AllGather, Some(input)) => (
                input * world == buffer,
                "the buffer is as long as the inputs of all ranks",
            ),
            (Collective::ReduceScatter, input) => (
                input == Some(buffer * world),
                "the input is as long as the buffers of all ranks",
            ),
            (Collective::AllToAll, input) if self.splits.is_some() => {
                (input.is_some(), "an all_to_all has an input")
            }
            (Collective::AllToAll, input) => (
                input == Some(buffer) && buffer.is_multiple_of(world),
                "input and buffer are equally long, one block per rank",
            ),
            (Collective::Gather { root }, input) if root == me => (
                buffer.is_multiple_of(world) && input.is_none_or(|own| own * world == buffer),
                "the root's buffer is as long as one block per rank, its input, if any, as one",
            ),
            (Collective::Scatter { root }, input) if root == me => (
                input == Some(buffer * world),
                "the root's input is as long as the buffers of all ranks",
            ),
            (Collective::Gather { .. } | Collective::Scatter { .. }, input) => (
                input.is_none(),
                "of the ranks of a gather or scatter, only the root has an input",
            ),
            (_, input) => (
                input.is_none(),
                "only all_gather, reduce_scatter, all_to_all, gather and scatter have an input",
            ),
        };
        (!holds).then_some(rule)
    }
}
