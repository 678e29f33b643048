//! When the messages in of an operation are posted, and on which terms.
//!
//! All are posted at the start. With patience some wait until the contribution in their place has
//! left, so that they do not overwrite it.

use std::sync::Arc;

use gradwire_protocol::message::{LengthRule, ReceiveOrder, ReceiveRequest};
use gradwire_protocol::units::Instant;

use super::coding::MessageCut;
use super::{RunningOperation, reliability_of};
use crate::engine::parts::EngineParts;
use crate::engine::stash::EarlyStash;
use crate::plan::{PlannedReceive, PlannedSend, Reliability, SegmentLanding};

impl RunningOperation {
    /// Posts the results whose places have sent their contributions by now. Ranks that have lost
    /// patience send results before they have received all contributions to them (rule 2 of
    /// [`crate::plan`]), and each of these is owed to the next step as it was.
    pub(crate) fn post_results(
        &mut self,
        now: Instant,
        stash: &mut EarlyStash,
        parts: &mut EngineParts,
    ) {
        if self.unposted.is_empty() {
            return;
        }
        let plan = Arc::clone(&self.plan);
        for at in std::mem::take(&mut self.unposted) {
            match self.overwrites_contribution(&plan.inbound(at)) {
                true => self.unposted.push(at),
                false => self.post(at, now, stash, parts),
            }
        }
    }

    /// Whether a message in replaces values that a contribution which has not left consists of.
    pub(super) fn overwrites_contribution(&self, inbound: &PlannedReceive) -> bool {
        let outbounds = self.plan.outbounds().enumerate();
        let overlaps = |outbound: &PlannedSend| {
            outbound.reliability == Reliability::Tolerant
                && outbound.region.overlaps(inbound.region)
        };
        let mut waiting = outbounds.filter(|&(at, _)| !self.progress.has_started(at));
        inbound.landing == SegmentLanding::Copy && waiting.any(|(_, outbound)| overlaps(&outbound))
    }

    /// Posts a message in.
    pub(super) fn post(
        &mut self,
        at: usize,
        now: Instant,
        stash: &mut EarlyStash,
        parts: &mut EngineParts,
    ) {
        let from = self.plan.inbound(at).from;
        let request = self.request(at, parts);
        if let Some(early) = stash.take(from, request.key) {
            let cells = &mut parts.memory.cells;
            for (placement, payload) in early.segments() {
                self.place(at, placement.offset, std::iter::once(payload), cells);
            }
        }
        parts.endpoint.expect(now, from, request);
    }

    /// The request to the endpoint to receive a message.
    fn request(&mut self, at: usize, parts: &EngineParts) -> ReceiveRequest {
        let inbound = &self.plan.inbound(at);
        let MessageCut {
            wire: cut, blocks, ..
        } = self.cut_in(inbound, parts);
        if let Some(blocks) = blocks {
            self.coding.expect(at, blocks);
        }
        self.losses.expect(cut);
        let reliability = reliability_of(inbound, parts);
        let (rules, operation, policy) = (&self.rules, &self.operation, &parts.policy);
        let tolerance = rules.tolerance(operation, inbound.region, reliability, policy);
        ReceiveRequest {
            key: self.key(inbound.part),
            signature: self.signature,
            step: self.operation.step,
            bytes: cut.bytes(),
            length: LengthRule::Exact,
            tolerance: cut.usable(tolerance),
            urgency: rules.grant_urgency(
                operation,
                policy,
                ReceiveOrder {
                    begun: self.begun,
                    turn: inbound.turn,
                },
            ),
            patience_ends: self
                .patience
                .ends
                .filter(|_| reliability == Reliability::Tolerant),
        }
    }
}
