//! RCCC, the receiver's congestion control of Ultra Ethernet: credits for the packets that senders
//! ask to send.
//!
//! Ultra Ethernet specification 1.0 (2025), section 3.6.14, with the values of `htsim_uec
//! -receiver_cc_only` (ultraethernet/uet-htsim, commit 40ccb05). It is EQDS with these changes: a
//! PULL brings credits for four packets, their pace is a hundredth slower than the link, trimmed
//! packets wait for the turn of their flow, and senders recycle unmarked paths (REPS).
//! `reference::pulled` has the rules.
//!
//! Left out: ACKs for several packets, the request to send (RTS), and the slower pace of a receiver
//! whose packets are trimmed before their last switch, for oversubscribed fabrics.

use super::nscc;
use super::reference::flow_host::FlowHost;
use super::reference::pulled::{PathRule, Pulled, PulledTerms};
use super::reference::pulls::{PullDemand, PullTerms, RepairOrder};
use super::settings::ReferenceSettings;

/// Packets that a PULL allows.
const PACKETS: u32 = 4;
/// PULLs leave at this share of the link's rate, so that a queue at the last switch shrinks.
const PACE_PERCENT: u32 = 99;

/// A host without flows.
pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Pulled> {
    let terms = PulledTerms {
        pulls: PullTerms {
            demand: PullDemand::Asked,
            repairs: RepairOrder::InTurn,
            window: settings.bandwidth_delay() * 3 / 2,
            packets: PACKETS,
            gap: (settings.packet_time() * 100).divided(u64::from(PACE_PERCENT)),
        },
        paths: PathRule::Recycled,
        timeout: nscc::timeout(settings),
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
    fn an_incast_of_seven_is_within_five_percent_of_the_link() {
        star(trimming(14)).assert_incast();
    }

    #[test]
    fn everything_arrives_when_every_third_packet_vanishes() {
        star(losing_third(trimming(14))).assert_two_arrive();
    }
}
