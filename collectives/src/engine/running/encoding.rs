//! Encodes the messages of a running operation, and decodes those that arrive.

use gradwire_protocol::bitmap::Bitmap;
use gradwire_protocol::units::Rank;

use crate::engine::memory::SpareScratch;
use crate::engine::running::RunningOperation;
use crate::engine::running::ordered_sum::LandedBytes;
use crate::numbers::codec::BlockCut;
use crate::numbers::dtype::ReduceOp;
use crate::numbers::holes::{ResidualPiece, Residuals};
use crate::numbers::kernels;
use crate::operation::Operation;
use crate::plan::region::TensorRegion;
use crate::plan::{GateId, PlannedSend};

impl RunningOperation {
    /// Decodes payloads that follow each other from a byte of message in number `at`, a block per
    /// segment, and puts the values where they belong.
    pub(super) fn place_blocks<'p>(
        &mut self,
        at: usize,
        (blocks, offset): (BlockCut, usize),
        payloads: impl Iterator<Item = &'p [u8]>,
        cells: &mut SpareScratch,
    ) {
        let inbound = &self.plan.inbound(at);
        let mut values = cells.take(blocks.block_bytes());
        let segments = payloads.flat_map(|bytes| bytes.chunks(blocks.segment_bytes()));
        for (number, block) in (offset / blocks.segment_bytes()..).zip(segments) {
            blocks.decode_block(number, block, &mut values);
            let landed = LandedBytes {
                offset: number * blocks.block_bytes(),
                bytes: &values,
            };
            let landed = std::iter::once(landed);
            (self.bytes).place(&mut self.operation, inbound, landed, cells);
        }
        cells.keep(values);
    }

    /// Encodes a contribution of this rank, including the values that were lost or not sent a step
    /// ago. Ranks draw apart from each other, so that their errors do not add up.
    pub(super) fn encode_contribution(
        &mut self,
        (at, me): (usize, Rank),
        blocks: BlockCut,
        residuals: &mut Residuals,
    ) {
        let PlannedSend { region, part, .. } = self.plan.outbound(at);
        let source = self.bytes.values(&self.operation, region);
        let Some(mut values) = source.bytes().map(<[u8]>::to_vec) else {
            return;
        };
        let (key, shape, offset) = (self.operation.tensor_key, self.shape(), region.offset);
        let taken = residuals.add_to(key, shape, offset, &mut values);
        self.residuals.take(taken);
        let mut message = Vec::new();
        let seed = self.key(part).0.wrapping_add(u64::from(me.0) << 32);
        blocks.encode(&mut values, seed, &mut message);
        self.residuals.lose(ResidualPiece { offset, values });
        self.bytes.keep_copy(at, message);
    }

    /// Encodes a finished sum, and replaces it by the values that its receivers decode.
    pub(super) fn encode_sum(&mut self, gate: GateId, region: TensorRegion, blocks: BlockCut) {
        let seed = self.key(gate.0 as u16).0;
        let Operation { dtype, op, .. } = self.operation;
        let Some(buffer) = self.operation.buffer.bytes_mut() else {
            return;
        };
        let values = &mut buffer[region.range()];
        let (mut unsent, mut message) = (values.to_vec(), Vec::new());
        blocks.encode(&mut unsent, seed, &mut message);
        blocks.decode(&message, values);
        if op == ReduceOp::Avg {
            // This rank's contribution is one of many to the next average.
            let contributors = self.operation.group.ranks.len() as f64;
            kernels::multiply(dtype, &mut unsent, contributors);
        }
        let offset = region.offset;
        self.residuals.lose(ResidualPiece {
            offset,
            values: unsent,
        });
        self.coding.keep_sum(gate, message);
    }

    /// Notes the decoded values of missing blocks.
    pub(super) fn lose_blocks(
        &mut self,
        region: TensorRegion,
        message: &[u8],
        (missing, blocks): (&Bitmap, BlockCut),
    ) {
        let segments: Vec<&[u8]> = message.chunks(blocks.segment_bytes()).collect();
        for segment in missing.iter_ones().map(|segment| segment as usize) {
            let mut values = Vec::new();
            blocks.decode_block(segment, segments[segment], &mut values);
            let offset = region.offset + segment * blocks.block_bytes();
            self.residuals.lose(ResidualPiece { offset, values });
        }
    }
}
