//! Which network interface has an address, and how large a packet it takes.
#![expect(unsafe_code, reason = "getifaddrs gives a linked list of C structures")]

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};

/// The largest IP packet that the interface with `address` takes, in bytes.
///
/// # Errors
/// When no interface of this host has the address, or the system does not tell its MTU.
pub fn mtu(address: IpAddr) -> io::Result<u32> {
    mtu_of(&name(address)?)
}

/// The largest IP packet that the interface of this name takes, in bytes.
///
/// # Errors
/// When there is no such interface, or the system does not tell its MTU.
pub fn mtu_of(name: &str) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu"))?;
    text.trim().parse().map_err(io::Error::other)
}

/// The name of the interface with `address`; any loopback address has the loopback interface.
///
/// # Errors
/// When no interface of this host has the address.
pub fn name(address: IpAddr) -> io::Result<String> {
    let all = all()?;
    let found = all
        .into_iter()
        .find(|one| one.address == address || (address.is_loopback() && one.is_loopback));
    found
        .map(|one| one.name)
        .ok_or_else(|| io::Error::other(format!("no interface of this host has {address}")))
}

/// One address of an interface of this host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// The interface's name; it comes once per address.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it leads nowhere but to this host.
    pub is_loopback: bool,
}

/// All interfaces that have an IP address, once per address.
///
/// # Errors
/// When the system does not tell.
pub fn all() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success the pointer is set to a list that freeifaddrs takes back.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: every entry is valid until the list is freed, and the last one's link is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: an entry's name is a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        if let (Some(address), Ok(name)) = (ip_of(entry), name.to_str()) {
            let has = |flag: libc::c_int| entry.ifa_flags & flag as libc::c_uint != 0;
            found.push(Interface {
                name: name.to_owned(),
                address,
                is_up: has(libc::IFF_UP),
                is_loopback: has(libc::IFF_LOOPBACK),
            });
        }
    }
    // SAFETY: the list came from getifaddrs and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn ip_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: an address that is not null points to at least its family.
    let family = i32::from(unsafe { entry.ifa_addr.as_ref() }?.sa_family);
    let length = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: an address of this family has `length` bytes, and the storage has room for any.
    unsafe {
        ptr::copy_nonoverlapping(
            entry.ifa_addr.cast::<u8>(),
            (&raw mut storage).cast::<u8>(),
            length,
        );
    }
    // SAFETY: the storage holds an address of `length` bytes.
    let address = unsafe { SockAddr::new(storage, length as libc::socklen_t) };
    address.as_socket().map(|socket| socket.ip())
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
    fn an_address_of_another_host_has_no_interface() {
        let elsewhere = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        assert!(mtu(elsewhere).is_err());
    }
}
