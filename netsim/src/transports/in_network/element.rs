//! An aggregator in a switch of the fabric: it takes sums out of packets, and addresses copies.
//!
//! The packets of SwitchML and ATP are the same for all members ([`SumElement`]); those of
//! NetReduce travel on connections of their own ([`ConnectionElement`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use gradwire_collectives::aggregation::Aggregator;
use gradwire_collectives::aggregation::tree::{NextHop, TreeSwitch};
use gradwire_fabric::routing::PortId;
use gradwire_fabric::topology::{Device, Fabric};

use super::trees::SumTrees;
use super::{SumCargo, SumPolicy};
use crate::engine::element::{ElementVerdict, OptionalElement, SwitchElement};
use crate::engine::packets::SimPacket;
use crate::transports::reference::manifest::Manifest;
use crate::transports::settings::ReferenceSettings;

/// The element of a switch.
#[derive(Debug)]
struct SumElement {
    aggregator: Box<dyn Aggregator>,
    /// Its place in the tree of each job.
    trees: BTreeMap<u32, TreeSwitch<PortId>>,
    /// The hosts at its ports.
    hosts: BTreeMap<PortId, u32>,
}

/// The element of a switch whose packets of sums travel on connections.
#[derive(Debug)]
struct ConnectionElement {
    sums: SumElement,
    manifest: Arc<Manifest>,
}

/// The elements of all switches of a fabric.
pub(crate) fn elements(
    fabric: &Fabric,
    manifest: &Arc<Manifest>,
    policy: SumPolicy,
    settings: &ReferenceSettings,
) -> Vec<OptionalElement<SumCargo>> {
    let builder = SumTrees::of(fabric);
    let mut trees: Vec<BTreeMap<u32, TreeSwitch<PortId>>> =
        vec![BTreeMap::new(); fabric.switches.len()];
    for (job, hosts) in manifest.sum_jobs() {
        for (switch, place) in builder.tree(job, hosts).unwrap_or_default() {
            trees[switch as usize].insert(job, place);
        }
    }
    let mut hosts: Vec<BTreeMap<PortId, u32>> = vec![BTreeMap::new(); fabric.switches.len()];
    for (link, number) in fabric.links.iter().zip(0..) {
        let [there, back] = PortId::of_link(number);
        match link.ends {
            [Device::Switch(switch), Device::Host(host)] => {
                hosts[switch as usize].insert(there, host);
            }
            [Device::Host(host), Device::Switch(switch)] => {
                hosts[switch as usize].insert(back, host);
            }
            _ => {}
        }
    }
    let element = |(trees, hosts): (BTreeMap<_, _>, _)| {
        let is_used = !trees.is_empty();
        let sums = SumElement {
            aggregator: policy.aggregator(settings),
            trees,
            hosts,
        };
        is_used.then(|| -> Box<dyn SwitchElement<SumCargo>> {
            match policy {
                SumPolicy::NetReduce => Box::new(ConnectionElement {
                    sums,
                    manifest: Arc::clone(manifest),
                }),
                _ => Box::new(sums),
            }
        })
    };
    trees.into_iter().zip(hosts).map(element).collect()
}

impl SwitchElement<SumCargo> for SumElement {
    fn arrive(
        &mut self,
        ingress: PortId,
        _packet: &mut SimPacket,
        cargo: &mut SumCargo,
    ) -> ElementVerdict {
        let Some(sum) = &mut cargo.sum else {
            return ElementVerdict::Route;
        };
        let Some(place) = self.trees.get(&sum.job) else {
            return ElementVerdict::Route;
        };
        match place.arrive(&mut *self.aggregator, sum, ingress.opposite()) {
            NextHop::Nowhere => ElementVerdict::Take,
            NextHop::Destination => ElementVerdict::Route,
            NextHop::Ports(ports) => ElementVerdict::Copies(ports),
        }
    }

    fn copy(&self, port: PortId, packet: &mut SimPacket, cargo: &SumCargo) -> SumCargo {
        if let Some(&host) = self.hosts.get(&port) {
            packet.destination = host;
        }
        *cargo
    }
}

impl SwitchElement<SumCargo> for ConnectionElement {
    fn arrive(
        &mut self,
        ingress: PortId,
        packet: &mut SimPacket,
        cargo: &mut SumCargo,
    ) -> ElementVerdict {
        self.sums.arrive(ingress, packet, cargo)
    }

    /// A copy for a host travels on the connection from the seat before it.
    fn copy(&self, port: PortId, packet: &mut SimPacket, cargo: &SumCargo) -> SumCargo {
        let mut copy = self.sums.copy(port, packet, cargo);
        let flow = self.manifest.sum_flow(cargo.flow.flow);
        if let (Some(host), Some(flow)) = (self.sums.hosts.get(&port), flow)
            && let Some(seat) = flow.hosts.iter().position(|member| member == host)
        {
            let before = flow.before(seat);
            packet.source = flow.hosts[before];
            copy.flow.flow = flow.first + before as u32;
        }
        copy
    }
}
