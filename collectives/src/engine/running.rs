//! One operation on its way: runs its plan on its bytes.
//!
//! - `progress` knows which gates are open and which messages are done.
//! - `tensor_bytes` holds the bytes that segments land in and messages out carry, `ordered_sum`
//!   the order in which they are summed.
//! - `coding` says which messages are encoded, `encoding` does it.
//! - `loss_rules` says how much may be lost; `loss_record` counts the losses, `residual_draft`
//!   keeps those that the next step will repair.
//! - `posting` posts messages in.
//!
//! This file drives them: it opens gates, and sends.

pub(crate) mod coding;
mod encoding;
mod loss_record;
pub(crate) mod loss_rules;
mod ordered_sum;
mod posting;
mod progress;
mod residual_draft;
mod tensor_bytes;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::job::{GradientTransform, SumOrder};
use gradwire_protocol::machine::Payload;
use gradwire_protocol::message::SendRequest;
use gradwire_protocol::priority::{MessageShape, SegmentTags};
use gradwire_protocol::reach::Reach;
use gradwire_protocol::units::{ByteCount, Instant, Layer, MessageKey, Rank, Share, Signature};

use crate::algorithms::operation_plan::OperationPlan;
use crate::engine::agreement::RankCall;
use crate::engine::departures::DepartingMessage;
use crate::engine::memory::{SpareScratch, StepMemory};
use crate::engine::parts::EngineParts;
use crate::engine::patience::OperationPatience;
use crate::engine::promises::{Promises, copied_within};
use crate::engine::scheduler::ReadyMessage;
use crate::engine::stash::EarlyStash;
use crate::numbers::hadamard::Mixing;
use crate::numbers::holes::{HoleFilling, ResidualPiece, Residuals, TensorShape};
use crate::numbers::magnitude::MeasuredMessage;
use crate::operation::buffer::Buffer;
use crate::operation::call::ContributionForm;
use crate::operation::{
    Collective, Completion, Operation, OperationError, OperationId, OperationLabel,
    OperationProgress, TimedOut,
};
use crate::plan::region::TensorRegion;
use crate::plan::{
    EARLY_BYTES_MAX, GateId, MessageForm, PlanGate, PlannedReceive, PlannedSend, Reliability,
    ScratchUse, SegmentLanding,
};

use coding::{Coding, MessageCut};
use loss_record::LossRecord;
use loss_rules::{LossLimits, LossRules};
use ordered_sum::{LandedBytes, OrderedSum, SumShape};
use progress::PlanProgress;
use residual_draft::ResidualDraft;
use tensor_bytes::{MissingSegments, RegionSum, TensorBytes};

/// A submitted operation.
#[derive(Debug)]
pub(crate) struct RunningOperation {
    pub(crate) id: OperationId,
    pub(crate) operation: Operation,
    pub(crate) label: OperationLabel,
    signature: Signature,
    plan: Arc<OperationPlan>,
    rules: LossRules,
    coding: Coding,
    progress: PlanProgress,
    bytes: TensorBytes,
    losses: LossRecord,
    residuals: ResidualDraft,
    received_bytes: u64,
    begun: Instant,
    patience: OperationPatience,
    /// Messages in that would overwrite contributions that have not left.
    unposted: SmallVec<[usize; 4]>,
}

impl RunningOperation {
    /// An operation that has not started.
    pub(crate) fn new(
        id: OperationId,
        operation: Operation,
        plan: Arc<OperationPlan>,
        limits: LossLimits,
    ) -> Self {
        let mut label = operation.label();
        let coding = Coding::of(&operation);
        label.call.form = match limits.transform {
            _ if coding.is_on() => ContributionForm::Encoded,
            GradientTransform::Hadamard => ContributionForm::Hadamard,
            GradientTransform::None => ContributionForm::Plain,
        };
        Self {
            id,
            signature: label.call.signature(),
            label,
            rules: LossRules::new(&operation, &plan, limits),
            coding,
            progress: PlanProgress::new(&plan),
            bytes: TensorBytes::default(),
            losses: LossRecord::new(operation.collective),
            residuals: ResidualDraft::default(),
            received_bytes: 0,
            begun: Instant::START,
            patience: OperationPatience::default(),
            unposted: SmallVec::new(),
            operation,
            plan,
        }
    }

    /// Posts all messages in and sends the messages out that do not wait.
    pub(crate) fn start(&mut self, now: Instant, stash: &mut EarlyStash, parts: &mut EngineParts) {
        self.begun = now;
        self.begin_step(&mut parts.memory);
        self.begin_patience(parts);
        let spares = &mut parts.memory.spares;
        self.bytes.prepare(&mut self.operation, &self.plan, spares);
        let plan = Arc::clone(&self.plan);
        for (at, inbound) in plan.inbounds().enumerate() {
            self.expect_coefficients(&inbound);
            self.expect_order(at, parts);
            match parts.memory.times.is_limited() && self.overwrites_contribution(&inbound) {
                true => self.unposted.push(at),
                false => self.post(at, now, stash, parts),
            }
        }
        for gate in plan.open_gates() {
            self.open_gate(gate, now, parts);
        }
        self.post_results(now, stash, parts);
    }

    /// Adds the residual that the last step left for the same tensor.
    fn begin_step(&mut self, memory: &mut StepMemory) {
        let holes = self.operation.holes();
        if self.rules.may_lose() && holes == HoleFilling::Previous {
            memory.previous.begin_step(self.operation.tensor_key);
        }
        let feeds_back = self.rules.may_lose() && holes == HoleFilling::ErrorFeedback;
        if feeds_back || self.coding.is_on() {
            self.pay_own_residual(&mut memory.residuals);
        }
    }

    /// Learns how long the contributions take that may lose segments, and waits for them as long as
    /// the job says.
    fn begin_patience(&mut self, parts: &EngineParts) {
        let times = &parts.memory.times;
        if !times.may_end(&self.operation) {
            return;
        }
        let inbounds = self.plan.inbounds();
        let left =
            inbounds.filter(|inbound| reliability_of(inbound, parts) == Reliability::Tolerant);
        self.patience = OperationPatience {
            ends: times.ends(self.begun, self.operation.tensor_key),
            left: left.count(),
        };
    }

    /// Adds residual values to the part of this rank's contribution that no message carries; it has
    /// some if the chunk has changed, and with it this rank's shard.
    fn pay_own_residual(&mut self, residuals: &mut Residuals) {
        let own: SmallVec<[TensorRegion; 4]> = match self.operation.collective {
            // It is overwritten anyway, and its parts leave by ways that depend on the algorithm.
            Collective::AllReduce => {
                smallvec![TensorRegion::buffer(0, self.operation.buffer.len())]
            }
            Collective::Reduce { .. } => {
                let gates = self.plan.gates();
                gates.filter_map(|gate| gate.finish).collect()
            }
            // This rank's block of a reduce-scatter was never sent, and messages have no such part.
            _ => return,
        };
        let (key, shape) = (self.operation.tensor_key, self.shape());
        let Some(buffer) = self.operation.buffer.bytes_mut() else {
            return;
        };
        for region in own {
            let values = &mut buffer[region.range()];
            let taken = residuals.add_to(key, shape, region.offset, values);
            self.residuals.take(taken);
        }
    }

    /// Lets contributions of a message in be summed as coefficients, if they are mixed.
    fn expect_coefficients(&mut self, inbound: &PlannedReceive) {
        let key = self.key(inbound.part);
        let (region, reliability) = (inbound.region, inbound.reliability);
        let mixing = self.rules.mixing(&self.operation, region, reliability, key);
        if let (Some(mixing), SegmentLanding::Reduce) = (mixing, inbound.landing) {
            self.bytes.expect_coefficients(inbound.gate, mixing);
        }
    }

    /// Lets the contributions of a gate, the first of which is message in number `at`, be summed in
    /// rank order. Sums of integers are the same in any order.
    fn expect_order(&mut self, at: usize, parts: &EngineParts) {
        let (inbound, operation) = (self.plan.inbound(at), &self.operation);
        let gate = self.plan.gate(inbound.gate);
        let PlanGate {
            contributions,
            gates_before,
            ..
        } = &*gate;
        let needs_order = contributions.len() > 1 || *gates_before > 0;
        if parts.sums == SumOrder::Arrival
            || !operation.dtype.is_float()
            || operation.buffer.bytes().is_none()
            || contributions.first() != Some(&at)
            || !needs_order
        {
            return;
        }
        let ranks = contributions.iter().map(|&at| self.plan.inbound(at).from);
        let is_remote = |&rank: &Rank| parts.endpoint.reach(rank) == Reach::Network;
        // Only the segments of the network can be missing, so these are the cells.
        let peer = ranks.clone().find(is_remote).unwrap_or(inbound.from);
        let shape = SumShape {
            dtype: operation.dtype,
            op: operation.op,
            bytes: inbound.region.bytes,
            cell_bytes: parts
                .cut(&self.coding, (inbound.region, inbound.form), peer)
                .segment_values(),
        };
        let others: Vec<Rank> = ranks.collect();
        let sum = if self.bytes.has_coefficients(inbound.gate) {
            // This rank's values are added when the gate opens.
            OrderedSum::new(shape, others, 0, 0)
        } else {
            let before_own = others.partition_point(|&rank| rank < parts.me());
            OrderedSum::new(shape, others, before_own, *gates_before)
        };
        self.bytes.expect_order(inbound.gate, sum);
    }

    fn cut_in(&self, inbound: &PlannedReceive, parts: &EngineParts) -> MessageCut {
        parts.cut(&self.coding, (inbound.region, inbound.form), inbound.from)
    }

    fn cut_out(&self, outbound: &PlannedSend, parts: &EngineParts) -> MessageCut {
        parts.cut(&self.coding, (outbound.region, outbound.form), outbound.to)
    }

    fn key(&self, part: u16) -> MessageKey {
        MessageKey::new(self.operation.group.id, self.operation.sequence, part)
    }

    /// The call of this rank.
    pub(crate) fn call(&self) -> RankCall<'_> {
        RankCall {
            label: self.label,
            ranks: &self.operation.group.ranks,
        }
    }

    /// The number of the message in with this sender and part.
    pub(crate) fn inbound(&self, from: Rank, part: u16) -> Option<usize> {
        self.plan.find_inbound(from, part)
    }

    /// The number of the message out with this receiver and part.
    pub(crate) fn outbound(&self, to: Rank, part: u16) -> Option<usize> {
        self.plan.find_outbound(to, part)
    }

    /// Puts segments that follow each other where they belong, from `offset` on.
    pub(crate) fn place<'p>(
        &mut self,
        at: usize,
        offset: u32,
        parts: impl Iterator<Item = Payload<'p>> + Clone,
        cells: &mut SpareScratch,
    ) {
        let blocks = self.coding.inbound(at);
        let inbound = &self.plan.inbound(at);
        let mut offset = offset as usize;
        let length: usize = parts.clone().map(|payload| payload.len()).sum();
        let posted = blocks.map_or(inbound.region.bytes, |blocks| blocks.message_bytes());
        if offset + length > posted {
            return; // the message is longer than posted, which the endpoint reports
        }
        self.received_bytes += length as u64;
        if self.operation.buffer.bytes().is_none() {
            return; // a simulated buffer has no bytes
        }
        if let Some(blocks) = blocks {
            let payloads = parts.map(bytes_of);
            return self.place_blocks(at, (blocks, offset), payloads, cells);
        }
        let landed = parts.map(|payload| {
            let bytes = bytes_of(payload);
            let landed = LandedBytes { offset, bytes };
            offset += bytes.len();
            landed
        });
        self.bytes
            .place(&mut self.operation, inbound, landed, cells);
    }

    /// The bytes of a message out.
    pub(crate) fn source(&self, outbound: usize) -> Payload<'_> {
        let PlannedSend {
            region, form, gate, ..
        } = self.plan.outbound(outbound);
        let encoded = self.coding.outbound(outbound);
        let sum = encoded.and_then(|_| self.coding.sum(gate));
        match (encoded, sum) {
            (Some(_), Some(sum)) if form != MessageForm::Contribution => Payload::Bytes(sum),
            (Some(blocks), _) if self.operation.buffer.bytes().is_none() => {
                Payload::Length(blocks.message_bytes())
            }
            _ => self.bytes.source(&self.operation, region, outbound),
        }
    }

    /// A message in is complete, apart from its holes.
    pub(crate) fn on_received(
        &mut self,
        at: usize,
        holes: Option<&Bitmap>,
        now: Instant,
        parts: &mut EngineParts,
    ) {
        if !self.progress.receive(at) {
            return;
        }
        let inbound = self.plan.inbound(at);
        let may_lose = reliability_of(&inbound, parts) == Reliability::Tolerant;
        if may_lose && self.patience.on_complete() {
            let (key, took) = (self.operation.tensor_key, now - self.begun);
            parts.memory.times.note(key, took);
        }
        if let Some(holes) = holes {
            let cut = self.cut_in(&inbound, parts);
            self.losses.note(&inbound, cut.wire, holes);
            let missing = MissingSegments { cut, holes };
            let cells = &mut parts.memory.cells;
            self.bytes
                .skip(&mut self.operation, &inbound, missing, cells);
        }
        if self.progress.reach(inbound.gate) {
            self.open_gate(inbound.gate, now, parts);
        }
    }

    /// The receiver of a message out has all of it that it will ever get.
    pub(crate) fn on_sent(&mut self, at: usize, missing: Option<&Bitmap>) {
        if !self.progress.finish_send(at) {
            return;
        }
        let copy = self.bytes.take_copy(at);
        let Some(missing) = missing else { return };
        self.losses.miss(missing);
        let Some(copy) = copy else { return };
        if self.operation.holes() == HoleFilling::ErrorFeedback {
            self.lose(at, &copy, missing);
        }
    }

    /// Notes the missing values of a contribution, for the next step.
    fn lose(&mut self, at: usize, copy: &[u8], missing: &Bitmap) {
        let outbound = self.plan.outbound(at);
        if let Some(blocks) = self.coding.outbound(at) {
            return self.lose_blocks(outbound.region, copy, (missing, blocks));
        }
        let mixing = self.mixing_of(&outbound);
        let segment_bytes = self.rules.segment_bytes();
        let range = |segment: u32| {
            let offset = segment as usize * segment_bytes;
            offset..copy.len().min(offset + segment_bytes)
        };
        let mut lose = |offset, values: &[u8]| {
            self.residuals.lose(ResidualPiece {
                offset: outbound.region.offset + offset,
                values: values.to_vec(),
            });
        };
        let missing = missing.iter_ones().map(range);
        let Some(mixing) = mixing else {
            return missing.for_each(|lost| lose(lost.start, &copy[lost]));
        };
        let mut values = vec![0; copy.len()];
        for lost in missing {
            values[lost.clone()].copy_from_slice(&copy[lost]);
        }
        mixing.unmix(&mut values);
        lose(0, &values);
    }

    /// How a message out is mixed, or `None` if it is not.
    fn mixing_of(&self, outbound: &PlannedSend) -> Option<Mixing> {
        let (region, reliability) = (outbound.region, outbound.reliability);
        let key = self.key(outbound.part);
        self.rules.mixing(&self.operation, region, reliability, key)
    }

    fn shape(&self) -> TensorShape {
        TensorShape {
            dtype: self.operation.dtype,
            bytes: self.operation.tensor_bytes(),
        }
    }

    /// Whether every message in and out is done, or the rest can finish without this operation.
    pub(crate) fn is_complete(&self, parts: &EngineParts, promises: &Promises) -> bool {
        self.progress.is_finished() || self.ends_early(parts, promises)
    }

    /// Whether everything has arrived, and copies may serve the ranks that still wait, so that this
    /// rank does not wait for their acknowledgements ([`crate::engine::promises`]). A rank cannot
    /// run ahead of one that it needs a message from in the next operation; ahead of others it is
    /// by as much as the copies hold.
    fn ends_early(&self, parts: &EngineParts, promises: &Promises) -> bool {
        let bytes = self.plan.outbound_bytes();
        let is_short = bytes <= EARLY_BYTES_MAX && promises.have_room_for(bytes);
        self.progress.has_received_all()
            && !self.operation.collective.is_point_to_point()
            && self.progress.has_started_all()
            && ((is_short && self.learns_of_no_loss()) || self.copies_pay(parts, promises))
    }

    /// Whether all messages on their way go over long paths, and tell nothing about holes.
    fn copies_pay(&self, parts: &EngineParts, promises: &Promises) -> bool {
        let (mut bytes, may_lose) = (0, self.rules.may_lose());
        self.progress.on_their_way().all(|at| {
            let outbound = self.plan.outbound(at);
            bytes += outbound.region.bytes;
            let round_trip = parts.endpoint.round_trip(outbound.to);
            let tells = may_lose && outbound.reliability == Reliability::Tolerant;
            !tells && bytes <= round_trip.map_or(0, copied_within) && promises.have_room_for(bytes)
        })
    }

    /// Whether the ends of its messages out tell it nothing about holes.
    fn learns_of_no_loss(&self) -> bool {
        let is_lossless = |outbound: PlannedSend| outbound.reliability == Reliability::Lossless;
        let feeds_back = self.operation.holes() == HoleFilling::ErrorFeedback;
        !self.rules.may_lose() || (!feeds_back && self.plan.outbounds().all(is_lossless))
    }

    /// Opens a gate, and every gate after it that waited only for this one.
    fn open_gate(&mut self, gate: GateId, now: Instant, parts: &mut EngineParts) {
        let plan = Arc::clone(&self.plan);
        let mut opening: SmallVec<[GateId; 4]> = smallvec![gate];
        while let Some(gate) = opening.pop() {
            let opened = plan.gate(gate);
            let PlanGate {
                finish,
                opens,
                next,
                ..
            } = &*opened;
            self.bytes.end_sum(gate);
            if let Some(region) = finish {
                self.bytes.reduce_slots(&mut self.operation, &plan);
                self.finish(gate, *region, parts);
            }
            for &at in opens {
                self.ready(at, now, parts);
            }
            for &next in next {
                if let Some(&first) = plan.gate(next).contributions.first() {
                    let (operation, cells) = (&mut self.operation, &mut parts.memory.cells);
                    (self.bytes).open_before(operation, &plan.inbound(first), cells);
                }
                if self.progress.reach(next) {
                    opening.push(next);
                }
            }
        }
    }

    /// Turns the sum in the region of a gate into the result.
    fn finish(&mut self, gate: GateId, region: TensorRegion, parts: &mut EngineParts) {
        // Kept even in a step without loss: the next step may lose the same segments.
        let keeps_result = self.operation.holes() == HoleFilling::Previous && {
            let usual = self
                .rules
                .usual_tolerance(&self.operation, region, &parts.policy);
            !usual.is_none()
        };
        let missing = self.losses.take_missing(gate);
        let finished = self.plan.gate(gate);
        let PlanGate {
            contributions,
            opens,
            ..
        } = &*finished;
        let mut encoded = contributions
            .iter()
            .filter_map(|&at| self.coding.inbound(at));
        let block_bytes = encoded.next().map(|blocks| blocks.block_bytes());
        let mut sent = opens.iter().map(|&at| self.plan.outbound(at));
        let sum_blocks = sent.find_map(|outbound| self.cut_out(&outbound, parts).blocks);
        let sum = RegionSum {
            gate,
            region,
            segment_bytes: block_bytes.unwrap_or_else(|| self.rules.segment_bytes()),
            missing: missing.as_deref(),
            previous: keeps_result.then_some(&mut parts.memory.previous),
        };
        self.bytes.settle(&mut self.operation, sum);
        if let Some(blocks) = sum_blocks {
            self.encode_sum(gate, region, blocks);
        }
    }

    /// A message out may be sent: now, or when the scheduler lets it go if its layers are known.
    fn ready(&mut self, at: usize, now: Instant, parts: &mut EngineParts) {
        let outbound = self.plan.outbound(at);
        if parts.endpoint.reach(outbound.to) == Reach::Host {
            // Memory is not a bottleneck that messages compete for, and loses nothing.
            return self.send(at, Share::NONE, now, parts);
        }
        let (region, reliability) = (outbound.region, outbound.reliability);
        let (rules, operation, policy) = (&self.rules, &self.operation, &parts.policy);
        let tolerance = rules.tolerance(operation, region, reliability, policy);
        let Some(urgency) = rules.urgency(operation, policy) else {
            return self.send(at, tolerance, now, parts);
        };
        self.progress.make_ready(at);
        let message = ReadyMessage {
            step: self.operation.step,
            urgency,
            bytes: ByteCount::new(u64::from(region.message_bytes())),
        };
        let departing = DepartingMessage {
            to: outbound.to,
            key: self.key(outbound.part),
            tolerance,
        };
        parts.departures.post(message, departing);
    }

    /// Whether a message of so many segments to a rank may gain by a tolerance.
    fn gains_by_loss(&self, to: Rank, segments: u32, parts: &EngineParts) -> bool {
        let uses = self.rules.tolerance_use();
        // Paths do not tell of segments that patience gives up.
        let may_give_up = parts.memory.times.may_end(&self.operation);
        may_give_up || parts.endpoint.favours_tolerance(to, segments, uses)
    }

    /// Sends a message out that the scheduler releases, unless it was sent.
    pub(crate) fn depart(
        &mut self,
        at: usize,
        tolerance: Share,
        now: Instant,
        parts: &mut EngineParts,
    ) {
        if self.progress.is_ready(at) {
            self.send(at, tolerance, now, parts);
        }
    }

    fn send(&mut self, at: usize, tolerance: Share, now: Instant, parts: &mut EngineParts) {
        let outbound = self.plan.outbound(at);
        let (cut, me) = (self.cut_out(&outbound, parts), parts.me());
        let gains = || self.gains_by_loss(outbound.to, cut.wire.segments(), parts);
        let is_used = !tolerance.is_none() && gains();
        let tolerance = if is_used { tolerance } else { Share::NONE };
        let residuals = &mut parts.memory.residuals;
        if let Some(blocks) = cut.blocks {
            self.coding.send(at, blocks);
            if outbound.form == MessageForm::Contribution {
                self.encode_contribution((at, me), blocks, residuals);
            }
        } else if self.may_lose_or_owes(&outbound, tolerance, residuals) {
            self.copy_with_residual(at, residuals);
        }
        if let Some(mixing) = self.mixing_of(&outbound) {
            self.bytes
                .mix(&mut self.operation, outbound.region, at, mixing);
        }
        let tolerance = cut.wire.usable(tolerance);
        self.progress.start_send(at);
        self.losses.send(cut.wire);
        let urgency = self.rules.urgency(&self.operation, &parts.policy);
        let request = SendRequest {
            key: self.key(outbound.part),
            signature: self.signature,
            step: self.operation.step,
            bytes: cut.wire.bytes(),
            tolerance,
            contributors: outbound.contributors,
            tags: self.tags(at, cut, tolerance, parts).with_urgency(urgency),
        };
        parts.endpoint.send(now, outbound.to, request);
    }

    /// The tags of a message's segments.
    fn tags(
        &self,
        at: usize,
        cut: MessageCut,
        tolerance: Share,
        parts: &mut EngineParts,
    ) -> SegmentTags {
        let region = self.plan.outbound(at).region;
        let shape = MessageShape {
            segments: cut.wire.segments(),
            layer_count: self.operation.layers.count,
        };
        let spans = self.segment_spans(region, cut.segment_values());
        if tolerance.is_none() {
            return parts.policy.lossless(shape, &spans);
        }
        let message = MeasuredMessage {
            tensor_key: self.operation.tensor_key,
            offset: region.offset,
            step: self.operation.step,
        };
        let values = match cut.blocks {
            None => self.source(at),
            Some(_) => self.bytes.values(&self.operation, region),
        };
        let magnitudes = values.bytes().map(|values| {
            let (dtype, segment_bytes) = (self.operation.dtype, cut.segment_values());
            let means = &mut parts.memory.means;
            means.update(message, dtype, values, segment_bytes)
        });
        let magnitudes = magnitudes.unwrap_or_default();
        parts.policy.lossy(shape, &spans, magnitudes)
    }

    /// Whether error feedback needs a copy of a message out: because it may be lost, or because a
    /// residual is added to it although it is lossless in this step.
    fn may_lose_or_owes(
        &self,
        outbound: &PlannedSend,
        tolerance: Share,
        residuals: &Residuals,
    ) -> bool {
        let owes = || residuals.has_in(self.operation.tensor_key, outbound.region.range());
        self.operation.holes() == HoleFilling::ErrorFeedback
            && self.rules.may_lose()
            && outbound.reliability == Reliability::Tolerant
            && (!tolerance.is_none() || owes())
    }

    /// Keeps a copy of a contribution as it is sent, including the values that were lost a step
    /// ago.
    fn copy_with_residual(&mut self, at: usize, residuals: &mut Residuals) {
        let Some(bytes) = self.source(at).bytes() else {
            return;
        };
        let mut copy = bytes.to_vec();
        let offset = self.plan.outbound(at).region.offset;
        let (key, shape) = (self.operation.tensor_key, self.shape());
        self.residuals
            .take(residuals.add_to(key, shape, offset, &mut copy));
        self.bytes.keep_copy(at, copy);
    }

    /// The layers of a message's segments: each has the layer of its first byte.
    fn segment_spans(
        &self,
        region: TensorRegion,
        segment_bytes: usize,
    ) -> SmallVec<[(u32, Layer); 4]> {
        let mut segments: SmallVec<[(u32, Layer); 4]> = SmallVec::new();
        for (start, layer) in self.operation.layers.within(region.range()) {
            let offset = start.saturating_sub(region.offset);
            let segment = offset.div_ceil(segment_bytes) as u32;
            match segments.last_mut() {
                Some(last) if last.0 == segment => last.1 = layer,
                _ => segments.push((segment, layer)),
            }
        }
        segments
    }

    /// The error of an operation that ran out of time; `verdict` says how far the other ranks are,
    /// if they were asked.
    pub(crate) fn timed_out(&self, now: Instant, verdict: Option<String>) -> OperationError {
        let deadline = self.operation.deadline.unwrap_or(now);
        OperationError::TimedOut(Box::new(TimedOut {
            label: self.label,
            took: Some((now - self.begun, deadline - self.begun)),
            progress: self.progress(),
            verdict,
        }))
    }

    /// The ranks and bytes that the operation still needs.
    pub(crate) fn progress(&self) -> OperationProgress {
        let missing = self.progress.missing();
        let missing = missing.map(|at| self.plan.inbound(at).from.0);
        let unconfirmed = self.progress.on_their_way();
        let unconfirmed = unconfirmed.map(|at| self.plan.outbound(at).to.0);
        let mut waits_for: Vec<u16> = missing.chain(unconfirmed).collect();
        waits_for.sort_unstable();
        waits_for.dedup();
        let bytes = |inbound: PlannedReceive| inbound.region.bytes as u64;
        OperationProgress {
            waits_for,
            received: self.received_bytes,
            expected: self.plan.inbounds().map(bytes).sum(),
        }
    }

    /// The messages in that are not complete, by sender and key.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (Rank, MessageKey)> {
        let inbounds = self.progress.missing().map(|at| self.plan.inbound(at));
        inbounds.map(|inbound| (inbound.from, self.key(inbound.part)))
    }

    /// The messages out that are on their way, by receiver and key.
    pub(crate) fn on_their_way(&self) -> impl Iterator<Item = (Rank, MessageKey)> {
        let outbounds = self.progress.on_their_way();
        let outbounds = outbounds.map(|at| self.plan.outbound(at));
        outbounds.map(|outbound| (outbound.to, self.key(outbound.part)))
    }

    /// Copies of the messages that others still wait for, when the operation ends before they do.
    pub(crate) fn promises(&self) -> impl Iterator<Item = ((Rank, MessageKey), Vec<u8>)> {
        self.progress.on_their_way().filter_map(|at| {
            let bytes = self.source(at).bytes()?.to_vec();
            let outbound = self.plan.outbound(at);
            Some(((outbound.to, self.key(outbound.part)), bytes))
        })
    }

    /// Ends the operation.
    pub(crate) fn into_completion(
        self: Box<Self>,
        result: Result<(), OperationError>,
        memory: &mut StepMemory,
    ) -> Completion {
        let unfinished = result.is_err().then(|| self.progress());
        if result.is_ok() {
            memory.phases.note(&self.operation);
        }
        let (key, shape) = (self.operation.tensor_key, self.shape());
        let left = match &result {
            // Two tensors without a key are not the same tensor of two steps.
            _ if key == 0 => Vec::new(),
            Ok(()) => self.residuals.into_lost(),
            Err(_) => self.residuals.into_taken(),
        };
        for piece in left {
            memory.residuals.keep(key, shape, piece);
        }
        let scratch = self.bytes.into_scratch();
        let slots = matches!(self.plan.scratch(), ScratchUse::Slots { .. });
        if let Some(Buffer::Owned(slots)) = scratch.filter(|_| slots) {
            memory.spares.keep(slots);
        }
        let (outcome, holes) = self.losses.into_outcome();
        let Operation { buffer, input, .. } = self.operation;
        Completion {
            id: self.id,
            buffer,
            input,
            holes,
            result: result.map(|()| outcome),
            unfinished,
        }
    }
}

#[inline]
fn bytes_of(payload: Payload<'_>) -> &[u8] {
    let bytes = payload.bytes();
    bytes.expect("buffers of bytes are filled by drivers with bytes")
}

/// Whether a message in may lose segments: memory loses none.
fn reliability_of(inbound: &PlannedReceive, parts: &EngineParts) -> Reliability {
    match parts.endpoint.reach(inbound.from) {
        Reach::Network => inbound.reliability,
        Reach::Host => Reliability::Lossless,
    }
}
