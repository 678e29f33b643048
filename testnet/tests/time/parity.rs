//! Parity: what it saves at the ends of messages, and what it costs.

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::Job;
use gradwire_protocol::metrics::EndpointCounters;
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::units::{Share, Span};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::Ended;

use crate::pair::{Pair, PairMessage, port};

const MESSAGE: u32 = 100_000;
const MESSAGES: u64 = 300;

fn job(parity: ParityRule) -> Job {
    let mut job = Job::default();
    job.transport.parity = parity;
    job
}

/// A port of 10 Gb/s behind which this share of packets is lost.
fn lossy(share: f64) -> Profile {
    Profile {
        drop: Share::new(share).expect("a share"),
        ..port(100)
    }
}

/// The times of messages that follow each other, and the counts of both ranks.
fn transfers(
    parity: ParityRule,
    profile: Profile,
    message: PairMessage,
) -> (Vec<Span>, [EndpointCounters; 2]) {
    let mut pair = Pair::new(job(parity), profile);
    let times = (0..MESSAGES).map(|_| pair.transfer(message)).collect();
    let hosts = pair.network.hosts();
    (times, [hosts[0].counters(), hosts[1].counters()])
}

fn mean(times: &[Span]) -> Span {
    let sum = times.iter().fold(Span::ZERO, |sum, &time| sum + time);
    sum.divided(times.len() as u64)
}

#[test]
fn most_of_the_time_that_losses_cost_is_saved() {
    let message = PairMessage::lossless(MESSAGE);
    let clean = mean(&transfers(ParityRule::Auto, port(100), message).0);
    for share in [0.003, 0.01, 0.03] {
        let without = mean(&transfers(ParityRule::None, lossy(share), message).0);
        let with = mean(&transfers(ParityRule::Auto, lossy(share), message).0);
        println!("loss {share}: clean {clean}, without parity {without}, with {with}");
        assert!(
            with.beyond(clean) * 2 < without.beyond(clean),
            "loss {share}: clean {clean}, without parity {without}, with {with}"
        );
    }
}

#[test]
fn a_clean_path_carries_no_parity_and_a_lossy_one_little() {
    let message = PairMessage::lossless(MESSAGE);
    let (_, [sender, _]) = transfers(ParityRule::Auto, port(100), message);
    assert_eq!(sender.sender.parity_packets, 0);
    let (_, [sender, receiver]) = transfers(ParityRule::Auto, lossy(0.01), message);
    let (parity, sent) = (sender.sender.parity_packets, sender.sender.sent_segments);
    assert!(receiver.receiver.restored_segments > 0);
    assert!(
        parity * 16 <= sent,
        "{parity} parity packets for {sent} segments"
    );
}

#[test]
fn on_a_long_path_few_messages_wait_for_a_second_round_trip() {
    let far = |share: f64| Profile {
        latency: Span::from_millis(20),
        ..lossy(share)
    };
    for share in [0.01, 0.03] {
        let (mut times, _) =
            transfers(ParityRule::Auto, far(share), PairMessage::lossless(MESSAGE));
        times.sort_unstable();
        let most = times[times.len() * 9 / 10];
        assert!(
            most < Span::from_millis(50),
            "loss {share}: nine of ten take {most}"
        );
    }
}

#[test]
fn the_protected_part_of_a_tolerant_message_is_restored() {
    let message = PairMessage::tolerant(MESSAGE, 0.1);
    let (_, [sender, receiver]) = transfers(ParityRule::Auto, lossy(0.03), message);
    assert!(receiver.receiver.restored_segments > 0, "{receiver:?}");
    assert!(receiver.receiver.lost_segments > 0, "{receiver:?}");
    assert!(sender.sender.parity_packets < sender.sender.sent_segments / 16);
}

/// How many messages of one segment arrive late over a link that loses 5 %, and how many parity
/// restores. What the answers and the CLOSE take, which are lost too, is left out.
fn late_arrivals(parity: ParityRule) -> (u64, u64) {
    let message = PairMessage::lossless(1000);
    let mut pair = Pair::new(job(parity), lossy(0.05));
    let mut late = 0;
    for number in 1..=MESSAGES {
        pair.post(message);
        pair.send(message);
        let due = pair.network.now() + Span::from_micros(300);
        let is_there =
            |hosts: &[Endpoint]| hosts[1].counters().receiver.received_segments == number;
        late += u64::from(pair.network.run(due, is_there) == Ended::TimedOut);
        pair.finish();
    }
    let receiver = pair.network.hosts()[1].counters().receiver;
    (late, receiver.restored_segments)
}

#[test]
fn a_message_of_one_segment_is_restored_from_its_copy() {
    let without = late_arrivals(ParityRule::None);
    let with = late_arrivals(ParityRule::Share(Share::ALL));
    println!("late and restored segments: {without:?} without, {with:?} with copies");
    assert!(with.1 > 0 && with.0 * 4 < without.0, "{without:?} {with:?}");
}

#[test]
fn losses_that_parity_hides_are_measured() {
    let message = PairMessage::lossless(MESSAGE);
    let (_, [sender, receiver]) = transfers(ParityRule::Auto, lossy(0.03), message);
    let (found, sent) = (sender.sender.found_lost, sender.sender.sent_segments);
    assert!(receiver.receiver.restored_segments > found / 4);
    let share = found as f64 / sent as f64;
    assert!((0.025..0.037).contains(&share), "{share} found lost");
}
