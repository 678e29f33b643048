//! Arbitrary bytes as blocks of encoded messages: decoding ends, and fills exactly its elements.
//! Arbitrary elements as a tensor: each finite one is what is decoded and what is left, added up.

#![no_main]

use gradwire_collectives::codec::{BlockCut, Codec};
use gradwire_collectives::dtype::DType;
use gradwire_protocol::units::Share;
use libfuzzer_sys::fuzz_target;

const DTYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

fn codec(choice: u8) -> Codec {
    let share = Share::new(f64::from(choice) / 255.0).expect("within 0 to 1");
    let codecs = [
        Codec::Onebit,
        Codec::Tbq,
        Codec::TernGrad,
        Codec::TopK(share),
        Codec::BlockFloat,
    ];
    codecs[usize::from(choice) % codecs.len()]
}

/// Decodes whatever came, block by block and as a whole.
fn decode(cut: &BlockCut, elements: usize, width: usize, bytes: &[u8]) {
    let mut values = Vec::new();
    for (number, block) in bytes.chunks(cut.segment_bytes()).enumerate() {
        cut.decode_block(number, block, &mut values);
        assert!(
            values.len() <= cut.block_bytes(),
            "a block has its elements"
        );
    }
    cut.decode(bytes, &mut vec![0; elements * width]);
}

/// What is sent and what is left are the values.
fn encode(cut: &BlockCut, values: &[u8]) {
    let (mut left, mut message) = (values.to_vec(), Vec::new());
    cut.encode(&mut left, 1, &mut message);
    assert_eq!(message.len(), cut.message_bytes());
    let mut sent = vec![0; values.len()];
    cut.decode(&message, &mut sent);
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let (elements, _) = bytes.as_chunks::<4>();
        elements
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect()
    };
    for ((value, sent), left) in floats(values)
        .into_iter()
        .zip(floats(&sent))
        .zip(floats(&left))
    {
        if value.is_finite() && left.is_finite() {
            let rounding = (value.abs() + sent.abs()) * f32::EPSILON;
            let near = (sent + left - value).abs() <= rounding.max(f32::MIN_POSITIVE);
            assert!(near, "{sent} and {left} are {value}");
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[choice, dtype, segment, low, high], bytes)) = input.split_first_chunk::<5>() else {
        return;
    };
    let dtype = DTYPES[usize::from(dtype) % DTYPES.len()];
    // Long enough for the header and the values of an element.
    let segment_bytes = 16 + 8 * u32::from(segment);
    let elements = usize::from(u16::from_le_bytes([low, high]));
    let cut = BlockCut::new(
        codec(choice),
        dtype,
        elements * dtype.bytes(),
        segment_bytes,
    );
    decode(&cut, elements, dtype.bytes(), bytes);
    let whole = bytes.len() / 4 * 4;
    let cut = BlockCut::new(codec(choice), DType::F32, whole, segment_bytes);
    encode(&cut, &bytes[..whole]);
});
