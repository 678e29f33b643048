//! Flows that arrive at random.

use gradwire_protocol::units::{Instant, Rate, Span};
use gradwire_workloads::arrivals::{Arrivals, SizeDistribution};
use gradwire_workloads::workload::{Hosts, Start};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

const HOSTS: Hosts = Hosts {
    count: 64,
    rate: Rate::from_gbps(100),
};

fn named(name: &str) -> SizeDistribution {
    SizeDistribution::named(name).expect("the distribution is known")
}

fn refusal(text: &str) -> String {
    SizeDistribution::parse(text)
        .expect_err("the distribution is wrong")
        .to_string()
}

#[test]
fn the_mean_of_a_million_drawn_sizes_is_the_mean_of_the_distribution() {
    for name in ["websearch", "hadoop"] {
        let sizes = named(name);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: u64 = (0..1_000_000).map(|_| sizes.draw(&mut rng).get()).sum();
        let ratio = drawn as f64 / 1e6 / sizes.mean();
        assert!((ratio - 1.0).abs() < 0.01, "{name}: {ratio}");
    }
}

/// Means of the published points, by hand: the sum of interval middles times their shares.
#[test]
fn the_known_distributions_have_their_published_means() {
    let web_search = named("websearch").mean();
    assert!((web_search - 1_711_250.0).abs() < 1.0, "{web_search}");
    let hadoop = named("hadoop").mean();
    assert!((hadoop - 120_420.75).abs() < 1.0, "{hadoop}");
}

#[test]
fn the_offered_load_is_the_load_that_was_asked_for() {
    for seed in [1, 2, 3] {
        let arrivals = Arrivals::from_pattern("websearch@0.6:20ms").expect("the form is right");
        let workload = arrivals.flows(HOSTS, seed).expect("64 hosts are enough");
        workload.check(64).expect("arrivals can be carried");
        let bytes: u64 = workload.flows.iter().map(|flow| flow.bytes.get()).sum();
        let load = bytes as f64 * 8.0 / (64.0 * 100e9 * 0.02);
        assert!((load - 0.6).abs() < 0.04, "seed {seed}: {load}");
    }
}

#[test]
fn flows_arrive_in_order_within_the_time_and_with_the_gaps_of_a_poisson_process() {
    let arrivals = Arrivals::from_pattern("hadoop@30%:5ms").expect("the form is right");
    let flows = arrivals.flows(HOSTS, 5).expect("64 hosts are enough").flows;
    let starts: Vec<u64> = flows
        .iter()
        .map(|flow| match flow.start {
            Start::At(at) => at.as_picos(),
            Start::On(_) => panic!("arrivals wait for nothing"),
        })
        .collect();
    assert!(starts.is_sorted());
    let end = Instant::START + Span::from_millis(5);
    assert!(starts.iter().all(|&at| at < end.as_picos()));
    let gaps: Vec<f64> = starts
        .windows(2)
        .map(|pair| (pair[1] - pair[0]) as f64)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    let variation = variance.sqrt() / mean;
    assert!((variation - 1.0).abs() < 0.05, "{variation}");
}

#[test]
fn a_distribution_is_read_in_percent_or_in_shares() {
    let percent = SizeDistribution::parse("# bytes, percent\n0 0\n1000 50\n3000 100\n");
    let shares = SizeDistribution::parse("0 0\n1000 0.5\n3000 1\n");
    assert_eq!(percent, shares);
    let mean = shares.expect("both are right").mean();
    assert!((mean - 1250.0).abs() < 1e-9);
}

#[test]
fn a_first_point_above_zero_is_a_size_of_its_own() {
    let sizes = SizeDistribution::parse("100 0.25\n200 1").expect("the points rise");
    assert!((sizes.mean() - (25.0 + 112.5)).abs() < 1e-9);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let least = (0..10_000)
        .filter(|_| sizes.draw(&mut rng).get() == 100)
        .count();
    assert!((2300..2700).contains(&least), "{least}");
}

#[test]
fn a_wrong_distribution_names_its_line() {
    assert!(refusal("0 0\nten 5").starts_with("line 2: `ten 5`"));
    assert!(refusal("0 0\n10").starts_with("line 2: `10`"));
    assert!(refusal("5 50\n4 100").starts_with("line 2: `4 100`: bytes and shares must not"));
    assert!(refusal("0 0\n10 99").starts_with("the last share is 99"));
    assert!(refusal("").starts_with("the last share is 0"));
}

proptest! {
    #[test]
    fn arbitrary_distributions_never_panic(text in "([0-9.]{1,4} [0-9.]{1,4}\n){0,6}|\\PC*") {
        if let Ok(sizes) = SizeDistribution::parse(&text) {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            prop_assert!(sizes.draw(&mut rng).get() >= 1);
        }
    }
}
