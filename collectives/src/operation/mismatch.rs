//! Two ranks that call different operations, and the error text for that.

use std::fmt;

use gradwire_protocol::units::Rank;

use crate::operation::call::Call;
use crate::operation::collective::Collective;
use crate::operation::label::OperationLabel;

/// Why two ranks cannot be in the same operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CallMismatch {
    /// This rank.
    pub rank: Rank,
    /// Its call.
    pub ours: OperationLabel,
    /// The other rank.
    pub peer: Rank,
    /// The call of the other rank; `None` if this build does not know the operation.
    pub theirs: Option<Call>,
    /// Lengths of the message that showed it, if the calls differ only in shape.
    pub lengths: Option<MessageLengths>,
}

/// Lengths of one message, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MessageLengths {
    /// The length that arrived.
    pub came: u32,
    /// The expected length; `None` if no such message was expected.
    pub expected: Option<u32>,
}

impl fmt::Display for CallMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OperationLabel {
            call,
            group,
            sequence,
        } = self.ours;
        write!(f, "group {group}, sequence {sequence}: ")?;
        let theirs = self.theirs.map(|call| call.to_string());
        let theirs = theirs.unwrap_or_else(|| "an unknown operation".to_owned());
        let mut calls = [(self.rank, call.to_string()), (self.peer, theirs)];
        calls.sort_by_key(|(rank, _)| *rank);
        let [(first, its), (second, other)] = calls;
        write!(f, "rank {first} called {its}, rank {second} called {other}")?;
        if let Some(MessageLengths { came, expected }) = self.lengths {
            let (rank, peer) = (self.rank, self.peer);
            write!(
                f,
                ", in different shapes (rank {peer} sent {came} bytes to rank {rank}"
            )?;
            match expected {
                Some(expected) => write!(f, ", which expects {expected})")?,
                None => write!(f, ", which expects no such message)")?,
            }
        }
        let transforms = self.theirs.map(|theirs| theirs.form);
        let mixed_by_one = transforms.is_some_and(|theirs| theirs != call.form);
        f.write_str(match (call.collective, self.lengths) {
            _ if mixed_by_one => {
                ": whether an operation is transformed follows from its tolerance and layers, \
                 which must be the same on all ranks"
            }
            (Collective::AllToAll, Some(_)) => {
                ": what is split off for a rank must be as long as what that rank expects"
            }
            (of_two, _) if of_two.is_point_to_point() => {
                ": a send and its receive must have the same number of bytes"
            }
            _ => {
                ": all ranks of a group must call the same operation in the same order with the \
                 same shape and type"
            }
        })
    }
}
