//! Makes the plan of an operation, or recalls the one of an operation like it.

use std::sync::Arc;

use gradwire_protocol::job::{Job, ToleranceUse};
use gradwire_protocol::units::{ByteCount, Span};

use crate::algorithms::operation_plan::OperationPlan;
use crate::algorithms::selection::Preference;
use crate::engine::plan_cache::PlanCache;
use crate::operation::Operation;
use crate::plan::region::TensorRegion;
use crate::plan::{GroupSeat, MessagePlan};

/// The plans of one rank.
#[derive(Debug)]
pub(crate) struct Planner {
    preference: Preference,
    cache: PlanCache,
}

impl Planner {
    pub(crate) fn new(job: &Job) -> Self {
        Self {
            preference: Preference::of(job),
            cache: PlanCache::default(),
        }
    }

    /// Rank i is on host `hosts[i]` from now on.
    pub(crate) fn set_hosts(&mut self, hosts: Vec<u16>) {
        self.preference = self.preference.clone().with_hosts(hosts);
        self.cache.clear();
    }

    /// Rank 0 has measured these round trips to all ranks.
    pub(crate) fn set_round_trips(&mut self, round_trips: Vec<Span>) {
        self.preference = self.preference.clone().with_round_trips(round_trips);
        self.cache.clear();
    }

    /// Tensors are cut into such chunks from now on.
    pub(crate) fn set_chunk(&mut self, chunk: ByteCount) {
        self.preference = self.preference.clone().with_chunk(chunk);
        self.cache.clear();
    }

    /// Keeps no more plans than these.
    pub(crate) fn keep_plans(&mut self, plans: usize) {
        self.cache.keep_most(plans);
    }

    /// Messages shorter than this many bytes are lossless.
    pub(crate) fn min_lossy_bytes(&self) -> usize {
        self.preference.min_lossy_bytes()
    }

    /// Which longer messages use their tolerance.
    pub(crate) fn tolerance_use(&self) -> ToleranceUse {
        self.preference.tolerance_use()
    }

    /// The plan that is kept for an operation like this one. Its group was checked then.
    pub(crate) fn find(&mut self, operation: &Operation) -> Option<Arc<OperationPlan>> {
        self.cache.find(operation)
    }

    /// Makes and keeps the plan of an operation that was not found, for a seat of its group.
    pub(crate) fn make(&mut self, operation: &Operation, seat: usize) -> Arc<OperationPlan> {
        let plan = self.plan(operation, seat);
        self.cache.keep(operation, plan)
    }

    fn plan(&self, operation: &Operation, seat: usize) -> OperationPlan {
        let ranks = &operation.group.ranks;
        if operation.needs_nobody() {
            return MessagePlan::new().into();
        }
        if ranks.len() > 1 {
            return self.preference.plan(operation, GroupSeat::new(ranks, seat));
        }
        let mut plan = MessagePlan::new();
        if let Some(input) = &operation.input {
            let bytes = input.len();
            plan.copy = Some((
                TensorRegion::input(0, bytes),
                TensorRegion::buffer(0, bytes),
            ));
        }
        plan.into()
    }
}
