//! How fast hosts exchange data when all send to all: the load of the core of a fabric.
//!
//! A direct reduction is such an exchange. If the links between switches carry less than the hosts
//! send, it takes longer than a ring, whose messages cross between racks only at the ends of each
//! rack.

use gradwire_protocol::units::Share;

use crate::graph::Neighbours;
use crate::routing::PortId;
use crate::topology::{Device, Fabric, Link};

/// The share of their link's rate at which hosts can send while each sends equally to every other
/// host, and switches spread packets evenly over all shortest paths; 100 % if no link between
/// switches is busier than those of the hosts.
///
/// Works on fabrics that pass [`Fabric::check`].
pub fn core_share(fabric: &Fabric) -> Share {
    let exchange = Exchange::new(fabric);
    let hosts = f64::from(fabric.hosts.saturating_sub(1));
    let own = hosts / fabric.host_rate().as_bits_per_second().max(1) as f64;
    let busiest = exchange.core_seconds_max(fabric);
    Share::new(own / busiest.max(own).max(f64::MIN_POSITIVE)).unwrap_or(Share::ALL)
}

/// One bit from each host to every other host.
struct Exchange {
    /// By switch, the hosts that are linked to it.
    hosts: Vec<u32>,
    neighbours: Neighbours,
    /// By port, the bits that it sends.
    bits: Vec<f64>,
}

impl Exchange {
    fn new(fabric: &Fabric) -> Self {
        let mut hosts = vec![0; fabric.switches.len()];
        for link in &fabric.links {
            if let [Device::Host(_), Device::Switch(switch)]
            | [Device::Switch(switch), Device::Host(_)] = link.ends
            {
                hosts[switch as usize] += 1;
            }
        }
        let mut exchange = Self {
            hosts,
            neighbours: Neighbours::in_fabric(fabric),
            bits: vec![0.0; 2 * fabric.links.len()],
        };
        for switch in 0..fabric.switches.len() {
            if exchange.hosts[switch] > 0 {
                exchange.send_to(switch as u32, &fabric.links);
            }
        }
        exchange
    }

    /// All hosts of other switches send to those of this switch.
    fn send_to(&mut self, edge: u32, links: &[Link]) {
        let reached = self.neighbours.sweep(&[edge]);
        let mut hops = vec![u32::MAX; self.hosts.len()];
        for step in &reached {
            hops[step.switch as usize] = step.hops;
        }
        let receivers = f64::from(self.hosts[edge as usize]);
        let own = self.hosts.iter().map(|&hosts| f64::from(hosts) * receivers);
        let mut passing: Vec<f64> = own.collect();
        // From the farthest switch on, so that all bits that a switch forwards have arrived before.
        for step in reached[1..].iter().rev() {
            let around = self.neighbours.around(step.switch).iter();
            let closer = around.filter(|&&(to, _)| hops[to as usize] + 1 == step.hops);
            let each = passing[step.switch as usize] / closer.clone().count() as f64;
            for &(to, link) in closer {
                passing[to as usize] += each;
                let [forth, back] = PortId::of_link(link);
                let is_first = links[link as usize].ends[0] == Device::Switch(step.switch);
                let port = if is_first { forth } else { back };
                self.bits[port.index()] += each;
            }
        }
    }

    /// For how long the busiest port between switches sends.
    fn core_seconds_max(&self, fabric: &Fabric) -> f64 {
        let links = (0..).zip(&fabric.links);
        let core = links.filter(|(_, link)| !link.has_host());
        let seconds = core.map(|(index, link)| {
            let [forth, back] = PortId::of_link(index).map(|port| self.bits[port.index()]);
            forth.max(back) / link.rate.as_bits_per_second().max(1) as f64
        });
        seconds.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(shape: &str) -> f64 {
        let fabric = Fabric::from_shape(shape).expect("a shape");
        (core_share(&fabric).get() * 1000.0).round() / 10.0
    }

    #[test]
    fn full_bisection_carries_all_that_hosts_send() {
        for shape in ["single:8@100G", "fat-tree:k=4@100G", "leaf-spine:4x4x4@25G"] {
            assert_eq!(percent(shape), 100.0, "{shape}");
        }
    }

    #[test]
    fn an_oversubscribed_core_carries_its_share() {
        // Of 31 other hosts 24 are in other racks; 8 hosts share two uplinks of their rate.
        assert_eq!(percent("leaf-spine:4x8x2@25G"), 32.3);
        // All 16 others of 17 leave the rack.
        assert_eq!(percent("leaf-spine:17x1x1@25G"), 100.0);
    }
}
