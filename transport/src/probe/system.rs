//! Limits of the kernel for this process, and the cost of its clock.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::clock::now;
use super::socket;
use crate::udp::Sockets;

/// Readings of a batch, over which the cost of one is averaged.
const READINGS: u32 = 1_000;
const BATCHES: u32 = 50;

/// Bytes that this process may lock in memory; `None` for any number.
///
/// # Errors
/// The system's.
pub fn locked_memory() -> io::Result<Option<u64>> {
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK)?;
    Ok((soft != RLIM_INFINITY).then_some(soft))
}

/// The time of one reading of the monotonic clock, from the batch with the fewest interruptions.
pub fn clock_cost() -> Duration {
    let batch = || {
        let start: Instant = now();
        for _ in 0..READINGS {
            std::hint::black_box(now());
        }
        start.elapsed() / READINGS
    };
    let batches = (0..BATCHES).map(|_| batch());
    batches.min().unwrap_or_default()
}

/// Bytes of packets that the kernel buffers for a rank with this many sockets on `address`.
///
/// # Errors
/// If the sockets cannot be opened.
pub fn receive_buffer(address: IpAddr, entropies: u8) -> io::Result<u64> {
    let sockets = Sockets::open(address, entropies).map_err(io::Error::other)?;
    Ok(sockets.receive_buffer())
}

/// The addresses of "host:port".
///
/// # Errors
/// If the text is not of this form, or the name has no address.
pub fn resolve(text: &str) -> io::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let mut addresses = text.to_socket_addrs()?;
    let none = || io::Error::other("the name has no address");
    addresses.next().ok_or_else(none)
}

/// The source address of packets from this host to `peer`.
///
/// # Errors
/// If there is no route.
pub fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    socket::address_towards(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_it_allows() {
        assert!(locked_memory().is_ok());
        assert!(clock_cost() > Duration::ZERO);
    }
}
