//! One-line forms.

use gradwire_fabric::policy::Balance;
use gradwire_fabric::policy::SwitchBuffer;
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::units::{ByteCount, Rate, Span};

use crate::{counts, shape, shortest_paths};

fn refused_shape(text: &str) -> String {
    Fabric::from_shape(text).expect_err(text).to_string()
}

#[test]
fn a_fat_tree_has_the_published_counts() {
    assert_eq!(counts(&shape("fat-tree:k=4@10G")), (16, vec![8, 8, 4], 48));
    assert_eq!(
        counts(&shape("fat-tree:k=8@100G")),
        (128, vec![32, 32, 16], 384)
    );
    assert_eq!(
        counts(&shape("fat-tree:k=16@100G")),
        (1024, vec![128, 128, 64], 3072)
    );
    assert_eq!(counts(&shape("fat-tree:k=2@1G")), (2, vec![2, 2, 1], 6));
}

#[test]
fn other_shapes_have_the_counts_of_their_names() {
    assert_eq!(
        counts(&shape("leaf-spine:9x16x4@100G")),
        (144, vec![9, 4], 144 + 36)
    );
    assert_eq!(counts(&shape("rail:8x8@400G")), (64, vec![8, 8], 64 + 64));
    assert_eq!(
        counts(&shape("rail:16x8x4@400G")),
        (128, vec![8, 4], 128 + 32)
    );
    assert_eq!(counts(&shape("single:64@25G")), (64, vec![1], 64));
    assert_eq!(counts(&shape("single:1@25G")), (1, vec![1], 1));
}

#[test]
fn between_pods_there_are_as_many_shortest_paths_as_cores() {
    let fabric = shape("fat-tree:k=8@100G");
    assert_eq!(shortest_paths(&fabric, 0, 127), 16);
    assert_eq!(shortest_paths(&fabric, 0, 15), 4);
    assert_eq!(shortest_paths(&fabric, 0, 3), 1);
    assert_eq!(shortest_paths(&shape("leaf-spine:9x16x4@100G"), 0, 143), 4);
}

#[test]
fn oversubscription_takes_uplinks_away() {
    let fabric = shape("fat-tree:k=16,over=4@100G");
    assert_eq!(counts(&fabric), (1024, vec![128, 32, 16], 1024 + 256 + 256));
    assert_eq!(shortest_paths(&fabric, 0, 1023), 16);
}

#[test]
fn neighbours_are_consecutive_and_switches_have_names() {
    let fabric = shape("fat-tree:k=4@10G");
    assert_eq!(fabric.link_name(0), "host 0 - edge 0.0");
    assert_eq!(fabric.link_name(1), "host 1 - edge 0.0");
    assert_eq!(fabric.link_name(15), "host 15 - edge 3.1");
    assert_eq!(fabric.link_name(16), "edge 0.0 - agg 0.0");
    assert_eq!(fabric.link_name(47), "agg 3.1 - core 3");
    let fabric = shape("leaf-spine:2x2x2@10G");
    assert_eq!(fabric.link_name(7), "leaf 1 - spine 1");
}

#[test]
fn gpu_r_of_every_server_is_on_rail_r() {
    let fabric = shape("rail:4x8@400G");
    for host in 0..32 {
        let rail = format!("host {host} - rail {}", host % 8);
        assert_eq!(fabric.link_name(host), rail);
    }
    assert_eq!(fabric.path(3, 8 + 3).len(), 2);
    assert_eq!(fabric.path(3, 4).len(), 4);
}

#[test]
fn options_stand_behind_the_size_or_the_rate() {
    let text = "leaf-spine:2x2x2,mtu=1500,latency=5us@25Gb/s/100G,framing=38,buffer=16MiB*0.5,\
                balance=adaptive";
    let fabric = shape(text);
    assert_eq!((fabric.mtu, fabric.framing), (1500, 38));
    assert_eq!(fabric.balance, Some(Balance::Adaptive));
    assert_eq!(fabric.host_rate(), Rate::from_gbps(25));
    let shared = SwitchBuffer::Shared {
        bytes: ByteCount::mib(16),
        alpha: 0.5,
    };
    assert_eq!(fabric.buffer, shared);
    let divided = SwitchBuffer::Divided {
        bytes: ByteCount::kib(512),
        alpha: 2.0,
    };
    assert_eq!(shape("single:4@100G,buffer=512KiB/port*2").buffer, divided);
    let spine = fabric.links.last().expect("there are links");
    assert_eq!(
        (spine.rate, spine.latency),
        (Rate::from_gbps(100), Span::from_micros(5))
    );
    assert_eq!(fabric.name, text);
}

#[test]
fn the_first_links_to_the_highest_tier_get_faults() {
    let fabric = shape("fat-tree:k=4@100G,core-slow=3@10G,core-gray=1@1%,core-fail=2@5us");
    let slow = fabric
        .links
        .iter()
        .filter(|link| link.rate == Rate::from_gbps(10));
    assert_eq!(slow.count(), 3);
    let gray: Vec<u32> = (0..fabric.links.len() as u32)
        .filter(|link| !fabric.links[*link as usize].loss.is_none())
        .collect();
    assert_eq!(gray.len(), 1);
    assert_eq!(fabric.link_name(gray[0]), "agg 0.0 - core 0");
    let failed = fabric
        .changes
        .iter()
        .map(|change| fabric.link_name(change.link));
    let failed: Vec<String> = failed.collect();
    assert_eq!(failed, ["agg 0.0 - core 0", "agg 0.0 - core 2"]);
    let refused = |text| {
        Fabric::from_shape(text)
            .expect_err("there are fewer")
            .to_string()
    };
    assert_eq!(
        refused("fat-tree:k=4@100G,core-slow=17@10G"),
        "core-slow=17: allowed are 1 to 16 links: as many lead to the highest tier of switches"
    );
    assert_eq!(
        refused("single:4@100G,core-fail=1@5us"),
        "core-fail=1: allowed are fabrics with links between switches"
    );
}

#[test]
fn gpus_of_a_server_meet_inside_it() {
    let fabric = shape("servers:4x8@3600G/400G");
    assert_eq!(fabric.hosts, 32);
    assert_eq!(fabric.path(0, 7).len(), 2);
    assert_eq!(fabric.path(0, 8).len(), 4);
    assert_eq!(shortest_paths(&fabric, 0, 8), 8);
    assert_eq!(fabric.host_rate(), Rate::from_gbps(3600));
}

#[test]
fn a_wrong_shape_is_told_what_is_allowed() {
    let cases = [
        (
            "fat-tree:k=7@100G",
            "fat-tree:k=7: allowed are k=K with an even K from 2 to 64, such as fat-tree:k=16@100G",
        ),
        (
            "fattree:k=8@100G",
            "unknown shape `fattree` (did you mean `fat-tree`?); known shapes are fat-tree, \
             leaf-spine, rail, servers, single, as in fat-tree:k=16@100G",
        ),
        (
            "single:64@25",
            "rate `25` of single: allowed behind the @ are 1M to 10T bits per second, such as \
             100G, 2.5Gbps or 400Gb/s",
        ),
        (
            "rail:8x8",
            "rail has no rate; behind an @ allowed are 1M to 10T bits per second, such as 100G, \
             2.5Gbps or 400Gb/s, or the hosts' rate / that between switches",
        ),
        (
            "fat-tree:k=8,over=3@100G",
            "over=3: allowed are 1, 2, 4, which divide the 4 uplinks",
        ),
        (
            "rail:8x8@400G,latncy=1us",
            "unknown option `latncy` (did you mean `latency`?); known options are latency, loss, \
             mtu, framing, buffer, mark, trim, balance, slow-send, slow-receive, core-slow, \
             core-gray, core-fail",
        ),
        (
            "rail:8x8@400G,mtu=70000",
            "mtu=70000: allowed are 256 to 65000 bytes",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused_shape(text), message, "{text}");
    }
}

#[test]
fn zero_and_absurd_counts_are_refused() {
    for size in [
        "0x16x4",
        "9x0x4",
        "9x16x0",
        "9x16",
        "9x16x4x2",
        "-1x1x1",
        "65536x65536x1",
        "",
    ] {
        let message = refused_shape(&format!("leaf-spine:{size}@100G"));
        let start = format!("leaf-spine:{size}: allowed are LEAVESxHOSTSxSPINES");
        assert!(message.starts_with(&start), "{message}");
    }
    for text in [
        "single:0@1G",
        "single:65537@1G",
        "fat-tree:k=0@1G",
        "fat-tree:k=66@1G",
    ] {
        assert!(refused_shape(text).contains("allowed are"), "{text}");
    }
}
