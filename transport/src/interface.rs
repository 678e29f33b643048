//! Finds the network interface of an address, and the largest packet that it takes.

#![expect(unsafe_code, reason = "an ioctl takes a C structure")]

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::ioctl_readwrite_bad;
use nix::net::if_::InterfaceFlags;
use socket2::{Domain, Socket, Type};

ioctl_readwrite_bad!(
    /// The MTU of the interface that a request names.
    interface_mtu,
    libc::SIOCGIFMTU,
    libc::ifreq
);

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
    // Not by /sys, which shows the interfaces of the network namespace that mounted it.
    let mut request = request(name)?;
    let socket = any_socket()?;
    // SAFETY: the request names an interface, and the kernel fills in a number.
    unsafe { interface_mtu(socket.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the kernel has just written this number.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).map_err(io::Error::other)
}

/// A request to the kernel about the interface of this name.
///
/// # Errors
/// When the name is too long for an interface.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the structure consists of numbers and pointers, of which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::other(format!(
            "{name} is not the name of an interface"
        )));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// A socket to ask the kernel about interfaces.
#[expect(clippy::disallowed_methods, reason = "no packet goes through it")]
fn any_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

/// An Ethernet interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EthernetInterface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its address on its link.
    pub mac: [u8; 6],
}

/// The Ethernet interface with `address`.
///
/// # Errors
/// When no interface of this host has the address, or its link is no Ethernet.
pub fn ethernet(address: IpAddr) -> io::Result<EthernetInterface> {
    let name = name(address)?;
    // Of an address with a label, such as eth0:1.
    let name = name.split(':').next().unwrap_or(&name).to_owned();
    let own = getifaddrs()?.filter(|one| one.interface_name == name);
    let mut links = own.filter_map(|one| one.address?.as_link_addr().copied());
    let ethernet = links.find(|link| link.hatype() == libc::ARPHRD_ETHER);
    let found = ethernet.and_then(|link| Some((link.addr()?, link.ifindex() as u32)));
    let no_ethernet = || io::Error::other(format!("{name} is no Ethernet interface"));
    let (mac, index) = found.ok_or_else(no_ethernet)?;
    Ok(EthernetInterface { name, index, mac })
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
