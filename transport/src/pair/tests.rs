//! Pairs on loopback: they agree, or each side is told why not.

use std::net::Ipv4Addr;

use gradwire_protocol::units::Rank;

use super::*;
use crate::address::QueuePair;
use crate::lanes::AegisLanes;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn terms(token: &str, job: &str) -> PairTerms {
    PairTerms {
        offer: PairOffer {
            job: job.to_owned(),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 4000)).into()],
            mtu: 1500,
            receive_buffer: 1 << 20,
            lanes: AegisLanes::of_this_host(),
        },
        token: token.to_owned(),
        silence: Duration::from_secs(10),
    }
}

type Outcome = Result<PairedProcess, PairError>;

/// Lets both sides take turns until the dialer has an outcome, and the listener one if it can.
fn meet(listener: &mut PairListener, dialer: &mut PairDialer) -> (Outcome, Option<PairedProcess>) {
    let mut accepted = None;
    for _ in 0..1_000_000 {
        let next = listener.poll(|_| false).expect("loopback accepts");
        accepted = accepted.or(next);
        match dialer.poll(|_| false) {
            Ok(None) => std::thread::yield_now(),
            Ok(Some(paired)) => {
                while accepted.is_none() {
                    accepted = listener.poll(|_| false).expect("loopback accepts");
                }
                return (Ok(paired), accepted);
            }
            Err(error) => return (Err(error), accepted),
        }
    }
    panic!("the sides do not meet");
}

fn pair(ours: &PairTerms, theirs: &PairTerms) -> (Outcome, Option<PairedProcess>) {
    let mut listener = PairListener::open(HERE, ours.clone()).expect("loopback has ports");
    let ticket = PairTicket::from_bytes(&listener.ticket().to_bytes());
    assert_eq!(ticket, listener.ticket());
    let mut dialer = PairDialer::new(&ticket, theirs).expect("loopback connects");
    meet(&mut listener, &mut dialer)
}

#[test]
fn both_sides_have_the_same_secret_and_job() {
    for token in ["", "a secret"] {
        let terms = terms(token, "job");
        let (dialed, accepted) = pair(&terms, &terms);
        let (dialed, accepted) = (dialed.expect("paired"), accepted.expect("paired"));
        assert_eq!(dialed.job, accepted.job);
        assert_eq!(dialed.secrets, accepted.secrets);
        assert_eq!(dialed.offer, terms.offer);
        let (again, _) = pair(&terms, &terms);
        let other = again.expect("paired").secrets;
        assert_ne!(dialed.secrets.with(Rank(0)), other.with(Rank(0)));
    }
}

#[test]
fn another_token_or_job_is_refused_with_words() {
    for (token, job, word) in [
        ("other", "job", "token"),
        ("secret", "other", "GRADWIRE_JOB"),
    ] {
        let (dialed, accepted) = pair(&terms("secret", "job"), &terms(token, job));
        let error = dialed.expect_err("they do not fit").to_string();
        assert!(error.contains(word) && accepted.is_none(), "{error}");
    }
}

#[test]
fn a_number_that_is_taken_is_not_used() {
    let terms = terms("", "job");
    let mut listener = PairListener::open(HERE, terms.clone()).expect("loopback has ports");
    let mut dialer = PairDialer::new(&listener.ticket(), &terms).expect("loopback connects");
    let error = loop {
        let accepted = listener
            .poll(|job| job.0 % 2 == 0)
            .expect("loopback accepts");
        assert!(accepted.is_none(), "the dialer has not proved itself");
        if let Err(error) = dialer.poll(|job| job.0 % 2 == 1) {
            break error;
        }
    };
    assert!(matches!(error, PairError::Taken), "{error}");
}

#[test]
fn strangers_do_not_keep_others_from_pairing() {
    let terms = terms("secret", "job");
    let mut listener = PairListener::open(HERE, terms.clone()).expect("loopback has ports");
    let ticket = listener.ticket();
    let mut strangers = Vec::new();
    for number in 0..2 * UNPROVEN_MAX {
        let mut line = PairLine::over(
            dial(ticket.address).expect("loopback connects"),
            keep_alive(terms.silence),
        )
        .expect("a socket");
        if number % 2 == 0 {
            line.send(b"\x01garbage");
            let _ = line.flush();
        }
        strangers.push(line);
        let _ = listener.poll(|_| false);
    }
    let mut dialer = PairDialer::new(&ticket, &terms).expect("loopback connects");
    let (dialed, accepted) = meet(&mut listener, &mut dialer);
    assert!(dialed.is_ok() && accepted.is_some());
}

#[test]
fn a_line_tells_how_the_other_side_ended() {
    let terms = terms("", "job");
    let until_ended = |mut line: PairLine| loop {
        match line.poll() {
            LineState::Open => std::thread::yield_now(),
            ended => return ended,
        }
    };
    let (dialed, accepted) = pair(&terms, &terms);
    let (mut dialed, accepted) = (dialed.expect("paired"), accepted.expect("paired"));
    assert_eq!(dialed.line.poll(), LineState::Open);
    accepted.line.close(7);
    assert_eq!(until_ended(dialed.line), LineState::Closed(7));
    let (dialed, accepted) = pair(&terms, &terms);
    drop(accepted);
    assert_eq!(until_ended(dialed.expect("paired").line), LineState::Lost);
}

#[test]
fn a_listener_that_is_gone_is_an_error() {
    let terms = terms("", "job");
    let listener = PairListener::open(HERE, terms.clone()).expect("loopback has ports");
    let ticket = listener.ticket();
    drop(listener);
    let refused = PairDialer::new(&ticket, &terms).and_then(|mut dialer| {
        loop {
            if let Some(paired) = dialer.poll(|_| false)? {
                return Ok(paired);
            }
        }
    });
    assert!(matches!(refused, Err(PairError::System { .. })));
}

#[test]
fn offers_that_carry_no_packet_are_refused() {
    let pair_of_queues = QueuePair {
        gid: Ipv6Addr::LOCALHOST,
        number: 7,
        key: 7,
        lid: 0,
    };
    let offer = |change: &dyn Fn(&mut PairOffer)| {
        let mut terms = terms("", "job");
        change(&mut terms.offer);
        terms
    };
    let cases = [
        offer(&|offer| offer.addresses = vec![Address::QueuePair(pair_of_queues)]),
        offer(&|offer| {
            offer.addresses = vec![SocketAddr::from((Ipv6Addr::LOCALHOST, 4000)).into()];
        }),
        offer(&|offer| offer.mtu = 1),
    ];
    for theirs in cases {
        let (dialed, accepted) = pair(&terms("", "job"), &theirs);
        let error = dialed.expect_err("no packet would arrive").to_string();
        let told = accepted.is_none() && error.contains("GRADWIRE_IFNAME");
        assert!(told, "{:?}: {error}", theirs.offer);
    }
}
