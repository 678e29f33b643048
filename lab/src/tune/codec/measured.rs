//! The time that this host takes to encode, decode and add.

use std::hint::black_box;
use std::time::Duration;

use gradwire_collectives::codec::{BlockCut, Codec};
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::kernels::accumulate;
use gradwire_protocol::job::{CodecName, CodecTerms};
use gradwire_protocol::units::Share;
use gradwire_tuning::selective::{CodecCosts, CodingCosts, ExchangeCosts, LinearCost};

use crate::sim::cost::now;

/// The codecs that are compared, the one with the shortest contributions and sums first.
pub const CODECS: [CodecName; 5] = [
    CodecName::Topk,
    CodecName::Terngrad,
    CodecName::Onebit,
    CodecName::Tbq,
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

/// The costs of a codec among this many ranks on one core, over a network that costs nothing.
pub fn costs(name: CodecName, share: Share, ranks: u32) -> CodecCosts {
    let terms = CodecTerms {
        name,
        share,
        ..CodecTerms::NONE
    };
    let codec = Codec::of(terms).expect("a codec that is compared");
    let addends = u16::try_from(ranks).unwrap_or(u16::MAX);
    let of_sum = codec.of_sum(addends, DType::F32);
    CodecCosts {
        contribution: coding(codec),
        sum: of_sum.map_or(CodingCosts::PLAIN, coding),
        aggregate: through(time_to_add(SMALL), time_to_add(LARGE)),
        exchange: ExchangeCosts::Ring {
            send: LinearCost::FREE,
        },
    }
}

fn coding(codec: Codec) -> CodingCosts {
    let [small, large] = [SMALL, LARGE].map(|elements| CodecTimes::of(codec, elements));
    let decode = through(small.decode, large.decode);
    CodingCosts {
        ratio: large.ratio,
        encode: through(small.encode, large.encode),
        decode: LinearCost {
            // Decoding is timed for its values, and planned by the length of their encoding.
            per_element: decode.per_element / large.ratio,
            ..decode
        },
    }
}

/// The line through the milliseconds of both lengths.
fn through(small: f64, large: f64) -> LinearCost {
    LinearCost::through((SMALL as f64, small), (LARGE as f64, large))
}

/// Milliseconds of one tensor.
struct CodecTimes {
    encode: f64,
    decode: f64,
    /// Encoded length over length.
    ratio: f64,
}

impl CodecTimes {
    fn of(codec: Codec, elements: usize) -> Self {
        let bytes = elements * ELEMENT_BYTES;
        let (values, mut target) = (gradients(elements), vec![0; bytes]);
        let cut = BlockCut::new(codec, DType::F32, bytes, SEGMENT_BYTES);
        let (mut left, mut message) = (values, Vec::new());
        cut.encode(&mut left, 1, &mut message);
        let mut encoded = Vec::new();
        Self {
            encode: fastest(|| cut.encode(black_box(&mut left), 1, &mut encoded)),
            decode: fastest(|| cut.decode(black_box(&message), &mut target)),
            ratio: message.len() as f64 / bytes as f64,
        }
    }
}

fn time_to_add(elements: usize) -> f64 {
    let (values, mut target) = (gradients(elements), gradients(elements));
    fastest(|| accumulate(DType::F32, ReduceOp::Sum, &mut target, black_box(&values)))
}

/// Values of which most are small.
fn gradients(elements: usize) -> Vec<u8> {
    let value = |at: usize| ((at * 7_919) as f32).sin().powi(3);
    (0..elements)
        .flat_map(|at| value(at).to_le_bytes())
        .collect()
}

fn fastest(mut run: impl FnMut()) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let started = now();
        run();
        started.elapsed()
    });
    times.min().unwrap_or(Duration::ZERO).as_secs_f64() * 1e3
}
