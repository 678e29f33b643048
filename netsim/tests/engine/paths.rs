//! Which way packets take: hashing, spraying, and around links that are down.

use gradwire_fabric::policy::Balance;
use gradwire_fabric::topology::{Device, Fabric, LinkChange, LinkState, LinkWay};
use gradwire_netsim::results::outcome::{LinkOutcome, Outcome};
use gradwire_protocol::units::{Instant, Span};
use gradwire_workloads::workload::{Flow, Workload};

use crate::world::{
    fabric, flow, flows, lines, mean_and_error, over_seeds, pattern, run, setup, tail, took,
};

fn tier(fabric: &Fabric, device: Device) -> Option<u8> {
    match device {
        Device::Host(_) => None,
        Device::Switch(switch) => Some(fabric.switches[switch as usize].tier),
    }
}

/// The links up to the core switches.
fn to_cores<'o>(fabric: &Fabric, outcome: &'o Outcome) -> Vec<&'o LinkOutcome> {
    let up = |link: &&LinkOutcome| {
        (tier(fabric, link.from), tier(fabric, link.to)) == (Some(1), Some(2))
    };
    outcome.links.iter().filter(up).collect()
}

/// Data packets on each link between pod 0 and the cores of a fat-tree of 8-port switches, when
/// each of its 16 hosts sends one packet to its like in the next pod over one path.
fn one_packet_each(seed: u64) -> Vec<u64> {
    let fabric = fabric("fat-tree:k=8@100G");
    let each = (0..16).map(|host| flow(host, 16 + host, 1000)).collect();
    let mut setup = setup(fabric, flows(each));
    setup.job.transport.entropies = 1;
    setup.seed = seed;
    let outcome = run(&setup);
    let links = to_cores(&setup.fabric, &outcome);
    links[..16].iter().map(|link| link.data_packets).collect()
}

/// n = 16 flows thrown into m = 16 paths: m (1 - (1 - 1/m)^n) = 10.30 of them are taken, and
/// n (n - 1) / 2 / m = 7.5 pairs of flows meet (Feller, An Introduction to Probability Theory,
/// chapters II.3 and IX).
#[test]
fn flows_of_one_path_collide_as_often_as_birthdays() {
    let seeds = 1..=200;
    let counts = over_seeds(seeds.clone(), one_packet_each);
    let taken: Vec<f64> = counts
        .iter()
        .map(|links| links.iter().filter(|&&flows| flows > 0).count() as f64)
        .collect();
    let pairs = |links: &Vec<u64>| {
        links
            .iter()
            .map(|flows| flows * flows.saturating_sub(1) / 2)
            .sum::<u64>() as f64
    };
    let pairs: Vec<f64> = counts.iter().map(pairs).collect();
    let expected = 16.0 * (1.0 - (15.0_f64 / 16.0).powi(16));
    for (what, values, expected) in [
        ("paths taken", taken, expected),
        ("pairs that meet", pairs, 7.5),
    ] {
        let (mean, error) = mean_and_error(&values);
        assert!(
            (mean - expected).abs() < 3.0 * error,
            "seeds {seeds:?}: {mean} +- {error} {what}, not {expected}"
        );
    }
    // Every path is as likely as any other: chi-square of 15 degrees of freedom, 99.9 %.
    let of_path = |path: usize| counts.iter().map(|links| links[path]).sum::<u64>() as f64;
    let chi: f64 = (0..16)
        .map(|path| (of_path(path) - 200.0).powi(2) / 200.0)
        .sum();
    assert!(chi < 37.7, "seeds {seeds:?}: chi-square {chi}");
}

/// Standard deviation over mean of the bytes on the links to the cores.
fn spread(balance: Balance, entropies: u8, seed: u64) -> f64 {
    let mut fabric = fabric("fat-tree:k=4@100G");
    fabric.balance = Some(balance);
    let across = (0..16)
        .map(|host| flow(host, (host + 4) % 16, 500_000))
        .collect();
    let mut setup = setup(fabric, flows(across));
    setup.job.transport.entropies = entropies;
    setup.seed = seed;
    let outcome = run(&setup);
    let links = to_cores(&setup.fabric, &outcome);
    let bytes: Vec<f64> = links.iter().map(|link| link.bytes as f64).collect();
    let (mean, error) = mean_and_error(&bytes);
    error * (bytes.len() as f64).sqrt() / mean
}

#[test]
fn adaptive_spreads_better_than_random_and_random_better_than_a_hash_of_few_entropies() {
    let mean = |balance, entropies| {
        let spreads = over_seeds(1..=5, |seed| spread(balance, entropies, seed));
        mean_and_error(&spreads).0
    };
    let adaptive = mean(Balance::Adaptive, 64);
    let random = mean(Balance::Random, 64);
    let few = mean(Balance::Ecmp, 2);
    let what = format!("seeds 1 to 5: {adaptive:.4}, {random:.4}, {few:.4}");
    println!("{what}");
    assert!(adaptive < random && random < few, "{what}");
}

/// Hosts that send in step must not lead switches to send every packet of a flow the same way:
/// then flows that meet further down meet again with every packet.
#[test]
fn adaptive_is_not_slower_than_random() {
    let mean_tail = |balance: &str| {
        let shape = format!("fat-tree:k=8@100G,framing=0,balance={balance}");
        let tails = over_seeds(1..=3, |seed| {
            tail(&run(&lines(&shape, "permutation:1MB", seed)))
        });
        mean_and_error(&tails).0
    };
    let (adaptive, random) = (mean_tail("adaptive"), mean_tail("random"));
    println!("seeds 1 to 3: adaptive {adaptive:.1} us, random {random:.1} us");
    assert!(
        adaptive < 1.03 * random,
        "seeds 1 to 3: {adaptive} us, random {random} us"
    );
}

/// All links between aggregation switches and cores that lead to one core.
fn links_of_a_core(fabric: &Fabric) -> Vec<u32> {
    let core = fabric.switches.iter().position(|switch| switch.tier == 2);
    let core = Device::Switch(core.expect("fat-trees have cores") as u32);
    let links = (0..)
        .zip(&fabric.links)
        .filter(|(_, link)| link.ends.contains(&core));
    links.map(|(number, _)| number).collect()
}

fn flapping(mut fabric: Fabric, links: &[u32], down: (u64, u64)) -> Fabric {
    for (micros, state) in [(down.0, LinkState::Down), (down.1, LinkState::Up)] {
        let at = Instant::START + Span::from_micros(micros);
        let changes = links.iter().map(|&link| LinkChange {
            at,
            link,
            way: LinkWay::Both,
            state,
        });
        fabric.changes.extend(changes);
    }
    fabric
}

#[test]
fn what_is_sent_over_a_link_that_is_down_is_lost_and_sent_again() {
    let shape = fabric("fat-tree:k=4@100G");
    let links = links_of_a_core(&shape);
    let shape = flapping(shape, &links[..1], (30, 80));
    let workload = pattern("permutation:1MB", &shape, 1);
    let setup = setup(shape, workload);
    let outcome = run(&setup);
    let lost = |link: u32| {
        outcome.links[2 * link as usize].lost + outcome.links[2 * link as usize + 1].lost
    };
    assert!(lost(links[0]) > 0);
    assert!(outcome.transport.repaired > 0);
    let all: u64 = outcome.links.iter().map(|link| link.lost).sum();
    assert_eq!(all, lost(links[0]), "no other link loses anything");
    assert!(
        outcome
            .flows
            .iter()
            .all(|flow| flow.received.is_some() && flow.lost_bytes == 0)
    );
}

/// Down links carry no packets, are avoided by the switches they begin at, and used again when they
/// are back.
#[test]
fn links_that_are_down_are_avoided_and_used_again_when_they_are_back() {
    let bytes_over_core = |down: Option<(u64, u64)>| {
        let mut shape = fabric("fat-tree:k=4@100G");
        let links = links_of_a_core(&shape);
        if let Some(down) = down {
            shape = flapping(shape, &links, down);
        }
        let across: Vec<Flow> = (0..16)
            .map(|host| flow(host, (host + 4) % 16, 1_000_000))
            .collect();
        let setup = setup(
            shape,
            Workload {
                flows: across,
                ..Workload::default()
            },
        );
        let outcome = run(&setup);
        let longest = outcome.flows.iter().map(took).max();
        let bytes = links
            .iter()
            .map(|&link| outcome.links[2 * link as usize].bytes)
            .sum::<u64>();
        (bytes as f64, longest.expect("there are flows"))
    };
    let (always, quick) = bytes_over_core(None);
    let (never, slow) = bytes_over_core(Some((0, 900_000)));
    let (late, between) = bytes_over_core(Some((0, 50)));
    assert_eq!(never, 0.0);
    assert!(late > 0.0 && late < always, "{late} of {always} bytes");
    assert!(
        quick < between && between < slow,
        "{quick:?}, {between:?}, {slow:?}"
    );
}
