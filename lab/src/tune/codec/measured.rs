//! The time that this host takes to encode, decode and add.

use std::hint::black_box;
use std::time::Duration;

use gradwire_collectives::codec::{BlockCut, Codec};
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::kernels::accumulate;
use gradwire_protocol::job::{CodecName, CodecTerms};
use gradwire_protocol::units::Share;
use gradwire_tuning::selective::{CodecCosts, ExchangeCosts, LinearCost};

use crate::sim::cost::now;

/// The codecs that are compared, the one with the shortest encodings first.
pub const CODECS: [CodecName; 5] = [
    CodecName::Topk,
    CodecName::Onebit,
    CodecName::Tbq,
    CodecName::Terngrad,
    CodecName::Blockfloat,
];

/// Bytes of an element.
pub const ELEMENT_BYTES: usize = 4;

/// Payload of a packet of 1,500 bytes.
const SEGMENT_BYTES: u32 = 1_360;
/// The lengths that are timed, in elements.
const SMALL: usize = 1 << 12;
const LARGE: usize = 1 << 20;
/// Repetitions; the fastest counts, since every disturbance makes one slower.
const ROUNDS: usize = 9;

/// The costs of a codec on one core, over a network that costs nothing.
pub fn costs(name: CodecName, share: Share) -> CodecCosts {
    let terms = CodecTerms {
        name,
        share,
        ..CodecTerms::NONE
    };
    let codec = Codec::of(terms).expect("a codec that is compared");
    let [small, large] = [SMALL, LARGE].map(|elements| CodecTimes::of(codec, elements));
    let line = |of: fn(&CodecTimes) -> f64| {
        LinearCost::through((SMALL as f64, of(&small)), (LARGE as f64, of(&large)))
    };
    let ratio = large.ratio;
    let decode = line(|times| times.decode);
    CodecCosts {
        ratio,
        encode: line(|times| times.encode),
        decode: LinearCost {
            // Decoding is timed for its values, and planned by the length of their encoding.
            per_element: decode.per_element / ratio,
            ..decode
        },
        aggregate: line(|times| times.add),
        exchange: ExchangeCosts::Ring {
            send: LinearCost::FREE,
        },
    }
}

/// Milliseconds of one tensor.
struct CodecTimes {
    encode: f64,
    decode: f64,
    add: f64,
    /// Encoded length over length.
    ratio: f64,
}

impl CodecTimes {
    fn of(codec: Codec, elements: usize) -> Self {
        let bytes = elements * ELEMENT_BYTES;
        let value = |at: usize| ((at * 7_919) as f32).sin().powi(3);
        let values: Vec<u8> = (0..elements)
            .flat_map(|at| value(at).to_le_bytes())
            .collect();
        let mut target = vec![0; bytes];
        let cut = BlockCut::new(codec, DType::F32, bytes, SEGMENT_BYTES);
        let (mut left, mut message) = (values.clone(), Vec::new());
        cut.encode(&mut left, 1, &mut message);
        let mut encoded = Vec::new();
        Self {
            encode: fastest(|| cut.encode(black_box(&mut left), 1, &mut encoded)),
            decode: fastest(|| cut.decode(black_box(&message), &mut target)),
            add: fastest(|| accumulate(DType::F32, ReduceOp::Sum, &mut target, black_box(&values))),
            ratio: message.len() as f64 / bytes as f64,
        }
    }
}

fn fastest(mut run: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let started = now();
        run();
        started.elapsed()
    });
    times.min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}
