//! Properties of a fabric: whether it is consistent, paths, round trips, ideal times.

use gradwire_fabric::check::FabricError;
use gradwire_fabric::paths::{Packets, Paths};
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::units::{ByteCount, Rate, Span};

use crate::file::TWO_RACKS;
use crate::{counts, shape, toml};

/// CPU time of this thread, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    let nanos: f64 = stat
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    nanos * 1e-9
}

#[test]
fn a_fabric_of_8192_hosts_is_ready_in_well_under_a_second() {
    let start = cpu_seconds();
    let fabric = shape("fat-tree:k=32@100G");
    let seconds = cpu_seconds() - start;
    let rtt = fabric.base_rtt(ByteCount::new(4162), ByteCount::new(66));
    let mut paths = Paths::of(&fabric);
    let hops: usize = (0..8192)
        .map(|host| paths.between(host, 8191 - host).len())
        .sum();
    assert_eq!(counts(&fabric), (8192, vec![512, 512, 256], 3 * 8192));
    assert!(rtt > Span::from_micros(12), "{rtt}");
    assert_eq!(hops, 8192 * 6);
    assert!(seconds < 0.5, "{seconds} s of CPU time in a debug build");
}

#[test]
fn a_fabric_of_wrong_sizes_does_not_pass() {
    let good = shape("single:2@1G");
    let with = |change: &dyn Fn(&mut Fabric)| {
        let mut fabric = good.clone();
        change(&mut fabric);
        fabric.check().expect_err("changed for the worse")
    };
    assert_eq!(with(&|fabric| fabric.mtu = 255), FabricError::Mtu(255));
    assert_eq!(
        with(&|fabric| fabric.framing = 1001),
        FabricError::Framing(1001)
    );
    assert_eq!(with(&|fabric| fabric.hosts = 0), FabricError::NoHosts);
    let link = "host 0 - switch 0".to_owned();
    let no_rate = with(&|fabric| fabric.links[0].rate = Rate::default());
    assert_eq!(no_rate, FabricError::NoRate { link });
}

/// The settings of htsim's published runs: 4,086 bytes of 4,150 on the wire, 64 bytes back.
const HTSIM: Packets = Packets {
    payload: 4086,
    overhead: 64,
};

#[test]
fn one_flow_takes_as_long_as_in_htsim() {
    let fabric = shape("fat-tree:k=8@100G");
    let fct = fabric.ideal_fct(0, 127, ByteCount::new(2_000_000), HTSIM);
    let back = Packets {
        payload: 1,
        overhead: 64,
    };
    let ack = fabric.ideal_fct(127, 0, ByteCount::new(0), back);
    assert_eq!(fct + ack, Span::from_picos(176_199_520));
    let rtt = fabric.base_rtt(ByteCount::new(4150), ByteCount::new(64));
    assert_eq!(
        rtt,
        Span::from_nanos(12_000) + Span::from_picos(6 * (332_000 + 5_120))
    );
}

#[test]
fn the_slowest_link_spaces_the_packets() {
    let fabric = toml(TWO_RACKS);
    let packets = Packets {
        payload: 1000,
        overhead: 0,
    };
    // 10G, 40G, 25G: 800, 200, 320 ns a packet; latencies of 2, 2 and 1 us.
    let fct = |bytes| fabric.ideal_fct(0, 1, ByteCount::new(bytes), packets);
    assert_eq!(fct(1000), Span::from_nanos(800 + 200 + 320 + 5000));
    assert_eq!(fct(5000), Span::from_nanos(5 * 800 + 200 + 320 + 5000));
    assert_eq!(
        fct(4500),
        Span::from_nanos(4 * 800 + 400 + 100 + 160 + 5000 + 20)
    );
    assert_eq!(
        fabric.ideal_fct(1, 1, ByteCount::new(5000), packets),
        Span::ZERO
    );
}

#[test]
fn the_longest_round_trip_is_found_from_any_host() {
    let lopsided = "7 3 6\n4 5 6\n0 5 10G 1us 0\n1 4 10G 1us 0\n2 6 10G 9us 0\n3 6 10G 1us 0\n\
        4 5 10G 2us 0\n5 6 10G 3us 0\n";
    let fabric = Fabric::from_hpcc(lopsided).expect("allowed");
    let rtt = fabric.base_rtt(ByteCount::new(0), ByteCount::new(0));
    assert_eq!(rtt, Span::from_micros(2 * (1 + 2 + 3 + 9)));
    let one = shape("single:1@1G").base_rtt(ByteCount::new(1), ByteCount::new(1));
    assert_eq!(one, Span::ZERO);
}
