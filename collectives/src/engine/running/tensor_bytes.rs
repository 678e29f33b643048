//! Bytes of a running operation: those that segments land in, and those that messages out carry.
//!
//! 1. Segments land straight in the result buffer or the scratch, copied or reduced.
//! 2. A message out is read from there when a packet is made, so nothing is copied, except:
//!    - Under error feedback a contribution is copied first, because the receiver reports only
//!      later which of its segments were lost.
//!    - A contribution that is mixed is mixed in a copy if its values are still needed.
//! 3. Contributions that more than one rank sends are summed in rank order, if the job says so:
//!    `ordered_sum` keeps those that arrive early.
//! 4. Where contributions are mixed, those of other ranks are summed separately, as coefficients:
//!    this rank's contribution may not be available when the first of them arrives.

use std::borrow::Cow;
use std::collections::BTreeMap;

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::machine::Payload;
use gradwire_protocol::prefetch::prefetch_behind;

use crate::algorithms::operation_plan::OperationPlan;
use crate::engine::memory::SpareScratch;
use crate::engine::running::coding::MessageCut;
use crate::engine::running::ordered_sum::{LandedBytes, OrderedSum};
use crate::numbers::dtype::ReduceOp;
use crate::numbers::hadamard::Mixing;
use crate::numbers::holes::{PreviousResults, Settlement};
use crate::numbers::kernels::accumulate;
use crate::operation::buffer::Buffer;
use crate::operation::{Collective, Operation};
use crate::plan::region::{TensorMemory, TensorRegion};
use crate::plan::{GateId, PlannedReceive, ScratchUse, SegmentLanding};

/// The sum of other ranks' contributions to one region, as coefficients.
#[derive(Debug)]
struct CoefficientSum {
    mixing: Mixing,
    /// Empty until the first segment comes.
    sum: Vec<u8>,
}

/// A region of the result buffer whose contributions are all here or missing for good.
#[derive(Debug)]
pub(super) struct RegionSum<'a> {
    pub(super) gate: GateId,
    pub(super) region: TensorRegion,
    pub(super) segment_bytes: usize,
    /// Missing contributions per segment; `None` if none is missing.
    pub(super) missing: Option<&'a [u16]>,
    /// Where results of the last step are kept; `None` if they are not.
    pub(super) previous: Option<&'a mut PreviousResults>,
}

/// The segments of a message that will never come, and how it is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissingSegments<'a> {
    pub(super) cut: MessageCut,
    pub(super) holes: &'a Bitmap,
}

/// The memory that an operation has besides its buffer and its input.
#[derive(Debug, Default)]
pub(super) struct TensorBytes {
    scratch: Option<Buffer>,
    /// Contributions as they were sent, by message out.
    copies: BTreeMap<usize, Vec<u8>>,
    /// By the gate that finishes the region.
    coefficients: BTreeMap<GateId, CoefficientSum>,
    /// Sums in the order of ranks, by the gate that waits for the contributions.
    sums: BTreeMap<GateId, OrderedSum>,
}

impl TensorBytes {
    /// Copies this rank's block from the input to its place in the result, and fills the scratch.
    pub(super) fn prepare(
        &mut self,
        operation: &mut Operation,
        plan: &OperationPlan,
        spares: &mut SpareScratch,
    ) {
        self.scratch = match plan.scratch() {
            ScratchUse::Unused => None,
            ScratchUse::CopyOfInput => operation.input.as_ref().map(Buffer::duplicate),
            ScratchUse::Slots { count, own } => {
                Some(spares.slots_of(&operation.buffer, own, count))
            }
        };
        let Some((from, to)) = plan.copy() else {
            return;
        };
        let input = operation.input.as_ref().and_then(Buffer::bytes);
        if let (Some(input), Some(buffer)) = (input, operation.buffer.bytes_mut()) {
            buffer[to.range()].copy_from_slice(&input[from.range()]);
        }
    }

    /// Lets contributions to the region of a gate be summed as coefficients.
    pub(super) fn expect_coefficients(&mut self, gate: GateId, mixing: Mixing) {
        let fresh = || CoefficientSum {
            mixing,
            sum: Vec::new(),
        };
        self.coefficients.entry(gate).or_insert_with(fresh);
    }

    /// Whether contributions to the region of a gate are summed as coefficients.
    pub(super) fn has_coefficients(&self, gate: GateId) -> bool {
        self.coefficients.contains_key(&gate)
    }

    /// Lets contributions that a gate waits for be summed in the order of ranks.
    pub(super) fn expect_order(&mut self, gate: GateId, sum: OrderedSum) {
        self.sums.insert(gate, sum);
    }

    /// Copies or reduces segments to their offsets in their message.
    pub(super) fn place<'p>(
        &mut self,
        operation: &mut Operation,
        inbound: &PlannedReceive,
        segments: impl Iterator<Item = LandedBytes<'p>>,
        cells: &mut SpareScratch,
    ) {
        let (dtype, op) = (operation.dtype, operation.op);
        let is_copied = inbound.landing == SegmentLanding::Copy;
        if is_copied || (self.sums.is_empty() && self.coefficients.is_empty()) {
            let scratch = self.scratch.as_mut();
            let Some(memory) = memory_of(inbound, &mut operation.buffer, scratch) else {
                return; // a simulated buffer has no bytes
            };
            let memory = &mut memory[inbound.region.range()];
            for landed in segments {
                let target = landed.target(memory);
                prefetch_behind(target);
                match is_copied {
                    true => target.copy_from_slice(landed.bytes),
                    false => accumulate(dtype, op, target, landed.bytes),
                }
            }
            return;
        }
        let Some((target, mut sum)) = self.target(operation, inbound) else {
            return;
        };
        for landed in segments {
            match &mut sum {
                Some(sum) => sum.land(target, inbound.from, landed, cells),
                None => accumulate(dtype, op, landed.target(target), landed.bytes),
            }
        }
    }

    /// The region that a message in lands in, and the order of its sum, if it has one.
    fn target<'a>(
        &'a mut self,
        operation: &'a mut Operation,
        inbound: &PlannedReceive,
    ) -> Option<(&'a mut [u8], Option<&'a mut OrderedSum>)> {
        let memory = memory_of(inbound, &mut operation.buffer, self.scratch.as_mut())?;
        let sum = self.sums.get_mut(&inbound.gate);
        let target = match self.coefficients.get_mut(&inbound.gate) {
            Some(coefficients) if inbound.landing == SegmentLanding::Reduce => {
                coefficients.sum.resize(inbound.region.bytes, 0);
                &mut coefficients.sum
            }
            _ => &mut memory[inbound.region.range()],
        };
        Some((target, sum))
    }

    /// Skips the holes of a contribution, so that later ones have their turns.
    pub(super) fn skip(
        &mut self,
        operation: &mut Operation,
        inbound: &PlannedReceive,
        missing: MissingSegments<'_>,
        cells: &mut SpareScratch,
    ) {
        let MissingSegments { cut, holes } = missing;
        let Some((target, Some(sum))) = self.target(operation, inbound) else {
            return;
        };
        for segment in holes.iter_ones() {
            sum.skip(target, inbound.from, cut.values_of(segment), cells);
        }
    }

    /// Notes that a gate has opened on which the gate of a contribution waits.
    pub(super) fn open_before(
        &mut self,
        operation: &mut Operation,
        inbound: &PlannedReceive,
        cells: &mut SpareScratch,
    ) {
        if self.has_coefficients(inbound.gate) {
            return; // their sum is apart from the values behind that gate
        }
        if let Some((target, Some(sum))) = self.target(operation, inbound) {
            sum.open_gate(target, cells);
            if sum.needs_no_order() {
                self.sums.remove(&inbound.gate);
            }
        }
    }

    /// Ends the sum of the contributions that a gate waited for.
    pub(super) fn end_sum(&mut self, gate: GateId) {
        self.sums.remove(&gate);
    }

    /// The bytes of message out number `outbound`, whose region this is.
    pub(super) fn source<'a>(
        &'a self,
        operation: &'a Operation,
        region: TensorRegion,
        outbound: usize,
    ) -> Payload<'a> {
        if let Some(copy) = self.copies.get(&outbound) {
            return Payload::Bytes(copy);
        }
        self.values(operation, region)
    }

    /// The bytes of a region as they lie in memory.
    pub(super) fn values<'a>(
        &'a self,
        operation: &'a Operation,
        region: TensorRegion,
    ) -> Payload<'a> {
        let memory = match region.place {
            TensorMemory::Buffer => &operation.buffer,
            TensorMemory::Input => operation.input.as_ref().expect("validated with the plan"),
            TensorMemory::Scratch => {
                let scratch = self.scratch.as_ref();
                scratch.expect("made at the start, from the input")
            }
            TensorMemory::Nothing => return Payload::Bytes(&[]),
        };
        memory.payload(region.offset, region.bytes)
    }

    /// Keeps a contribution as it is sent.
    pub(super) fn keep_copy(&mut self, outbound: usize, copy: Vec<u8>) {
        self.copies.insert(outbound, copy);
    }

    /// The kept copy of a contribution that has been received and no longer needs the copy.
    pub(super) fn take_copy(&mut self, outbound: usize) -> Option<Vec<u8>> {
        self.copies.remove(&outbound)
    }

    /// Mixes a contribution that is sent next: in place if its place is overwritten by the result
    /// anyway, else in a copy.
    pub(super) fn mix(
        &mut self,
        operation: &mut Operation,
        region: TensorRegion,
        outbound: usize,
        mixing: Mixing,
    ) {
        if let Some(copy) = self.copies.get_mut(&outbound) {
            return mixing.mix(copy);
        }
        let is_overwritten =
            operation.collective == Collective::AllReduce && region.place == TensorMemory::Buffer;
        if is_overwritten && let Some(buffer) = operation.buffer.bytes_mut() {
            return mixing.mix(&mut buffer[region.range()]);
        }
        let source = self.source(operation, region, outbound).bytes();
        if let Some(mut copy) = source.map(<[u8]>::to_vec) {
            mixing.mix(&mut copy);
            self.copies.insert(outbound, copy);
        }
    }

    /// Reduces the slots of the scratch into the result buffer, if the plan has slots.
    pub(super) fn reduce_slots(&self, operation: &mut Operation, plan: &OperationPlan) {
        let ScratchUse::Slots { count, .. } = plan.scratch() else {
            return;
        };
        let slots = self.scratch.as_ref().and_then(Buffer::bytes);
        if let (Some(slots), Some(buffer)) = (slots, operation.buffer.bytes_mut()) {
            let mut slots = slots.chunks(buffer.len()).take(count);
            buffer.copy_from_slice(slots.next().expect("a slot for each of two ranks or more"));
            for slot in slots {
                accumulate(operation.dtype, operation.op, buffer, slot);
            }
        }
    }

    /// Turns a sum into the result: settles its holes, divides averages, and mixes back.
    pub(super) fn settle(&mut self, operation: &mut Operation, sum: RegionSum<'_>) {
        let (region, rule) = (sum.region, operation.holes());
        let Some(buffer) = operation.buffer.bytes_mut() else {
            return;
        };
        let bytes = &mut buffer[region.range()];
        let key = operation.tensor_key;
        let kept = sum.previous.as_deref();
        let kept = kept.and_then(|kept| kept.get(key, region.offset, region.bytes));
        let mut previous = kept.map(Cow::Borrowed);
        let coefficients = self.coefficients.remove(&sum.gate);
        if let Some(CoefficientSum {
            mixing,
            sum: others,
        }) = &coefficients
        {
            mixing.mix(bytes);
            if !others.is_empty() {
                accumulate(operation.dtype, ReduceOp::Sum, bytes, others);
            }
            if let (Some(previous), Some(_)) = (&mut previous, sum.missing) {
                // It stands in for missing coefficients, so it has to be coefficients too.
                mixing.mix(previous.to_mut());
            }
        }
        let settlement = Settlement {
            dtype: operation.dtype,
            op: operation.op,
            rule,
            contributors: operation.group.ranks.len() as u16,
            segment_bytes: sum.segment_bytes,
            missing: sum.missing,
            previous: previous.as_deref(),
        };
        settlement.settle(bytes);
        if let Some(CoefficientSum { mixing, .. }) = coefficients {
            mixing.unmix(bytes);
        }
        if let Some(previous) = sum.previous {
            previous.keep(key, region.offset, bytes);
        }
    }

    /// The scratch, to be used again.
    pub(super) fn into_scratch(self) -> Option<Buffer> {
        self.scratch
    }
}

/// The memory that the region of a message in lies in; `None` if it has no bytes.
fn memory_of<'a>(
    inbound: &PlannedReceive,
    buffer: &'a mut Buffer,
    scratch: Option<&'a mut Buffer>,
) -> Option<&'a mut [u8]> {
    let memory = match inbound.region.place {
        TensorMemory::Scratch => scratch,
        _ => Some(buffer),
    };
    memory.and_then(Buffer::bytes_mut)
}
