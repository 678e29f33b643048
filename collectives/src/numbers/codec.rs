//! Codecs: shorter forms of gradients, one block per segment.
//!
//! A block is the elements whose encoding fills one segment. It is decodable alone: scale, exponent
//! and positions lie in it. So segments need no order, and a lost one is the hole of one block.
//!
//! | codec | bits per element | header of a block | decoded values |
//! |---|---|---|---|
//! | onebit | 1 | 4 bytes | the sign, times the mean of |x| |
//! | tbq | 2 | 4 bytes | zero, or plus or minus the mean of the large |x| |
//! | terngrad | 2 | 8 bytes | one of four levels from least to largest, drawn without bias |
//! | topk | 64 per value that is sent | none | the k values of largest magnitude, exact |
//! | blockfloat | 8 | 1 byte | integers of 8 bits with one exponent |
//!
//! Encoding leaves the part of each value that the block does not carry: input minus decoded. Its
//! sender adds that to the same tensor of the next step (error feedback, Seide et al. 2014).
//!
//! A block with an infinity or a NaN decodes to values that are not finite, so that every rank sees
//! the overflow. Top-k sends such an element as one of its largest.

mod bits;
mod block_codec;
mod blockfloat;
pub(super) mod elements;
mod onebit;
mod tbq;
mod terngrad;
#[cfg(test)]
mod tests;
mod topk;

use gradwire_protocol::job::{CodecName, CodecTerms};
use gradwire_protocol::units::Share;
use pulp::{Arch, Simd, WithSimd};

use crate::numbers::dtype::DType;
use block_codec::BlockCodec;
use blockfloat::BlockFloat;
use onebit::Onebit;
use tbq::Tbq;
use terngrad::TernGrad;
use topk::TopK;

/// Elements of a block that an encoding of few values may spread over.
const BLOCK_ELEMENTS_MAX: usize = 1 << 20;

/// A codec and its parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codec {
    /// Signs and one scale (1-bit SGD, as in BytePS).
    Onebit,
    /// Threshold binary quantisation (Strom 2015).
    Tbq,
    /// Levels by stochastic rounding (TernGrad, NIPS 2017).
    TernGrad,
    /// This share of the values, those of largest magnitude (MSTopK, arXiv 2010.10458).
    TopK(Share),
    /// Integers of 8 bits with a common exponent.
    BlockFloat,
}

/// Runs an expression with the codec's own type.
macro_rules! each_codec {
    ($codec:expr, $name:ident => $run:expr) => {
        match $codec {
            Codec::Onebit => {
                let $name = Onebit;
                $run
            }
            Codec::Tbq => {
                let $name = Tbq;
                $run
            }
            Codec::TernGrad => {
                let $name = TernGrad;
                $run
            }
            Codec::TopK(share) => {
                let $name = TopK(share);
                $run
            }
            Codec::BlockFloat => {
                let $name = BlockFloat;
                $run
            }
        }
    };
}

impl Codec {
    /// The codec that a job names, if it names one.
    pub fn of(terms: CodecTerms) -> Option<Self> {
        Some(match terms.name {
            CodecName::None => return None,
            CodecName::Onebit => Self::Onebit,
            CodecName::Tbq => Self::Tbq,
            CodecName::Terngrad => Self::TernGrad,
            CodecName::Topk => Self::TopK(terms.share),
            CodecName::Blockfloat => Self::BlockFloat,
        })
    }

    /// The codec of a finished sum of this many encoded contributions; `None` if the sum is as
    /// short without one.
    ///
    /// Sums of contributions of one magnitude get 8 bits: a second coarse encoding keeps so much of
    /// each value for later steps that short trainings lose accuracy, in spite of error feedback at
    /// both ends. The sum of sparse contributions has as many more values as there are
    /// contributions.
    pub fn of_sum(self, addends: u16, dtype: DType) -> Option<Self> {
        match self {
            Self::Onebit | Self::Tbq => Some(Self::BlockFloat),
            Self::TernGrad | Self::BlockFloat => Some(self),
            Self::TopK(share) => {
                let share = Share::new(share.get() * f64::from(addends))?;
                let is_shorter = share.get() * (topk::VALUE_BYTES as f64) < dtype.bytes() as f64;
                is_shorter.then_some(Self::TopK(share))
            }
        }
    }

    /// Length of the encoding of a block.
    pub fn encoded_bytes(self, elements: usize) -> usize {
        each_codec!(self, codec => codec.encoded_bytes(elements))
    }

    fn elements_within(self, bytes: usize) -> usize {
        each_codec!(self, codec => codec.elements_within(bytes))
    }
}

/// How an encoded message is cut: block number i is segment number i.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCut {
    codec: Codec,
    dtype: DType,
    elements: usize,
    block_elements: usize,
    segment_bytes: usize,
}

impl BlockCut {
    /// Cuts `bytes` of a tensor into blocks whose encodings fill segments of `segment_bytes`.
    ///
    /// # Panics
    /// When elements are not floats, or `bytes` are not whole elements.
    pub fn new(codec: Codec, dtype: DType, bytes: usize, segment_bytes: u32) -> Self {
        assert!(dtype.is_float(), "{dtype} has no codec: only floats have");
        assert_eq!(bytes % dtype.bytes(), 0, "{bytes} bytes are whole {dtype}");
        let segment_bytes = segment_bytes as usize;
        let fitting = codec.elements_within(segment_bytes);
        Self {
            codec,
            dtype,
            elements: bytes / dtype.bytes(),
            block_elements: fitting.clamp(1, BLOCK_ELEMENTS_MAX),
            segment_bytes,
        }
    }

    /// Bytes of every segment but the last.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.elements.div_ceil(self.block_elements)
    }

    /// Bytes of the tensor in each block but the last.
    pub fn block_bytes(&self) -> usize {
        self.block_elements * self.dtype.bytes()
    }

    /// Length of the encoded message.
    pub fn message_bytes(&self) -> usize {
        match self.blocks().checked_sub(1) {
            None => 0,
            Some(full) => {
                let last = self.elements - full * self.block_elements;
                full * self.segment_bytes + self.codec.encoded_bytes(last)
            }
        }
    }

    /// Encodes the bytes of a tensor into `message`: one block behind the other, each but the last
    /// as long as a segment. Leaves in `values` the part of each that the message does not carry:
    /// input minus decoded. `seed` is for draws: a new one for each message.
    ///
    /// # Panics
    /// When `values` is not as long as the cut says.
    pub fn encode(&self, values: &mut [u8], seed: u64, message: &mut Vec<u8>) {
        assert_eq!(values.len(), self.elements * self.dtype.bytes());
        message.resize(self.message_bytes(), 0);
        let cut = *self;
        each_codec!(self.codec, codec => Arch::new().dispatch(EncodeKernel {
            codec,
            cut,
            values,
            seed,
            message,
        }));
    }

    /// Decodes block number `block` into `values`, which gets its length in the tensor. A block of
    /// another length than the codec's becomes zeros: it does not come from a sender of this job.
    pub fn decode_block(&self, block: usize, bytes: &[u8], values: &mut Vec<u8>) {
        let start = (block * self.block_elements).min(self.elements);
        let elements = (self.elements - start).min(self.block_elements);
        values.resize(elements * self.dtype.bytes(), 0);
        self.decode_into(elements, bytes, values);
    }

    /// Decodes a whole message into the tensor's bytes.
    ///
    /// # Panics
    /// When `values` is not as long as the cut says.
    pub fn decode(&self, message: &[u8], values: &mut [u8]) {
        assert_eq!(values.len(), self.elements * self.dtype.bytes());
        let blocks = message.chunks(self.segment_bytes);
        for (values, block) in values.chunks_mut(self.block_bytes()).zip(blocks) {
            self.decode_into(values.len() / self.dtype.bytes(), block, values);
        }
    }

    fn decode_into(&self, elements: usize, bytes: &[u8], values: &mut [u8]) {
        let Some(block) = bytes.get(..self.codec.encoded_bytes(elements)) else {
            return values.fill(0);
        };
        let in_place = match self.dtype {
            DType::F32 => bytemuck::try_cast_slice_mut(values).ok(),
            _ => None,
        };
        if let Some(values) = in_place {
            return self.decode_floats(block, values);
        }
        let mut floats = vec![0.0; elements];
        self.decode_floats(block, &mut floats);
        elements::store(self.dtype, &floats, values);
    }

    fn decode_floats(&self, block: &[u8], values: &mut [f32]) {
        each_codec!(self.codec, codec => Arch::new().dispatch(DecodeKernel {
            codec,
            block,
            values,
        }));
    }
}

struct EncodeKernel<'a, C> {
    codec: C,
    cut: BlockCut,
    values: &'a mut [u8],
    seed: u64,
    message: &'a mut [u8],
}

impl<C: BlockCodec> WithSimd for EncodeKernel<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) {
        let BlockCut { dtype, .. } = self.cut;
        let blocks = self.values.chunks_mut(self.cut.block_bytes());
        let segments = self.message.chunks_mut(self.cut.segment_bytes);
        let mut scratch = BlockScratch::default();
        for (number, (values, segment)) in (0..).zip(blocks.zip(segments)) {
            let elements = values.len() / dtype.bytes();
            let (block, padding) = segment.split_at_mut(self.codec.encoded_bytes(elements));
            padding.fill(0);
            let seed = bits::mix(self.seed.wrapping_add(number));
            let in_place = match dtype {
                DType::F32 => bytemuck::try_cast_slice_mut(values).ok(),
                _ => None,
            };
            match in_place {
                Some(values) => self.codec.encode(values, block, seed),
                None => {
                    scratch.load(dtype, values);
                    self.codec.encode(&mut scratch.floats, block, seed);
                    // The receiver rounds decoded values to the tensor's type.
                    self.codec.decode(block, &mut scratch.floats);
                    elements::store_difference(dtype, &scratch.source, &scratch.floats, values);
                }
            }
        }
    }
}

/// A block of another type than f32, and its values.
#[derive(Default)]
struct BlockScratch {
    source: Vec<u8>,
    floats: Vec<f32>,
}

impl BlockScratch {
    fn load(&mut self, dtype: DType, values: &[u8]) {
        self.source.clear();
        self.source.extend_from_slice(values);
        self.floats.resize(values.len() / dtype.bytes(), 0.0);
        elements::load(dtype, values, &mut self.floats);
    }
}

struct DecodeKernel<'a, C> {
    codec: C,
    block: &'a [u8],
    values: &'a mut [f32],
}

impl<C: BlockCodec> WithSimd for DecodeKernel<'_, C> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _level: S) {
        self.codec.decode(self.block, self.values);
    }
}
