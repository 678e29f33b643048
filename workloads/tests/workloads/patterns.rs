//! One-line workloads.

use std::collections::BTreeSet;

use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{ByteCount, Instant, Rate, Span};
use gradwire_workloads::workload::{CollectiveKind, Hosts, Start, Trigger, Work, Workload};
use proptest::prelude::*;

fn hosts(count: u32) -> Hosts {
    Hosts {
        count,
        rate: Rate::from_gbps(100),
    }
}

fn workload(text: &str, count: u32, seed: u64) -> Workload {
    let workload = Workload::from_pattern(text, hosts(count), seed).expect("the pattern is right");
    workload.check(count).expect("a pattern can be carried");
    workload
}

fn refusal(text: &str, count: u32) -> String {
    Workload::from_pattern(text, hosts(count), 1)
        .expect_err("the pattern is wrong")
        .to_string()
}

fn pairs(workload: &Workload) -> Vec<(u32, u32)> {
    let flows = workload.flows.iter();
    flows.map(|flow| (flow.source, flow.destination)).collect()
}

#[test]
fn in_a_permutation_every_host_sends_once_and_receives_once() {
    for seed in 0..20 {
        let pairs = pairs(&workload("permutation:2MB", 9, seed));
        let sources: BTreeSet<u32> = pairs.iter().map(|pair| pair.0).collect();
        let destinations: BTreeSet<u32> = pairs.iter().map(|pair| pair.1).collect();
        assert_eq!((sources.len(), destinations.len()), (9, 9), "seed {seed}");
        assert!(pairs.iter().all(|pair| pair.0 != pair.1), "seed {seed}");
    }
}

#[test]
fn the_seed_decides_what_is_drawn() {
    for text in ["permutation:2MB", "incast:5x64KB", "poisson:hadoop@0.3:1ms"] {
        assert_eq!(workload(text, 16, 7), workload(text, 16, 7));
        assert_ne!(workload(text, 16, 7), workload(text, 16, 8));
    }
}

#[test]
fn all_derangements_of_three_hosts_are_drawn() {
    let drawn: BTreeSet<Vec<(u32, u32)>> = (0..50)
        .map(|seed| pairs(&workload("permutation:1KB", 3, seed)))
        .collect();
    assert_eq!(drawn.len(), 2);
}

#[test]
fn an_incast_has_distinct_senders_and_one_receiver() {
    for seed in 0..20 {
        let incast = workload("incast:5x64KiB", 16, seed);
        let senders: BTreeSet<u32> = incast.flows.iter().map(|flow| flow.source).collect();
        let receivers: BTreeSet<u32> = incast.flows.iter().map(|flow| flow.destination).collect();
        assert_eq!((senders.len(), receivers.len()), (5, 1), "seed {seed}");
        assert!(senders.is_disjoint(&receivers), "seed {seed}");
        assert!(
            incast
                .flows
                .iter()
                .all(|flow| flow.bytes == ByteCount::kib(64))
        );
    }
    let all = workload("incast:15x2MB", 16, 3);
    assert!(all.flows.iter().all(|flow| flow.destination == 0));
}

#[test]
fn incasts_again_and_again_come_in_time_each_into_a_drawn_host() {
    let bursts = workload("incast:3x64KB,every=100us,for=1ms", 16, 5);
    assert_eq!(bursts.flows.len(), 30);
    let mut receivers = BTreeSet::new();
    for (burst, flows) in (0..).zip(bursts.flows.chunks(3)) {
        let start = Start::At(Instant::START + Span::from_micros(100) * burst);
        assert!(flows.iter().all(|flow| flow.start == start));
        let sources: BTreeSet<u32> = flows.iter().map(|flow| flow.source).collect();
        let receiver = flows[0].destination;
        assert!(sources.len() == 3 && !sources.contains(&receiver));
        assert!(flows.iter().all(|flow| flow.destination == receiver));
        receivers.insert(receiver);
    }
    assert!(receivers.len() > 3, "{receivers:?}");
}

#[test]
fn all_to_all_has_every_ordered_pair_once() {
    let pairs: BTreeSet<(u32, u32)> = pairs(&workload("all-to-all:200KB", 6, 0))
        .into_iter()
        .collect();
    assert_eq!(pairs.len(), 30);
}

#[test]
fn a_limited_all_to_all_starts_as_many_flows_per_host_as_may_run_at_once() {
    let limited = workload("all-to-all:200KB,parallel=2", 6, 0);
    assert_eq!(limited.triggers, vec![Trigger::Each; 6]);
    for host in 0..6 {
        let own = limited.flows.iter().filter(|flow| flow.source == host);
        let at_once = own.filter(|flow| matches!(flow.start, Start::At(_)));
        assert_eq!(at_once.count(), 2);
    }
    assert!(
        workload("all-to-all:200KB,parallel=5", 6, 0)
            .triggers
            .is_empty()
    );
}

#[test]
fn one_flow_goes_from_the_first_host_to_the_last() {
    assert_eq!(pairs(&workload("one:2MB", 128, 0)), [(0, 127)]);
}

#[test]
fn the_name_of_an_all_reduce_is_its_algorithm() {
    let algorithm = |text| workload(text, 4, 0).algorithm;
    assert_eq!(algorithm("ring:64MiB"), Some(ReduceAlgorithm::Ring));
    assert_eq!(algorithm("direct:64MiB"), Some(ReduceAlgorithm::Direct));
    let halving = Some(ReduceAlgorithm::HalvingDoubling);
    assert_eq!(algorithm("halving-doubling:64MiB"), halving);
    assert_eq!(algorithm("all-reduce:64MiB"), None);
}

#[test]
fn repeated_all_reduces_follow_each_other() {
    let ring = workload("ring:1MiB x3", 4, 0);
    assert_eq!(ring.programs.len(), 4);
    let after: Vec<&[u32]> = ring.programs[2]
        .tasks
        .iter()
        .map(|task| &task.after[..])
        .collect();
    assert_eq!(after, [&[][..], &[0], &[1]]);
}

#[test]
fn parameter_servers_share_the_tensor_and_every_worker_meets_all_of_them() {
    let round = workload("ps:3@100", 8, 0);
    assert_eq!(
        round.groups,
        [[0, 3, 4, 5, 6, 7], [1, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7]]
    );
    let bytes = |task: usize| match round.programs[7].tasks[task].work {
        Work::Collective { kind, bytes, .. } => (kind, bytes.get()),
        _ => panic!("a round has collectives only"),
    };
    let shares = [bytes(0).1, bytes(2).1, bytes(4).1];
    assert_eq!(shares, [34, 33, 33]);
    assert_eq!(bytes(0).0, CollectiveKind::Reduce { root: 0 });
    assert_eq!(bytes(1).0, CollectiveKind::Broadcast { root: 0 });
    assert_eq!(round.programs[0].tasks.len(), 2);
    let twice = workload("ps:3@100 x2", 8, 0);
    assert_eq!(twice.programs[7].tasks[6].after, [5, 3, 1]);
    assert_eq!(twice.programs[0].tasks[2].after, [1]);
}

#[test]
fn a_pattern_can_be_put_on_some_hosts() {
    let placed = workload("incast:2x1KB@hosts=1,8-9", 16, 0);
    assert_eq!(pairs(&placed), [(8, 1), (9, 1)]);
    let ring = workload("ring:1KB@hosts=12-15", 16, 0);
    assert_eq!(ring.groups, [[12, 13, 14, 15]]);
    assert_eq!(ring.name, "ring:1KB@hosts=12-15");
    let message = refusal("ring:1KB@hosts=12-16", 16);
    assert_eq!(
        message,
        "`ring:1KB@hosts=12-16`: host 16; there are hosts 0 to 15"
    );
    assert!(refusal("ring:1KB@hosts=1,1", 4).contains("host 1 is listed twice"));
}

#[test]
fn wrong_patterns_say_what_would_be_right() {
    let unknown = refusal("permutaton:2MB", 8);
    assert!(unknown.starts_with(
        "`permutaton:2MB` is not a workload (did you mean \
    `permutation`?)"
    ));
    assert!(unknown.contains("known are one:2MB, permutation:2MB, incast:127x2MB"));
    assert_eq!(
        refusal("incast:2MB", 8),
        "`incast:2MB`: it needs senders x size; write it like `incast:127x2MB`"
    );
    assert_eq!(
        refusal("incast:8x2MB", 8),
        "`incast:8x2MB` needs 9 hosts or more; there are 8"
    );
    for (options, said) in [
        ("every=1ms", "every=TIME and for=TIME go together"),
        (
            "every=0ms,for=1ms",
            "every=`0ms`: it needs a time such as 1ms",
        ),
        (
            "every=1ms,fro=1ms",
            "unknown key `fro`; known are every and for",
        ),
        ("every=1ps,for=1s", "at most 100000000 flows in all"),
    ] {
        let refused = refusal(&format!("incast:2x1KB,{options}"), 8);
        assert!(refused.contains(said), "{refused}");
    }
    assert!(refusal("ring:64XB", 8).contains("`64XB` is not a size"));
    assert!(refusal("ring", 8).contains("`ring`: it has no size (bytes, KB"));
    assert!(refusal("permutation", 8).contains("`permutation`: it has no size"));
    assert!(refusal("all-to-all:1KB,paralel=2", 8).contains("`paralel=2` is not `parallel=`"));
    assert!(refusal("ps:8@64MiB", 8).contains("needs 9 hosts"));
    assert!(refusal("poisson:websearch@0.6", 8).contains("is missing"));
    assert!(refusal("poisson:websearc@0.6:1ms", 8).contains("did you mean `websearch`"));
}

proptest! {
    #[test]
    fn arbitrary_patterns_never_panic(
        name in "(one|permutation|incast|all-to-all|ring|ps|poisson|.{0,5})",
        rest in "[0-9a-zA-Z@:=.,x%-]{0,16}",
        count in 0..9_u32,
    ) {
        let text = format!("{name}:{rest}");
        if let Ok(workload) = Workload::from_pattern(&text, hosts(count), 1) {
            workload.check(count).expect("what a pattern makes can be carried");
        }
    }
}
