//! The phase of training, read from the norm of its gradients. While the norm changes a lot from
//! step to step, a loss costs accuracy that later steps do not recover.
//!
//! A job's `loss.tight_tolerance` caps the tolerance of every message in the first step, and in a
//! step after one whose norm differs from that of the step before by `loss.tight_change` of it or
//! more: `|before - now| >= change * before` (DBLP, arXiv 2605.01989, after Accordion, MLSys 2021).
//!
//! The norm of a step is that of all results of its all-reduces and reduce-scatters with known
//! layers that have ended when the first such operation of a later step is submitted. For
//! all-reduces, all ranks hold the same bits, so all decide alike. For reduce-scatters, each has
//! the norm of its own shards, so ranks may decide differently. The protocol allows this: a
//! receiver accepts no more holes than it tolerates itself and requests the others, and a sender
//! that is strict protects everything. Steps are those of operations, and count up. Models that
//! train alternately in one process, such as a generator and its critic, look like one whose norm
//! changes.

use std::collections::BTreeMap;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Share, Step};

use crate::numbers::kernels::sum_squares;
use crate::operation::{Collective, Operation};

/// The job's limits for phases, and the norms of the last steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct TrainingPhases {
    limits: Option<PhaseLimits>,
    step: Option<Step>,
    /// The sum of squares of each result of the step, by group and number: they are added in this
    /// order, whatever the order in which they arrived.
    squares: BTreeMap<(u16, u32), f64>,
    norm_before: Option<f64>,
    is_moving: bool,
}

#[derive(Clone, Copy, Debug)]
struct PhaseLimits {
    tolerance: Share,
    change: Share,
}

impl TrainingPhases {
    /// Before the first step of a job.
    pub(crate) fn of(job: &Job) -> Self {
        let change = job.loss.tight_change;
        let limits = |tolerance| PhaseLimits { tolerance, change };
        Self {
            limits: job.loss.tight_tolerance.map(limits),
            ..Self::default()
        }
    }

    /// The cap on the tolerance of an operation that is submitted now.
    pub(crate) fn cap(&mut self, operation: &Operation) -> Share {
        let Some(limits) = self.limits else {
            return Share::ALL;
        };
        let is_new = self.step.is_none_or(|step| step.is_before(operation.step));
        if is_new && operation.layers.count > 0 {
            self.close(limits.change);
            self.step = Some(operation.step);
        }
        if self.is_moving || self.norm_before.is_none() {
            limits.tolerance
        } else {
            Share::ALL
        }
    }

    /// Ends the step, if it has results.
    fn close(&mut self, change: Share) {
        if self.squares.is_empty() {
            return;
        }
        let norm = self.squares.values().sum::<f64>().sqrt();
        self.squares.clear();
        let before = self.norm_before.replace(norm);
        self.is_moving = before.is_some_and(|before| moves(before, norm, change));
    }

    /// An operation has succeeded.
    pub(crate) fn note(&mut self, operation: &Operation) {
        let is_gradient = matches!(
            operation.collective,
            Collective::AllReduce | Collective::ReduceScatter
        ) && operation.op.can_miss_contributions()
            && operation.dtype.is_float()
            && operation.layers.count > 0;
        if self.limits.is_none() || !is_gradient || self.step != Some(operation.step) {
            return;
        }
        let bytes = operation.buffer.bytes();
        let squares = bytes.map_or(0.0, |bytes| sum_squares(operation.dtype, bytes));
        let key = (operation.group.id, operation.sequence);
        self.squares.insert(key, squares);
    }
}

/// Whether a norm changed by at least this share of its previous value, or is infinite or NaN.
fn moves(before: f64, now: f64, share: Share) -> bool {
    let change = (before - now).abs();
    !change.is_finite() || change > 0.0 && change >= share.get() * before
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{Layer, Rank};

    use super::*;
    use crate::numbers::dtype::{DType, ReduceOp};
    use crate::operation::buffer::Buffer;
    use crate::operation::{Group, Layers, LossTerms};

    fn result(step: u32, sequence: u32, norm: f32) -> Operation {
        Operation {
            group: Group {
                id: 0,
                ranks: [Rank(0), Rank(1)].into(),
            },
            sequence,
            collective: Collective::AllReduce,
            dtype: DType::F32,
            op: ReduceOp::Avg,
            buffer: Buffer::Owned(norm.to_le_bytes().to_vec()),
            input: None,
            splits: None,
            loss: LossTerms::NONE,
            step: Step(step),
            layers: Layers {
                count: 1,
                spans: vec![(0, Layer(0))],
            },
            tensor_key: 0,
            deadline: None,
        }
    }

    fn phases() -> TrainingPhases {
        let mut job = Job::default();
        job.loss.tight_tolerance = Some(Share::NONE);
        TrainingPhases::of(&job)
    }

    /// In which steps, from 1, a job with gradients of these norms is strict.
    fn strict_steps(norms: &[f32]) -> Vec<u32> {
        strict_steps_after(0, norms)
    }

    /// The same in a job that has reached step `before`.
    fn strict_steps_after(before: u32, norms: &[f32]) -> Vec<u32> {
        let mut phases = phases();
        let is_strict = |(step, norm): (u32, &f32)| {
            let whole = result(before.wrapping_add(step), 0, *norm);
            let cap = phases.cap(&whole);
            phases.note(&whole);
            cap.is_none().then_some(step)
        };
        (1..).zip(norms).filter_map(is_strict).collect()
    }

    #[test]
    fn steps_after_a_moved_norm_are_strict() {
        let norms = [8.0, 8.0, 4.0, 4.0, 2.1, 3.1, 3.1, 3.1];
        assert_eq!(strict_steps(&norms), [1, 4], "2.1 is not half of 4");
        let norms = [1.0, 1.5, 1.5, 0.8, 0.4, 0.4, 0.4];
        assert_eq!(strict_steps(&norms), [1, 3, 6]);
        assert_eq!(strict_steps_after(u32::MAX - 2, &norms), [1, 3, 6]);
    }

    #[test]
    fn infinite_norms_count_as_moved_and_zero_ones_not() {
        let norms = [1.0, f32::INFINITY, f32::INFINITY, 1.0, 1.0, 1.0];
        assert_eq!(strict_steps(&norms), [1, 3, 4, 5]);
        assert_eq!(strict_steps(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), [1, 5]);
    }

    #[test]
    fn the_norm_does_not_depend_on_arrival_order() {
        let values = [1e8_f32, 3.0, 1e-3, 7e7];
        let norms = [[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]].map(|order| {
            let mut phases = phases();
            phases.cap(&result(1, 0, 0.0));
            for at in order {
                phases.note(&result(1, at as u32, values[at]));
            }
            phases.close(Share::ALL);
            phases.norm_before.map(f64::to_bits)
        });
        assert!(norms[0].is_some() && norms.iter().all(|norm| *norm == norms[0]));
    }

    #[test]
    fn only_results_with_known_layers_count() {
        let mut phases = phases();
        let stray = Operation {
            layers: Layers::default(),
            ..result(9, 0, 5.0)
        };
        assert_eq!(phases.cap(&stray), Share::NONE, "no norm is known yet");
        phases.cap(&result(2, 0, 0.0));
        phases.note(&stray);
        phases.note(&result(1, 0, 7.0));
        assert!(phases.squares.is_empty());
        let mut never = TrainingPhases::of(&Job::default());
        assert_eq!(never.cap(&result(1, 0, 0.0)), Share::ALL);
        never.note(&result(1, 0, 0.0));
        assert!(never.squares.is_empty());
    }
}
