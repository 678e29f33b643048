//! Codecs: bytes of the tensor per second, encoded and decoded, in L2 and from memory.
//!
//! `cargo bench -p gradwire-benches --bench codecs`. A copy of the tensor is the comparison.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gradwire_benches::gradients;
use gradwire_collectives::codec::{BlockCut, Codec};
use gradwire_collectives::dtype::DType;
use gradwire_protocol::units::Share;

/// A tensor of the first size fits into an L2 cache; one of the second into no cache.
const SIZES: [(&str, usize); 2] = [("hot", 256 << 10), ("memory", 64 << 20)];
/// Payload of a packet of 1,500 bytes.
const SEGMENT_BYTES: u32 = 1_360;

fn codecs(criterion: &mut Criterion) {
    let share = Share::new(0.01).expect("a share");
    let codecs = [
        ("onebit", Codec::Onebit),
        ("tbq", Codec::Tbq),
        ("terngrad", Codec::TernGrad),
        ("topk 1%", Codec::TopK(share)),
        ("blockfloat", Codec::BlockFloat),
    ];
    for (place, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("codec/{place}"));
        group
            .throughput(Throughput::Bytes(bytes as u64))
            .sample_size(10);
        let (values, mut target) = (gradients(bytes), vec![0; bytes]);
        group.bench_function("copied", |bencher| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&values)));
        });
        for (name, codec) in codecs {
            let cut = BlockCut::new(codec, DType::F32, bytes, SEGMENT_BYTES);
            let (mut left, mut message) = (values.clone(), Vec::new());
            group.bench_function(BenchmarkId::new(name, "encoded and decoded"), |bencher| {
                bencher.iter(|| {
                    cut.encode(black_box(&mut left), 1, &mut message);
                    cut.decode(&message, black_box(&mut target));
                });
            });
        }
    }
}

criterion_group!(benches, codecs);
criterion_main!(benches);
