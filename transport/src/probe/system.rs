//! What the kernel allows this process, and what its clock costs.
#![expect(
    unsafe_code,
    reason = "io_uring_setup, statvfs and limits are raw calls"
)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{now, socket};
use crate::udp::Sockets;

/// Readings of a batch, over which the cost of one is averaged.
const READINGS: u32 = 1_000;
const BATCHES: u32 = 50;
/// Bytes of struct io_uring_params.
const URING_PARAMETERS: usize = 120;

/// Room of a file system, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// All of it.
    pub size: u64,
    /// What this process may still fill.
    pub free: u64,
}

/// Whether an io_uring can be set up.
///
/// # Errors
/// The kernel's: ENOSYS where there is none, EPERM where a rule or a container forbids it.
pub fn io_uring() -> io::Result<()> {
    let mut parameters = [0_u64; URING_PARAMETERS / 8];
    let entries: libc::c_uint = 4;
    // SAFETY: the parameters are zero, aligned, and as long as the kernel's structure.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, parameters.as_mut_ptr()) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) });
    Ok(())
}

/// Bytes that this process may lock in memory; `None` for any number.
///
/// # Errors
/// The system's.
pub fn locked_memory() -> io::Result<Option<u64>> {
    // SAFETY: all-zero limits are valid ones.
    let mut limit: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: the limits live until the call returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur))
}

/// The room of the file system that holds `path`.
///
/// # Errors
/// When there is no such path.
pub fn room(path: &Path) -> io::Result<Room> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: an all-zero statvfs is a valid one.
    let mut told: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: the path is a C string, and the structure lives until the call returns.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut told) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Room {
        size: told.f_blocks * told.f_frsize,
        free: told.f_bavail * told.f_frsize,
    })
}

/// What one reading of the monotonic clock takes, by the batch that was interrupted least.
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

/// Bytes of packets that the kernel keeps for a rank with so many sockets on `address`.
///
/// # Errors
/// When the sockets cannot be opened.
pub fn receive_buffer(address: IpAddr, entropies: u8) -> io::Result<u64> {
    let sockets = Sockets::open(address, entropies).map_err(io::Error::other)?;
    Ok(sockets.receive_buffer())
}

/// The addresses of "host:port".
///
/// # Errors
/// When the text is none, or the name has no address.
pub fn resolve(text: &str) -> io::Result<SocketAddr> {
    use std::net::ToSocketAddrs;
    let mut addresses = text.to_socket_addrs()?;
    let none = || io::Error::other("the name has no address");
    addresses.next().ok_or_else(none)
}

/// The address of this host that packets to `peer` leave by.
///
/// # Errors
/// When no route leads there.
pub fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    socket::address_towards(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_it_allows() {
        let shared = room(Path::new("/proc")).expect("it is there");
        assert!(shared.free <= shared.size);
        assert!(room(Path::new("/nowhere/at/all")).is_err());
        assert!(locked_memory().is_ok());
        assert!(clock_cost() > Duration::ZERO);
    }
}
