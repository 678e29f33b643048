//! The parts of a fabric: which region has which switch and host.
//!
//! A region is worked on for a window of simulated time, then the next one. With one edge switch
//! and its hosts in each, what a region touches stays in a core's caches for the window, while a
//! whole fabric of a thousand hosts does not: see `benches/README.md`. Regions are also what
//! threads divide among them ([`crate::engine::parallel`]).
//!
//! Where edge switches are not linked to each other, what one region sends reaches its like over
//! two links, by way of a switch of another tier. So regions of edge and core switches take one
//! turn, those of the switches between them the next one, and each runs for twice the latency.

use gradwire_fabric::topology::{Device, Fabric, Link};
use gradwire_protocol::units::Span;

/// The maximum number of regions, whose numbers have 16 bits.
const REGIONS_MAX: usize = 1 << 12;

/// The division of a fabric into regions.
#[derive(Clone, Debug)]
pub struct Partition {
    /// How many regions there are.
    pub regions: usize,
    /// 1: all regions run at the same time. 2: those with even numbers, then those with odd ones;
    /// no link joins two regions of the same turn.
    pub turns: usize,
    /// Least latency of a link between two regions; without such a link, the end of time.
    pub lookahead: Span,
    /// Region of each host.
    pub host_region: Vec<u16>,
    /// Region of each switch.
    pub switch_region: Vec<u16>,
}

impl Partition {
    /// The switches of each tier in consecutive parts, so that a pod stays together, and each host
    /// with its switch.
    pub fn new(fabric: &Fabric, regions: usize) -> Self {
        let regions = regions.clamp(1, REGIONS_MAX);
        Self::of_switches(fabric, regions, regions_of_switches(fabric, regions))
    }

    /// As many regions as there are switches with hosts, or a few more, so that each thread has as
    /// many. Where all these switches are of one tier, each has a region of its own. If links join
    /// only tiers of even numbers to tiers of odd ones, there are twice as many, for two turns.
    pub fn by_edge(fabric: &Fabric, threads: usize) -> Self {
        let mut edges: Vec<u32> = fabric.links.iter().filter_map(edge_of_link).collect();
        edges.sort_unstable();
        edges.dedup();
        let regions = edges.len().next_multiple_of(threads);
        Self::in_two_turns(fabric, regions, &edges).unwrap_or_else(|| Self::new(fabric, regions))
    }

    /// As many regions for each of two turns; `None` where there is one edge, or a link joins two
    /// regions of the same turn.
    fn in_two_turns(fabric: &Fabric, regions: usize, edges: &[u32]) -> Option<Self> {
        let [edge, _, ..] = *edges else {
            return None;
        };
        let edge_tier = fabric.switches[edge as usize].tier;
        let turns = fabric
            .switches
            .iter()
            .map(|switch| u16::from((switch.tier ^ edge_tier) & 1));
        let regions = regions.min(REGIONS_MAX / 2);
        let parts = regions_of_switches(fabric, regions).into_iter();
        let switch_region = parts
            .zip(turns)
            .map(|(part, turn)| 2 * part + turn)
            .collect();
        let partition = Self {
            turns: 2,
            ..Self::of_switches(fabric, 2 * regions, switch_region)
        };
        let alternates = |link: &Link| {
            let [a, b] = link.ends.map(|end| partition.region_of(end));
            a == b || a % 2 != b % 2
        };
        fabric.links.iter().all(alternates).then_some(partition)
    }

    /// All regions in one turn, from those of switches.
    fn of_switches(fabric: &Fabric, regions: usize, switch_region: Vec<u16>) -> Self {
        let mut partition = Self {
            regions,
            turns: 1,
            lookahead: Span::from_picos(u64::MAX),
            host_region: regions_of_hosts(fabric, &switch_region),
            switch_region,
        };
        let crossing = fabric.links.iter().filter(|link| {
            let [a, b] = link.ends.map(|end| partition.region_of(end));
            a != b
        });
        let least = crossing.map(|link| link.latency).min();
        partition.lookahead = least.unwrap_or(partition.lookahead);
        partition
    }

    /// The whole fabric in one region.
    pub fn whole(fabric: &Fabric) -> Self {
        Self::new(fabric, 1)
    }

    /// How long the regions of a turn run until those of the next one do.
    pub fn window(&self) -> Span {
        (0..self.turns).fold(Span::ZERO, |window, _| window + self.lookahead)
    }

    /// The region that a device is in.
    pub fn region_of(&self, device: Device) -> u16 {
        match device {
            Device::Host(host) => self.host_region[host as usize],
            Device::Switch(switch) => self.switch_region[switch as usize],
        }
    }
}

fn edge_of_link(link: &Link) -> Option<u32> {
    host_and_switch(link).map(|(_, switch)| switch)
}

fn host_and_switch(link: &Link) -> Option<(u32, u32)> {
    match link.ends {
        [Device::Host(host), Device::Switch(switch)]
        | [Device::Switch(switch), Device::Host(host)] => Some((host, switch)),
        _ => None,
    }
}

fn regions_of_switches(fabric: &Fabric, regions: usize) -> Vec<u16> {
    let mut of_tier = vec![0_usize; 256];
    for switch in &fabric.switches {
        of_tier[usize::from(switch.tier)] += 1;
    }
    let mut seen = vec![0_usize; 256];
    let switches = fabric
        .switches
        .iter()
        .map(|switch| usize::from(switch.tier));
    let regions = switches.map(|tier| {
        seen[tier] += 1;
        ((seen[tier] - 1) * regions / of_tier[tier]) as u16
    });
    regions.collect()
}

fn regions_of_hosts(fabric: &Fabric, switch_region: &[u16]) -> Vec<u16> {
    let mut regions = vec![0; fabric.hosts as usize];
    for (host, switch) in fabric.links.iter().filter_map(host_and_switch) {
        regions[host as usize] = switch_region[switch as usize];
    }
    regions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_switch_and_its_hosts_are_a_region() {
        let fabric = Fabric::from_shape("fat-tree:k=4@100G").expect("a fabric");
        let partition = Partition::by_edge(&fabric, 1);
        assert_eq!((partition.regions, partition.turns), (16, 2));
        let expected: Vec<u16> = (0..16).map(|host| host / 2 * 2).collect();
        assert_eq!(partition.host_region, expected);
        assert_eq!(partition.lookahead, fabric.links[0].latency);
    }

    #[test]
    fn regions_take_one_turn_where_edge_switches_are_linked_to_each_other() {
        let mut fabric = Fabric::from_shape("leaf-spine:4x2x2@100G").expect("a fabric");
        let leaves = |fabric: &Fabric| Partition::by_edge(fabric, 1);
        assert_eq!((leaves(&fabric).regions, leaves(&fabric).turns), (8, 2));
        let link = fabric.links[0];
        let ends = [0, 2].map(|host| edge_of_link(&fabric.links[host]).map(Device::Switch));
        fabric.links.push(Link {
            ends: ends.map(|end| end.expect("a host's link")),
            ..link
        });
        assert_eq!((leaves(&fabric).regions, leaves(&fabric).turns), (4, 1));
    }

    #[test]
    fn a_fabric_of_one_switch_has_one_region_however_many_are_asked_for() {
        let fabric = Fabric::from_shape("single:4@100G").expect("a fabric");
        let partition = Partition::new(&fabric, 3);
        assert_eq!(partition.host_region, [0; 4]);
        assert_eq!(partition.lookahead, Span::from_picos(u64::MAX));
    }
}
