//! The read-only state of a run, shared by all threads: wires, routes, limits, owners.
//!
//! A region is the part of a fabric that one thread works on; it owns hosts and switches, and with
//! them the ports that send from them.

use gradwire_fabric::policy::{Balance, DSCPS, Pause, QosPolicy, ServiceOrder};
use gradwire_protocol::units::{ByteCount, Share, Span};

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
    pub home: u8,
    /// Region of the receiving end.
    pub target: u8,
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
    /// Region of each host.
    pub host_region: Vec<u8>,
    /// Switches of the fabric.
    pub switches: u32,
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
    /// Least latency between two regions.
    pub lookahead: Span,
    /// Seed of all random decisions of switches and links.
    pub seed: u64,
}

impl Wiring {
    /// The wiring of a checked fabric whose switches follow `policy`, in as many regions as there
    /// are threads.
    pub fn new(fabric: &Fabric, policy: &QosPolicy, regions: usize, seed: u64) -> Self {
        let switch_region = regions_of_switches(fabric, regions);
        let mut wiring = Self {
            wires: Vec::with_capacity(fabric.links.len() * 2),
            routes: Routes::new(fabric),
            limits: vec![PortLimits::of_host()],
            host_port: vec![PortId(0); fabric.hosts as usize],
            host_region: regions_of_hosts(fabric, &switch_region),
            switches: fabric.switches.len() as u32,
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
            lookahead: Span::from_picos(u64::MAX),
            seed,
        };
        wiring.add_wires(fabric, policy, &switch_region);
        let crossing = wiring.wires.iter().filter(|wire| wire.home != wire.target);
        let least = crossing.map(|wire| wire.latency).min();
        wiring.lookahead = least.unwrap_or(wiring.lookahead);
        wiring
    }

    fn add_wires(&mut self, fabric: &Fabric, policy: &QosPolicy, switch_region: &[u8]) {
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
                self.wires.push(PortWire {
                    picos_per_byte: picos_per_byte(rate),
                    latency: link.latency,
                    from,
                    to,
                    home: self.region_of(from, switch_region),
                    target: self.region_of(to, switch_region),
                    limits,
                    loss: fabric.loss_of_way(number, way),
                });
            }
        }
    }

    fn region_of(&self, device: Device, switch_region: &[u8]) -> u8 {
        match device {
            Device::Host(host) => self.host_region[host as usize],
            Device::Switch(switch) => switch_region[switch as usize],
        }
    }
}

/// Divides the switches among regions: those of one tier in consecutive parts, so that a pod stays
/// together; those of the topmost tier, which links everything to everything, in rotation.
fn regions_of_switches(fabric: &Fabric, regions: usize) -> Vec<u8> {
    let top = fabric.switches.iter().map(|switch| switch.tier).max();
    let mut of_tier = vec![0_usize; 256];
    for switch in &fabric.switches {
        of_tier[usize::from(switch.tier)] += 1;
    }
    let mut seen = vec![0_usize; 256];
    let place = |switch: &gradwire_fabric::topology::Switch| {
        let tier = usize::from(switch.tier);
        let number = seen[tier];
        seen[tier] += 1;
        let region = if Some(switch.tier) == top && top != Some(0) {
            number % regions
        } else {
            number * regions / of_tier[tier]
        };
        region as u8
    };
    fabric.switches.iter().map(place).collect()
}

fn regions_of_hosts(fabric: &Fabric, switch_region: &[u8]) -> Vec<u8> {
    let mut regions = vec![0; fabric.hosts as usize];
    for link in &fabric.links {
        if let [Device::Host(host), Device::Switch(switch)]
        | [Device::Switch(switch), Device::Host(host)] = link.ends
        {
            regions[host as usize] = switch_region[switch as usize];
        }
    }
    regions
}
