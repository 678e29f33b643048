//! The tree of switches that adds up the tensors of a group of hosts.
//!
//! The root is a switch from which the group's own switches are as near as possible; among equals
//! the group's number chooses, so that groups share the upper switches.

use std::collections::{BTreeMap, VecDeque};

use gradwire_collectives::aggregation::tree::TreeSwitch;
use gradwire_fabric::routing::PortId;
use gradwire_fabric::topology::{Device, Fabric};

/// The links of every switch to other devices: the port that sends there, and its end.
type Neighbours = Vec<Vec<(PortId, Device)>>;

/// A fabric's switches as tree builders see them.
pub(crate) struct SumTrees {
    neighbours: Neighbours,
    /// The switch of each host, and its port to the host.
    edges: BTreeMap<u32, (u32, PortId)>,
}

impl SumTrees {
    /// Those of a fabric.
    pub(crate) fn of(fabric: &Fabric) -> Self {
        let mut neighbours: Neighbours = vec![Vec::new(); fabric.switches.len()];
        let mut edges = BTreeMap::new();
        for (link, number) in fabric.links.iter().zip(0..) {
            let [there, back] = PortId::of_link(number);
            for (port, from, to) in [
                (there, link.ends[0], link.ends[1]),
                (back, link.ends[1], link.ends[0]),
            ] {
                if let Device::Switch(switch) = from {
                    neighbours[switch as usize].push((port, to));
                    if let Device::Host(host) = to {
                        edges.insert(host, (switch, port));
                    }
                }
            }
        }
        Self { neighbours, edges }
    }

    /// The tree of a group: its switches, with their ports. `None` when no switch reaches all.
    pub(crate) fn tree(
        &self,
        group: u32,
        hosts: &[u32],
    ) -> Option<BTreeMap<u32, TreeSwitch<PortId>>> {
        let total = |ways: &Ways| -> Option<u32> {
            let steps = hosts
                .iter()
                .map(|host| Some(ways.get(&self.edges[host].0)?.steps));
            steps.sum()
        };
        let roots = 0..self.neighbours.len() as u32;
        let all = roots.filter_map(|root| {
            let ways = self.ways(root);
            Some((total(&ways)?, root))
        });
        let all: Vec<(u32, u32)> = all.collect();
        let least = all.iter().map(|(total, _)| *total).min()?;
        let nearest: Vec<u32> = (all.iter())
            .filter(|(total, _)| *total == least)
            .map(|(_, root)| *root)
            .collect();
        let root = nearest[group as usize % nearest.len()];
        Some(self.grow(root, hosts))
    }

    fn grow(&self, root: u32, hosts: &[u32]) -> BTreeMap<u32, TreeSwitch<PortId>> {
        let ways = self.ways(root);
        let mut tree: BTreeMap<u32, TreeSwitch<PortId>> = BTreeMap::new();
        for (seat, host) in hosts.iter().enumerate() {
            let (edge, port) = self.edges[host];
            let new = TreeSwitch::new(ways[&edge].up);
            tree.entry(edge).or_insert(new).add_member(port, seat);
        }
        // The farthest first, so that a switch is complete before the one above it hears of it.
        let mut order: Vec<(u32, u32)> = ways
            .iter()
            .map(|(switch, way)| (way.steps, *switch))
            .collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for (_, switch) in order {
            let way = &ways[&switch];
            if let (Some(below), Some(parent), Some(up)) =
                (tree.get(&switch).map(TreeSwitch::below), way.parent, way.up)
            {
                let new = TreeSwitch::new(ways[&parent].up);
                let parent = tree.entry(parent).or_insert(new);
                parent.add_switch(up.opposite(), below);
            }
        }
        tree
    }

    /// The shortest ways from a root to all switches.
    fn ways(&self, root: u32) -> Ways {
        let first = Way {
            steps: 0,
            parent: None,
            up: None,
        };
        let mut ways = Ways::from([(root, first)]);
        let mut next = VecDeque::from([root]);
        while let Some(parent) = next.pop_front() {
            let steps = ways[&parent].steps + 1;
            for &(port, end) in &self.neighbours[parent as usize] {
                let Device::Switch(switch) = end else {
                    continue;
                };
                ways.entry(switch).or_insert_with(|| {
                    next.push_back(switch);
                    Way {
                        steps,
                        parent: Some(parent),
                        up: Some(port.opposite()),
                    }
                });
            }
        }
        ways
    }
}

type Ways = BTreeMap<u32, Way>;

/// The way from a switch to the root.
struct Way {
    steps: u32,
    parent: Option<u32>,
    /// The port to the parent.
    up: Option<PortId>,
}

#[cfg(test)]
mod tests {
    use gradwire_collectives::aggregation::Contributors;

    use super::*;

    fn tree(shape: &str, hosts: &[u32]) -> BTreeMap<u32, TreeSwitch<PortId>> {
        let fabric = Fabric::from_shape(shape).expect("the shape is well formed");
        let tree = SumTrees::of(&fabric).tree(0, hosts);
        tree.expect("every host is reached")
    }

    #[test]
    fn one_switch_is_enough_where_all_hosts_are_at_it() {
        assert_eq!(tree("single:6@100G", &[0, 1, 5]).len(), 1);
        assert_eq!(tree("leaf-spine:4x4x2@100G", &[0, 1, 3]).len(), 1);
    }

    #[test]
    fn a_tree_has_the_leaves_of_its_hosts_and_one_spine() {
        let tree = tree("leaf-spine:4x4x2@100G", &[0, 1, 5, 15]);
        assert_eq!(tree.len(), 4);
        let all = Contributors::all(4);
        let roots = tree.values().filter(|switch| switch.below() == all);
        assert_eq!(roots.count(), 1);
    }

    #[test]
    fn a_fat_tree_has_three_tiers_of_them() {
        let hosts: Vec<u32> = (0..16).collect();
        // All edge switches, one aggregation switch of each pod, one core switch.
        assert_eq!(tree("fat-tree:k=4@100G", &hosts).len(), 8 + 4 + 1);
    }
}
