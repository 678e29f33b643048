//! Encodes and decodes a tensor, for the count of instructions and for short runs at high priority.
//!
//! `codecs NAME MIB ROUNDS [SHARE]` prints the gigabytes of the tensor per second. The name `copy`
//! copies the tensor instead, and `none` only makes it: subtract its instructions.

use std::hint::black_box;
use std::time::Instant;

use gradwire_benches::gradients;
use gradwire_collectives::codec::{BlockCut, Codec};
use gradwire_collectives::dtype::DType;
use gradwire_protocol::job::{CodecName, CodecTerms};
use gradwire_protocol::units::{ByteCount, Share};

const SEGMENT_BYTES: u32 = 1_360;

#[expect(clippy::disallowed_methods, reason = "the example measures time")]
fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: f64| -> f64 {
        let text = given.get(at).and_then(|text| text.parse().ok());
        text.unwrap_or(usual)
    };
    let name = given.first().map_or("onebit", String::as_str);
    let (bytes, rounds) = ((number(1, 64.0) as usize) << 20, number(2, 1.0) as u32);
    let terms = CodecTerms {
        name: name.parse().unwrap_or(CodecName::None),
        share: Share::new(number(3, 0.01)).expect("a share"),
        min_tensor: ByteCount::new(0),
    };
    let (values, mut target) = (gradients(bytes), vec![0; bytes]);
    let (mut left, mut message) = (values.clone(), Vec::new());
    let mut started = Instant::now();
    for round in 0..=rounds {
        if round == 1 {
            started = Instant::now(); // memory is there from now on
        }
        match Codec::of(terms) {
            Some(codec) => {
                let cut = BlockCut::new(codec, DType::F32, bytes, SEGMENT_BYTES);
                cut.encode(black_box(&mut left), u64::from(round), &mut message);
                cut.decode(&message, black_box(&mut target));
            }
            None if name == "copy" => black_box(&mut target).copy_from_slice(black_box(&values)),
            None => {}
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let moved = bytes as f64 * f64::from(rounds) / 1e9;
    println!("{name}: {:.2} GB/s", moved / seconds);
}
