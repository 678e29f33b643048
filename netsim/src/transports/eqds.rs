//! EQDS: receivers hand out credits at the rate of their link, as far as senders ask for them.
//!
//! Olteanu et al., "An edge-queued datagram service for all datacenter traffic", NSDI 2022, with
//! the values of `htsim_eqds` (Broadcom/csg-htsim, commit 841d9e7). A flow starts with a window at
//! line rate. Each packet tells the receiver for how many more credits there is use, at most a
//! window; a PULL brings one, first to flows with trimmed packets, then to all in turn, and at last
//! in advance to flows without demand. Senders take all paths in turn, and spare for one turn those
//! on which a packet was trimmed. `reference::pulled` has the rules.
//!
//! Left out: ACKs for several packets, and the request to send (RTS): a timeout sends unasked.

use gradwire_protocol::units::Span;

use super::reference::flow_host::FlowHost;
use super::reference::pulled::{PathRule, Pulled, PulledTerms};
use super::reference::pulls::{PullDemand, PullTerms, RepairOrder};
use super::settings::ReferenceSettings;

/// Depth of a queue above which switches trim, in full packets.
pub const TRIM_PACKETS: u64 = 35;
/// The first window has a sixth more than the bandwidth-delay product: 50 packets of 43.
const WINDOW_SHARE: (u32, u32) = (7, 6);
/// PULLs leave a hundredth faster than the link takes packets, so that it stays busy.
const PACE_PERCENT: u64 = 99;
/// A packet without an answer counts as lost after this, and the time of six full queues.
const TIMEOUT: Span = Span::from_micros(150);
const QUEUES_OF_TIMEOUT: u64 = 6;

/// A host without flows.
pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Pulled> {
    let (times, of) = WINDOW_SHARE;
    let terms = PulledTerms {
        pulls: PullTerms {
            demand: PullDemand::Asked,
            repairs: RepairOrder::First,
            window: settings.bandwidth_delay() * times / of,
            packets: 1,
            gap: (settings.packet_time() * PACE_PERCENT).divided(100),
        },
        paths: PathRule::Spared,
        timeout: TIMEOUT + settings.packet_time() * (TRIM_PACKETS * QUEUES_OF_TIMEOUT),
    };
    Pulled::host(host, settings, terms)
}

#[cfg(test)]
mod tests {
    use super::super::reference::star::{Judge, Star, losing_third, settings, trimming};
    use super::*;

    fn star(judge: Judge) -> Star<FlowHost<Pulled>> {
        Star::new((0..8).map(|id| host(id, &settings())).collect(), judge)
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(trimming(35)).assert_closed_form();
    }

    #[test]
    fn an_incast_of_seven_is_within_five_percent_of_the_link() {
        star(trimming(35)).assert_incast();
    }

    #[test]
    fn everything_arrives_when_every_third_packet_vanishes() {
        star(losing_third(trimming(35))).assert_two_arrive();
    }
}
