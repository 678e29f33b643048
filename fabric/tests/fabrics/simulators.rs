//! Topology files of htsim and of HPCC.

use gradwire_fabric::policy::SwitchBuffer;
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::units::{ByteCount, Rate, Share, Span};

use crate::{counts, shape, shortest_paths};

fn named(fabric: Fabric, name: &str) -> Fabric {
    Fabric {
        name: name.to_owned(),
        ..fabric
    }
}

const OWN_TOPO: &str = "# a remark\nNodes 8\nTiers 3\nPodsize 4\n\nTier 0\n\
    Downlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 1000\n\
    Switch_Latency_ns 100\nTier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 4\n\
    Downlink_Latency_ns 1000\nSwitch_Latency_ns 200\nTier 2\nDownlink_speed_Gbps 100\n\
    Radix_Down 4\nDownlink_Latency_ns 3000\nBundle 2\nSwitch_Latency_ns 400\n";

#[test]
fn a_bundle_of_htsim_is_parallel_links() {
    let fabric = Fabric::from_htsim(OWN_TOPO).expect("allowed");
    fabric.check().expect("connected");
    assert_eq!(counts(&fabric), (8, vec![4, 4, 4], 8 + 8 + 16));
    assert_eq!(fabric.link_name(16), "agg 0.0 - core 0");
    assert_eq!(fabric.link_name(17), "agg 0.0 - core 0");
    assert_eq!(fabric.link_name(18), "agg 0.0 - core 2");
    assert_eq!(fabric.links[16].rate, Rate::from_gbps(100));
}

#[test]
fn every_path_takes_the_switch_latencies_of_htsim() {
    let fabric = Fabric::from_htsim(OWN_TOPO).expect("allowed");
    let latency = |to| {
        let path = fabric.path(0, to).into_iter();
        path.fold(Span::ZERO, |sum, link| {
            sum + fabric.links[link as usize].latency
        })
    };
    assert_eq!(latency(1), Span::from_nanos(2 * 1000 + 100));
    assert_eq!(latency(3), Span::from_nanos(4 * 1000 + 2 * 100 + 200));
    assert_eq!(
        latency(7),
        Span::from_nanos(4 * 1000 + 2 * 3000 + 2 * 100 + 2 * 200 + 400)
    );
}

#[test]
fn a_wrong_topology_of_htsim_is_told_its_line() {
    let changed = |from: &str, to: &str| {
        let text = OWN_TOPO.replacen(from, to, 1);
        assert_ne!(text, OWN_TOPO, "{from} is in the text");
        Fabric::from_htsim(&text).expect_err(to).to_string()
    };
    assert_eq!(
        changed("Radix_Up 2", "Radix_Upp 2"),
        "line 9: unknown key `Radix_Upp` in tier 0 (did you mean `Radix_Up`?); known keys are \
         Downlink_speed_Gbps, Downlink_Latency_ns, Radix_Down, Radix_Up, Oversubscribed, Bundle, \
         Switch_Latency_ns, Queue_Down, Queue_Up, Tier"
    );
    assert_eq!(
        changed("Nodes 8", "Nodes eight"),
        "line 2: Nodes eight: allowed is one whole number from 1 to 65536"
    );
    assert_eq!(
        changed("Podsize 4", "Podsize 3"),
        "line 2: Nodes 8 does not fit the other numbers: it must be a multiple of 3, Podsize"
    );
    assert_eq!(
        changed("Radix_Down 4", "Radix_Down 8"),
        "line 20: Radix_Down 8 does not fit the other numbers: 2 pods in bundles of 2 need 2 x 2 \
         ports"
    );
    assert_eq!(
        changed("Radix_Down 4\n", ""),
        "tier 2 has no Radix_Down; add `Radix_Down NUMBER`"
    );
    assert_eq!(
        changed("Tiers 3", "Nodes 9"),
        "line 3: Nodes is given already in line 2; once is allowed"
    );
    assert_eq!(
        changed("Switch_Latency_ns 100", "Oversubscribed 2"),
        "line 11: Oversubscribed 2 does not fit the other numbers: Radix_Down / Radix_Up of the \
         tier is 1"
    );
}

#[test]
fn queues_of_htsim_have_one_size() {
    let with = |queues: &str| Fabric::from_htsim(&format!("{OWN_TOPO}{queues}"));
    let fabric = with("Queue_Down 200000\n").expect("allowed");
    assert_eq!(
        fabric.buffer,
        SwitchBuffer::PerPort(ByteCount::new(200_000))
    );
    let mixed = OWN_TOPO.replacen("Tier 1", "Queue_Up 100000\nQueue_Down 200000\nTier 1", 1);
    assert_eq!(
        Fabric::from_htsim(&mixed)
            .expect_err("two sizes")
            .to_string(),
        "line 12: Queue_Up 100000 does not fit the other numbers: all ports have one size here, \
         and line 13 says 200000"
    );
}

/// A file of htsim in which every number is given, with the numbers of its 128-host fat tree.
const FAT_TREE_128: &str = "Nodes 128\nTiers 3\nPodsize 16\n\nTier 0\nOversubscribed 1\n\
    Downlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 4\nDownlink_Latency_ns 1000\n\
    Switch_Latency_ns 0\n\nTier 1\nOversubscribed 1\nDownlink_speed_Gbps 100\nRadix_Down 4\n\
    Radix_Up 4\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\nBundle 1\n\nTier 2\n\
    Downlink_speed_Gbps 100\nRadix_Down 8\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 0\n\
    Bundle 1";

#[test]
fn fat_trees_of_htsim_equal_the_one_line_forms() {
    let line = "fat-tree:k=8@100G";
    let fabric = Fabric::from_htsim(FAT_TREE_128).expect("allowed");
    assert_eq!(named(fabric, line), shape(line));
    let text = FAT_TREE_128
        .replace("Nodes 128", "Nodes 1024")
        .replace("Podsize 16", "Podsize 64")
        .replace("Tier 0\nOversubscribed 1", "Tier 0\nOversubscribed 4")
        .replace("Radix_Down 8", "Radix_Down 16")
        .replace("Radix_Down 4", "Radix_Down 8")
        .replace("Radix_Up 4", "Radix_Up 8")
        .replacen("Radix_Up 8", "Radix_Up 2", 1);
    let line = "fat-tree:k=16,over=4@100G";
    let fabric = Fabric::from_htsim(&text).expect("allowed");
    assert_eq!(named(fabric, line), shape(line));
}

#[test]
fn a_leaf_spine_of_htsim_equals_the_one_line_form() {
    let text = "nodes 32\ntiers 2\npodsize 32\ntier 0\ndownlink_speed_gbps 100\nradix_down 8\n\
        radix_up 2\ndownlink_latency_ns 1000\ntier 1\ndownlink_speed_gbps 100\nradix_down 4\n\
        downlink_latency_ns 1000\n";
    let line = "leaf-spine:4x8x2@100G";
    let fabric = Fabric::from_htsim(text).expect("allowed");
    assert_eq!(named(fabric, line), shape(line));
}

const HPCC: &str = "7 3 7\n4 5 6\n0 4 100Gbps 1000ns 0.000000\n1 4 100Gbps 0.001ms 0\n\
    2 5 100Gbps 1us 0\n3 5 100Gbps 1us 0\n4 6 400Gbps 1us 0.01\n5 6 400Gbps 1us 0\n\
    5 6 400Gbps 1us 0\n\n";

#[test]
fn numbers_of_hpcc_that_are_no_switches_are_hosts() {
    let fabric = Fabric::from_hpcc(HPCC).expect("allowed");
    assert_eq!(counts(&fabric), (4, vec![2, 1], 7));
    assert_eq!(fabric.link_name(2), "host 2 - switch 5");
    assert_eq!(fabric.links[1].latency, Span::from_micros(1));
    assert_eq!(Some(fabric.links[4].loss), Share::new(0.01));
    assert_eq!(shortest_paths(&fabric, 0, 3), 2);
    let first = "5 2 4\n0 3\n1 0 1G 1us 0\n2 3 1G 1us 0\n4 0 1G 1us 0\n0 3 1G 1us 0\n";
    let fabric = Fabric::from_hpcc(first).expect("switches may have any numbers");
    assert_eq!(fabric.link_name(2), "host 2 - switch 0");
}

#[test]
fn a_wrong_topology_of_hpcc_is_told_its_line() {
    let changed = |from: &str, to: &str| {
        let text = HPCC.replacen(from, to, 1);
        assert_ne!(text, HPCC, "{from} is in the text");
        Fabric::from_hpcc(&text).expect_err(to).to_string()
    };
    assert_eq!(
        changed("7 3 7\n", "7 3\n"),
        "line 1: `7 3`: the first line is three numbers, `DEVICES SWITCHES LINKS`, with at most \
         65536 hosts, fewer switches than devices, and at most 4194304 links"
    );
    assert_eq!(
        changed("4 5 6\n", "4 5 5\n"),
        "line 2: switch `5`: allowed are 3 different numbers below 7"
    );
    assert_eq!(
        changed("2 5 100Gbps 1us", "2 5 100Gbps 1"),
        "line 5: delay `1`: allowed are 0us to 1s, with a unit of s, ms, us, ns or ps"
    );
    assert_eq!(
        changed("2 5 100", "2 9 100"),
        "line 5: device `9`: allowed are the numbers 0 to 6"
    );
    assert_eq!(
        changed("0.01\n", "0.0000001\n"),
        "line 7: error rate `0.0000001`: allowed are 0 to 1, or 0% to 100%, in steps of 0.000001"
    );
    assert_eq!(
        changed("7 3 7\n", "7 3 8\n"),
        "line 9: 7 links, where the first line says 8; make them equal"
    );
    assert_eq!(
        changed("4 6 400Gbps 1us 0.01", "4 4 400Gbps 1us 0.01"),
        "link 4 leads from switch 4 to switch 4; it must join two devices of the fabric"
    );
    assert_eq!(
        changed("4 6 400Gbps 1us 0.01", "5 6 400Gbps 1us 0.01"),
        "host 2 has no route to host 0: no chain of links leads from switch 5 to switch 4"
    );
    assert_eq!(
        changed("3 5 100Gbps", "2 6 100Gbps"),
        "host 2 has 2 links (switch 5, switch 6); every host needs exactly one link"
    );
}

#[test]
fn a_switch_without_a_tier_is_as_high_as_it_is_far_from_hosts() {
    let chain = "4 2 3\n2 3\n0 2 1G 1us 0\n1 2 1G 1us 0\n2 3 1G 1us 0\n";
    let fabric = Fabric::from_hpcc(chain).expect("allowed");
    let tiers: Vec<u8> = fabric.switches.iter().map(|switch| switch.tier).collect();
    assert_eq!(tiers, [0, 1]);
}
