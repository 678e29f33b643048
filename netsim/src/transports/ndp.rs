//! NDP: switches cut packets instead of dropping them, receivers request each further packet.
//!
//! Handley et al., "Re-architecting datacenter networks and stacks for low latency and high
//! performance", SIGCOMM 2017. A flow starts with a window at line rate, unasked. A packet that
//! finds a queue full arrives as a header, which the receiver answers with a NACK; one that arrives
//! whole, with an ACK. For both it owes the sender one PULL, and sends these at the pace at which
//! its own link takes full packets, over all flows in turn. A PULL lets the sender send one packet,
//! a lost one before a new one; a PULL that is due when a packet arrives is part of its answer. A
//! sender takes its paths in a random order, all of them before any again.
//!
//! The receiver owes no more PULLs than the flow has packets left, so that each PULL finds a packet
//! at its sender. A timeout handles losses that trimming cannot prevent: packets and headers that
//! vanish.
//!
//! Left out: returning headers to the sender when their queue is full, avoiding paths with many
//! NACKs, priority among the flows of a receiver, and the handshake.

use gradwire_protocol::units::Span;

use super::reference::flow_host::FlowHost;
use super::reference::pulled::{PathRule, Pulled, PulledTerms};
use super::reference::pulls::{PullDemand, PullTerms, RepairOrder};
use super::settings::ReferenceSettings;

/// Packets that the first window has beyond the bandwidth-delay product: two full queues on the
/// path (8 packets each, section 3.1), so that links stay busy when packets wait for each other.
const BEYOND_BANDWIDTH_DELAY: u32 = 16;
/// A packet without an answer counts as lost after this time plus ten round trips: far longer than
/// queues of 8 packets and of headers can hold it back.
const TIMEOUT: Span = Span::from_micros(100);

/// A host without flows.
pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Pulled> {
    let terms = PulledTerms {
        pulls: PullTerms {
            demand: PullDemand::Arrivals,
            repairs: RepairOrder::InTurn,
            window: settings.bandwidth_delay() + BEYOND_BANDWIDTH_DELAY,
            packets: 1,
            gap: settings.packet_time(),
        },
        paths: PathRule::Shuffled,
        timeout: TIMEOUT + settings.base_rtt * 10,
    };
    Pulled::host(host, settings, terms)
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Instant;

    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing, losing_third, settings, trimming,
    };
    use super::*;
    use crate::engine::host::{Envelope, Host};
    use crate::transports::reference::cargo::{CargoKind, ReferenceCargo};
    use crate::transports::reference::pulled::PATIENCE;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Pulled>> {
        Star::new((0..hosts).map(|id| host(id, &settings())).collect(), judge)
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, trimming(8)).assert_closed_form();
    }

    #[test]
    fn an_incast_of_seven_is_within_five_percent_of_the_link() {
        star(8, trimming(8)).assert_incast();
    }

    #[test]
    fn a_packet_that_vanishes_is_sent_again_after_the_timeout() {
        let mut star = star(2, losing(9));
        star.begin(0, 0, 1, 40_860);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        let late = star.acknowledged(0).since(alone(40_860));
        assert!(late <= TIMEOUT + settings().base_rtt * 10, "late by {late}");
    }

    #[test]
    fn a_flow_goes_on_when_all_pulls_but_the_late_ones_vanish() {
        let heals = TIMEOUT * 20;
        let (mut pulls, mut judge) = (0, trimming(8));
        let lost = move |envelope: &Envelope, cargo: &ReferenceCargo, waiting: usize| {
            pulls += usize::from(cargo.kind == CargoKind::Pull);
            match cargo.kind == CargoKind::Pull && pulls < 100 {
                true => StarVerdict::Drop,
                false => judge(envelope, cargo, waiting),
            }
        };
        let mut star = star(2, Box::new(lost));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert!(star.acknowledged(0).since(Instant::START) < PATIENCE + heals);
        assert_eq!(star.hosts[1].counts().duplicates, 0);
    }

    #[test]
    fn everything_arrives_when_every_third_packet_vanishes() {
        star(3, losing_third(trimming(8))).assert_two_arrive();
    }
}
