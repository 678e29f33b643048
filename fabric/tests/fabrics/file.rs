//! `fabric.toml`.

use gradwire_fabric::policy::Balance;
use gradwire_fabric::policy::SwitchBuffer;
use gradwire_fabric::topology::{Fabric, LinkChange, LinkState, LinkWay};
use gradwire_protocol::units::{ByteCount, Instant, Rate, Share, Span};

use crate::{counts, shortest_paths, toml};

fn refused_toml(text: &str) -> String {
    Fabric::from_toml(text).expect_err(text).to_string()
}

#[test]
fn a_file_says_what_a_shape_leaves_open() {
    let fabric = toml(
        r#"
        name = "mine"
        shape = "fat-tree:k=4@100G,mtu=1500,latency=3us"
        oversubscription = 2
        mtu = 9000
        framing = 38
        balance = "random"
        buffer = { shared = "16MiB", alpha = 2 }
        [rates]
        host = "25G"
        tier1-tier2 = "400G"
        [latencies]
        edge-agg = "5us"
        "#,
    );
    assert_eq!(fabric.name, "mine");
    assert_eq!(counts(&fabric), (16, vec![8, 4, 2], 16 + 8 + 8));
    assert_eq!((fabric.mtu, fabric.framing), (9000, 38));
    assert_eq!(fabric.balance, Some(Balance::Random));
    let shared = SwitchBuffer::Shared {
        bytes: ByteCount::mib(16),
        alpha: 2.0,
    };
    assert_eq!(fabric.buffer, shared);
    let wire = |link: usize| (fabric.links[link].rate, fabric.links[link].latency);
    assert_eq!(wire(0), (Rate::from_gbps(25), Span::from_micros(3)));
    assert_eq!(wire(16), (Rate::from_gbps(100), Span::from_micros(5)));
    assert_eq!(wire(31), (Rate::from_gbps(400), Span::from_micros(3)));
}

/// Two hosts whose links differ, and two switches between them.
pub(crate) const TWO_RACKS: &str = r#"
latency = "2us"
[[switch]]
name = "rack 0"
[[switch]]
name = "rack 1"
tier = 7
[[link]]
ends = ["host 0", "rack 0"]
rate = "10G"
[[link]]
ends = ["rack 1", "host 1"]
rate = "25G"
latency = "1us"
[[link]]
ends = ["rack 0", "rack 1"]
rate = "40G"
loss = 0.25
"#;

#[test]
fn a_graph_is_taken_link_by_link() {
    let fabric = toml(TWO_RACKS);
    assert_eq!((fabric.hosts, fabric.links.len()), (2, 3));
    let tiers: Vec<u8> = fabric.switches.iter().map(|switch| switch.tier).collect();
    assert_eq!(tiers, [0, 7]);
    assert_eq!(fabric.path(0, 1), [0, 2, 1]);
    assert_eq!(fabric.links[0].latency, Span::from_micros(2));
    assert_eq!(fabric.links[1].latency, Span::from_micros(1));
    assert_eq!(Some(fabric.links[2].loss), Share::new(0.25));
    assert_eq!(fabric.host_rate(), Rate::from_gbps(10));
}

fn with_fault(fault: &str) -> String {
    format!("shape = \"fat-tree:k=4@100G\"\n[[fault]]\n{fault}\n")
}

#[test]
fn faults_change_the_links_that_they_name() {
    let gray = toml(&with_fault(
        "link = \"edge 0.0 - agg 0.1\"\nkind = \"gray\"\nloss = \"1%\"",
    ));
    assert_eq!(Some(gray.links[17].loss), Share::new(0.01));
    assert_eq!(
        gray.links
            .iter()
            .filter(|link| !link.loss.is_none())
            .count(),
        1
    );
    let slow = with_fault("link = \"agg 0.1 - edge 0.0\"\nkind = \"degraded\"\nrate = \"10G\"");
    assert_eq!(toml(&slow).links[17].rate, Rate::from_gbps(10));
    let failed = toml(&with_fault(
        "link = \"edge 0.0 - agg 0.1\"\nkind = \"failed\"",
    ));
    assert_eq!(failed.links.len(), 47);
    assert_eq!(failed.link_name(17), "edge 0.1 - agg 0.0");
    assert_eq!(shortest_paths(&failed, 0, 15), 2);
}

#[test]
fn flaps_follow_links_that_failures_renumber() {
    let fabric = toml(
        r#"
        shape = "fat-tree:k=4@100G"
        [[fault]]
        link = "agg 0.0 - core 0"
        kind = "flap"
        down_at = ["1ms", "3ms"]
        up_at = ["2ms"]
        [[fault]]
        link = "host 3"
        kind = "flap"
        down_at = "1500us"
        [[fault]]
        link = "edge 0.0 - agg 0.1"
        kind = "failed"
        "#,
    );
    let changes: Vec<(Instant, String, LinkState)> = fabric
        .changes
        .iter()
        .map(|change| (change.at, fabric.link_name(change.link), change.state))
        .collect();
    let at = |micros| Instant::START + Span::from_micros(micros);
    let core = || "agg 0.0 - core 0".to_owned();
    let expected = [
        (at(1000), core(), LinkState::Down),
        (at(1500), "host 3 - edge 0.1".to_owned(), LinkState::Down),
        (at(2000), core(), LinkState::Up),
        (at(3000), core(), LinkState::Down),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn a_fault_may_concern_one_direction() {
    let fabric = toml(
        r#"
        shape = "fat-tree:k=4@100G"
        [[fault]]
        link = "agg 0.0 -> edge 0.1"
        kind = "degraded"
        rate = "10G"
        [[fault]]
        link = "edge 0.1 -> agg 0.0"
        kind = "gray"
        loss = "1%"
        [[fault]]
        link = "edge 0.1 -> agg 0.1"
        kind = "failed"
        [[fault]]
        link = "edge 0.0 - agg 0.0"
        kind = "failed"
        "#,
    );
    let link = |name: &str| {
        let links = 0..fabric.links.len() as u32;
        let mut named = links.filter(|link| fabric.link_name(*link) == name);
        named.next().expect("there is one")
    };
    let (weak, dead) = (link("edge 0.1 - agg 0.0"), link("edge 0.1 - agg 0.1"));
    let rates = [LinkWay::Forth, LinkWay::Back].map(|way| fabric.rate_of_way(weak, way));
    assert_eq!(rates, [Rate::from_gbps(100), Rate::from_gbps(10)]);
    let losses = [LinkWay::Forth, LinkWay::Back].map(|way| fabric.loss_of_way(weak, way).get());
    assert_eq!(losses, [0.01, 0.0]);
    let change = LinkChange {
        at: Instant::START,
        link: dead,
        way: LinkWay::Forth,
        state: LinkState::Down,
    };
    assert_eq!(fabric.changes, [change]);
    assert_eq!(fabric.links.len(), 47);
}

#[test]
fn a_wrong_file_is_told_its_line_and_what_is_allowed() {
    let shaped = |more: &str| format!("shape = \"fat-tree:k=4@100G\"\n{more}");
    let cases = [
        (
            shaped("latncy = \"1us\""),
            "line 2: unknown key `latncy` in the root table (did you mean `latency`?); known keys \
             are name, shape, oversubscription, latency, loss, mtu, framing, buffer, mark, trim, \
             balance, slow-send, slow-receive, core-slow, core-gray, core-fail, rates, latencies, \
             switch, link, fault",
        ),
        (
            shaped("speed = \"100G\""),
            "line 2: `speed` cannot stand beside `shape`: write the speed there, as in \
             fat-tree:k=4@100G",
        ),
        (
            shaped("\nlatency = 1"),
            "line 3: latency = 1: allowed are 0us to 1s, with a unit of s, ms, us, ns or ps",
        ),
        (
            "shape = \"fat-tree:k=5@100G\"".to_owned(),
            "line 1: fat-tree:k=5: allowed are k=K with an even K from 2 to 64, such as \
             fat-tree:k=16@100G",
        ),
        (
            shaped("oversubscription = 3"),
            "line 2: over=3: allowed are 1, 2, which divide the 2 uplinks",
        ),
        (
            shaped("[rates]\nleaf-spine = \"1G\""),
            "line 3: unknown key `leaf-spine` in [rates]; known keys are agg-core, edge-agg, host, \
             tier0-tier1, tier1-tier2",
        ),
        (
            shaped("buffer = { shared = \"16MiB\" }"),
            "line 2: [buffer] has no `alpha`; write alpha = 1.0, the dynamic threshold factor",
        ),
        (
            shaped("buffer = { port = \"1MiB\", shared = \"16MiB\", alpha = 1 }"),
            "line 2: unknown key `shared` in [buffer]; known keys are port, alpha",
        ),
        (
            shaped("buffer = { port = \"1MiB\", alpha = 0 }"),
            "line 2: buffer.alpha = 0: allowed are 0.001 to 1000",
        ),
        (
            shaped("buffer = \"1MiB/port*0\""),
            "line 2: buffer = \"1MiB/port*0\": allowed are 1KiB to 64GiB of every port, \
             such as 512KiB, or with a factor from 0.001 to 1000, such as 512KiB/port*1.0, or \
             shared, such as 16MiB*1.0",
        ),
        (
            shaped("[[link]]\nends = [\"host 0\", \"edge 0\"]"),
            "line 2: `link` cannot stand beside `shape`: describe the fabric by one of them",
        ),
        (
            "mtu = 9000\n".to_owned(),
            "line 1: the root table has no `link`; write shape = \"fat-tree:k=8@100G\", or \
             [[switch]] and [[link]] tables",
        ),
        (
            "mtu = 9000\nmtu = 1500\n".to_owned(),
            "line 2: duplicate key",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused_toml(&text), message, "{text}");
    }
}

#[test]
fn a_wrong_graph_is_told_its_line() {
    let changed = |from: &str, to: &str| refused_toml(&TWO_RACKS.replacen(from, to, 1));
    assert_eq!(
        changed("\"rack 0\"]\nrate = \"10G\"", "\"rack 2\"]\nrate = \"10G\""),
        "line 9: ends = \"rack 2\": allowed are `host 0` and so on, and names of a [[switch]]"
    );
    assert_eq!(
        changed("rate = \"25G\"\n", ""),
        "line 11: [[link]] has no `rate`; write rate = \"100G\""
    );
    assert_eq!(
        changed("name = \"rack 1\"", "name = \"rack 0\""),
        "line 6: name = \"rack 0\": allowed are names of its own, not of hosts, without ` - ` in \
         them"
    );
    assert_eq!(
        changed("host 1", "host 2"),
        "host 1 has no link; every host needs exactly one link"
    );
    assert_eq!(
        changed(
            "ends = [\"rack 0\", \"rack 1\"]",
            "ends = [\"rack 0\", \"rack 0\"]"
        ),
        "link 2 leads from rack 0 to rack 0; it must join two devices of the fabric"
    );
}

#[test]
fn a_wrong_fault_is_told_its_line() {
    let cases = [
        (
            "link = \"edge 0.0 - core 1\"\nkind = \"failed\"",
            "line 3: link = \"edge 0.0 - core 1\": allowed are links that there are; edge 0.0 is \
             linked to host 0, host 1, agg 0.0, agg 0.1",
        ),
        (
            "link = \"edge 0.0\"\nkind = \"failed\"",
            "line 3: link = \"edge 0.0\": allowed are `host 5`, or two names with ` - ` between \
             them, such as `edge 0.0 - agg 0.1`, or with ` -> ` for the direction from the first \
             to the second",
        ),
        (
            "link = \"host 16\"\nkind = \"failed\"",
            "line 3: link = \"host 16\": allowed are links that there are; there is no host 16",
        ),
        (
            "link = \"host 5\"\nkind = \"broken\"",
            "line 4: kind = \"broken\": allowed are failed, degraded, gray, flap",
        ),
        (
            "link = \"host 5\"\nkind = \"gray\"\nrate = \"1G\"",
            "line 5: unknown key `rate` in [[fault]]; known keys are link, kind, loss",
        ),
        (
            "link = \"host 5\"\nkind = \"flap\"\ndown_at = [\"2ms\", \"1ms\"]\nup_at = \"3ms\"",
            "line 5: down_at = [\"2ms\", \"1ms\"]: allowed are ascending times, each followed by \
             one of `up_at`, the last one perhaps by none",
        ),
        (
            "link = \"edge 0.0 - edge 0.0\"\nkind = \"failed\"",
            "line 3: link = \"edge 0.0 - edge 0.0\": allowed are `host 5`, or two names with ` - ` \
             between them, such as `edge 0.0 - agg 0.1`, or with ` -> ` for the direction from \
             the first to the second",
        ),
        (
            "link = \"host 5\"\nkind = \"flap\"\ndown_at = \"1ms\"\n\
             [[fault]]\nlink = \"host 5\"\nkind = \"flap\"\ndown_at = \"2ms\"",
            "line 7: link = \"host 5\": allowed are links of no earlier flap; write all times \
             there",
        ),
        (
            "link = \"host 5\"\nkind = \"failed\"",
            "host 5 has no link; every host needs exactly one link",
        ),
    ];
    for (fault, message) in cases {
        assert_eq!(refused_toml(&with_fault(fault)), message, "{fault}");
    }
}

#[test]
fn a_pod_that_is_cut_off_has_no_route() {
    let mut text = "shape = \"fat-tree:k=4@100G\"\n".to_owned();
    for (agg, core) in [(0, 0), (0, 2), (1, 1), (1, 3)] {
        text += &format!("[[fault]]\nlink = \"agg 3.{agg} - core {core}\"\nkind = \"failed\"\n");
    }
    assert_eq!(
        refused_toml(&text),
        "host 12 has no route to host 0: no chain of links leads from edge 3.0 to edge 0.0"
    );
}
