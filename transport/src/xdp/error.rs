//! Why AF_XDP cannot be used, each with its remedy.

use std::io;
use std::net::IpAddr;

/// AF_XDP does not work here, or not for this job.
#[derive(Debug, thiserror::Error)]
pub enum XdpUnavailable {
    /// The rank has an IPv6 address.
    #[error(
        "AF_XDP carries packets over IPv4 only, and this rank's address is {address}: give it an \
         IPv4 address, or set transport.wire to \"udp\""
    )]
    NotIpv4 {
        /// The address.
        address: IpAddr,
    },
    /// The address is of no link between hosts.
    #[error(
        "{address} is no address of an Ethernet interface of this host: AF_XDP takes over queues \
         of a NIC; bind to the NIC's address, or set transport.wire to \"udp\""
    )]
    NoEthernet {
        /// The address.
        address: IpAddr,
    },
    /// The job's packets do not fit into a page.
    #[error(
        "transport.mtu is {given}, but a frame of AF_XDP on {interface} has room for {most}: set \
         transport.mtu to at most {most}, or transport.wire to \"udp\""
    )]
    MtuTooLarge {
        /// As given, in bytes.
        given: u32,
        /// The interface.
        interface: String,
        /// The most that it takes, in bytes.
        most: u32,
    },
    /// The interface has more queues than a rank can watch.
    #[error(
        "transport.entropies is {entropies}, and with the queues of {interface} that is more than \
         64: lower transport.entropies, reduce the queues (`ethtool -L {interface} combined 4`), \
         or set transport.wire to \"udp\""
    )]
    TooManyQueues {
        /// The interface.
        interface: String,
        /// The sockets of the rank.
        entropies: u32,
    },
    /// Another process owns a queue, or a program is at the interface.
    #[error(
        "{interface} is in use by another AF_XDP program ({source}): one rank per interface can \
         use it; `ip link show {interface}` shows a program; or set transport.wire to \"udp\""
    )]
    InUse {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Not for this user.
    #[error(
        "this user may not use AF_XDP ({source}): it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF \
         (docker: --cap-add for each); or set transport.wire to \"udp\""
    )]
    NoPermission {
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel was built without it.
    #[error(
        "this kernel has no AF_XDP ({source}): Linux 5.11 or newer with CONFIG_XDP_SOCKETS is \
         needed; or set transport.wire to \"udp\""
    )]
    Absent {
        /// The kernel's error.
        source: io::Error,
    },
    /// The limit of locked memory is too low.
    #[error(
        "no memory for frames on {interface} ({source}): raise the limit of locked memory (`ulimit \
         -l unlimited`), or set transport.wire to \"udp\""
    )]
    Memory {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Something else.
    #[error("AF_XDP does not work on {interface}: {source}; set transport.wire to \"udp\"")]
    Refused {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl XdpUnavailable {
    /// Explains a refusal of the kernel.
    pub(super) fn of(interface: &str, source: io::Error) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Self::InUse { interface, source },
            Some(libc::EPERM | libc::EACCES) => Self::NoPermission { source },
            Some(libc::EAFNOSUPPORT | libc::ENOSYS | libc::ESOCKTNOSUPPORT) => {
                Self::Absent { source }
            }
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::Memory { interface, source },
            _ => Self::Refused { interface, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_a_remedy() {
        let said = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            XdpUnavailable::of("eth7", error).to_string()
        };
        assert!(said(libc::EBUSY).contains("one rank per interface"));
        assert!(said(libc::EPERM).contains("CAP_NET_ADMIN"));
        assert!(said(libc::EAFNOSUPPORT).contains("CONFIG_XDP_SOCKETS"));
        assert!(said(libc::ENOBUFS).contains("ulimit -l"));
        for errno in [
            libc::EBUSY,
            libc::EPERM,
            libc::EAFNOSUPPORT,
            libc::ENOMEM,
            libc::EIO,
        ] {
            assert!(said(errno).contains("transport.wire"), "{errno}");
        }
    }
}
