//! Every way to describe a fabric: the result, the refusals and their words.

mod derived;
mod file;
mod shapes;
mod simulators;

use std::collections::BTreeMap;

use gradwire_fabric::topology::{Device, Fabric};
use proptest::prelude::*;

fn shape(text: &str) -> Fabric {
    let fabric = Fabric::from_shape(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    fabric
        .check()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    fabric
}

fn toml(text: &str) -> Fabric {
    Fabric::from_toml(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Hosts, switches of each tier, links.
fn counts(fabric: &Fabric) -> (u32, Vec<usize>, usize) {
    let of_tier = |tier| {
        fabric
            .switches
            .iter()
            .filter(|switch| switch.tier == tier)
            .count()
    };
    let tiers = (0..3).map(of_tier).filter(|count| *count > 0);
    (fabric.hosts, tiers.collect(), fabric.links.len())
}

/// How many shortest paths lead from one host to another.
fn shortest_paths(fabric: &Fabric, from: u32, to: u32) -> u64 {
    let mut ways = BTreeMap::from([(Device::Host(from), 1)]);
    let mut seen = vec![Device::Host(from)];
    while !ways.contains_key(&Device::Host(to)) {
        let mut next: BTreeMap<Device, u64> = BTreeMap::new();
        for link in &fabric.links {
            for (near, far) in [(0, 1), (1, 0)] {
                let [near, far] = [link.ends[near], link.ends[far]];
                if let Some(count) = ways.get(&near).filter(|_| !seen.contains(&far)) {
                    *next.entry(far).or_default() += count;
                }
            }
        }
        seen.extend(next.keys());
        ways = next;
    }
    ways[&Device::Host(to)]
}

#[test]
fn all_examples_are_fabrics() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/fabrics");
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let mut found = Vec::new();
    for file in files {
        let path = file.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let fabric = toml(&text);
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a name");
        found.push((stem.to_owned(), fabric.hosts));
    }
    found.sort();
    let expected = [
        ("fat-tree-128", 128),
        ("gray-link", 128),
        ("leaf-spine-oversubscribed", 144),
        ("rail", 64),
        ("two-racks", 4),
    ];
    assert_eq!(
        found,
        expected.map(|(name, hosts)| (name.to_owned(), hosts))
    );
}

/// Words of all formats in any order, which also produces texts that are nearly right.
fn nearly_right() -> impl Strategy<Value = String> {
    let words = [
        "fat-tree:k=",
        "leaf-spine:",
        "rail:",
        "single:",
        "shape = \"",
        "\"",
        "@",
        "x",
        "/",
        ",",
        "over=",
        "mtu=",
        "buffer=",
        "100G",
        "4",
        "65536",
        "4294967295",
        " ",
        "\n",
        "[[link]]\n",
        "[[switch]]\n",
        "[[fault]]\n",
        "[rates]\n",
        "name = ",
        "ends = [",
        "]",
        "host 0",
        "rate = ",
        "kind = \"flap\"\n",
        "down_at = ",
        "\"1ms\"",
        "link = \"host 0\"\n",
        "Nodes ",
        "Tiers ",
        "Podsize ",
        "Tier ",
        "Radix_Down ",
        "Radix_Up ",
        "Bundle ",
        "Downlink_speed_Gbps ",
        "Downlink_Latency_ns ",
        "0 1 1G 1us 0\n",
        "2 1 1\n",
        "3 1 2\n",
        "=",
        "é",
        "\u{0}",
    ];
    let words = proptest::sample::select(words.to_vec());
    proptest::collection::vec(words, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_text_gives_a_sound_fabric_or_an_error(text in prop_oneof![nearly_right(), ".*"]) {
        let fabrics = [
            Fabric::from_shape(&text).ok(),
            Fabric::from_toml(&text).ok(),
            Fabric::from_htsim(&text).ok(),
            Fabric::from_hpcc(&text).ok(),
        ];
        for fabric in fabrics.into_iter().flatten() {
            prop_assert_eq!(fabric.check(), Ok(()));
        }
    }
}
