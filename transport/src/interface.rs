//! Finds the network interface of an address, and the largest packet that it takes.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// Largest packet if the job leaves the MTU open, even if an interface takes more, as loopback
/// does: a loss should not cost more than on a real network.
pub const AUTO_MTU_MAX: u32 = 9_000;

/// The largest IP packet that the interface with `address` takes, in bytes.
///
/// # Errors
/// When no interface of this host has the address, or the system does not report its MTU.
pub fn mtu(address: IpAddr) -> io::Result<u32> {
    mtu_of(&name(address)?)
}

/// The largest IP packet that the interface of this name takes, in bytes.
///
/// # Errors
/// When there is no such interface, or the system does not report its MTU.
pub fn mtu_of(name: &str) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// The name of the interface with `address`. Every loopback address belongs to the loopback
/// interface.
///
/// # Errors
/// When no interface of this host has the address.
pub fn name(address: IpAddr) -> io::Result<String> {
    let has =
        |one: &Interface| one.address == address || (address.is_loopback() && one.is_loopback);
    let found = all()?.into_iter().find(has);
    found
        .map(|one| one.name)
        .ok_or_else(|| io::Error::other(format!("no interface of this host has {address}")))
}

/// One address of an interface of this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// The interface's name. An interface with several addresses is listed once for each.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Whether the interface is up.
    pub is_up: bool,
    /// Whether the interface is a loopback interface.
    pub is_loopback: bool,
}

/// All interfaces that have an IP address, once per address.
///
/// # Errors
/// When the system does not list them.
pub fn all() -> io::Result<Vec<Interface>> {
    let interface = |one: InterfaceAddress| {
        let address = ip_of(&one)?;
        Some(Interface {
            name: one.interface_name,
            address,
            is_up: one.flags.contains(InterfaceFlags::IFF_UP),
            is_loopback: one.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        })
    };
    Ok(getifaddrs()?.filter_map(interface).collect())
}

fn ip_of(interface: &InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address.as_ref()?;
    let v4 = || Some(address.as_sockaddr_in()?.ip().into());
    let v6 = || Some(address.as_sockaddr_in6()?.ip().into());
    v4().or_else(v6)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn loopback_takes_large_packets() {
        assert!(mtu(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("loopback is up") >= 16_384);
        assert!(mtu(IpAddr::V4(Ipv4Addr::new(127, 1, 2, 3))).is_ok());
    }

    #[test]
    fn foreign_addresses_have_no_interface() {
        let elsewhere = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        assert!(mtu(elsewhere).is_err());
    }
}
