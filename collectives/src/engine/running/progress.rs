//! How far a plan has run on this rank: gates that wait, messages received, messages sent.

use smallvec::{SmallVec, smallvec};

use gradwire_protocol::bitmap::Bitmap;

use crate::algorithms::operation_plan::OperationPlan;
use crate::plan::GateId;

/// The stages of a message out, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SendStage {
    /// Its gate is closed.
    Waiting,
    /// Its gate is open; the scheduler holds it.
    Ready,
    /// The endpoint sends it.
    Started,
    /// The receiver has all of it that it will ever get.
    Sent,
}

/// The state of a plan's gates and messages.
#[derive(Debug)]
pub(super) struct PlanProgress {
    /// Messages and gates that each gate still waits for; empty if none waits for more than one.
    waits: SmallVec<[u32; 16]>,
    received: Bitmap,
    sends: SmallVec<[SendStage; 64]>,
    /// Messages out that the endpoint does not send yet.
    unstarted: usize,
    /// All messages out before this one have arrived.
    first: usize,
    /// Messages in and out that are not done.
    unfinished: usize,
}

impl PlanProgress {
    pub(super) fn new(plan: &OperationPlan) -> Self {
        let (inbounds, outbounds) = plan.messages();
        Self {
            waits: plan.waits().collect(),
            received: Bitmap::new(inbounds as u32),
            sends: smallvec![SendStage::Waiting; outbounds],
            unstarted: outbounds,
            first: 0,
            unfinished: inbounds + outbounds,
        }
    }

    /// Notes that a message in is complete. Returns false if it was already.
    pub(super) fn receive(&mut self, inbound: usize) -> bool {
        let is_new = self.received.insert(inbound as u32);
        self.unfinished -= usize::from(is_new);
        is_new
    }

    /// Notes that one of the things a gate waits for is complete. Returns true if the gate opens
    /// now.
    pub(super) fn reach(&mut self, gate: GateId) -> bool {
        let Some(waits) = self.waits.get_mut(gate.0) else {
            return true;
        };
        *waits -= 1;
        *waits == 0
    }

    /// Notes that the scheduler holds a message out.
    pub(super) fn make_ready(&mut self, outbound: usize) {
        self.sends[outbound] = SendStage::Ready;
    }

    /// Whether the scheduler holds a message out.
    pub(super) fn is_ready(&self, outbound: usize) -> bool {
        self.sends[outbound] == SendStage::Ready
    }

    /// Notes that the endpoint sends a message.
    pub(super) fn start_send(&mut self, outbound: usize) {
        self.sends[outbound] = SendStage::Started;
        self.unstarted -= 1;
    }

    /// Marks an outgoing message as arrived. Returns false if it was marked before.
    pub(super) fn finish_send(&mut self, outbound: usize) -> bool {
        let stage = std::mem::replace(&mut self.sends[outbound], SendStage::Sent);
        let is_new = stage != SendStage::Sent;
        self.unfinished -= usize::from(is_new);
        while self.sends.get(self.first) == Some(&SendStage::Sent) {
            self.first += 1;
        }
        is_new
    }

    /// Whether every message in and out is done.
    pub(super) fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// Whether there are messages in and all of them are complete.
    pub(super) fn has_received_all(&self) -> bool {
        !self.received.is_empty() && self.received.ones() == self.received.len()
    }

    /// Whether every message out has been given to the endpoint.
    pub(super) fn has_started_all(&self) -> bool {
        self.unstarted == 0
    }

    /// Whether a message out has been given to the endpoint.
    pub(super) fn has_started(&self, outbound: usize) -> bool {
        matches!(self.sends[outbound], SendStage::Started | SendStage::Sent)
    }

    /// The messages in that are not complete.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        self.received.iter_zeros().map(|at| at as usize)
    }

    /// The messages out that are on their way.
    pub(super) fn on_their_way(&self) -> impl Iterator<Item = usize> {
        let sends = self.sends.iter().enumerate().skip(self.first);
        sends.filter_map(|(at, stage)| (*stage == SendStage::Started).then_some(at))
    }
}
