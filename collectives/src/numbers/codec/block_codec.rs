//! The seam of a codec: one block in, one block out.

/// One way to encode a block. Methods are inlined into a kernel that `pulp` compiles for each level
/// of the processor's vector units.
pub(super) trait BlockCodec: Copy {
    /// Length of an encoded block.
    fn encoded_bytes(self, elements: usize) -> usize;
    /// The most elements whose encoding fits into this many bytes.
    fn elements_within(self, bytes: usize) -> usize;
    /// Encodes `values` into `block`, which is as long as the encoding. Leaves the part of each
    /// value that the block does not carry. `seed` is for draws.
    fn encode(self, values: &mut [f32], block: &mut [u8], seed: u64);
    /// Decodes a block, which may hold any bytes, into all of `values`.
    fn decode(self, block: &[u8], values: &mut [f32]);
}
