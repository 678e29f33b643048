//! Lost grants: the receiver repeats them soon, and never where no packet is lost.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rank, Span};

use gradwire_testnet::link::Profile;

use crate::pair::{Pair, PairMessage, clean_time, cut, jobs, port, seconds, wire};

const MESSAGE: u32 = 1 << 20;
const GRANT_WINDOW: ByteCount = ByteCount::kib(128);

fn repeated(pair: &Pair) -> u64 {
    let of = |host: &Endpoint| host.counters().receiver.repeated_grants;
    pair.network.hosts().iter().map(of).sum()
}

/// The longest time from the posting of a message whose grant is lost until it is there.
fn longest_time(job: &Job, message: PairMessage) -> Span {
    let times = [1, 3, 10, 30, 100].map(|millis| {
        let mut pair = Pair::new(job.clone(), port(20));
        pair.transfer(message);
        pair.send(message);
        pair.pass(Span::from_millis(millis));
        pair.network.set_link(Rank(1), Rank(0), cut());
        let posted = pair.network.now();
        pair.post(message);
        pair.pass(Span::from_micros(100));
        pair.network.set_link(Rank(1), Rank(0), port(20));
        let received = |hosts: &[Endpoint]| !hosts[1].is_busy();
        pair.network.run(posted + seconds(9), received);
        pair.network.now() - posted
    });
    times.into_iter().max().expect("some times")
}

#[test]
fn a_lost_grant_is_repeated_within_a_few_waits() {
    for job in jobs(GRANT_WINDOW) {
        for message in [
            PairMessage::lossless(MESSAGE),
            PairMessage::tolerant(MESSAGE, 0.1),
        ] {
            let clean = clean_time(&job, port(20), message);
            let time = longest_time(&job, message);
            println!("{message:?}: {time} of {clean}");
            let late = time.beyond(clean);
            assert!(late < Span::from_micros(1_500), "{message:?}: {late} late");
        }
    }
}

/// How long a message takes from its posting, if what its receiver says meanwhile is lost or not,
/// while segments of a later message keep coming.
fn time_beside_another(job: &Job, reverse: Profile) -> Span {
    let (first, later) = (
        PairMessage::lossless(MESSAGE),
        PairMessage::lossless(64 * MESSAGE),
    );
    let mut pair = Pair::new(job.clone(), wire(20));
    pair.transfer(first);
    pair.send(first);
    pair.pass(Span::from_millis(1));
    pair.events.clear();
    pair.network.set_link(Rank(1), Rank(0), reverse);
    let posted = pair.network.now();
    pair.post(first);
    pair.pass(Span::from_micros(30));
    pair.network.set_link(Rank(1), Rank(0), wire(20));
    pair.post(later);
    pair.send(later);
    let is_there = |event: &EndpointEvent| matches!(event, EndpointEvent::Received { .. });
    while !pair.events.iter().any(is_there) {
        assert!(pair.network.now() - posted < seconds(1), "it never comes");
        pair.pass(Span::from_micros(20));
    }
    pair.network.now() - posted
}

#[test]
fn a_lost_grant_is_repeated_while_segments_of_a_later_message_come() {
    for job in jobs(GRANT_WINDOW) {
        let clean = time_beside_another(&job, wire(20));
        let time = time_beside_another(&job, cut());
        println!("{time} of {clean}");
        assert!(time.beyond(clean) < Span::from_micros(200), "{time}");
    }
}

#[test]
fn a_clean_path_repeats_no_grant() {
    for latency in [5, 200, 3_000] {
        for job in jobs(GRANT_WINDOW) {
            let mut pair = Pair::new(job, port(latency));
            pair.transfer(PairMessage::lossless(MESSAGE));
            let before = repeated(&pair);
            assert!(
                before <= 1,
                "{latency} us: {before} before an answer is known"
            );
            for count in [1, 40] {
                let messages = [
                    PairMessage::lossless(MESSAGE),
                    PairMessage::tolerant(MESSAGE, 0.1),
                ];
                for message in messages.repeat(count) {
                    pair.post(message);
                    pair.send(message);
                }
                pair.finish();
            }
            assert_eq!(repeated(&pair), before, "{latency} us");
        }
    }
}

#[test]
fn a_dead_sender_hears_of_a_grant_a_few_times() {
    for job in jobs(GRANT_WINDOW) {
        let mut pair = Pair::new(job, wire(20));
        pair.transfer(PairMessage::lossless(MESSAGE));
        for _ in 0..100 {
            pair.send(PairMessage::lossless(MESSAGE));
        }
        pair.pass(seconds(1));
        pair.network.set_link(Rank(0), Rank(1), cut());
        for _ in 0..100 {
            pair.post(PairMessage::lossless(MESSAGE));
        }
        pair.pass(seconds(30));
        let count = repeated(&pair);
        println!("{count} grants repeated");
        assert!((1..=64).contains(&count), "{count} grants");
    }
}
