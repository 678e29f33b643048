//! Reduction of one buffer into another: bytes of the target per second, in L2 and from memory.
//!
//! `cargo bench -p gradwire-benches --bench kernels`. A reduction reads two bytes and writes one
//! for each byte of its target.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::hadamard::Mixing;
use gradwire_collectives::kernels::{ScaleRatio, accumulate, mean_abs, scale, sum_squares};

/// Two buffers of the first size fit into an L2 cache; two of the second into no cache.
const SIZES: [(&str, usize); 2] = [("hot", 256 << 10), ("memory", 64 << 20)];
const TYPES: [DType; 8] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::U8,
    DType::I16,
    DType::I32,
    DType::I64,
];

/// Bytes that are numbers between 1 and 2 in every type of float, and valid integers.
fn values(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| if at % 2 == 0 { 1 } else { 0x3f })
        .collect()
}

fn reductions(criterion: &mut Criterion) {
    for op in [ReduceOp::Sum, ReduceOp::Max] {
        for (place, bytes) in SIZES {
            let mut group = criterion.benchmark_group(format!("{op}/{place}"));
            group
                .throughput(Throughput::Bytes(bytes as u64))
                .sample_size(20);
            let (mut target, incoming) = (values(bytes), values(bytes));
            for dtype in TYPES {
                group.bench_function(BenchmarkId::from_parameter(dtype), |bencher| {
                    bencher.iter(|| accumulate(dtype, op, black_box(&mut target), &incoming));
                });
            }
        }
    }
}

fn passes(criterion: &mut Criterion) {
    let (place, bytes) = SIZES[0];
    let ratio = ScaleRatio {
        multiply: 4,
        divide: 3,
    };
    let mut target = values(bytes);
    for dtype in TYPES.into_iter().filter(|dtype| dtype.is_float()) {
        let mut group = criterion.benchmark_group(format!("{dtype}/{place}"));
        group
            .throughput(Throughput::Bytes(bytes as u64))
            .sample_size(20);
        group.bench_function("scale", |bencher| {
            bencher.iter(|| scale(dtype, black_box(&mut target), ratio));
        });
        group.bench_function("mean_abs", |bencher| {
            bencher.iter(|| mean_abs(dtype, black_box(&target)));
        });
        group.bench_function("sum_squares", |bencher| {
            bencher.iter(|| sum_squares(dtype, black_box(&target)));
        });
    }
}

/// Mixes a message in place and unmixes it, in segments for an MTU of 1,500 bytes; copying the
/// message twice is the comparison.
fn transforms(criterion: &mut Criterion) {
    for (place, bytes) in SIZES {
        let mut group = criterion.benchmark_group(format!("hadamard/{place}"));
        group
            .throughput(Throughput::Bytes(bytes as u64))
            .sample_size(20);
        let mut target = values(bytes);
        let from = values(bytes);
        group.bench_function("copied", |bencher| {
            bencher.iter(|| {
                black_box(&mut target).copy_from_slice(black_box(&from));
                black_box(&mut target).copy_from_slice(black_box(&from));
            });
        });
        for dtype in TYPES.into_iter().filter(|dtype| dtype.is_float()) {
            let mixing = Mixing {
                dtype,
                segment_bytes: 1360,
                seed: 1,
            };
            group.bench_function(BenchmarkId::from_parameter(dtype), |bencher| {
                bencher.iter(|| {
                    mixing.mix(black_box(&mut target));
                    mixing.unmix(black_box(&mut target));
                });
            });
        }
    }
}

criterion_group!(kernels, reductions, passes, transforms);
criterion_main!(kernels);
