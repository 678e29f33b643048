//! Ends of messages on lossy paths: a lost packet there costs a round trip or two, not gaps.

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Rank, Share, Span};
use gradwire_testnet::link::Profile;

use crate::pair::{Pair, PairMessage, cut, wire};

const MESSAGE: u32 = 1 << 20;
/// How long no report gets through.
const OUTAGE: Span = Span::from_micros(30);

/// A pair whose paths have lost packets, and lose none any more.
fn pair_after_losses() -> Pair {
    let lossy = Profile {
        drop: Share::new(0.02).expect("a share"),
        ..wire(20)
    };
    let mut pair = Pair::new(Job::default(), lossy);
    for _ in 0..5 {
        pair.transfer(PairMessage::lossless(MESSAGE));
    }
    assert!(pair.repairs() > 0, "the paths have lost packets");
    pair.set_links(wire(20));
    pair.transfer(PairMessage::lossless(MESSAGE));
    pair
}

/// The longest time of a message of which some last segments, or reports of them, are lost.
fn longest_time(message: PairMessage, (from, to): (Rank, Rank)) -> Span {
    let times = (0..14).map(|n| {
        let mut pair = pair_after_losses();
        let begun = pair.network.now();
        pair.post(message);
        pair.send(message);
        pair.pass(Span::from_micros(5 * n));
        pair.network.set_link(from, to, cut());
        pair.pass(OUTAGE);
        pair.network.set_link(from, to, wire(20));
        pair.finish();
        pair.network.now() - begun
    });
    times.max().expect("some times")
}

#[test]
fn a_lost_end_or_a_lost_report_of_it_costs_no_gap() {
    for message in [
        PairMessage::lossless(MESSAGE),
        PairMessage::tolerant(MESSAGE, 0.1),
    ] {
        for path in [(Rank(0), Rank(1)), (Rank(1), Rank(0))] {
            let clean = pair_after_losses().transfer(message);
            let late = longest_time(message, path).beyond(clean);
            println!("{message:?} {path:?}: {late} late of {clean}");
            assert!(
                late < Span::from_micros(200),
                "{message:?}, {path:?}: {late} late"
            );
        }
    }
}
