//! The cost of an all-reduce for all its ranks together, on one core and without a network.
//!
//! `cargo bench -p gradwire-benches --bench collectives`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradwire_benches::group::Ranks;
use gradwire_protocol::job::Job;

fn all_reduces(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("all-reduce");
    for (count, bytes, buckets) in [(2, 4 << 10, 1), (4, 4 << 10, 1), (2, 1 << 20, 64)] {
        let mut ranks = Ranks::new(count, &Job::default());
        group.throughput(Throughput::Bytes(bytes as u64 * u64::from(buckets)));
        group.bench_function(
            format!("{buckets} x {bytes} bytes, {count} ranks"),
            |bencher| {
                bencher.iter(|| ranks.all_reduce(bytes, buckets));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, all_reduces);
criterion_main!(benches);
