//! One operation on its way: executes its plan on its bytes.
//!
//! Segments land straight in the result buffer, copied or reduced from the packet they came in.
//! What leaves is read from the buffers when a packet is made, with two exceptions: under error
//! feedback a contribution is copied first, because what of it was lost is only known later; and
//! where contributions are transformed, those of others are summed apart, as coefficients, and a
//! copy is transformed of what is still needed as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::GradientTransform;
use gradwire_protocol::machine::Payload;
use gradwire_protocol::message::{ReceiveRequest, SendRequest};
use gradwire_protocol::priority::{MessageShape, Policy, SegmentTags, Urgency};
use gradwire_protocol::reach::Reach;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::units::{ByteCount, Instant, Layer, MessageKey, Rank, Share, Signature};

use crate::engine::agreement::Called;
use crate::engine::departures::DepartureQueue;
use crate::engine::memory::{SpareScratch, StepMemory};
use crate::engine::scheduler::ReadyMessage;
use crate::engine::stash::EarlyStash;
use crate::numbers::dtype::ReduceOp;
use crate::numbers::hadamard::Mixing;
use crate::numbers::holes::{Hole, HoleFilling, Residuals, Settlement, TensorShape};
use crate::numbers::kernels::accumulate;
use crate::operation::buffer::Buffer;
use crate::operation::{
    Collective, Completion, Operation, OperationError, OperationId, OperationLabel,
    OperationOutcome, OperationProgress, TimedOut,
};
use crate::plan::region::{TensorMemory, TensorRegion};
use crate::plan::{
    EARLY_BYTES_MAX, GateId, MessagePlan, PlanGate, PlannedReceive, Reliability, ScratchUse,
    SegmentLanding,
};

/// What holds for an operation from its beginning on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationTerms {
    /// Messages that are shorter are lossless.
    pub(crate) min_lossy: usize,
    /// Payload bytes of a full packet of the network.
    pub(crate) segment_bytes: u32,
    /// No message tolerates more.
    pub(crate) cap: Share,
    /// What contributions that may lose go through.
    pub(crate) transform: GradientTransform,
}

/// What others contributed to a region, as coefficients: apart from the own contribution, which may
/// not be there yet when the first of them comes.
#[derive(Debug)]
struct Coefficients {
    mixing: Mixing,
    /// Their sum; nothing until something has come.
    sum: Vec<u8>,
}

/// What an operation works with and does not own.
#[derive(Debug)]
pub(crate) struct EngineParts<'a> {
    pub(crate) now: Instant,
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) memory: &'a mut StepMemory,
    pub(crate) policy: &'a Policy,
    pub(crate) departures: &'a mut DepartureQueue,
}

/// Where a message out stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SendStage {
    Waiting,
    Started,
    Sent,
}

/// A submitted operation.
#[derive(Debug)]
pub(crate) struct RunningOperation {
    pub(crate) id: OperationId,
    pub(crate) operation: Operation,
    pub(crate) label: OperationLabel,
    plan: Arc<MessagePlan>,
    scratch: Option<Buffer>,
    contributors: u16,
    signature: Signature,
    segment_bytes: u32,
    /// The least length of a message that may lose; `None` when none may.
    lossy_from: Option<usize>,
    /// No message tolerates more in this step.
    cap: Share,
    /// What each gate still waits for.
    waits: SmallVec<[usize; 8]>,
    received: Bitmap,
    stages: SmallVec<[SendStage; 16]>,
    /// Messages in and out that are not done.
    open: usize,
    /// Missing contributions per segment, of gates that wait or finish.
    holes: BTreeMap<GateId, Vec<u16>>,
    /// Contributions as they were sent, by message out.
    copies: BTreeMap<usize, Vec<u8>>,
    /// By the gate that finishes their region.
    coefficients: BTreeMap<GateId, Coefficients>,
    received_bytes: u64,
    /// What was not received of messages that are no contributions to a sum.
    unfilled: Vec<Hole>,
    begun: Instant,
    outcome: OperationOutcome,
}

impl RunningOperation {
    /// An operation that has not started.
    pub(crate) fn new(
        id: OperationId,
        operation: Operation,
        plan: Arc<MessagePlan>,
        terms: OperationTerms,
    ) -> Self {
        let OperationTerms {
            min_lossy,
            segment_bytes,
            cap,
            transform,
        } = terms;
        let contributors = operation.group.ranks.len() as u16;
        let lossy_from = operation.may_lose().then_some(min_lossy);
        let mut label = operation.label();
        label.call.transform = transform;
        Self {
            id,
            contributors,
            signature: label.call.signature(),
            label,
            segment_bytes,
            lossy_from,
            cap,
            waits: plan.gates.iter().map(|gate| gate.waits).collect(),
            received: Bitmap::new(plan.inbounds.len() as u32),
            stages: smallvec![SendStage::Waiting; plan.outbounds.len()],
            open: plan.inbounds.len() + plan.outbounds.len(),
            holes: BTreeMap::new(),
            copies: BTreeMap::new(),
            coefficients: BTreeMap::new(),
            received_bytes: 0,
            unfilled: Vec::new(),
            begun: Instant::START,
            outcome: OperationOutcome {
                source: operation.collective.source(),
                ..OperationOutcome::default()
            },
            operation,
            plan,
            scratch: None,
        }
    }

    /// Posts everything that will come and sends what waits for nothing.
    pub(crate) fn start(&mut self, stash: &mut EarlyStash, desk: &mut EngineParts<'_>) {
        self.begun = desk.now;
        self.copy_own(&mut desk.memory.spares);
        for at in 0..self.plan.inbounds.len() {
            let inbound = self.plan.inbounds[at];
            let cut = cut(inbound.region, inbound.from, desk.endpoint);
            self.outcome.expected_segments += u64::from(cut.segments());
            let key = self.key(inbound.part);
            self.expect_coefficients(&inbound);
            let incoming = ReceiveRequest {
                key,
                signature: self.signature,
                step: self.operation.step,
                bytes: cut.bytes(),
                tolerance: match (desk.endpoint.reach(inbound.from), inbound.reliability) {
                    (Reach::Network, Reliability::Tolerant) => {
                        let tolerance = self.tolerance(inbound.region, desk.policy);
                        cut.usable(tolerance.min(self.cap))
                    }
                    _ => Share::NONE,
                },
                urgency: self.urgency(inbound.region, desk.policy),
            };
            if let Some(early) = stash.take(inbound.from, key) {
                for (placement, payload) in early.segments() {
                    self.place(at, placement.offset, payload);
                }
            }
            desk.endpoint.expect(desk.now, inbound.from, incoming);
        }
        for gate in 0..self.waits.len() {
            if self.plan.gates[gate].waits == 0 {
                self.open_gate(GateId(gate), desk);
            }
        }
    }

    /// Copies the own block from the input to its place in the result, and what belongs there to
    /// the scratch.
    fn copy_own(&mut self, spares: &mut SpareScratch) {
        self.scratch = match self.plan.scratch {
            ScratchUse::Unused => None,
            ScratchUse::CopyOfInput => self.operation.input.as_ref().map(Buffer::duplicate),
            ScratchUse::Slots { count, own } => {
                Some(spares.slots_of(&self.operation.buffer, own, count))
            }
        };
        let Some((from, to)) = self.plan.copy else {
            return;
        };
        let input = self.operation.input.as_ref().and_then(Buffer::bytes);
        if let (Some(input), Some(buffer)) = (input, self.operation.buffer.bytes_mut()) {
            let own = &input[from.offset..from.offset + from.bytes];
            buffer[to.offset..to.offset + to.bytes].copy_from_slice(own);
        }
    }

    fn expect_coefficients(&mut self, inbound: &PlannedReceive) {
        let mixing = self.mixing(inbound.region, inbound.reliability, inbound.part);
        if let (Some(mixing), SegmentLanding::Reduce) = (mixing, inbound.landing) {
            let fresh = || Coefficients {
                mixing,
                sum: Vec::new(),
            };
            self.coefficients.entry(inbound.gate).or_insert_with(fresh);
        }
    }

    /// How contributions to a region are transformed, if they are. The same on all ranks, whose
    /// tags agree.
    fn mixing(&self, region: TensorRegion, reliability: Reliability, part: u16) -> Option<Mixing> {
        let is_long = self.lossy_from.is_some_and(|least| region.bytes >= least);
        let is_mixed = self.label.call.transform == GradientTransform::Hadamard
            && is_long
            && reliability == Reliability::Tolerant;
        is_mixed.then(|| Mixing {
            dtype: self.operation.dtype,
            segment_bytes: self.segment_bytes as usize,
            seed: self.key(part).0,
        })
    }

    fn key(&self, part: u16) -> MessageKey {
        MessageKey::new(self.operation.group.id, self.operation.sequence, part)
    }

    /// How much of a contribution to a region may be missing in steps that are not strict.
    fn tolerance(&self, region: TensorRegion, policy: &Policy) -> Share {
        if self.lossy_from.is_none_or(|least| region.bytes < least) {
            return Share::NONE;
        }
        let (most, layers) = (self.operation.loss.tolerance, &self.operation.layers);
        let offset = self.tensor_offset(region);
        let within = layers.within(offset..offset + region.bytes);
        policy.tolerance(most, within.map(|(_, layer)| layer), layers.count)
    }

    /// Where in the tensor that the layers are of a region begins.
    fn tensor_offset(&self, region: TensorRegion) -> usize {
        let block = match (self.operation.collective, self.plan.copy) {
            (Collective::ReduceScatter, Some((own, _))) if region.place == TensorMemory::Buffer => {
                own.offset
            }
            _ => 0,
        };
        block + region.offset
    }

    /// What was called.
    pub(crate) fn called(&self) -> Called<'_> {
        (&self.operation, self.label)
    }

    /// The number of the message in with this sender and part.
    pub(crate) fn inbound(&self, from: Rank, part: u16) -> Option<usize> {
        self.plan.inbound(from, part)
    }

    /// The number of the message out with this receiver and part.
    pub(crate) fn outbound(&self, to: Rank, part: u16) -> Option<usize> {
        self.plan.outbound(to, part)
    }

    /// Puts a segment where it belongs.
    pub(crate) fn place(&mut self, inbound: usize, offset: u32, payload: Payload<'_>) {
        let PlannedReceive {
            region,
            landing,
            gate,
            ..
        } = self.plan.inbounds[inbound];
        let length = payload.len();
        if offset as usize + length > region.bytes {
            return; // of a message that is longer than posted, which the endpoint reports
        }
        self.received_bytes += length as u64;
        let memory = match region.place {
            TensorMemory::Scratch => self.scratch.as_mut(),
            _ => Some(&mut self.operation.buffer),
        };
        let Some(memory) = memory.and_then(Buffer::bytes_mut) else {
            return;
        };
        let bytes = payload
            .bytes()
            .expect("buffers of bytes are filled by drivers with bytes");
        let memory = match self.coefficients.get_mut(&gate) {
            Some(coefficients) if landing == SegmentLanding::Reduce => {
                coefficients.sum.resize(region.bytes, 0);
                &mut coefficients.sum
            }
            _ => &mut memory[region.offset..region.offset + region.bytes],
        };
        let target = &mut memory[offset as usize..offset as usize + length];
        match landing {
            SegmentLanding::Copy => target.copy_from_slice(bytes),
            SegmentLanding::Reduce => {
                accumulate(self.operation.dtype, self.operation.op, target, bytes);
            }
        }
    }

    /// The bytes of a message out.
    pub(crate) fn source(&self, outbound: usize) -> Payload<'_> {
        if let Some(copy) = self.copies.get(&outbound) {
            return Payload::Bytes(copy);
        }
        let region = self.plan.outbounds[outbound].region;
        match region.place {
            TensorMemory::Buffer => self.operation.buffer.payload(region.offset, region.bytes),
            TensorMemory::Input => {
                let input = self.operation.input.as_ref();
                let input = input.expect("validated with the plan");
                input.payload(region.offset, region.bytes)
            }
            TensorMemory::Scratch => {
                let scratch = self.scratch.as_ref();
                let scratch = scratch.expect("made at the start, from the input");
                scratch.payload(region.offset, region.bytes)
            }
            TensorMemory::Nothing => Payload::Bytes(&[]),
        }
    }

    /// A message in is complete, apart from its holes.
    pub(crate) fn on_received(
        &mut self,
        at: usize,
        holes: Option<&Bitmap>,
        desk: &mut EngineParts<'_>,
    ) {
        if !self.received.insert(at as u32) {
            return;
        }
        let inbound = self.plan.inbounds[at];
        if let Some(holes) = holes {
            let cut = cut(inbound.region, inbound.from, desk.endpoint);
            self.note_holes(&inbound, cut, holes);
        }
        self.open -= 1;
        if self.waits_no_more(inbound.gate) {
            self.open_gate(inbound.gate, desk);
        }
    }

    fn note_holes(&mut self, inbound: &PlannedReceive, cut: Segmentation, holes: &Bitmap) {
        self.outcome.lost_segments += u64::from(holes.ones());
        let segments = cut.segments() as usize;
        let share = Share::new(f64::from(holes.ones()) / segments as f64).unwrap_or(Share::ALL);
        self.outcome.max_lost_share = self.outcome.max_lost_share.max(share);
        if inbound.landing == SegmentLanding::Copy {
            let hole = |segment| Hole {
                offset: inbound.region.offset + segment as usize * cut.segment_bytes() as usize,
                bytes: cut.length(segment) as usize,
            };
            self.unfilled.extend(holes.iter_ones().map(hole));
            return;
        }
        let missing = self.holes.entry(inbound.gate);
        let missing = missing.or_insert_with(|| vec![0; segments]);
        for segment in holes.iter_ones() {
            missing[segment as usize] += inbound.contributors;
        }
    }

    /// One thing less that a gate waits for; whether it opens now.
    fn waits_no_more(&mut self, gate: GateId) -> bool {
        self.waits[gate.0] -= 1;
        self.waits[gate.0] == 0
    }

    /// A message out was received as far as it ever will be.
    pub(crate) fn on_sent(&mut self, at: usize, missing: Option<&Bitmap>, memory: &mut StepMemory) {
        if std::mem::replace(&mut self.stages[at], SendStage::Sent) == SendStage::Sent {
            return;
        }
        self.open -= 1;
        let copy = self.copies.remove(&at);
        let Some(missing) = missing else { return };
        self.outcome.missed_segments += u64::from(missing.ones());
        let Some(copy) = copy else { return };
        if self.operation.loss.holes == HoleFilling::ErrorFeedback {
            self.keep_residual(at, &copy, missing, memory);
        }
    }

    /// Keeps what was missing of a contribution, as values.
    fn keep_residual(&self, at: usize, copy: &[u8], missing: &Bitmap, memory: &mut StepMemory) {
        let outbound = self.plan.outbounds[at];
        let (key, shape) = (self.operation.tensor_key, self.shape());
        let segment_bytes = self.segment_bytes as usize;
        let range = |segment: u32| {
            let offset = segment as usize * segment_bytes;
            offset..copy.len().min(offset + segment_bytes)
        };
        let mut keep = |offset, values: &[u8]| {
            let offset = outbound.region.offset + offset;
            memory.residuals.keep(key, shape, offset, values);
        };
        let missing = missing.iter_ones().map(range);
        let Some(mixing) = self.mixing(outbound.region, outbound.reliability, outbound.part) else {
            return missing.for_each(|lost| keep(lost.start, &copy[lost]));
        };
        let mut values = vec![0; copy.len()];
        for lost in missing {
            values[lost.clone()].copy_from_slice(&copy[lost]);
        }
        mixing.unmix(&mut values);
        keep(0, &values);
    }

    /// Whether every message in and out is done, or all that is left can go on without this.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0 || self.ends_early()
    }

    /// Whether everything has come and what is still on its way out is short: then copies of it
    /// serve those who wait for it, and nobody waits here until they have said that they got it.
    /// A rank cannot run ahead of one that it needs a message from in the next operation.
    fn ends_early(&self) -> bool {
        let plan = &self.plan;
        let all_came =
            !plan.inbounds.is_empty() && self.received.ones() as usize == plan.inbounds.len();
        if !all_came || self.lossy_from.is_some() || plan.outbound_bytes > EARLY_BYTES_MAX {
            return false;
        }
        !self.operation.collective.is_point_to_point()
            && self.stages.iter().all(|&stage| stage != SendStage::Waiting)
    }

    fn open_gate(&mut self, gate: GateId, desk: &mut EngineParts<'_>) {
        let plan = Arc::clone(&self.plan);
        let mut opening: SmallVec<[GateId; 4]> = smallvec![gate];
        while let Some(gate) = opening.pop() {
            let PlanGate {
                finish,
                opens,
                next,
                ..
            } = &plan.gates[gate.0];
            if let Some(region) = finish {
                self.reduce_slots();
                self.finish(gate, *region, desk);
            }
            for &at in opens {
                self.ready(at, desk);
            }
            for &next in next {
                if self.waits_no_more(next) {
                    opening.push(next);
                }
            }
        }
    }

    /// Reduces the slots of the scratch into the result buffer, where there are slots.
    fn reduce_slots(&mut self) {
        let slots = self.scratch.as_ref().and_then(Buffer::bytes);
        let ScratchUse::Slots { count, .. } = self.plan.scratch else {
            return;
        };
        let Operation {
            buffer, dtype, op, ..
        } = &mut self.operation;
        if let (Some(slots), Some(buffer)) = (slots, buffer.bytes_mut()) {
            let mut slots = slots.chunks(buffer.len()).take(count);
            buffer.copy_from_slice(slots.next().expect("a slot for each of two ranks or more"));
            for slot in slots {
                accumulate(*dtype, *op, buffer, slot);
            }
        }
    }

    /// Turns the sum in a region into the result.
    fn finish(&mut self, gate: GateId, region: TensorRegion, desk: &mut EngineParts<'_>) {
        let memory = &mut *desk.memory;
        let missing = self.holes.remove(&gate);
        let keeps = self.operation.loss.holes == HoleFilling::Previous
            && !self.tolerance(region, desk.policy).is_none();
        let operation = &mut self.operation;
        let Some(buffer) = operation.buffer.bytes_mut() else {
            return;
        };
        let sum = &mut buffer[region.offset..region.offset + region.bytes];
        let key = operation.tensor_key;
        let previous = memory.previous.get(key, region.offset, region.bytes);
        let mut previous = previous.filter(|_| keeps).map(Cow::Borrowed);
        let coefficients = self.coefficients.remove(&gate);
        if let Some(Coefficients {
            mixing,
            sum: others,
        }) = &coefficients
        {
            mixing.mix(sum);
            if !others.is_empty() {
                accumulate(operation.dtype, ReduceOp::Sum, sum, others);
            }
            if let (Some(previous), Some(_)) = (&mut previous, &missing) {
                mixing.mix(previous.to_mut());
            }
        }
        let settlement = Settlement {
            dtype: operation.dtype,
            op: operation.op,
            rule: operation.loss.holes,
            contributors: self.contributors,
            segment_bytes: self.segment_bytes as usize,
            missing: missing.as_deref(),
            previous: previous.as_deref(),
        };
        settlement.settle(sum);
        if let Some(Coefficients { mixing, .. }) = coefficients {
            mixing.unmix(sum);
        }
        if keeps {
            memory.previous.keep(key, region.offset, sum);
        }
    }

    /// A message out may be sent: when its turn comes, if its layers are known.
    fn ready(&mut self, at: usize, desk: &mut EngineParts<'_>) {
        let outbound = self.plan.outbounds[at];
        let urgency = match desk.endpoint.reach(outbound.to) {
            Reach::Network => self.urgency(outbound.region, desk.policy),
            Reach::Host => None,
        };
        let Some(urgency) = urgency else {
            self.send(at, desk);
            return;
        };
        let post = ReadyMessage {
            step: self.operation.step,
            urgency,
            bytes: ByteCount::new(u64::from(outbound.region.message_bytes())),
        };
        let key = self.key(outbound.part);
        desk.departures.post(post, outbound.to, key);
    }

    /// How soon a message is needed; `None` when its layers are not known.
    fn urgency(&self, region: TensorRegion, policy: &Policy) -> Option<Urgency> {
        let layers = &self.operation.layers;
        let of_region = layers.within(region.offset..region.offset + region.bytes);
        policy.urgency(of_region.map(|(_, layer)| layer), layers.count)
    }

    /// Sends a message out whose turn has come, unless it was sent.
    pub(crate) fn depart(&mut self, at: usize, desk: &mut EngineParts<'_>) {
        if self.stages[at] == SendStage::Waiting {
            self.send(at, desk);
        }
    }

    fn send(&mut self, at: usize, desk: &mut EngineParts<'_>) {
        let outbound = self.plan.outbounds[at];
        let tolerance = match (desk.endpoint.reach(outbound.to), outbound.reliability) {
            (Reach::Network, Reliability::Tolerant) => {
                self.tolerance(outbound.region, desk.policy).min(self.cap)
            }
            _ => Share::NONE,
        };
        if !tolerance.is_none() && self.operation.loss.holes == HoleFilling::ErrorFeedback {
            self.copy_with_residual(at, &mut desk.memory.residuals);
        }
        self.mix_contribution(at);
        let cut = cut(outbound.region, outbound.to, desk.endpoint);
        let tolerance = cut.usable(tolerance);
        self.stages[at] = SendStage::Started;
        self.outcome.sent_segments += u64::from(cut.segments());
        let shape = MessageShape {
            segments: cut.segments(),
            layer_count: self.operation.layers.count,
        };
        let spans = self.segment_spans(outbound.region, cut.segment_bytes());
        let tags = if tolerance.is_none() {
            desk.policy.lossless(shape, &spans)
        } else {
            self.lossy_tags(at, shape, &spans, desk)
        };
        let outgoing = SendRequest {
            key: self.key(outbound.part),
            signature: self.signature,
            step: self.operation.step,
            bytes: cut.bytes(),
            tolerance,
            contributors: outbound.contributors,
            tags,
        };
        desk.endpoint.send(desk.now, outbound.to, outgoing);
    }

    fn lossy_tags(
        &self,
        at: usize,
        shape: MessageShape,
        spans: &[(u32, Layer)],
        desk: &mut EngineParts<'_>,
    ) -> SegmentTags {
        let offset = self.plan.outbounds[at].region.offset;
        let message = (self.operation.tensor_key, offset);
        let source = self.source(at).bytes();
        let magnitudes = source.map(|values| {
            let segment_bytes = self.segment_bytes as usize;
            desk.memory
                .means
                .update(message, self.operation.dtype, values, segment_bytes)
        });
        desk.policy
            .lossy(shape, spans, magnitudes.unwrap_or_default())
    }

    /// Keeps a contribution as it is sent, with what of it was lost a step ago.
    fn copy_with_residual(&mut self, at: usize, residuals: &mut Residuals) {
        let Some(bytes) = self.source(at).bytes() else {
            return;
        };
        let mut copy = bytes.to_vec();
        let offset = self.plan.outbounds[at].region.offset;
        residuals.add_to(self.operation.tensor_key, self.shape(), offset, &mut copy);
        self.copies.insert(at, copy);
    }

    /// Transforms a contribution that is sent next, where contributions are transformed: in its
    /// place where the result comes to later anyway, else in a copy.
    fn mix_contribution(&mut self, at: usize) {
        let outbound = self.plan.outbounds[at];
        let region = outbound.region;
        let Some(mixing) = self.mixing(region, outbound.reliability, outbound.part) else {
            return;
        };
        if let Some(copy) = self.copies.get_mut(&at) {
            return mixing.mix(copy);
        }
        let is_overwritten = self.operation.collective == Collective::AllReduce
            && region.place == TensorMemory::Buffer;
        if is_overwritten && let Some(buffer) = self.operation.buffer.bytes_mut() {
            return mixing.mix(&mut buffer[region.offset..region.offset + region.bytes]);
        }
        if let Some(mut copy) = self.source(at).bytes().map(<[u8]>::to_vec) {
            mixing.mix(&mut copy);
            self.copies.insert(at, copy);
        }
    }

    fn shape(&self) -> TensorShape {
        TensorShape {
            dtype: self.operation.dtype,
            bytes: self.operation.tensor_bytes(),
        }
    }

    /// The layers of a message's segments: each has the layer of its first byte.
    fn segment_spans(
        &self,
        region: TensorRegion,
        segment_bytes: u32,
    ) -> SmallVec<[(u32, Layer); 4]> {
        let bytes = region.offset..region.offset + region.bytes;
        let mut segments: SmallVec<[(u32, Layer); 4]> = SmallVec::new();
        for (start, layer) in self.operation.layers.within(bytes) {
            let offset = start.saturating_sub(region.offset);
            let segment = offset.div_ceil(segment_bytes as usize) as u32;
            match segments.last_mut() {
                Some(last) if last.0 == segment => last.1 = layer,
                _ => segments.push((segment, layer)),
            }
        }
        segments
    }

    /// That the operation ran out of time, and what it was waiting for.
    pub(crate) fn timed_out(&self, now: Instant, verdict: Option<String>) -> OperationError {
        let deadline = self.operation.deadline.unwrap_or(now);
        OperationError::TimedOut(Box::new(TimedOut {
            label: self.label,
            took: Some((now - self.begun, deadline - self.begun)),
            progress: self.progress(),
            verdict,
        }))
    }

    /// What it still needs.
    pub(crate) fn progress(&self) -> OperationProgress {
        let missing = self.received.iter_zeros();
        let missing = missing.map(|at| self.plan.inbounds[at as usize].from);
        let outbounds = self.plan.outbounds.iter().zip(&self.stages);
        let unheard = outbounds.filter(|(_, stage)| **stage == SendStage::Started);
        let mut waits_for: Vec<u16> = missing.map(|rank| rank.0).collect();
        waits_for.extend(unheard.map(|(outbound, _)| outbound.to.0));
        waits_for.sort_unstable();
        waits_for.dedup();
        let inbounds = self.plan.inbounds.iter();
        OperationProgress {
            waits_for,
            received: self.received_bytes,
            expected: inbounds.map(|inbound| inbound.region.bytes as u64).sum(),
        }
    }

    /// Copies of the messages that others still count on, when the operation ends early.
    pub(crate) fn promises(&self) -> impl Iterator<Item = ((Rank, MessageKey), Vec<u8>)> {
        let started = (0..self.stages.len()).filter(|&at| self.stages[at] == SendStage::Started);
        started.filter_map(|at| {
            let bytes = self.source(at).bytes()?.to_vec();
            let outbound = &self.plan.outbounds[at];
            Some(((outbound.to, self.key(outbound.part)), bytes))
        })
    }

    /// The end.
    pub(crate) fn into_completion(
        self,
        result: Result<(), OperationError>,
        memory: &mut StepMemory,
    ) -> Completion {
        let unfinished = result.is_err().then(|| self.progress());
        if result.is_ok() {
            memory.phases.note(&self.operation);
        }
        if let (ScratchUse::Slots { .. }, Some(slots)) = (self.plan.scratch, self.scratch) {
            memory.spares.keep(slots);
        }
        let Operation { buffer, input, .. } = self.operation;
        let result = result.map(|()| self.outcome);
        let mut holes = self.unfilled;
        holes.sort_unstable_by_key(|hole| hole.offset);
        Completion {
            id: self.id,
            buffer,
            input,
            holes,
            result,
            unfinished,
        }
    }
}

/// How a message to or from a rank is cut.
fn cut(region: TensorRegion, peer: Rank, endpoint: &Endpoint) -> Segmentation {
    Segmentation::new(region.message_bytes(), endpoint.segment_bytes_to(peer))
}
