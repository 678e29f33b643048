//! Hosts, switches and the links between them, as a plain graph.
//!
//! One-line shapes, `fabric.toml` and the files of other simulators all become a [`Fabric`].

use std::fmt;

use gradwire_protocol::units::{ByteCount, Instant, Rate, Share, Span};

use crate::policy::{Balance, SwitchBuffer};

/// An end of a link.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Device {
    /// A host, numbered from 0; it has one link.
    Host(u32),
    /// A switch, numbered from 0.
    Switch(u32),
}

/// A switch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Switch {
    /// Its name, for people.
    pub name: String,
    /// Its distance from the hosts: 0 for switches that hosts are linked to.
    pub tier: u8,
}

/// A full-duplex link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Its ends.
    pub ends: [Device; 2],
    /// Bits per second, in each direction.
    pub rate: Rate,
    /// Time on the wire, of each direction.
    pub latency: Span,
    /// Share of packets that it loses at random, in each direction.
    pub loss: Share,
}

/// The directions of a link that something concerns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LinkWay {
    /// Both.
    #[default]
    Both,
    /// From the first of [`Link::ends`] to the second.
    Forth,
    /// From the second to the first.
    Back,
}

/// A direction of a link that is slower or loses more than [`Link`] says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneWayFault {
    /// Index of the link in [`Fabric::links`].
    pub link: u32,
    /// The direction; not both.
    pub way: LinkWay,
    /// The rate that is left, if it is another one.
    pub rate: Option<Rate>,
    /// The share of packets that it loses, if it is another one.
    pub loss: Option<Share>,
}

/// A link that fails or comes back at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkChange {
    /// When.
    pub at: Instant,
    /// Index of the link in [`Fabric::links`].
    pub link: u32,
    /// The directions that change.
    pub way: LinkWay,
    /// Its state from then on.
    pub state: LinkState,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkState {
    /// It carries packets.
    Up,
    /// It loses everything, and switches avoid it.
    Down,
}

/// Times at which a host's link is slow in one direction. They begin at random and last at random:
/// both spans are means of exponential distributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowSpells {
    /// How long one lasts.
    pub length: Span,
    /// The time from the end of one to the start of the next.
    pub apart: Span,
    /// The share of the link's rate that is left.
    pub left: Share,
}

/// The slow spells of all hosts, each drawn for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSpells {
    /// In which a host sends slowly.
    pub send: Option<SlowSpells>,
    /// In which a host receives slowly.
    pub receive: Option<SlowSpells>,
}

/// How switches treat data packets that they would drop, and those that find a long queue
/// ([`QosPolicy::trims_above`](crate::policy::QosPolicy::trims_above)).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Trimming {
    /// They drop them.
    #[default]
    Off,
    /// They cut them to their headers, which go on in the highest queue.
    On,
}

/// A network.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Its name: the one-line form or the name in the file.
    pub name: String,
    /// How many hosts it has.
    pub hosts: u32,
    /// Its switches.
    pub switches: Vec<Switch>,
    /// Its links. A link that has failed for the whole run is not in it.
    pub links: Vec<Link>,
    /// Links that fail and come back during the run, in order of time.
    pub changes: Vec<LinkChange>,
    /// Directions of links with faults of their own, a later one before an earlier one.
    pub one_way: Vec<OneWayFault>,
    /// When hosts' links are slow.
    pub spells: HostSpells,
    /// Packet memory of every switch.
    pub buffer: SwitchBuffer,
    /// Largest packet of a transport in bytes, its own header included.
    pub mtu: u32,
    /// Bytes that every packet takes on a wire beyond [`Fabric::mtu`]: Ethernet with preamble and
    /// gap (38), IPv4 (20) and UDP (8) by default.
    pub framing: u32,
    /// How switches choose among equal paths, unless the command line decides.
    pub balance: Option<Balance>,
    /// Depth, as a share of rate x round trip, above which data queues mark ECT and drop not-ECT
    /// packets; `None`: never, they only drop packets that do not fit.
    pub marks_above: Option<Share>,
    /// Whether switches cut data packets to their headers where a queue is long.
    pub trimming: Trimming,
}

/// Bytes on the wire around a UDP payload: Ethernet 38 with preamble and gap, IPv4 20, UDP 8.
pub const FRAMING: u32 = 66;
/// Largest packet by default.
pub const MTU: u32 = 4096;
/// Packet memory of a port by default.
pub const PORT_BUFFER: ByteCount = ByteCount::kib(512);

impl Fabric {
    /// The name of a device: `host 7`, or the name of a switch.
    pub fn device_name(&self, device: Device) -> String {
        match device {
            Device::Switch(switch) if (switch as usize) < self.switches.len() => {
                self.switches[switch as usize].name.clone()
            }
            _ => device.to_string(),
        }
    }

    /// The name of a link: `host 7 - edge 0.1`.
    ///
    /// # Panics
    ///
    /// When there is no such link.
    pub fn link_name(&self, link: u32) -> String {
        let [low, high] = self.links[link as usize].ends;
        format!("{} - {}", self.device_name(low), self.device_name(high))
    }

    /// Rate of a direction of a link.
    ///
    /// # Panics
    ///
    /// When there is no such link.
    pub fn rate_of_way(&self, link: u32, way: LinkWay) -> Rate {
        let faults = self.faults_of(link, way);
        let rate = faults.filter_map(|fault| fault.rate).last();
        rate.unwrap_or(self.links[link as usize].rate)
    }

    /// Share of packets that a direction of a link loses.
    ///
    /// # Panics
    ///
    /// When there is no such link.
    pub fn loss_of_way(&self, link: u32, way: LinkWay) -> Share {
        let faults = self.faults_of(link, way);
        let loss = faults.filter_map(|fault| fault.loss).last();
        loss.unwrap_or(self.links[link as usize].loss)
    }

    fn faults_of(&self, link: u32, way: LinkWay) -> impl Iterator<Item = &OneWayFault> {
        let faults = self.one_way.iter();
        faults.filter(move |fault| (fault.link, fault.way) == (link, way))
    }

    /// Rate of the slowest link of a host; zero when there are no hosts.
    pub fn host_rate(&self) -> Rate {
        let to_hosts = self.links.iter().filter(|link| link.has_host());
        to_hosts.map(|link| link.rate).min().unwrap_or_default()
    }
}

impl LinkWay {
    /// Whether this is, or includes, a single direction.
    pub fn has(self, way: Self) -> bool {
        self == Self::Both || self == way
    }
}

impl Link {
    /// Whether one of its ends is a host.
    pub fn has_host(&self) -> bool {
        let host = |end: &Device| matches!(end, Device::Host(_));
        self.ends.iter().any(host)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {host}"),
            Self::Switch(switch) => write!(f, "switch {switch}"),
        }
    }
}
