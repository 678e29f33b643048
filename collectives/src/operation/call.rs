//! The call of an operation, which must be equal on all ranks: its signature in packets, and its
//! words in errors.
//!
//! ```text
//!  bit  0   kind        4 bits, 1.. in the order of `Call::signature`; 0: not a collective;
//!                       10 to 12: an all-reduce, reduce-scatter, reduce that is transformed;
//!                       13, 14: an all-reduce, reduce-scatter that is encoded
//!       4   reduction   4 bits, its number + 1; 0: no reduction
//!       8   dtype       5 bits, its number + 1; 0: no elements
//!      13   root        11 bits, the lowest of its rank
//! ```
//!
//! Point-to-point messages have no signature: a send of one type may be received as another of the
//! same length.

use std::fmt;

use gradwire_protocol::units::{Rank, Signature};

use crate::numbers::dtype::{DType, ReduceOp};
use crate::operation::collective::Collective;

const ROOT_BITS: u32 = 11;
const ROOT_MASK: u32 = (1 << ROOT_BITS) - 1;

/// The form of contributions on their way between hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ContributionForm {
    /// The elements themselves.
    Plain,
    /// Coefficients of the Hadamard transform.
    Hadamard,
    /// Blocks of a codec.
    Encoded,
}

/// A call as one rank made it, or as its packets describe it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    /// The collective or point-to-point operation.
    pub collective: Collective,
    /// How elements are reduced, if they are.
    pub op: Option<ReduceOp>,
    /// The type of the elements, if there are any.
    pub dtype: Option<DType>,
    /// How many elements this rank gives; `None` for a call read from packets, which do not say.
    pub elements: Option<usize>,
    /// The form of contributions on their way.
    pub form: ContributionForm,
}

impl Call {
    /// The call at the other end of a point-to-point operation of `rank`.
    pub(crate) fn opposite(self, rank: Rank) -> Self {
        let collective = match self.collective {
            Collective::Send { tag, .. } => Collective::Receive { from: rank, tag },
            Collective::Receive { tag, .. } => Collective::Send { to: rank, tag },
            other => other,
        };
        Self {
            collective,
            op: None,
            dtype: None,
            elements: None,
            form: ContributionForm::Plain,
        }
    }

    /// The signature that its packets carry.
    pub fn signature(&self) -> Signature {
        let is_mixed = self.form == ContributionForm::Hadamard;
        let is_encoded = self.form == ContributionForm::Encoded;
        let (kind, root) = match self.collective {
            Collective::AllReduce if is_mixed => (10, None),
            Collective::ReduceScatter if is_mixed => (11, None),
            Collective::Reduce { root } if is_mixed => (12, Some(root)),
            Collective::AllReduce if is_encoded => (13, None),
            Collective::ReduceScatter if is_encoded => (14, None),
            Collective::AllReduce => (1, None),
            Collective::Broadcast { root } => (2, Some(root)),
            Collective::AllGather => (3, None),
            Collective::ReduceScatter => (4, None),
            Collective::Reduce { root } => (5, Some(root)),
            Collective::Gather { root } => (6, Some(root)),
            Collective::Scatter { root } => (7, Some(root)),
            Collective::AllToAll => (8, None),
            Collective::Barrier => (9, None),
            Collective::Send { .. }
            | Collective::Receive { .. }
            | Collective::ReceiveAny { .. } => return Signature::NONE,
        };
        let op = self.op.map_or(0, |op| op as u32 + 1);
        let dtype = self.dtype.map_or(0, |dtype| dtype as u32 + 1);
        let root = root.map_or(0, |root| u32::from(root.0) & ROOT_MASK);
        Signature::new(kind | op << 4 | dtype << 8 | root << 13)
            .expect("16 kinds, 16 reductions, 32 types and a masked root")
    }

    /// The call that a signature describes, by a rank of a group with these `ranks`; `None` if this
    /// build does not know the operation.
    pub fn read(signature: Signature, ranks: &[Rank]) -> Option<Self> {
        let bits = signature.bits();
        let low = bits >> 13;
        let root = ranks.iter().copied();
        let root = root
            .into_iter()
            .find(|rank| u32::from(rank.0) & ROOT_MASK == low);
        let root = root.unwrap_or(Rank(low as u16));
        let collective = match bits & 15 {
            1 | 10 | 13 => Collective::AllReduce,
            2 => Collective::Broadcast { root },
            3 => Collective::AllGather,
            4 | 11 | 14 => Collective::ReduceScatter,
            5 | 12 => Collective::Reduce { root },
            6 => Collective::Gather { root },
            7 => Collective::Scatter { root },
            8 => Collective::AllToAll,
            9 => Collective::Barrier,
            _ => return None,
        };
        let op = (bits >> 4 & 15).checked_sub(1);
        let dtype = (bits >> 8 & 31).checked_sub(1);
        Some(Self {
            collective,
            op: op.and_then(ReduceOp::from_number),
            dtype: dtype.and_then(DType::from_number),
            elements: None,
            form: match bits & 15 {
                10..=12 => ContributionForm::Hadamard,
                13 | 14 => ContributionForm::Encoded,
                _ => ContributionForm::Plain,
            },
        })
    }
}

/// "all_reduce(sum) of 1000 f32", "reduce_scatter(avg, hadamard) of 9 f16", "broadcast of f32 from
/// rank 1", "barrier".
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.collective.name())?;
        if let Some(op) = self.op {
            match self.form {
                ContributionForm::Plain => write!(f, "({op})")?,
                ContributionForm::Hadamard => write!(f, "({op}, hadamard)")?,
                ContributionForm::Encoded => write!(f, "({op}, encoded)")?,
            }
        }
        match (self.elements, self.dtype) {
            (Some(elements), Some(dtype)) => write!(f, " of {elements} {dtype}")?,
            (None, Some(dtype)) => write!(f, " of {dtype}")?,
            (_, None) => {}
        }
        self.collective.write_direction(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> impl Iterator<Item = Call> {
        let root = Rank(2047);
        let collectives = [
            Collective::AllReduce,
            Collective::Broadcast { root },
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Reduce { root },
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::AllToAll,
            Collective::Barrier,
        ];
        let ops = || ReduceOp::ALL.into_iter().map(Some).chain([None]);
        let dtypes = || DType::ALL.into_iter().map(Some).chain([None]);
        collectives.into_iter().flat_map(move |collective| {
            ops().flat_map(move |op| {
                dtypes().map(move |dtype| Call {
                    collective,
                    op,
                    dtype,
                    elements: None,
                    form: ContributionForm::Plain,
                })
            })
        })
    }

    #[test]
    fn every_call_survives_its_signature() {
        for call in calls() {
            assert_eq!(Call::read(call.signature(), &[]), Some(call));
        }
        let signatures: std::collections::BTreeSet<_> = calls().map(|c| c.signature()).collect();
        assert_eq!(signatures.len(), calls().count());
        let mixed = calls().filter(|call| call.collective.reduces());
        let mixed = mixed.map(|call| Call {
            form: ContributionForm::Hadamard,
            ..call
        });
        for call in mixed {
            assert_eq!(Call::read(call.signature(), &[]), Some(call));
            assert!(!signatures.contains(&call.signature()), "{call}");
        }
    }

    #[test]
    fn a_large_root_is_found_in_its_group() {
        let call = Call {
            collective: Collective::Broadcast { root: Rank(5000) },
            op: None,
            dtype: Some(DType::F32),
            elements: Some(3),
            form: ContributionForm::Plain,
        };
        let told = Call::read(call.signature(), &[Rank(1), Rank(5000)]);
        let collective = told.map(|told| told.collective);
        assert_eq!(collective, Some(call.collective));
        assert_eq!(call.to_string(), "broadcast of 3 f32 from rank 5000");
    }

    #[test]
    fn an_unknown_signature_is_no_call() {
        let strange = Signature::new(0x00FF_FFFF).expect("24 bits");
        assert_eq!(Call::read(strange, &[]), None);
    }
}
