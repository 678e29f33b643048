//! Properties of every codec over random tensors, among them values that are not finite.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::numbers::dtype::ReduceOp;
use crate::numbers::kernels::accumulate;

const SEGMENT_BYTES: u32 = 1372;
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// An encoded message, and the values that it does not carry.
struct EncodedValues {
    message: Vec<u8>,
    unsent: Vec<u8>,
}

fn encode(cut: BlockCut, values: &[u8], seed: u64) -> EncodedValues {
    let (mut message, mut unsent) = (Vec::new(), values.to_vec());
    cut.encode(&mut unsent, seed, &mut message);
    EncodedValues { message, unsent }
}

fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

fn codecs() -> [Codec; 6] {
    [
        Codec::Onebit,
        Codec::Tbq,
        Codec::TernGrad,
        Codec::TopK(share(0.01)),
        Codec::TopK(share(1.0)),
        Codec::BlockFloat,
    ]
}

/// Normal values by the central limit theorem, at some scale.
fn normal(rng: &mut ChaCha8Rng, elements: usize, scale: f32) -> Vec<f32> {
    let value = |_| (0..12).map(|_| rng.random::<f32>()).sum::<f32>() - 6.0;
    (0..elements)
        .map(value)
        .map(|value| value * scale)
        .collect()
}

fn bytes_of(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * dtype.bytes()];
    elements::store(dtype, values, &mut bytes);
    bytes
}

fn floats_of(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut floats = vec![0.0; bytes.len() / dtype.bytes()];
    elements::load(dtype, bytes, &mut floats);
    floats
}

/// Lengths around the edges of blocks, and scales down to denormal numbers.
fn tensors(seed: u64) -> impl Iterator<Item = Vec<f32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let lengths = [0, 1, 2, 7, 31, 32, 33, 1367, 5472, 10_944, 10_945, 40_000];
    lengths.into_iter().flat_map(move |elements| {
        let scales = [0.0, 1.0, 1e-41, 1e-3, 1e4];
        scales.map(|scale| normal(&mut rng, elements, scale))
    })
}

#[test]
fn sent_plus_residual_is_the_input() {
    for (codec, dtype) in codecs()
        .into_iter()
        .flat_map(|codec| FLOATS.map(|of| (codec, of)))
    {
        for (seed, values) in tensors(7).enumerate() {
            let input = bytes_of(dtype, &values);
            let cut = BlockCut::new(codec, dtype, input.len(), SEGMENT_BYTES);
            let EncodedValues { message, unsent } = encode(cut, &input, seed as u64);
            assert_eq!(message.len(), cut.message_bytes());
            let mut sent = vec![0; input.len()];
            cut.decode(&message, &mut sent);
            let largest = values
                .iter()
                .fold(0_f32, |most, value| most.max(value.abs()));
            let unit = if dtype.bytes() == 2 { 0.01 } else { 3e-7 };
            accumulate(dtype, ReduceOp::Sum, &mut sent, &unsent);
            let (sums, inputs) = (floats_of(dtype, &sent), floats_of(dtype, &input));
            for (sum, input) in sums.iter().zip(&inputs) {
                let error = (sum - input).abs();
                let bound = unit * 2.0 * largest + f32::from_bits(1);
                assert!(error <= bound, "{codec:?} {dtype}: {sum} of {input}");
            }
        }
    }
}

#[test]
fn top_k_sends_exactly_k_values_unchanged() {
    let codec = Codec::TopK(share(0.01));
    for (seed, mut values) in tensors(11).enumerate() {
        for (at, odd) in [f32::NAN, f32::INFINITY, -0.0, f32::NEG_INFINITY]
            .iter()
            .enumerate()
        {
            if let Some(value) = values.get_mut(at * 3) {
                *value = *odd;
            }
        }
        let bytes = bytes_of(DType::F32, &values);
        let cut = BlockCut::new(codec, DType::F32, bytes.len(), SEGMENT_BYTES);
        let encoded = encode(cut, &bytes, seed as u64);
        let blocks = values.chunks(cut.block_elements);
        let messages = encoded.message.chunks(SEGMENT_BYTES as usize);
        for (values, block) in blocks.zip(messages) {
            let kept = TopK(share(0.01)).encoded_bytes(values.len()) / topk::VALUE_BYTES;
            assert_eq!(kept, (0.01 * values.len() as f64).ceil() as usize);
            let (positions, numbers) = block[..kept * 8].split_at(kept * 4);
            let (positions, _) = positions.as_chunks::<4>();
            let positions = positions.iter().map(|at| u32::from_le_bytes(*at));
            let positions: Vec<u32> = positions.collect();
            let mut distinct = positions.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), kept);
            for (at, number) in positions.iter().zip(numbers.as_chunks::<4>().0) {
                assert_eq!(*number, values[*at as usize].to_le_bytes());
            }
        }
        let unsent = floats_of(DType::F32, &encoded.unsent);
        for (left, value) in unsent.iter().zip(&values) {
            assert!(*left == 0.0 || left.to_bits() == value.to_bits());
        }
    }
}

/// Share of the k largest values of `values` that top-k finds, cut into blocks of `segment` bytes.
fn recall(values: &[f32], kept: f64, segment: u32) -> f64 {
    let bytes = bytes_of(DType::F32, values);
    let cut = BlockCut::new(Codec::TopK(share(kept)), DType::F32, bytes.len(), segment);
    let unsent = floats_of(DType::F32, &encode(cut, &bytes, 1).unsent);
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()));
    let largest = &order[..(kept * values.len() as f64).ceil() as usize];
    let found = largest.iter().filter(|&&at| unsent[at] == 0.0).count();
    found as f64 / largest.len() as f64
}

#[test]
fn top_k_of_a_block_recalls_the_largest() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let values = normal(&mut rng, 1_000_000, 1.0);
    let global = recall(&values, 0.01, 80_000);
    let local = recall(&values, 0.01, SEGMENT_BYTES);
    assert!(global >= 0.999, "in one block {global}");
    assert!(local >= 0.95, "in a block per packet {local}");
}

#[test]
fn a_block_with_a_nan_or_infinity_decodes_to_one() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for (codec, odd) in codecs()
        .into_iter()
        .flat_map(|codec| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|odd| (codec, odd)))
    {
        for at in [0, 37, 999] {
            let mut values = normal(&mut rng, 1000, 1.0);
            values[at] = odd;
            let bytes = bytes_of(DType::F32, &values);
            let cut = BlockCut::new(codec, DType::F32, bytes.len(), SEGMENT_BYTES);
            let mut decoded = vec![0; bytes.len()];
            cut.decode(&encode(cut, &bytes, 0).message, &mut decoded);
            let decoded = floats_of(DType::F32, &decoded);
            assert!(
                !decoded[at].is_finite(),
                "{codec:?} of {odd}: {}",
                decoded[at]
            );
        }
    }
}

#[test]
fn encodings_have_the_stated_lengths() {
    let elements = 1 << 20;
    let lengths = [
        (Codec::Onebit, 1, 4),
        (Codec::Tbq, 2, 4),
        (Codec::TernGrad, 2, 8),
        (Codec::BlockFloat, 8, 1),
    ];
    for (codec, bits, header) in lengths {
        let cut = BlockCut::new(codec, DType::F32, elements * 4, SEGMENT_BYTES);
        let (payload, headers) = (elements * bits / 8, cut.blocks() * header);
        // Segments are multiples of four bytes, so only the last block may be rounded up.
        assert_eq!(cut.message_bytes(), payload + headers, "{codec:?}");
    }
    let cut = BlockCut::new(
        Codec::TopK(share(0.01)),
        DType::F32,
        elements * 4,
        SEGMENT_BYTES,
    );
    let values = (0.01 * elements as f64).ceil() as usize;
    let padding = cut.blocks() * topk::VALUE_BYTES;
    assert!(cut.message_bytes().abs_diff(values * topk::VALUE_BYTES) <= 2 * padding);
}

#[test]
fn every_block_but_the_last_fills_its_segment() {
    for (codec, segment) in codecs()
        .into_iter()
        .flat_map(|codec| [476, 1200, SEGMENT_BYTES, 8872].map(|segment| (codec, segment)))
    {
        let fitting = codec.elements_within(segment as usize);
        let fits = codec.encoded_bytes(fitting);
        assert!(fits <= segment as usize, "{codec:?} {segment}: {fits}");
        let next = codec.encoded_bytes(fitting + 1);
        assert!(next > segment as usize, "{codec:?} {segment}: {next}");
    }
}

#[test]
fn foreign_bytes_decode_to_some_values() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    for codec in codecs() {
        let cut = BlockCut::new(codec, DType::BF16, 3000, SEGMENT_BYTES);
        for length in [0, 1, 4, 7, 100, 1371, 1372] {
            let block: Vec<u8> = (0..length).map(|_| rng.random()).collect();
            let mut values = Vec::new();
            cut.decode_block(0, &block, &mut values);
            assert_eq!(values.len(), cut.block_bytes().min(3000));
            cut.decode_block(1000, &block, &mut values);
            assert_eq!(values.len(), 0);
        }
    }
}

#[test]
fn terngrad_is_right_on_average() {
    let values: Vec<f32> = (0..64).map(|at| (at as f32).sin()).collect();
    let bytes = bytes_of(DType::F32, &values);
    let cut = BlockCut::new(Codec::TernGrad, DType::F32, bytes.len(), SEGMENT_BYTES);
    let mut sums = vec![0_f64; values.len()];
    let draws = 4000;
    for seed in 0..draws {
        let mut decoded = vec![0; bytes.len()];
        cut.decode(&encode(cut, &bytes, seed).message, &mut decoded);
        for (sum, value) in sums.iter_mut().zip(floats_of(DType::F32, &decoded)) {
            *sum += f64::from(value);
        }
    }
    for (sum, value) in sums.iter().zip(&values) {
        let mean = sum / draws as f64;
        assert!((mean - f64::from(*value)).abs() < 0.03, "{mean} of {value}");
    }
}

#[test]
fn tbq_sends_values_of_equal_magnitude() {
    for magnitude in [1.0, 0.1, 1e-30] {
        let values: Vec<f32> = (0..999)
            .map(|at| if at % 3 == 0 { magnitude } else { -magnitude })
            .collect();
        let input = bytes_of(DType::F32, &values);
        let cut = BlockCut::new(Codec::Tbq, DType::F32, input.len(), SEGMENT_BYTES);
        let EncodedValues { message, .. } = encode(cut, &input, 1);
        let mut decoded = vec![0; input.len()];
        cut.decode(&message, &mut decoded);
        for (value, decoded) in values.iter().zip(floats_of(DType::F32, &decoded)) {
            assert!((value - decoded).abs() < 1e-3 * magnitude, "{decoded}");
        }
    }
}
