//! Swift: a window that keeps the round trip at a target.
//!
//! Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter",
//! SIGCOMM 2020. The rest of it is that of DCTCP (`reference::windowed`).
//!
//! Left out: the window for the host's own delay, since hosts here have none, and the shorter
//! target of shorter paths.

mod window;

use super::reference::flow_host::FlowHost;
use super::reference::retransmission::LEAST;
use super::reference::windowed::Windowed;
use super::settings::ReferenceSettings;
use window::SwiftWindow;

/// The rules of Swift.
pub type Swift = Windowed<SwiftWindow>;

/// A host without flows. Windows start with a bandwidth-delay product, as those of all transports
/// here.
pub fn host(host: u32, settings: &ReferenceSettings) -> FlowHost<Swift> {
    Windowed::host(host, settings, SwiftWindow::new(settings), LEAST)
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{Instant, Span};

    use super::super::reference::star::{Judge, Star, alone, losing_data, passing, settings};
    use super::*;

    fn star(hosts: u32, judge: Judge) -> Star<FlowHost<Swift>> {
        Star::new((0..hosts).map(|id| host(id, &settings())).collect(), judge)
    }

    #[test]
    fn a_flow_alone_takes_the_time_of_the_closed_form() {
        star(2, passing()).assert_closed_form();
    }

    #[test]
    fn two_flows_share_a_link() {
        star(3, passing()).assert_shared_link();
    }

    /// Section 3.5: windows of less than a packet let a thousand senders share a link.
    #[test]
    fn hundreds_of_flows_have_less_than_a_packet_each_waiting() {
        let mut star = star(401, passing());
        for source in 0..400 {
            star.begin(source, source as u32, 400, 400_000);
        }
        star.run(Instant::START + Span::from_millis(8));
        star.deepest = 0;
        star.run(Instant::START + Span::from_millis(10));
        assert!(star.deepest < 300, "{} packets of 400", star.deepest);
        star.run(Instant::from_picos(u64::MAX));
        let ends = (0..400).map(|flow| star.acknowledged(flow));
        let took = ends.max().expect("flows").since(Instant::START);
        let ideal = alone(400 * 400_000).since(Instant::START);
        let over = took.as_secs_f64() / ideal.as_secs_f64();
        assert!(over < 1.1, "{over} times the time of the link");
    }

    #[test]
    fn everything_arrives_when_every_third_data_packet_is_lost() {
        star(3, losing_data(3)).assert_two_arrive();
    }
}
