//! Fills the holes that lost segments leave in a sum, and keeps the state that this needs.
//!
//! A contribution to a sum can be missing at the rank that sums. Of n contributions to a segment, c
//! arrived and m = n - c are missing. The rules, for a sum and an average:
//!
//! | rule | sum | average | memory kept between steps |
//! |---|---|---|---|
//! | rescale | sum of c, times n / c | sum of c, divided by c | - |
//! | zero | sum of c | sum of c, divided by n | - |
//! | previous | sum of c, plus m / n of the previous sum | the same, divided by n | own shard |
//! | error-feedback | as zero | as zero | the lost values, at their sender |
//!
//! *Previous* takes the segment's previous result of the same tensor, spread evenly over the ranks:
//! keeping each peer's last contribution instead would cost n times the memory. A tensor's first
//! step has no previous result, so *rescale* applies. With *error-feedback* a contribution is late
//! and not lost: its sender learns which segments were missing and adds them to the same tensor in
//! the next step. So counting them as zero now keeps the sum over steps exact. The operation's
//! `tensor_key` tells tensors apart. An operation that fails leaves residuals as they were.
//!
//! A residual is in the unit of the gradients of its step. A caller that scales the loss, and
//! changes the scale, scales residuals by the same factor ([`Residuals::scale`]). Infinities and
//! NaNs are never carried to the next step: they are dropped and counted.

use std::collections::BTreeMap;
use std::ops::Range;

pub use gradwire_protocol::job::HoleFilling;

use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::kernels::{ScaleRatio, accumulate, drop_not_finite, multiply, scale};

/// Bytes of a receiver's buffer that did not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hole {
    /// The first of them.
    pub offset: usize,
    /// How many.
    pub bytes: usize,
}

/// A reduction whose contributions are all here or missing for good.
#[derive(Debug)]
pub(crate) struct Settlement<'a> {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    pub(crate) rule: HoleFilling,
    /// How many ranks contribute.
    pub(crate) contributors: u16,
    /// Bytes of every segment but the last.
    pub(crate) segment_bytes: usize,
    /// Missing contributions per segment; `None` if all arrived.
    pub(crate) missing: Option<&'a [u16]>,
    /// The same region's previous result, if it is kept.
    pub(crate) previous: Option<&'a [u8]>,
}

impl Settlement<'_> {
    /// Turns the sum of the contributions that arrived into the result.
    pub(crate) fn settle(&self, sum: &mut [u8]) {
        let Some(missing) = self.missing else {
            return self.scale(sum, self.divisor_of(self.contributors));
        };
        for (index, segment) in sum.chunks_mut(self.segment_bytes).enumerate() {
            let offset = index * self.segment_bytes;
            let previous = self
                .previous
                .map(|bytes| &bytes[offset..offset + segment.len()]);
            self.settle_segment(segment, missing[index], previous);
        }
    }

    fn settle_segment(&self, segment: &mut [u8], missing: u16, previous: Option<&[u8]>) {
        let all = self.contributors;
        let arrived = all - missing;
        match (self.rule, previous) {
            (HoleFilling::Zero | HoleFilling::ErrorFeedback, _) => {
                self.scale(segment, self.divisor_of(all));
            }
            (HoleFilling::Previous, Some(previous)) => {
                let mut stand_in = previous.to_vec();
                let spread = if self.op == ReduceOp::Avg { 1 } else { all };
                self.scale(
                    &mut stand_in,
                    ScaleRatio {
                        multiply: missing,
                        divide: spread,
                    },
                );
                accumulate(self.dtype, ReduceOp::Sum, segment, &stand_in);
                self.scale(segment, self.divisor_of(all));
            }
            (HoleFilling::Rescale | HoleFilling::Previous, _) => {
                let multiply = if self.op == ReduceOp::Avg { 1 } else { all };
                self.scale(
                    segment,
                    ScaleRatio {
                        multiply,
                        divide: arrived,
                    },
                );
            }
        }
    }

    /// An average is a sum that is divided at the end.
    fn divisor_of(&self, contributors: u16) -> ScaleRatio {
        let divide = if self.op == ReduceOp::Avg {
            contributors
        } else {
            1
        };
        ScaleRatio {
            multiply: 1,
            divide,
        }
    }

    fn scale(&self, bytes: &mut [u8], ratio: ScaleRatio) {
        if !ratio.is_one() {
            scale(self.dtype, bytes, ratio);
        }
    }
}

/// Type and length of a tensor. Values that were kept for another shape are dropped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TensorShape {
    /// The type of its elements.
    pub dtype: DType,
    /// Its length in bytes.
    pub bytes: usize,
}

/// The values of one tensor that were lost on the way and wait for the next step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Residual {
    /// The tensor that it belongs to.
    pub shape: TensorShape,
    /// Lost values by their byte offset in the tensor; pieces do not overlap.
    pub pieces: BTreeMap<usize, Vec<u8>>,
}

/// Values of a tensor from a byte offset on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ResidualPiece {
    pub(crate) offset: usize,
    pub(crate) values: Vec<u8>,
}

/// The lost values that a sender keeps for error feedback, by tensor. They are part of a training
/// job's state: a checkpoint without them loses the losses of the last step for good.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Residuals {
    tensors: BTreeMap<u64, Residual>,
    dropped: u64,
}

impl Residuals {
    /// Everything kept, by tensor key.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Residual)> {
        self.tensors.iter().map(|(&key, residual)| (key, residual))
    }

    /// The shape of the tensor whose residual is kept.
    pub fn shape(&self, key: u64) -> Option<TensorShape> {
        self.tensors.get(&key).map(|residual| residual.shape)
    }

    /// Takes the residual of one tensor, which is not kept any more.
    pub fn take(&mut self, key: u64) -> Option<Residual> {
        self.tensors.remove(&key)
    }

    /// Multiplies the residual of one tensor: by the new scale of the loss over the one before.
    /// Operations that have not ended keep to the scale before.
    pub fn scale(&mut self, key: u64, factor: f64) {
        let Some(residual) = self.tensors.get_mut(&key) else {
            return;
        };
        for values in residual.pieces.values_mut() {
            multiply(residual.shape.dtype, values, factor);
            self.dropped += drop_not_finite(residual.shape.dtype, values);
        }
    }

    /// Elements that were lost for good: because they were infinite or NaN, or because the tensor
    /// came back with another type or length.
    pub fn dropped_elements(&self) -> u64 {
        self.dropped
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        let pieces = self
            .tensors
            .values()
            .flat_map(|residual| residual.pieces.values());
        pieces.map(Vec::len).sum()
    }

    /// Keeps values of a tensor beside those that are kept, or added to them.
    pub(crate) fn keep(&mut self, key: u64, shape: TensorShape, piece: ResidualPiece) {
        let ResidualPiece { offset, mut values } = piece;
        self.add_to(key, shape, offset, &mut values);
        self.dropped += drop_not_finite(shape.dtype, &mut values);
        let fresh = || Residual {
            shape,
            pieces: BTreeMap::new(),
        };
        let residual = self.tensors.entry(key).or_insert_with(fresh);
        residual.pieces.insert(offset, values);
    }

    /// Whether values are kept for a range of a tensor.
    pub(crate) fn has_in(&self, key: u64, range: Range<usize>) -> bool {
        let pieces = self.tensors.get(&key).map(|residual| &residual.pieces);
        let before_its_end = pieces.and_then(|pieces| pieces.range(..range.end).next_back());
        before_its_end.is_some_and(|(&start, piece)| start + piece.len() > range.start)
    }

    /// Adds the values kept for a range of a tensor, which begins at `offset`, to `values`.
    /// Returns them; they are not kept any more.
    pub(crate) fn add_to(
        &mut self,
        key: u64,
        shape: TensorShape,
        offset: usize,
        values: &mut [u8],
    ) -> Vec<ResidualPiece> {
        let mut taken = Vec::new();
        let Some(residual) = self.tensors.get_mut(&key) else {
            return taken;
        };
        if residual.shape != shape {
            let kept: usize = residual.pieces.values().map(Vec::len).sum();
            self.dropped += (kept / residual.shape.dtype.bytes()) as u64;
            self.tensors.remove(&key);
            return taken;
        }
        let end = offset + values.len();
        let starts: Vec<usize> = residual
            .pieces
            .range(..end)
            .map(|(&start, _)| start)
            .collect();
        for start in starts {
            let piece = residual
                .pieces
                .remove(&start)
                .expect("its key was just read");
            let (from, to) = (start.max(offset), (start + piece.len()).min(end));
            if from >= to {
                residual.pieces.insert(start, piece);
                continue;
            }
            let end_of_piece = start + piece.len();
            if start < from {
                residual
                    .pieces
                    .insert(start, piece[..from - start].to_vec());
            }
            if to < end_of_piece {
                residual.pieces.insert(to, piece[to - start..].to_vec());
            }
            let inside = match (from, to) == (start, end_of_piece) {
                true => piece,
                false => piece[from - start..to - start].to_vec(),
            };
            let target = &mut values[from - offset..to - offset];
            accumulate(shape.dtype, ReduceOp::Sum, target, &inside);
            taken.push(ResidualPiece {
                offset: from,
                values: inside,
            });
        }
        taken
    }
}

impl Residual {
    /// Writes lost values to their offsets in `values`, which is as long as the tensor. Leaves the
    /// rest as it is.
    pub fn write_to(&self, values: &mut [u8]) {
        for (&offset, piece) in &self.pieces {
            values[offset..offset + piece.len()].copy_from_slice(piece);
        }
    }
}

/// Results kept for the rule *previous*, by tensor key.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreviousResults {
    tensors: BTreeMap<u64, TensorResults>,
}

/// Results of one tensor, by byte offset of the own shard. Shards change with the chunk, so a
/// result that is older than one step has no place beside newer ones.
#[derive(Clone, Debug, Default)]
struct TensorResults {
    last_step: BTreeMap<usize, Vec<u8>>,
    this_step: BTreeMap<usize, Vec<u8>>,
}

impl PreviousResults {
    /// A step of a tensor begins: forgets the results of the step before the last one.
    pub(crate) fn begin_step(&mut self, key: u64) {
        let results = self.tensors.entry(key).or_default();
        results.last_step = std::mem::take(&mut results.this_step);
    }

    /// The last step's result of a region, if it had the same length.
    pub(crate) fn get(&self, key: u64, offset: usize, bytes: usize) -> Option<&[u8]> {
        let kept = self.tensors.get(&key)?.last_step.get(&offset)?;
        (kept.len() == bytes).then_some(kept)
    }

    /// Keeps a result of this step, in the memory of the last one's.
    pub(crate) fn keep(&mut self, key: u64, offset: usize, result: &[u8]) {
        let results = self.tensors.entry(key).or_default();
        let mut kept = results.last_step.remove(&offset).unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(result);
        results.this_step.insert(offset, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    }

    /// Three segments of two elements, summed over four ranks of which 0, 1 and 2 are missing.
    fn settled(op: ReduceOp, rule: HoleFilling, previous: Option<&[u8]>) -> Vec<u8> {
        let mut sum = floats(&[8.0, 16.0, 6.0, 12.0, 4.0, 8.0]);
        let missing = Some(&[0, 1, 2][..]);
        let (dtype, contributors, segment_bytes) = (DType::F32, 4, 8);
        Settlement {
            dtype,
            op,
            rule,
            contributors,
            segment_bytes,
            missing,
            previous,
        }
        .settle(&mut sum);
        sum
    }

    #[test]
    fn rescaling_divides_by_the_contributors_that_arrived() {
        let sums = floats(&[8.0, 16.0, 8.0, 16.0, 8.0, 16.0]);
        assert_eq!(settled(ReduceOp::Sum, HoleFilling::Rescale, None), sums);
        let means = floats(&[2.0, 4.0, 2.0, 4.0, 2.0, 4.0]);
        assert_eq!(settled(ReduceOp::Avg, HoleFilling::Rescale, None), means);
    }

    #[test]
    fn zero_and_error_feedback_leave_holes_empty() {
        for rule in [HoleFilling::Zero, HoleFilling::ErrorFeedback] {
            let sums = floats(&[8.0, 16.0, 6.0, 12.0, 4.0, 8.0]);
            assert_eq!(settled(ReduceOp::Sum, rule, None), sums);
            let means = floats(&[2.0, 4.0, 1.5, 3.0, 1.0, 2.0]);
            assert_eq!(settled(ReduceOp::Avg, rule, None), means);
        }
    }

    #[test]
    fn the_previous_result_fills_holes_by_share() {
        let sums = floats(&[4.0; 6]);
        let expected = floats(&[8.0, 16.0, 7.0, 13.0, 6.0, 10.0]);
        assert_eq!(
            settled(ReduceOp::Sum, HoleFilling::Previous, Some(&sums)),
            expected
        );
        let means = floats(&[1.0; 6]);
        let expected = floats(&[2.0, 4.0, 1.75, 3.25, 1.5, 2.5]);
        assert_eq!(
            settled(ReduceOp::Avg, HoleFilling::Previous, Some(&means)),
            expected
        );
    }

    #[test]
    fn without_a_previous_result_the_rest_is_rescaled() {
        let rescaled = settled(ReduceOp::Sum, HoleFilling::Rescale, None);
        assert_eq!(
            settled(ReduceOp::Sum, HoleFilling::Previous, None),
            rescaled
        );
    }

    fn keep(residuals: &mut Residuals, shape: TensorShape, offset: usize, values: &[f32]) {
        let values = floats(values);
        residuals.keep(9, shape, ResidualPiece { offset, values });
    }

    #[test]
    fn a_residual_is_added_once_where_it_belongs() {
        let shape = TensorShape {
            dtype: DType::F32,
            bytes: 24,
        };
        let mut residuals = Residuals::default();
        keep(&mut residuals, shape, 4, &[1.0, 2.0, 3.0]);
        let mut values = floats(&[10.0, 10.0]);
        residuals.add_to(9, shape, 8, &mut values);
        assert_eq!(values, floats(&[12.0, 13.0]));
        residuals.add_to(9, shape, 8, &mut values);
        assert_eq!(values, floats(&[12.0, 13.0]), "what was added is forgotten");
        let mut first = floats(&[10.0, 10.0]);
        residuals.add_to(9, shape, 0, &mut first);
        assert_eq!(
            first,
            floats(&[10.0, 11.0]),
            "what lies outside the range is kept"
        );
        assert_eq!(residuals.bytes(), 0);
    }

    #[test]
    fn taken_residuals_are_written_at_their_offsets() {
        let shape = TensorShape {
            dtype: DType::F32,
            bytes: 16,
        };
        let mut residuals = Residuals::default();
        keep(&mut residuals, shape, 4, &[1.0]);
        keep(&mut residuals, shape, 12, &[2.0]);
        let residual = residuals.take(9).expect("it was kept");
        assert_eq!((residuals.bytes(), residuals.take(9)), (0, None));
        let mut values = floats(&[0.0; 4]);
        residual.write_to(&mut values);
        assert_eq!(values, floats(&[0.0, 1.0, 0.0, 2.0]));
    }

    #[test]
    fn residuals_of_another_shape_are_dropped() {
        let shape = TensorShape {
            dtype: DType::F32,
            bytes: 8,
        };
        let mut residuals = Residuals::default();
        keep(&mut residuals, shape, 0, &[1.0]);
        let mut values = floats(&[10.0; 3]);
        residuals.add_to(9, TensorShape { bytes: 12, ..shape }, 0, &mut values);
        assert_eq!(values, floats(&[10.0; 3]));
        assert_eq!(residuals.iter().count(), 0);
        assert_eq!(residuals.dropped_elements(), 1);
    }

    #[test]
    fn residuals_of_one_place_are_added_up() {
        let shape = TensorShape {
            dtype: DType::F32,
            bytes: 16,
        };
        let mut residuals = Residuals::default();
        keep(&mut residuals, shape, 0, &[1.0, 2.0]);
        keep(&mut residuals, shape, 4, &[10.0, 20.0]);
        let mut values = floats(&[0.0; 4]);
        residuals
            .take(9)
            .expect("it was kept")
            .write_to(&mut values);
        assert_eq!(values, floats(&[1.0, 12.0, 20.0, 0.0]));
    }

    #[test]
    fn residuals_that_are_not_finite_are_dropped_and_counted() {
        let shape = TensorShape {
            dtype: DType::F32,
            bytes: 16,
        };
        let mut residuals = Residuals::default();
        let values = [1.0, f32::INFINITY, f32::NAN, f32::MAX];
        keep(&mut residuals, shape, 0, &values);
        assert_eq!(residuals.dropped_elements(), 2);
        residuals.scale(8, 2.0);
        assert_eq!(residuals.dropped_elements(), 2, "of another tensor");
        residuals.scale(9, 2.0);
        assert_eq!(residuals.dropped_elements(), 3, "the largest has grown");
        let mut kept = floats(&[9.0; 4]);
        residuals.take(9).expect("it was kept").write_to(&mut kept);
        assert_eq!(kept, floats(&[2.0, 0.0, 0.0, 0.0]));
    }
}
