//! DCTCP: a window that shrinks in proportion to the share of marked packets.
//!
//! Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010; constants of RFC 8257. The receiver
//! repeats the mark of each packet in its ACK. The rest, and the parts of DCTCP that are left out,
//! are in `reference::windowed`.

mod window;

use gradwire_protocol::units::Span;

use super::reference::flow_host::FlowHost;
use super::reference::retransmission::{LEAST, LEAST_OF_PAPER};
use super::reference::windowed::Windowed;
use super::settings::ReferenceSettings;
use window::DctcpWindow;

/// The rules of DCTCP.
pub type Dctcp = Windowed<DctcpWindow>;

/// A host without flows. Windows start with a bandwidth-delay product, as those of DCTCP do in the
/// evaluation of pFabric, and as those of all transports here: the comparison is not about how
/// carefully they start.
pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Dctcp> {
    host_with(host, settings, LEAST)
}

/// The same with the minimum timeout of DCTCP's paper.
pub fn host_of_paper(host: u32, settings: &ReferenceSettings) -> FlowHost<Dctcp> {
    host_with(host, settings, LEAST_OF_PAPER)
}

fn host_with(host: u32, settings: &ReferenceSettings, least: Span) -> FlowHost<Dctcp> {
    let first = DctcpWindow::new(settings.bandwidth_delay());
    Windowed::host(host, settings, first, least)
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Instant;

    use super::super::reference::cargo::{CargoKind, ReferenceCargo};
    use super::super::reference::star::{
        Judge, Star, StarVerdict, alone, losing, losing_data, passing, settings,
    };
    use super::*;
    use crate::engine::host::{Envelope, Host};

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Dctcp>> {
        star_of(host, hosts, judge)
    }

    fn star_of(
        new: fn(u32, &ReferenceSettings) -> FlowHost<Dctcp>,
        hosts: u32,
        judge: Judge,
    ) -> Star<FlowHost<Dctcp>> {
        let hosts = (0..hosts).map(|host| new(host, &settings()));
        Star::new(hosts.collect(), judge)
    }

    fn marking(above: usize) -> Judge {
        Box::new(move |_, _, waiting| match waiting > above {
            true => StarVerdict::Mark,
            false => StarVerdict::Pass,
        })
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, passing()).assert_closed_form();
    }

    #[test]
    fn a_lost_packet_is_sent_again_within_a_round_trip() {
        let mut star = star(2, losing(50));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 1);
        assert_eq!(star.hosts[1].counts().duplicates, 0);
        let late = star.acknowledged(0).since(alone(2_000_000));
        assert!(late < settings().base_rtt * 3, "late by {late}");
    }

    #[test]
    fn lost_acks_are_not_taken_for_lost_packets() {
        let mut count = 0;
        let lossy = move |_: &Envelope, cargo: &ReferenceCargo, _| {
            count += usize::from(cargo.kind == CargoKind::Ack);
            match cargo.kind == CargoKind::Ack && count % 3 == 0 {
                true => StarVerdict::Drop,
                false => StarVerdict::Pass,
            }
        };
        let mut star = star(2, Box::new(lossy));
        star.begin(0, 0, 1, 2_000_000);
        star.run(Instant::from_picos(u64::MAX));
        assert_eq!(star.hosts[0].counts().repaired, 0);
        assert_eq!(star.acknowledged(0), alone(2_000_000));
    }

    #[test]
    fn a_lost_end_costs_a_timeout() {
        type New = fn(u32, &ReferenceSettings) -> FlowHost<Dctcp>;
        let kinds: [(New, Span); 2] = [(host, LEAST), (host_of_paper, LEAST_OF_PAPER)];
        for (new, least) in kinds {
            let mut star = star_of(new, 2, losing(9));
            star.begin(0, 0, 1, 40_860);
            star.run(Instant::from_picos(u64::MAX));
            assert_eq!(star.hosts[0].counts().repaired, 1);
            let took = star.acknowledged(0).since(Instant::START);
            assert!(took > least, "took {took}");
            assert!(took < least * 2, "took {took}");
        }
    }

    #[test]
    fn everything_arrives_when_every_third_data_packet_is_lost() {
        star(3, losing_data(3)).assert_two_arrive();
    }

    #[test]
    fn two_flows_share_a_link_and_its_queue_stays_near_the_threshold() {
        let mut star = star(3, marking(20));
        star.assert_shared_link();
        assert_eq!(
            star.hosts
                .iter()
                .map(|host| host.counts().repaired)
                .sum::<u64>(),
            0
        );
    }
}
