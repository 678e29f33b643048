//! The read-only state of a run, shared by all regions: wires, routes, limits, owners.
//!
//! A region ([`crate::engine::partition`]) owns hosts and switches, and with them the ports that
//! send from them. It keeps their state in lists of its own, so each has a place in these.

use gradwire_fabric::policy::{Balance, DSCPS, Pause, QosPolicy, ServiceOrder};
use gradwire_protocol::units::{ByteCount, Share, Span};

use crate::engine::partition::Partition;
use crate::engine::port::{PortLimits, picos_per_byte};
use crate::engine::turns::TurnRules;
use gradwire_fabric::policy::SwitchBuffer;
use gradwire_fabric::routing::{PortId, Routes};
use gradwire_fabric::topology::{Device, Fabric, HostSpells, LinkChange, LinkWay};

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct PortWire {
    /// Picoseconds per byte, times 2^16.
    pub picos_per_byte: u64,
    /// Time from one end to the other.
    pub latency: Span,
    /// Sending end.
    pub from: Device,
    /// Receiving end.
    pub to: Device,
    /// Region of the sending end.
    pub home: u16,
    /// Region of the receiving end.
    pub target: u16,
    /// Place of the port among those of its home.
    pub place: u32,
    /// Index in [`Wiring::limits`].
    pub limits: u8,
    /// Share of packets lost at random.
    pub loss: Share,
}

impl PortWire {
    /// Time that `bytes` take.
    #[inline]
    pub fn transmit_time(&self, bytes: u16) -> Span {
        Span::from_picos((u64::from(bytes) * self.picos_per_byte).div_ceil(1 << 16))
    }
}

/// The read-only state of a run.
#[derive(Clone, Debug)]
pub struct Wiring {
    /// By port.
    pub wires: Vec<PortWire>,
    /// The ports that lead to each host.
    pub routes: Routes,
    /// PortLimits of each kind of port.
    pub limits: Vec<PortLimits>,
    /// The port of each host.
    pub host_port: Vec<PortId>,
    /// The ports of each region, in the order of their places.
    pub ports_of: Vec<Vec<PortId>>,
    /// The hosts of each region.
    pub hosts: RegionMembers,
    /// The switches of each region.
    pub switches: RegionMembers,
    /// Which region has what.
    pub partition: Partition,
    /// Memory that the ports of a switch share: bytes and dynamic threshold factor.
    pub shared: Option<(u64, f64)>,
    /// Queue of each DSCP.
    pub queue_of_dscp: [u8; DSCPS],
    /// How paths are chosen.
    pub balance: Balance,
    /// How queues are served.
    pub order: ServiceOrder,
    /// Which queue has its turn, where not all are strict.
    pub turns: Option<TurnRules>,
    /// PFC.
    pub pause: Option<Pause>,
    /// Length of a trimmed packet.
    pub trims_to: Option<ByteCount>,
    /// Links that fail and come back.
    pub changes: Vec<LinkChange>,
    /// When hosts' links are slow.
    pub spells: HostSpells,
    /// Seed of all random decisions of switches and links.
    pub seed: u64,
}

impl Wiring {
    /// The wiring of a checked fabric whose switches follow `policy`.
    pub fn new(fabric: &Fabric, policy: &QosPolicy, partition: Partition, seed: u64) -> Self {
        let mut wiring = Self {
            wires: Vec::with_capacity(fabric.links.len() * 2),
            routes: Routes::new(fabric),
            limits: vec![PortLimits::of_host()],
            host_port: vec![PortId(0); fabric.hosts as usize],
            ports_of: vec![Vec::new(); partition.regions],
            hosts: RegionMembers::new(&partition.host_region, partition.regions),
            switches: RegionMembers::new(&partition.switch_region, partition.regions),
            partition,
            shared: match fabric.buffer {
                SwitchBuffer::PerPort(_) | SwitchBuffer::Divided { .. } => None,
                SwitchBuffer::Shared { bytes, alpha } => Some((bytes.get(), alpha)),
            },
            queue_of_dscp: policy.queue_of_dscp(),
            balance: policy.balance,
            order: policy.order,
            turns: TurnRules::of(policy),
            pause: policy.pause,
            trims_to: policy.trims_to,
            changes: fabric.changes.clone(),
            spells: fabric.spells,
            seed,
        };
        wiring.add_wires(fabric, policy);
        wiring
    }

    /// Place of a port in the lists of its region.
    #[inline]
    pub fn port_place(&self, port: PortId) -> usize {
        self.wires[port.index()].place as usize
    }

    fn add_wires(&mut self, fabric: &Fabric, policy: &QosPolicy) {
        let mut rates = Vec::new();
        for (number, link) in (0..).zip(&fabric.links) {
            let [a, b] = link.ends;
            for (from, to, way) in [(a, b, LinkWay::Forth), (b, a, LinkWay::Back)] {
                let rate = fabric.rate_of_way(number, way);
                if !rates.contains(&rate) {
                    rates.push(rate);
                    let limits = PortLimits::of_switch(policy, fabric.buffer, rate);
                    self.limits.push(limits);
                }
                let kind = rates.iter().position(|&known| known == rate);
                let kind = kind.expect("just added") as u8 + 1;
                let port = PortId(self.wires.len() as u32);
                let limits = match from {
                    Device::Host(host) => {
                        self.host_port[host as usize] = port;
                        0
                    }
                    Device::Switch(_) => kind,
                };
                let home = self.partition.region_of(from);
                let ports = &mut self.ports_of[usize::from(home)];
                ports.push(port);
                self.wires.push(PortWire {
                    picos_per_byte: picos_per_byte(rate),
                    latency: link.latency,
                    from,
                    to,
                    home,
                    target: self.partition.region_of(to),
                    place: ports.len() as u32 - 1,
                    limits,
                    loss: fabric.loss_of_way(number, way),
                });
            }
        }
    }
}

/// The hosts or switches of each region, and the place of each in the lists of its region.
#[derive(Clone, Debug)]
pub struct RegionMembers {
    of: Vec<Vec<u32>>,
    places: Vec<u32>,
}

impl RegionMembers {
    fn new(region_of: &[u16], regions: usize) -> Self {
        let mut of = vec![Vec::new(); regions];
        let places = (0..).zip(region_of).map(|(number, &region)| {
            let members = &mut of[usize::from(region)];
            members.push(number);
            members.len() as u32 - 1
        });
        let places = places.collect();
        Self { of, places }
    }

    /// Those of a region, in the order of their places.
    pub fn of(&self, region: u16) -> &[u32] {
        &self.of[usize::from(region)]
    }

    /// The place of one.
    #[inline]
    pub fn place(&self, number: u32) -> usize {
        self.places[number as usize] as usize
    }
}
