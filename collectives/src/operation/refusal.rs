//! Why an operation is refused at once, and the checks that one rank can do alone.

use gradwire_protocol::job::CodecName;
use gradwire_protocol::units::Rank;

use crate::numbers::dtype::{DType, ReduceOp};
use crate::operation::buffer::Buffer;
use crate::operation::collective::Collective;
use crate::operation::label::OperationLabel;
use crate::operation::submission::{Operation, Splits};

/// Why an operation was refused, before any packet was sent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubmitError {
    /// An earlier failure left the ranks in different states.
    #[error("the communicator was aborted ({reason}); start the job again to go on")]
    Aborted {
        /// The earlier failure.
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
        label: OperationLabel,
    },
    /// This rank has ended the group.
    #[error("group {group} has ended on this rank; {label} needs a new group")]
    GroupEnded {
        /// The group.
        group: u16,
        /// The operation.
        label: OperationLabel,
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
    /// A send to or a receive from the own rank, or a receive from any rank in a group of one.
    #[error("{label} on rank {rank} itself; point-to-point operations need another rank")]
    ToItself {
        /// The operation.
        label: OperationLabel,
        /// This rank.
        rank: Rank,
    },
    /// The reduction does not exist for the type.
    #[error("{op} is not defined for {dtype}: {}", .op.remedy())]
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
        label: OperationLabel,
        /// Length of the buffer.
        bytes: usize,
        /// Length of an element.
        element: usize,
        /// The type.
        dtype: DType,
    },
    /// Buffer and input have lengths that do not fit each other.
    #[error("{label}: an input of {input} bytes and a buffer of {buffer} bytes; {rule}")]
    InputSize {
        /// The operation.
        label: OperationLabel,
        /// Length of the input; 0 without one.
        input: usize,
        /// Length of the buffer.
        buffer: usize,
        /// The rule that they break.
        rule: &'static str,
    },
    /// The splits of an all-to-all contradict each other, or another operation has splits.
    #[error("{label}: {given}; {rule}")]
    Splits {
        /// The operation.
        label: OperationLabel,
        /// The splits, in words.
        given: String,
        /// The rule that they break.
        rule: &'static str,
    },
    /// An operation with this sequence number is on its way.
    #[error("{label} is in progress already; each operation of a group has a number of its own")]
    SequenceInUse {
        /// The operation.
        label: OperationLabel,
    },
    /// It names a codec, and codecs are not defined for it.
    #[error(
        "{label} with codec \"{codec}\": codecs serve all_reduce and reduce_scatter, sum and avg, \
         of f16, bf16, f32 and f64; submit it without one"
    )]
    NoCodec {
        /// The operation.
        label: OperationLabel,
        /// The codec that it names.
        codec: &'static str,
    },
    /// The layers are not in order.
    #[error("{label}: layer spans start at bytes {before} and then {after}; they must ascend")]
    LayersNotAscending {
        /// The operation.
        label: OperationLabel,
        /// Start of a span.
        before: usize,
        /// Start of the one behind it.
        after: usize,
    },
}

impl Operation {
    /// Checks the tensor as far as one rank can alone. The group must have been checked before.
    pub(crate) fn check_tensor(&self, me: Rank) -> Result<(), SubmitError> {
        self.check_sizes(me)?;
        let codec = self.loss.codec.name;
        if codec != CodecName::None && !self.can_be_encoded() {
            let (label, codec) = (self.label(), codec.into());
            return Err(SubmitError::NoCodec { label, codec });
        }
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

    /// Checks the group. Returns the seat of rank `me`.
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

    /// Checks splits. The group must have been checked before.
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
