//! The cost of a packet in the protocol: sender, receiver and acknowledgements of a 4 MiB message,
//! and of few and many messages that are open at once.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradwire_benches::EndpointPair;

fn transfer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("endpoint");
    for mtu in [1500, 9000] {
        let mut pair = EndpointPair::new(mtu);
        let packets = pair.transfer(4 << 20);
        group.throughput(Throughput::Elements(packets));
        group.bench_function(format!("4MiB at mtu {mtu}"), |bencher| {
            bencher.iter(|| pair.transfer(4 << 20));
        });
    }
    for open in [16, 4096] {
        let mut pair = EndpointPair::new(1500);
        let packets = pair.transfer_at_once(open, 1000);
        group.throughput(Throughput::Elements(packets));
        group.bench_function(
            format!("{open} messages of 1000 bytes at once"),
            |bencher| {
                bencher.iter(|| pair.transfer_at_once(open, 1000));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, transfer);
criterion_main!(benches);
