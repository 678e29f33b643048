//! Cuts tensors: into chunks and shards, or into messages.

use std::ops::Range;

use gradwire_protocol::units::ByteCount;

use crate::plan::message::{GateId, PARTS};
use crate::plan::region::TensorRegion;
use crate::plan::{CHUNKS_ON_THE_WAY, MessagePlan};

/// Messages of algorithms without chunks are cut to at most this.
const PIECE_BYTES: usize = 64 << 20;
/// Chunks are at most this long, whatever the job says, because messages have 32-bit lengths.
const CHUNK_BYTES_MAX: usize = 1 << 30;

/// How a tensor is cut: into chunks that are worked on one after the other, each chunk into one
/// shard per rank. All cuts are between elements and as even as they can be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorCut {
    elements: usize,
    element_bytes: usize,
    pub(crate) chunks: usize,
    /// How many chunks may be on their way at once.
    pub(crate) on_the_way: usize,
}

impl TensorCut {
    /// Cuts `bytes` into chunks of about `chunk`, but into no more than `chunks_max`.
    pub(crate) fn new(
        bytes: usize,
        element_bytes: usize,
        chunk: ByteCount,
        chunks_max: usize,
    ) -> Self {
        let chunk = chunk.as_usize().clamp(1, CHUNK_BYTES_MAX);
        let chunks = bytes.div_ceil(chunk).clamp(1, chunks_max.max(1));
        Self {
            elements: bytes / element_bytes,
            element_bytes,
            chunks,
            on_the_way: CHUNKS_ON_THE_WAY,
        }
    }

    /// The same chunks, no more than this many on their way at once.
    pub(crate) fn at_once(self, on_the_way: usize) -> Self {
        Self { on_the_way, ..self }
    }

    /// The gate behind which a chunk starts, given the gates behind which earlier chunks are
    /// complete.
    pub(crate) fn start_of(&self, chunk: usize, complete: &[GateId]) -> GateId {
        let before = chunk.checked_sub(self.on_the_way);
        before.map_or(MessagePlan::START, |before| complete[before])
    }

    /// One of the chunks.
    pub(crate) fn chunk(&self, chunk: usize) -> ElementRun {
        let element_bytes = self.element_bytes;
        let whole = ElementRun {
            first: 0,
            count: self.elements,
            element_bytes,
        };
        whole.shard(self.chunks, chunk)
    }
}

/// A run of a tensor's elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementRun {
    first: usize,
    count: usize,
    element_bytes: usize,
}

impl ElementRun {
    /// One of `shards` parts of it.
    pub(crate) fn shard(self, shards: usize, shard: usize) -> Self {
        let (first, count) = even_part(self.count, shards, shard);
        Self {
            first: self.first + first,
            count,
            ..self
        }
    }

    /// A run, which is not empty, of `shards` parts of it.
    pub(crate) fn run_of_shards(self, shards: usize, run: Range<usize>) -> Self {
        let (start, last) = (
            self.shard(shards, run.start),
            self.shard(shards, run.end - 1),
        );
        Self {
            count: last.first + last.count - start.first,
            ..start
        }
    }

    /// How many elements it has.
    pub(crate) fn elements(self) -> usize {
        self.count
    }

    /// Byte offset and length.
    pub(crate) fn range(self) -> (usize, usize) {
        (
            self.first * self.element_bytes,
            self.count * self.element_bytes,
        )
    }

    /// Its bytes in the result buffer.
    pub(crate) fn region(self) -> TensorRegion {
        let (offset, bytes) = self.range();
        TensorRegion::buffer(offset, bytes)
    }
}

/// First element and number of elements of part `index`, when `whole` elements are cut into
/// `parts` whose sizes differ by at most one, larger ones first.
fn even_part(whole: usize, parts: usize, index: usize) -> (usize, usize) {
    let (size, larger) = (whole / parts, whole % parts);
    (
        index * size + index.min(larger),
        size + usize::from(index < larger),
    )
}

/// The messages that carry a region without chunks, each with its part number. An empty region has
/// none, unless it is [`TensorRegion::NOTHING`]: then both sides learn that they agree.
pub(crate) fn pieces(region: TensorRegion) -> impl Iterator<Item = (u16, TensorRegion)> {
    let starts = (0..region.bytes).step_by(PIECE_BYTES).enumerate();
    let piece = move |(index, start): (usize, usize)| {
        let part = u16::try_from(index).ok().filter(|part| *part < PARTS);
        let piece = TensorRegion {
            offset: region.offset + start,
            bytes: PIECE_BYTES.min(region.bytes - start),
            ..region
        };
        (part.expect("32,768 pieces are 2 TiB"), piece)
    };
    let nothing = (region == TensorRegion::NOTHING).then_some((0, region));
    starts.map(piece).chain(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_shards_cover_the_tensor_without_overlap() {
        for (bytes, element_bytes) in [(0, 4), (4, 4), (52, 4), (1000, 8), (4096, 2)] {
            let cut = TensorCut::new(bytes, element_bytes, ByteCount::new(100), 7);
            for shards in 1..=5 {
                let mut next = 0;
                for chunk in 0..cut.chunks {
                    for shard in 0..shards {
                        let (offset, length) = cut.chunk(chunk).shard(shards, shard).range();
                        assert_eq!(offset, next);
                        assert_eq!(offset % element_bytes, 0);
                        next = offset + length;
                    }
                }
                assert_eq!(next, bytes);
            }
        }
    }

    #[test]
    fn too_many_chunks_become_fewer_larger_ones() {
        assert_eq!(TensorCut::new(1 << 20, 4, ByteCount::new(1), 16).chunks, 16);
    }
}
