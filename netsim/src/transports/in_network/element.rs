//! An aggregator in a switch of the fabric: it takes sums out of packets, and addresses copies.

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
        let element = SumElement {
            aggregator: policy.aggregator(settings),
            trees,
            hosts,
            manifest: Arc::clone(manifest),
        };
        let is_used = !element.trees.is_empty();
        is_used.then(|| Box::new(element) as Box<dyn SwitchElement<SumCargo>>)
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

    /// A copy for a host travels on the connection from the seat before it.
    fn copy(&self, port: PortId, packet: &mut SimPacket, cargo: &SumCargo) -> SumCargo {
        let mut copy = *cargo;
        let Some(&host) = self.hosts.get(&port) else {
            return copy;
        };
        packet.destination = host;
        if let Some(own) = self.manifest.sum_flow(cargo.flow.flow) {
            let seat = own.hosts.iter().position(|&member| member == host);
            let before = own.before(seat.unwrap_or(own.seat));
            packet.source = own.hosts[before];
            copy.flow.flow = own.first + before as u32;
        }
        copy
    }
}
