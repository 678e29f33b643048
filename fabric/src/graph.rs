//! Hosts, switches and links before they have settings, and how far switches are from hosts.

use crate::topology::{Device, Fabric, Link, Switch};

/// Hosts, switches and links.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) hosts: u32,
    pub(crate) switches: Vec<Switch>,
    pub(crate) links: Vec<Link>,
}

impl Graph {
    /// Sets the tier of every switch to its distance from the nearest host: 0 for switches that
    /// hosts are linked to. Switches that no host can reach keep theirs.
    pub(crate) fn find_tiers(&mut self) {
        let neighbours = Neighbours::of(self.switches.len(), &self.links);
        let mut near: Vec<u32> = Vec::new();
        for link in &self.links {
            near.extend(match link.ends {
                [Device::Host(_), Device::Switch(switch)] => Some(switch),
                [Device::Switch(switch), Device::Host(_)] => Some(switch),
                _ => None,
            });
        }
        near.sort_unstable();
        near.dedup();
        for reached in neighbours.sweep(&near) {
            self.switches[reached.switch as usize].tier = reached.hops.min(255) as u8;
        }
    }
}

/// The links between switches, by switch.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Switch `s` has the entries `starts[s]..starts[s + 1]`.
    starts: Vec<u32>,
    /// Switch at the other end, and index of the link.
    entries: Vec<(u32, u32)>,
}

/// A switch that a search has reached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    pub(crate) switch: u32,
    /// Number of links from the start of the search.
    pub(crate) hops: u32,
    /// The switch and the link over which the search reached it; `None` at the start.
    pub(crate) via: Option<(u32, u32)>,
}

impl Neighbours {
    /// Neighbours of each of `switches` switches by those `links` that join two switches.
    pub(crate) fn of(switches: usize, links: &[Link]) -> Self {
        let pairs = (0_u32..)
            .zip(links)
            .filter_map(|(index, link)| match link.ends {
                [Device::Switch(a), Device::Switch(b)] => Some((index, a, b)),
                _ => None,
            });
        let both = pairs.flat_map(|(index, a, b)| [(a, b, index), (b, a, index)]);
        let mut both: Vec<(u32, u32, u32)> = both.collect();
        both.sort_unstable_by_key(|&(from, _, index)| (from, index));
        let before = |switch| both.partition_point(|&(from, _, _)| (from as usize) < switch) as u32;
        Self {
            starts: (0..=switches).map(before).collect(),
            entries: both.iter().map(|&(_, to, index)| (to, index)).collect(),
        }
    }

    /// Neighbours of the switches of a fabric.
    pub(crate) fn in_fabric(fabric: &Fabric) -> Self {
        Self::of(fabric.switches.len(), &fabric.links)
    }

    /// The neighbours of a switch: switch and link.
    pub(crate) fn around(&self, switch: u32) -> &[(u32, u32)] {
        let [start, end] = [0, 1].map(|next| self.starts[switch as usize + next] as usize);
        &self.entries[start..end]
    }

    /// All switches that can be reached from any of `starts`, nearest first.
    pub(crate) fn sweep(&self, starts: &[u32]) -> Vec<Reached> {
        let mut seen = vec![false; self.starts.len() - 1];
        let mut reached: Vec<Reached> = Vec::new();
        for &switch in starts {
            seen[switch as usize] = true;
            reached.push(Reached {
                switch,
                hops: 0,
                via: None,
            });
        }
        let mut next = 0;
        while let Some(&Reached { switch, hops, .. }) = reached.get(next) {
            next += 1;
            for &(to, link) in self.around(switch) {
                if !std::mem::replace(&mut seen[to as usize], true) {
                    reached.push(Reached {
                        switch: to,
                        hops: hops + 1,
                        via: Some((switch, link)),
                    });
                }
            }
        }
        reached
    }
}
