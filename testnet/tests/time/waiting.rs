//! Messages whose receiver posts them late: few packets while they wait, and no time lost after.

use gradwire_protocol::endpoint::{Endpoint, EndpointEvent};
use gradwire_protocol::job::Job;
use gradwire_protocol::settings::EndpointLimits;
use gradwire_protocol::units::{ByteCount, Rank, Share, Span};
use gradwire_testnet::link::Profile;

use crate::pair::{Pair, PairMessage, clean_time, control_by_second, cut, jobs, seconds, wire};

const GRANT_WINDOW: ByteCount = ByteCount::kib(512);

/// Messages of all kinds: within the unscheduled start and beyond it, with a tolerance and without.
fn kinds() -> [PairMessage; 4] {
    [
        PairMessage::lossless(1_000),
        PairMessage::tolerant(100_000, 0.2),
        PairMessage::lossless(1 << 20),
        PairMessage::tolerant(1 << 20, 0.2),
    ]
}

/// A pair whose rank 0 has sent `count` messages of each kind that rank 1 has not posted.
fn waiting(job: &Job, count: usize) -> Pair {
    let mut pair = Pair::new(job.clone(), wire(20));
    for message in kinds().repeat(count) {
        pair.send(message);
    }
    pair
}

#[test]
fn a_late_rank_hears_less_than_ten_packets_a_second() {
    for job in jobs(GRANT_WINDOW) {
        for count in [1, 25] {
            let mut pair = waiting(&job, count);
            let by_second = control_by_second(&mut pair, 60);
            let most = by_second[1..].iter().max().expect("a minute");
            assert!(*most < 10, "{count} of each kind: {by_second:?}");
            // In the first one, a few for each message and for all together.
            assert!(by_second[0] < 4 * count as u64 * 10 + 10, "{by_second:?}");
        }
    }
}

#[test]
fn a_late_rank_that_answers_late_hears_little() {
    let late = Profile {
        jitter: Span::from_millis(15),
        drop: Share::new(0.1).expect("a share"),
        ..wire(20)
    };
    for message in kinds() {
        let mut pair = Pair::new(Job::default(), wire(20));
        pair.send(message);
        pair.pass(seconds(1));
        pair.set_links(late);
        let by_second = control_by_second(&mut pair, 60);
        let packets: u64 = by_second.iter().sum();
        assert!(packets < 600, "{message:?}: {by_second:?}");
    }
}

#[test]
fn a_path_that_got_longer_is_asked_little() {
    for millis in [1, 3, 7, 14, 25] {
        let longer = Profile::perfect(Span::from_millis(millis));
        for message in kinds() {
            let mut pair = Pair::new(Job::default(), wire(20));
            pair.transfer(message);
            pair.set_links(longer);
            pair.send(message);
            pair.pass(Span::from_micros(millis * 500));
            // Later questions are answered later still, when the next ones have left.
            pair.set_links(Profile::perfect(Span::from_micros(millis * 1_100)));
            let by_second = control_by_second(&mut pair, 20);
            let most = by_second[1..].iter().max().expect("some seconds");
            assert!(
                by_second[0] < 100,
                "{millis} ms, {message:?}: {by_second:?}"
            );
            assert!(*most <= 10, "{millis} ms, {message:?}: {by_second:?}");
        }
    }
}

#[test]
fn a_barrier_of_forty_minutes_costs_few_packets() {
    let mut pair = Pair::new(Job::default(), wire(20));
    let message = PairMessage::lossless(8);
    pair.send(message);
    pair.pass(seconds(40 * 60));
    let packets = pair.network.delivered();
    assert!(packets < 10 * 40 * 60, "{packets} packets");
    pair.post(message);
    assert!(pair.finish() < Span::from_millis(1));
}

#[test]
fn messages_posted_late_resume_at_once() {
    for job in jobs(GRANT_WINDOW) {
        let mut pair = waiting(&job, 10);
        pair.pass(seconds(30));
        for message in kinds().repeat(10) {
            let clean = clean_time(&job, wire(20), message);
            let before = pair.network.now();
            pair.post(message);
            let received = |hosts: &[Endpoint]| !hosts[1].is_busy();
            pair.network.run(before + seconds(9), received);
            let time = pair.network.now() - before;
            assert!(time <= clean, "{message:?}: {time} of {clean}");
        }
        pair.finish();
        assert_eq!((pair.repairs(), pair.holes()), (0, 0));
    }
}

#[test]
fn messages_whose_posting_is_not_heard_resume_all_the_same() {
    for job in jobs(GRANT_WINDOW) {
        for posted in [1, 40] {
            let mut pair = waiting(&job, 10);
            pair.pass(seconds(30));
            pair.network.set_link(Rank(1), Rank(0), cut());
            for message in &kinds().repeat(10)[..posted] {
                pair.post(*message);
            }
            pair.pass(Span::from_millis(2));
            pair.network.set_link(Rank(1), Rank(0), wire(20));
            let before = pair.network.now();
            let received = |hosts: &[Endpoint]| !hosts[1].is_busy();
            pair.network.run(before + seconds(9), received);
            let time = pair.network.now() - before;
            assert!(time < Span::from_millis(1_100), "{posted} posted: {time}");
        }
    }
}

#[test]
fn a_grant_lost_after_an_outage_is_found() {
    for message in kinds() {
        let mut pair = Pair::new(Job::default(), wire(20));
        pair.send(message);
        pair.pass(seconds(1));
        pair.set_links(cut());
        pair.pass(seconds(5));
        pair.set_links(wire(20));
        pair.pass(seconds(5));
        pair.network.set_link(Rank(1), Rank(0), cut());
        pair.post(message);
        pair.pass(Span::from_millis(2));
        pair.network.set_link(Rank(1), Rank(0), wire(20));
        let time = pair.finish();
        let is_busy = pair.network.hosts().iter().any(Endpoint::is_busy);
        assert!(!is_busy, "{message:?} hangs");
        assert!(time < Span::from_millis(1_100), "{message:?}: {time}");
    }
}

#[test]
fn a_peer_that_waits_is_never_silent_and_a_dead_one_soon() {
    for timeout in [100, 1_000, 8_000, 60_000] {
        let timeout = Span::from_millis(timeout);
        let mut job = Job::default();
        job.transport.peer_timeout = timeout;
        let mut pair = waiting(&job, 3);
        pair.pass(timeout * 20);
        let silent = |event: &EndpointEvent| matches!(event, EndpointEvent::PeerSilent { .. });
        assert!(!pair.events.iter().any(silent), "{timeout}");
        pair.set_links(cut());
        pair.pass(timeout * 2);
        assert!(pair.events.iter().any(silent), "{timeout}");
    }
}

#[test]
fn more_messages_than_a_late_rank_takes_arrive_once_they_are_posted() {
    const COUNT: usize = 200;
    let limits = EndpointLimits {
        early_messages: 64,
        ..EndpointLimits::USUAL
    };
    let mut pair = Pair::with_limits(Job::default(), wire(20), limits, [Span::ZERO; 2]);
    for _ in 0..COUNT {
        pair.send(PairMessage::lossless(100));
    }
    // Beyond the time after which a silent peer counts as dead.
    let by_second = control_by_second(&mut pair, 90);
    let most = by_second[5..].iter().max().expect("some minutes");
    // A question ten times a second, its answer, and segments that are not taken.
    assert!(*most <= 80, "{by_second:?}");
    let is_silent = |event: &EndpointEvent| matches!(event, EndpointEvent::PeerSilent { .. });
    assert!(!pair.events.iter().any(is_silent), "a peer that waits");
    for _ in 0..COUNT {
        pair.post(PairMessage::lossless(100));
    }
    let time = pair.finish();
    assert!(time < seconds(3), "{time}");
    let is_sent = |event: &&EndpointEvent| matches!(event, EndpointEvent::Sent { .. });
    assert_eq!(pair.events.iter().filter(is_sent).count(), COUNT);
}
