//! Properties of a fabric that need no simulation: shortest paths, round trips, and the time that a
//! flow takes alone.

use std::collections::BTreeMap;

use gradwire_protocol::units::{ByteCount, Span};

use crate::graph::{Neighbours, Reached};
use crate::topology::{Device, Fabric, Link};

/// How a flow is cut into packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packets {
    /// Bytes of the flow in a full packet; at least 1.
    pub payload: u32,
    /// Bytes that every packet takes on a wire in addition: header and framing.
    pub overhead: u32,
}

/// Shortest paths of a fabric. Keeps the trees that it has found, up to a memory limit.
///
/// Works on fabrics that pass [`Fabric::check`]; its functions panic where there is no path.
#[derive(Debug)]
pub struct Paths<'f> {
    fabric: &'f Fabric,
    neighbours: Neighbours,
    /// Link of each host and the device at its other end.
    ports: Vec<(u32, Device)>,
    /// For a switch: the switch and link over which each other switch is reached from it.
    trees: BTreeMap<u32, Vec<Option<(u32, u32)>>>,
}

/// Maximum number of entries of all trees of [`Paths`] together.
const TREES_MAX: usize = 1 << 22;

impl<'f> Paths<'f> {
    /// Paths of this fabric.
    pub fn of(fabric: &'f Fabric) -> Self {
        let mut ports = vec![(0, Device::Host(0)); fabric.hosts as usize];
        for (index, link) in (0..).zip(&fabric.links) {
            for (near, far) in [(0, 1), (1, 0)] {
                if let Device::Host(host) = link.ends[near] {
                    ports[host as usize] = (index, link.ends[far]);
                }
            }
        }
        Self {
            fabric,
            neighbours: Neighbours::in_fabric(fabric),
            ports,
            trees: BTreeMap::new(),
        }
    }

    /// The links of one shortest path from host `a` to host `b`, in order; empty when they are
    /// the same.
    pub fn between(&mut self, a: u32, b: u32) -> Vec<u32> {
        if a == b {
            return Vec::new();
        }
        let [(first, near), (last, far)] = [a, b].map(|host| self.ports[host as usize]);
        let (Device::Switch(near), Device::Switch(far)) = (near, far) else {
            return vec![first];
        };
        let tree = self.tree(near);
        let mut path = vec![last];
        let mut at = far;
        while at != near {
            let (before, link) = tree[at as usize].expect("a checked fabric has a path");
            path.push(link);
            at = before;
        }
        path.push(first);
        path.reverse();
        path
    }

    fn tree(&mut self, root: u32) -> &[Option<(u32, u32)>] {
        let switches = self.fabric.switches.len();
        if !self.trees.contains_key(&root) && (self.trees.len() + 1) * switches > TREES_MAX {
            self.trees.clear();
        }
        self.trees.entry(root).or_insert_with(|| {
            let mut tree = vec![None; switches];
            for Reached { switch, via, .. } in self.neighbours.sweep(&[root]) {
                tree[switch as usize] = via;
            }
            tree
        })
    }

    /// Time from the first bit of a flow of `bytes` at host `a` to its last bit at host `b`, alone
    /// in the fabric, along the path of [`Paths::between`]; zero from a host to
    /// itself. A flow of no bytes is one packet without payload.
    ///
    /// Switches store and forward. Of n packets all but the last are full and take `S_i` on link
    /// i; the last takes `T_i`. The full ones have passed link i after
    /// `P_i = (S_1 + ... + S_i) + (n - 2) max(S_1, ..., S_i)`, the last one after
    /// `Q_i = max(Q_(i-1), P_i) + T_i`, both plus the latency of the links so far: the time is
    /// `Q_H` plus the latency of all H links. This is exact, whatever the rates; at equal rates
    /// it is `(n - 1 + H - 1) S + T + latency`.
    pub fn ideal_fct(&mut self, a: u32, b: u32, bytes: ByteCount, packets: Packets) -> Span {
        let payload = u64::from(packets.payload.max(1));
        let count = bytes.get().div_ceil(payload).max(1);
        let full = ByteCount::new(payload + u64::from(packets.overhead));
        let last = bytes.get() - (count - 1) * payload;
        let last = ByteCount::new(last + u64::from(packets.overhead));
        let [mut sum, mut slowest, mut done, mut latency] = [Span::ZERO; 4];
        for link in self.between(a, b) {
            let link = self.fabric.links[link as usize];
            let one = link.rate.transmit_time(full);
            sum = sum + one;
            slowest = slowest.max(one);
            latency = latency + link.latency;
            if count > 1 {
                done = done.max(sum + slowest * (count - 2));
            }
            done = done + link.rate.transmit_time(last);
        }
        done + latency
    }

    /// The longest round trip from `host` over any of the shortest paths, and its destination.
    fn farthest(&self, host: u32, trip: impl Fn(&Link) -> Span) -> (Span, u32) {
        let trip = |link: u32| trip(&self.fabric.links[link as usize]);
        let (own, far) = self.ports[host as usize];
        let Device::Switch(edge) = far else {
            return (trip(own), host ^ 1);
        };
        let mut hops = vec![u32::MAX; self.fabric.switches.len()];
        let mut worst = vec![Span::ZERO; self.fabric.switches.len()];
        for reached in self.neighbours.sweep(&[edge]) {
            let at = reached.switch as usize;
            hops[at] = reached.hops;
            let before = self.neighbours.around(reached.switch).iter();
            let before = before.filter(|(from, _)| hops[*from as usize] < reached.hops);
            let before = before.map(|&(from, link)| worst[from as usize] + trip(link));
            worst[at] = before.max().unwrap_or_default();
        }
        let others = (0..).zip(&self.ports).filter(|(other, _)| *other != host);
        let trips = others.filter_map(|(other, &(link, end))| match end {
            Device::Switch(end) => Some((trip(own) + worst[end as usize] + trip(link), other)),
            Device::Host(_) => None,
        });
        trips
            .max_by_key(|(time, _)| *time)
            .unwrap_or((Span::ZERO, host))
    }
}

impl Fabric {
    /// The links of one shortest path from host `a` to host `b`. For many paths ask [`Paths`].
    pub fn path(&self, a: u32, b: u32) -> Vec<u32> {
        Paths::of(self).between(a, b)
    }

    /// The [`Paths::ideal_fct`] of one flow. For many flows ask [`Paths`].
    pub fn ideal_fct(&self, a: u32, b: u32, bytes: ByteCount, packets: Packets) -> Span {
        Paths::of(self).ideal_fct(a, b, bytes, packets)
    }

    /// The longest round trip between two hosts without queues: a packet of `data` bytes on the
    /// wire goes out and one of `ack` bytes comes back, stored and forwarded on every link. Zero
    /// when there is only one host.
    ///
    /// Searches from host 0, then from the host that is farthest from it. This finds the maximum in
    /// trees and in fabrics that look the same from every host; other fabrics may have a longer
    /// one.
    pub fn base_rtt(&self, data: ByteCount, ack: ByteCount) -> Span {
        let trip = |link: &Link| {
            let wire = link.rate.transmit_time(data) + link.rate.transmit_time(ack);
            wire + link.latency * 2
        };
        let paths = Paths::of(self);
        let (longest, host) = paths.farthest(0, trip);
        longest.max(paths.farthest(host, trip).0)
    }
}
