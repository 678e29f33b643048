//! The collectives and the point-to-point operations that ranks can call.

use std::fmt;

use gradwire_protocol::message::MessageRole;
use gradwire_protocol::priority::UrgencyUnit;
use gradwire_protocol::units::Rank;

/// An operation of all ranks of a group, or of two of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Collective {
    /// Every rank gets the reduction of all buffers, in place.
    AllReduce,
    /// Every rank gets the root's buffer.
    Broadcast {
        /// The rank that has it.
        root: Rank,
    },
    /// Every rank gets the inputs of all ranks, in the group's order. The buffer is as long as all
    /// inputs. Without an input the own block is taken from its place in the buffer.
    AllGather,
    /// Rank number i of the group gets the reduction of block i of all inputs: the input is as long
    /// as all buffers.
    ReduceScatter,
    /// The root gets the reduction of all buffers, in place. The other buffers hold undefined
    /// values afterwards.
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
    /// buffer have one block per rank, all of one length, or of the lengths that
    /// [`Splits`](crate::operation::submission::Splits) say.
    AllToAll,
    /// No rank goes on before all ranks are here. The buffer is not used.
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
    /// The buffer comes from any other rank of the group. It takes the first announced message that
    /// no [`Collective::Receive`] has claimed, whether it came before or after the submission.
    /// Until then it fails only if all other ranks are lost; afterwards it needs the rank whose
    /// message it takes.
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

    /// Whether it is as urgent as its layer or as that layer's class.
    pub(crate) const fn urgency_unit(self) -> UrgencyUnit {
        match self {
            Self::Broadcast { .. }
            | Self::Reduce { .. }
            | Self::Gather { .. }
            | Self::Scatter { .. } => UrgencyUnit::Class,
            _ => UrgencyUnit::Layer,
        }
    }

    /// Whether its result needs the messages of several ranks.
    pub(crate) const fn message_role(self) -> MessageRole {
        match self {
            Self::Broadcast { .. }
            | Self::Scatter { .. }
            | Self::Send { .. }
            | Self::Receive { .. }
            | Self::ReceiveAny { .. } => MessageRole::Whole,
            _ => MessageRole::Part,
        }
    }

    /// Whether only two ranks of the group take part.
    pub const fn is_point_to_point(self) -> bool {
        matches!(
            self,
            Self::Send { .. } | Self::Receive { .. } | Self::ReceiveAny { .. }
        )
    }

    /// The sender of a receive.
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

    /// Whether it computes with elements.
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Self::AllReduce | Self::ReduceScatter | Self::Reduce { .. }
        )
    }
}

impl Collective {
    /// Its name.
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

    /// Writes the rank that it goes to or comes from, if it names one: " from rank 1".
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
