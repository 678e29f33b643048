//! Plans that were made before, because training repeats the same operations step after step.
//!
//! A plan depends on the group, the collective and the lengths, not on the bytes, and running it
//! does not change it. The group of a kept plan has been checked, too.

use std::sync::Arc;

use crate::algorithms::operation_plan::OperationPlan;
use crate::engine::limits::CommunicatorLimits;
use crate::operation::buffer::Buffer;
use crate::operation::{Collective, Group, Operation, Splits};

/// Everything that a plan depends on, except this rank and its job.
#[derive(Debug, Eq, PartialEq)]
struct PlanKey {
    group: Group,
    collective: Collective,
    element_bytes: usize,
    buffer: usize,
    input: Option<usize>,
    splits: Option<Splits>,
    may_lose: bool,
    is_encoded: bool,
}

impl PlanKey {
    fn of(operation: &Operation) -> Self {
        Self {
            group: operation.group.clone(),
            collective: operation.collective,
            element_bytes: operation.dtype.bytes(),
            buffer: operation.buffer.len(),
            input: operation.input.as_ref().map(Buffer::len),
            splits: operation.splits.clone(),
            may_lose: operation.may_lose(),
            is_encoded: operation.codec().is_some(),
        }
    }

    fn fits(&self, operation: &Operation) -> bool {
        let (ours, theirs) = (&self.group, &operation.group);
        let same_ranks = || Arc::ptr_eq(&ours.ranks, &theirs.ranks) || ours.ranks == theirs.ranks;
        self.buffer == operation.buffer.len()
            && self.collective == operation.collective
            && self.input == operation.input.as_ref().map(Buffer::len)
            && self.splits == operation.splits
            && self.element_bytes == operation.dtype.bytes()
            && self.may_lose == operation.may_lose()
            && self.is_encoded == operation.codec().is_some()
            && ours.id == theirs.id
            && same_ranks()
    }
}

/// The plans of one rank.
#[derive(Debug)]
pub(crate) struct PlanCache {
    /// Plans that are kept: those of all buckets of a large model.
    most: usize,
    kept: Vec<(PlanKey, Arc<OperationPlan>)>,
    /// Index of the plan that was made after the one found last. Steps repeat, so look there first.
    next: usize,
}

impl Default for PlanCache {
    fn default() -> Self {
        Self {
            most: CommunicatorLimits::USUAL.plans,
            kept: Vec::new(),
            next: 0,
        }
    }
}

impl PlanCache {
    /// Keeps no more plans than these.
    pub(crate) fn keep_most(&mut self, plans: usize) {
        self.most = plans;
    }

    /// Forgets all plans.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
        self.next = 0;
    }

    /// The plan of an operation like one before.
    pub(crate) fn find(&mut self, operation: &Operation) -> Option<Arc<OperationPlan>> {
        let (before, after) = self.kept.split_at(self.next.min(self.kept.len()));
        let in_turn = after.iter().chain(before);
        let found = in_turn.zip(0..).find(|((key, _), _)| key.fits(operation));
        let ((_, plan), distance) = found?;
        self.next = (self.next + distance) % self.kept.len() + 1;
        Some(Arc::clone(plan))
    }

    /// Keeps the plan of an operation that was not found.
    pub(crate) fn keep(
        &mut self,
        operation: &Operation,
        plan: OperationPlan,
    ) -> Arc<OperationPlan> {
        let plan = Arc::new(plan);
        if plan.is_short() {
            if self.kept.len() >= self.most {
                self.kept.clear();
            }
            self.kept.push((PlanKey::of(operation), Arc::clone(&plan)));
            self.next = self.kept.len();
        }
        plan
    }
}
