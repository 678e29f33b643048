//! The ports that lead to each host: all shortest paths, found once for every edge switch.
//!
//! Hosts of one switch share their routes, so the memory grows with switches times edge switches, a
//! few megabytes at 8,192 hosts. Destinations that share a set of ports also share its entry.

use crate::graph::Neighbours;
use crate::topology::{Device, Fabric};

/// No route.
const NONE: u32 = u32::MAX;

/// A port: one direction of a link, numbered by the end that sends. Link i has the ports 2 i (from
/// its first end to its second) and 2 i + 1.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PortId(pub u32);

impl PortId {
    /// The ports of both ends of a link.
    pub const fn of_link(link: u32) -> [Self; 2] {
        [Self(2 * link), Self(2 * link + 1)]
    }

    /// The port at the other end of the link.
    pub const fn opposite(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Position in a list of all ports of a fabric.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The routes of a fabric.
#[derive(Clone, Debug)]
pub struct Routes {
    /// Number of the edge switch of each host, among edge switches.
    edge_of: Vec<u32>,
    /// The edge switch's port to each host.
    down_port: Vec<PortId>,
    /// Number of each switch among edge switches.
    edge_number: Vec<u32>,
    edges: usize,
    /// Port set for (switch, edge switch).
    next: Vec<u32>,
    /// First port and number of ports of each set.
    sets: Vec<(u32, u32)>,
    ports: Vec<PortId>,
}

impl Routes {
    /// The routes of a fabric in which every host has one link.
    pub fn new(fabric: &Fabric) -> Self {
        let mut routes = Self {
            edge_of: vec![NONE; fabric.hosts as usize],
            down_port: vec![PortId(NONE); fabric.hosts as usize],
            edge_number: vec![NONE; fabric.switches.len()],
            edges: 0,
            next: Vec::new(),
            sets: Vec::new(),
            ports: Vec::new(),
        };
        let edges = routes.find_edges(fabric);
        routes.edges = edges.len();
        routes.next = vec![NONE; fabric.switches.len() * edges.len()];
        let neighbours = Neighbours::in_fabric(fabric);
        let mut sets_of: Vec<Vec<u32>> = vec![Vec::new(); fabric.switches.len()];
        for (number, &edge) in edges.iter().enumerate() {
            let reached = neighbours.sweep(&[edge]);
            let mut hops = vec![NONE; fabric.switches.len()];
            for step in &reached {
                hops[step.switch as usize] = step.hops;
            }
            for step in &reached[1..] {
                let switch = step.switch;
                let closer = neighbours.around(switch).iter();
                let closer = closer.filter(|&&(to, _)| hops[to as usize] + 1 == step.hops);
                let ports = closer.map(|&(_, link)| port_from(fabric, switch, link));
                let set = routes.set_of(&mut sets_of[switch as usize], ports.collect());
                routes.next[switch as usize * edges.len() + number] = set;
            }
        }
        routes
    }

    fn find_edges(&mut self, fabric: &Fabric) -> Vec<u32> {
        let mut edges = Vec::new();
        for (index, link) in fabric.links.iter().enumerate() {
            let [forth, back] = PortId::of_link(index as u32);
            let (host, switch, down) = match link.ends {
                [Device::Host(host), Device::Switch(switch)] => (host, switch, back),
                [Device::Switch(switch), Device::Host(host)] => (host, switch, forth),
                _ => continue,
            };
            if self.edge_number[switch as usize] == NONE {
                self.edge_number[switch as usize] = edges.len() as u32;
                edges.push(switch);
            }
            self.edge_of[host as usize] = self.edge_number[switch as usize];
            self.down_port[host as usize] = down;
        }
        edges
    }

    fn set_of(&mut self, known: &mut Vec<u32>, ports: Vec<PortId>) -> u32 {
        let same = known.iter().copied().find(|&set| self.set(set) == ports);
        same.unwrap_or_else(|| {
            let set = self.sets.len() as u32;
            self.sets
                .push((self.ports.len() as u32, ports.len() as u32));
            self.ports.extend(ports);
            known.push(set);
            set
        })
    }

    #[inline]
    fn set(&self, set: u32) -> &[PortId] {
        let (first, count) = self.sets[set as usize];
        &self.ports[first as usize..(first + count) as usize]
    }

    /// The ports of a switch that lead to a host on shortest paths, in ascending order; empty when
    /// there is no path.
    #[inline]
    pub fn ports(&self, switch: u32, host: u32) -> &[PortId] {
        let edge = self.edge_of[host as usize];
        if self.edge_number[switch as usize] == edge {
            return std::slice::from_ref(&self.down_port[host as usize]);
        }
        match self.next[switch as usize * self.edges + edge as usize] {
            NONE => &[],
            set => self.set(set),
        }
    }
}

/// The port by which a switch sends over one of its links.
fn port_from(fabric: &Fabric, switch: u32, link: u32) -> PortId {
    let [forth, back] = PortId::of_link(link);
    match fabric.links[link as usize].ends[0] == Device::Switch(switch) {
        true => forth,
        false => back,
    }
}
