//! How the messages of one operation are encoded where they leave the host.
//!
//! - A contribution is encoded when it leaves. The rank that sums decodes each block as it arrives.
//! - The owner of a finished shard encodes it once and decodes it itself, so that it ends with the
//!   same bits as all other ranks, those of its own host too.
//! - Values that an encoding does not carry are a residual of the tensor, as lost ones are.

use std::collections::BTreeMap;
use std::ops::Range;

use gradwire_protocol::segment::Segmentation;

use crate::numbers::codec::{BlockCut, Codec};
use crate::numbers::dtype::DType;
use crate::operation::Operation;
use crate::plan::region::TensorRegion;
use crate::plan::{GateId, MessageForm};

/// The codec of an operation, and its encoded messages.
#[derive(Debug)]
pub(crate) struct Coding {
    codec: Option<Codec>,
    dtype: DType,
    /// The encoded messages in and out, by their numbers.
    inbounds: BTreeMap<usize, BlockCut>,
    outbounds: BTreeMap<usize, BlockCut>,
    /// Encoded sums, by the gate that finished them.
    sums: BTreeMap<GateId, Vec<u8>>,
}

/// How a message is cut into segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageCut {
    /// The message as it travels.
    pub(crate) wire: Segmentation,
    /// Its blocks, if it is encoded.
    pub(crate) blocks: Option<BlockCut>,
    /// Bytes of the tensor that it carries.
    values: usize,
}

impl MessageCut {
    /// The cut of a region into segments, or into blocks.
    pub(crate) fn new(region: TensorRegion, segment_bytes: u32, blocks: Option<BlockCut>) -> Self {
        let bytes = match blocks {
            Some(blocks) => u32::try_from(blocks.message_bytes()).expect("shorter than the region"),
            None => region.message_bytes(),
        };
        Self {
            wire: Segmentation::new(bytes, segment_bytes),
            blocks,
            values: region.bytes,
        }
    }

    /// Bytes of the tensor in every segment but the last.
    pub(crate) fn segment_values(&self) -> usize {
        match self.blocks {
            Some(blocks) => blocks.block_bytes(),
            None => self.wire.segment_bytes() as usize,
        }
    }

    /// The bytes of the region that a segment carries.
    pub(crate) fn values_of(&self, segment: u32) -> Range<usize> {
        let start = segment as usize * self.segment_values();
        start..(start + self.segment_values()).min(self.values)
    }
}

impl Coding {
    /// Before the first message of an operation.
    pub(super) fn of(operation: &Operation) -> Self {
        Self {
            codec: operation.codec(),
            dtype: operation.dtype,
            inbounds: BTreeMap::new(),
            outbounds: BTreeMap::new(),
            sums: BTreeMap::new(),
        }
    }

    /// Whether the operation has a codec.
    pub(super) fn is_on(&self) -> bool {
        self.codec.is_some()
    }

    /// The blocks of a message of `bytes` that leaves the host, if it is encoded.
    pub(crate) fn blocks(
        &self,
        form: MessageForm,
        bytes: usize,
        segment_bytes: u32,
    ) -> Option<BlockCut> {
        let codec = match form {
            MessageForm::Plain => None,
            MessageForm::Contribution => self.codec,
            MessageForm::Sum { addends } => self.codec?.of_sum(addends, self.dtype),
        };
        Some(BlockCut::new(codec?, self.dtype, bytes, segment_bytes))
    }

    /// Notes how a message in is encoded.
    pub(super) fn expect(&mut self, inbound: usize, blocks: BlockCut) {
        self.inbounds.insert(inbound, blocks);
    }

    /// How a message in is encoded, if it is.
    pub(super) fn inbound(&self, inbound: usize) -> Option<BlockCut> {
        self.inbounds.get(&inbound).copied()
    }

    /// Notes how a message out is encoded.
    pub(super) fn send(&mut self, outbound: usize, blocks: BlockCut) {
        self.outbounds.insert(outbound, blocks);
    }

    /// How a message out is encoded, if it is.
    pub(super) fn outbound(&self, outbound: usize) -> Option<BlockCut> {
        self.outbounds.get(&outbound).copied()
    }

    /// Keeps an encoded sum for the messages of its gate.
    pub(super) fn keep_sum(&mut self, gate: GateId, message: Vec<u8>) {
        self.sums.insert(gate, message);
    }

    /// The encoded sum that a gate finished.
    pub(super) fn sum(&self, gate: GateId) -> Option<&[u8]> {
        self.sums.get(&gate).map(Vec::as_slice)
    }
}
