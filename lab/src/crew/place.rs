//! Where the ranks of a measurement are: on this machine as it is, at loopback or at addresses that
//! were named, or each in a network namespace of its own.
//!
//! The namespaces have no names. They exist while this process has them open or a rank is in them;
//! when both are gone, for any reason, the kernel removes them and their links. So nothing is left
//! behind, and no foreign namespace is touched. A veth pair joins two ranks; more are joined by
//! veth pairs to a bridge in one more namespace.
//!
//! [`Lab::disturb`] makes a link lose packets for transports that have no fault layer of their own:
//! a filter where packets come in, in classic BPF, which draws a random number for each.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};

use gradwire_protocol::units::Share;

use crate::error::LabError;
use crate::netns;

/// The option that asks for namespaces.
const OPTION: &str = "--netns";

/// The interface of a rank in its namespace.
const LINK: &str = "eth0";
/// The interface of this machine on which ranks meet without namespaces.
const LOOPBACK: &str = "lo";
/// Addresses of ranks in namespaces, in a network that exists nowhere else.
const NETWORK: [u8; 3] = [10, 83, 0];

/// Where ranks are.
#[derive(Debug)]
pub enum CrewPlace {
    /// On this machine, joined by loopback.
    Host,
    /// On this machine, each at an address of its own.
    Addresses(Vec<IpAddr>),
    /// In namespaces.
    Lab(Lab),
}

impl CrewPlace {
    /// Ranks at the addresses in `bind`, or at loopback without any; with a `link_mtu` each in a
    /// namespace of its own.
    ///
    /// # Errors
    /// As [`Lab::new`]; [`LabError::Usage`] when there are not as many addresses as ranks.
    pub fn new(bind: &[IpAddr], link_mtu: Option<u32>, ranks: u16) -> Result<Self, LabError> {
        match (link_mtu, bind.len()) {
            (Some(mtu), _) => Lab::new(ranks, mtu).map(Self::Lab),
            (None, 0) => Ok(Self::Host),
            (None, given) if given == usize::from(ranks) => Ok(Self::Addresses(bind.to_vec())),
            (None, given) => Err(LabError::Usage(format!(
                "--bind names {given} addresses for {ranks} ranks: give one for each rank"
            ))),
        }
    }

    /// The address of a rank.
    pub fn address(&self, rank: u16) -> IpAddr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST.into(),
            Self::Addresses(addresses) => addresses[usize::from(rank)],
            Self::Lab(_) => {
                let [a, b, c] = NETWORK;
                Ipv4Addr::new(a, b, c, host_number(rank)).into()
            }
        }
    }

    /// The address of an aggregator behind this many ranks.
    pub(super) fn aggregator(&self, ranks: u16) -> IpAddr {
        match self {
            Self::Host => Ipv4Addr::LOCALHOST.into(),
            Self::Addresses(addresses) => addresses[0],
            Self::Lab(_) => self.address(ranks),
        }
    }

    /// The interface that rivals use.
    pub fn interface(&self) -> &'static str {
        match self {
            Self::Host | Self::Addresses(_) => LOOPBACK,
            Self::Lab(_) => LINK,
        }
    }

    /// How the ranks are joined, for people and programs.
    pub fn network(&self) -> &'static str {
        match self {
            Self::Host => "loopback",
            Self::Addresses(_) => "addresses of this machine",
            Self::Lab(lab) if lab.bridge.is_some() => "network namespaces, veth and bridge",
            Self::Lab(_) => "network namespaces, veth",
        }
    }

    /// Starts the process of a rank, or of the aggregator behind all ranks.
    ///
    /// # Errors
    /// The system's, when there is no such program.
    pub fn spawn(&self, rank: usize, command: &mut Command) -> io::Result<Child> {
        match self {
            Self::Host | Self::Addresses(_) => command.spawn(),
            Self::Lab(lab) => netns::within(&lab.rooms[rank], || command.spawn())?,
        }
    }
}

/// Joined network namespaces, one per rank.
#[derive(Debug)]
pub struct Lab {
    rooms: Vec<File>,
    bridge: Option<File>,
}

impl Lab {
    /// Namespaces for this many ranks, joined by links of this MTU.
    ///
    /// # Errors
    /// [`LabError`] when this user may not make namespaces, or a link cannot be made.
    pub fn new(ranks: u16, mtu: u32) -> Result<Self, LabError> {
        let rooms = (0..ranks).map(|_| netns::unnamed());
        let rooms = rooms.collect::<io::Result<Vec<File>>>().map_err(refused)?;
        let bridge = if ranks > 2 {
            Some(netns::unnamed().map_err(refused)?)
        } else {
            None
        };
        let lab = Self { rooms, bridge };
        match &lab.bridge {
            None => ip(&lab.rooms[0], &[veth(mtu, LINK, &lab.rooms[1])])?,
            Some(bridge) => {
                let up = ["link add br0 type bridge", "link set br0 up"];
                ip(bridge, &up.map(str::to_owned))?;
                for (rank, room) in lab.rooms.iter().enumerate() {
                    let port = format!("port{rank}");
                    ip(room, &[veth(mtu, &port, bridge)])?;
                    ip(bridge, &[format!("link set {port} master br0 up")])?;
                }
            }
        }
        let [a, b, c] = NETWORK;
        for (rank, room) in (0..).zip(&lab.rooms) {
            let address = format!("{a}.{b}.{c}.{}/24", host_number(rank));
            let lines = [
                format!("address add {address} dev {LINK}"),
                "link set lo up".to_owned(),
                format!("link set {LINK} up"),
            ];
            ip(room, &lines)?;
        }
        Ok(lab)
    }

    /// From now on drops this share of the packets that arrive at any rank. Segmentation offload is
    /// off meanwhile, so that a drop is a drop of one packet of the link's MTU.
    ///
    /// # Errors
    /// [`LabError`] when the kernel has no such filters.
    pub fn disturb(&self, drop: Share) -> Result<(), LabError> {
        for room in &self.rooms {
            ip(room, &[format!("link set {LINK} gso_max_segs 1")])?;
            tc(room, &[format!("qdisc replace dev {LINK} clsact")])?;
            if !drop.is_none() {
                let program = dropping(drop);
                let filter = format!("filter add dev {LINK} ingress bpf da bytecode '{program}'");
                tc(room, &[filter])?;
            }
        }
        Ok(())
    }

    /// Ends the drops of [`Lab::disturb`].
    ///
    /// # Errors
    /// [`LabError`] when the kernel refuses.
    pub fn calm(&self) -> Result<(), LabError> {
        for room in &self.rooms {
            tc(room, &[format!("qdisc del dev {LINK} clsact")])?;
            ip(room, &[format!("link set {LINK} gso_max_segs 65535")])?;
        }
        Ok(())
    }
}

fn host_number(rank: u16) -> u8 {
    u8::try_from(rank + 1).expect("a lab has at most 64 ranks")
}

/// A classic BPF program that drops a share of the packets, as tc writes it: how many instructions,
/// then of each code, jumps and operand (linux/filter.h).
fn dropping(share: Share) -> String {
    /// `SKF_AD_OFF + SKF_AD_RANDOM`: 32 random bits.
    const RANDOM: u32 = (-0x1000_i32 + 56) as u32;
    const SHOT: u32 = 2;
    const GO_ON: u32 = u32::MAX;
    let threshold = (share.get() * f64::from(u32::MAX)) as u32;
    format!("4,32 0 0 {RANDOM},53 1 0 {threshold},6 0 0 {SHOT},6 0 0 {GO_ON}")
}

/// One end is made in the namespace in which this is done, the other in `other`.
fn veth(mtu: u32, other_end: &str, other: &File) -> String {
    let other = format!("/proc/{}/fd/{}", std::process::id(), other.as_raw_fd());
    format!("link add {LINK} mtu {mtu} type veth peer name {other_end} mtu {mtu} netns {other}")
}

fn ip(room: &File, lines: &[String]) -> Result<(), LabError> {
    netns::batch(OPTION, "ip", room, lines)
}

fn tc(room: &File, lines: &[String]) -> Result<(), LabError> {
    netns::batch(OPTION, "tc", room, lines)
}

fn refused(source: io::Error) -> LabError {
    netns::refused(OPTION, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_drops_the_asked_share_of_random_numbers() {
        let threshold = |percent: f64| {
            let share = Share::new(percent / 100.0).expect("a share");
            let program = dropping(share);
            let jump = program
                .split(',')
                .nth(2)
                .expect("four instructions")
                .to_owned();
            let operand = jump.split(' ').nth(3).expect("an operand").to_owned();
            operand.parse::<f64>().expect("a number") / f64::from(u32::MAX) * 100.0
        };
        for percent in [0.0, 0.1, 1.0, 5.0, 100.0] {
            assert!((threshold(percent) - percent).abs() < 1e-6, "{percent}");
        }
    }
}
