//! Folded Clos trees: the graph behind the one-line forms and the files of htsim.
//!
//! Hosts are linked to edge switches. The edge switches of a pod are all linked to the aggregation
//! switches of that pod. Aggregation switch `a` of every pod is linked to the cores `a`,
//! `a + aggs_per_pod`, `a + 2 aggs_per_pod`, ... A leaf-spine is a tree of one pod without cores; a
//! single switch has neither cores nor aggregation switches.

use gradwire_protocol::units::{Rate, Share, Span};

use crate::graph::Graph;
use crate::settings::{HOSTS_MAX, LINKS_MAX};
use crate::topology::{Device, Link, Switch};

/// The counts that make up a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// Pods.
    pub(crate) pods: u32,
    /// Edge switches of a pod.
    pub(crate) edges: u32,
    /// Hosts of an edge switch.
    pub(crate) hosts: u32,
    /// Aggregation switches of a pod.
    pub(crate) aggs: u32,
    /// Cores that an aggregation switch is linked to.
    pub(crate) cores: u32,
    /// Parallel links: between an edge and an aggregation switch, and between an aggregation
    /// switch and a core.
    pub(crate) bundles: [u32; 2],
}

/// Rate, latency and loss of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub(crate) rate: Rate,
    pub(crate) latency: Span,
    pub(crate) loss: Share,
}

impl Wire {
    fn between(self, low: Device, high: Device) -> Link {
        Link {
            ends: [low, high],
            rate: self.rate,
            latency: self.latency,
            loss: self.loss,
        }
    }
}

impl Tree {
    /// One pod: `edges` switches of `hosts` hosts, each linked once to each of `aggs` switches.
    pub(crate) const fn two_tier(edges: u32, hosts: u32, aggs: u32) -> Self {
        Self {
            pods: 1,
            edges,
            hosts,
            aggs,
            cores: 0,
            bundles: [1, 1],
        }
    }

    /// Whether the tree has at least one host and no more hosts and links than a fabric can have.
    pub(crate) fn fits(&self) -> bool {
        let product = |factors: &[u32]| {
            let factors = factors.iter();
            factors.fold(1_u64, |product, &factor| {
                product.saturating_mul(factor.into())
            })
        };
        let hosts = product(&[self.pods, self.edges, self.hosts]);
        let low = product(&[self.pods, self.edges, self.aggs, self.bundles[0]]);
        let high = product(&[self.pods, self.aggs, self.cores, self.bundles[1]]);
        let links = hosts.saturating_add(low).saturating_add(high);
        (1..=HOSTS_MAX).contains(&hosts) && links <= LINKS_MAX
    }

    /// The graph: hosts of an edge switch are consecutive, edge switches of a pod too. `kinds`
    /// names switches of each tier; `wires` are the links of hosts, of edge to aggregation
    /// switches and of those to cores. Links are in this order; link `h` is that of host `h`.
    ///
    /// The tree must [fit](Self::fits).
    pub(crate) fn graph(&self, kinds: [&str; 3], wires: [Wire; 3]) -> Graph {
        let edges = self.pods * self.edges;
        let aggs = self.pods * self.aggs;
        let (first_agg, first_core) = (edges, edges + aggs);
        let mut links = Vec::new();
        for host in 0..edges * self.hosts {
            let edge = Device::Switch(host / self.hosts);
            links.push(wires[0].between(Device::Host(host), edge));
        }
        for edge in 0..edges {
            let pod = edge / self.edges;
            for place in 0..self.aggs {
                let agg = Device::Switch(first_agg + pod * self.aggs + place);
                let link = wires[1].between(Device::Switch(edge), agg);
                links.extend((0..self.bundles[0]).map(|_| link));
            }
        }
        for agg in 0..aggs {
            for row in 0..self.cores {
                let core = first_core + agg % self.aggs + row * self.aggs;
                let link = wires[2].between(Device::Switch(first_agg + agg), Device::Switch(core));
                links.extend((0..self.bundles[1]).map(|_| link));
            }
        }
        Graph {
            hosts: edges * self.hosts,
            switches: self.switches(kinds),
            links,
        }
    }

    /// Edge switches of all pods, then aggregation switches of all pods, then cores.
    fn switches(&self, kinds: [&str; 3]) -> Vec<Switch> {
        let of_pods = |tier: u8, count: u32| {
            let kind = kinds[usize::from(tier)];
            (0..self.pods * count).map(move |switch| Switch {
                name: if self.cores == 0 {
                    format!("{kind} {switch}")
                } else {
                    format!("{kind} {}.{}", switch / count, switch % count)
                },
                tier,
            })
        };
        let cores = (0..self.aggs * self.cores).map(|core| Switch {
            name: format!("{} {core}", kinds[2]),
            tier: 2,
        });
        let low = of_pods(0, self.edges).chain(of_pods(1, self.aggs));
        low.chain(cores).collect()
    }
}
