//! The gain of a tolerance of a tenth where packets are lost.

use gradwire_fabric::topology::{Device, Fabric};

use crate::world::{lines, mean_and_error, over_seeds, run, share, tail, tolerant};

fn incast(seed: u64) -> f64 {
    let shape = "fat-tree:k=8@100G,framing=0,mark=off";
    let setup = tolerant(lines(shape, "incast:64x64KB", seed));
    let outcome = run(&setup);
    assert!(
        outcome.flows.iter().all(|flow| flow.lost_bytes <= 6_400),
        "seed {seed}"
    );
    tail(&outcome)
}

/// 64 tensors of 64,000 bytes meet on a link of 100 Gb/s whose switch drops the packets that do not
/// fit. Without any loss all of it takes 64 x 16 packets x 0.332 us = 340 us; with a tenth of it
/// lost and a round trip of 14 us, 0.9 x 340 + 14 = 320 us.
#[test]
fn a_small_tensor_incast_ends_within_10_percent_of_its_tolerant_ideal() {
    let ideal = 64.0 * 16.0 * 0.332;
    let bound = 0.9 * ideal + 14.0;
    let tails = over_seeds(1..=10, incast);
    let (mean, max) = (
        mean_and_error(&tails).0,
        tails.iter().copied().fold(0.0, f64::max),
    );
    println!("seeds 1 to 10: mean {mean:.1} us, max {max:.1} us of {bound:.1} us");
    assert!(
        (mean / bound - 1.0).abs() < 0.1,
        "seeds 1 to 10: mean {mean} us"
    );
    assert!(
        (max / bound - 1.0).abs() < 0.1,
        "seeds 1 to 10: at most {max} us"
    );
}

/// The first link between an aggregation switch and a core.
fn core_link(fabric: &Fabric) -> usize {
    let is_core = |device: &Device| match device {
        Device::Switch(switch) => fabric.switches[*switch as usize].tier == 2,
        Device::Host(_) => false,
    };
    let mut links = fabric.links.iter();
    let link = links.position(|link| link.ends.iter().any(is_core));
    link.expect("fat-trees have cores")
}

/// Mean tail of permutations, in which one link to a core loses packets at random.
fn gray(shape: &str, text: &str, loss: f64, seeds: u64) -> f64 {
    let tails = over_seeds(1..=seeds, |seed| {
        let mut setup = tolerant(lines(shape, text, seed));
        let link = core_link(&setup.fabric);
        setup.fabric.links[link].loss = share(loss);
        tail(&run(&setup))
    });
    let (mean, error) = mean_and_error(&tails);
    println!("{text} on {shape}, loss {loss}, seeds 1 to {seeds}: {mean:.1} +- {error:.1} us");
    mean
}

#[test]
fn a_link_that_loses_at_random_costs_less_than_3_and_10_percent() {
    let (shape, text) = ("fat-tree:k=8@100G", "permutation:2MB");
    let seeds = 4;
    let clean = gray(shape, text, 0.0, seeds);
    for (loss, allowed) in [(0.001, 0.03), (0.01, 0.1)] {
        let more = gray(shape, text, loss, seeds) / clean - 1.0;
        assert!(
            more < allowed,
            "loss {loss}, seeds 1 to {seeds}: {more} more"
        );
    }
}

/// Lost packets that may stay lost must not count as in flight: otherwise 7 senders would share the
/// rest of a receiver's grants. A tolerance may cost one gap at the end, until the receiver is sure
/// that the missing packets are not just late.
#[test]
fn a_tolerance_costs_an_incast_over_lossy_links_no_more_than_a_gap() {
    let shape = "single:8@100G,mtu=9000,loss=1%";
    let mean = |tolerance: f64| {
        let tails = over_seeds(1..=4, |seed| {
            let mut setup = lines(shape, "incast:7x1MB", seed);
            setup.job.tolerance = share(tolerance);
            tail(&run(&setup))
        });
        mean_and_error(&tails).0
    };
    let gap = lines(shape, "incast:7x1MB", 1).job.transport.gap;
    let gap = gap.as_micros() as f64;
    let (lossless, tolerant) = (mean(0.0), mean(0.1));
    println!("{lossless:.1} us without a tolerance, {tolerant:.1} with one, a gap is {gap}");
    assert!(tolerant < lossless + gap, "seeds 1 to 4");
}
