//! Sleeping until a packet, a command or a point in time comes.
#![expect(unsafe_code, reason = "ppoll and eventfd are raw system calls")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use gradwire_protocol::units::Span;

/// A bell that ends another thread's sleep. Ringing costs a system call only if it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let event = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            event,
            asleep: AtomicBool::new(false),
        })
    }

    /// Wakes the sleeper, now or as soon as it tries to sleep.
    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: eight bytes are read from a live array. A full counter wakes as well.
            let _ = unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// From here on [`Bell::ring`] wakes. Look once more for work between this and
    /// [`Bell::sleep`].
    pub(crate) fn lie_down(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Work was found after all.
    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Sleeps until a descriptor can be read, the bell rings, or `most` has passed.
    pub(crate) fn sleep(&self, descriptors: impl Iterator<Item = RawFd>, most: Span) {
        let own = std::iter::once(self.event.as_raw_fd());
        let mut polled: [libc::pollfd; POLLED_MAX] = [EMPTY; POLLED_MAX];
        let mut count = 0;
        for (slot, descriptor) in polled.iter_mut().zip(own.chain(descriptors)) {
            *slot = libc::pollfd {
                fd: descriptor,
                events: libc::POLLIN,
                revents: 0,
            };
            count += 1;
        }
        wait(&mut polled[..count], most);
        self.get_up();
        if polled[0].revents != 0 {
            let mut counter = [0_u8; 8];
            let (out, bytes) = (counter.as_mut_ptr().cast(), counter.len());
            // SAFETY: eight bytes are written to a live array.
            let _ = unsafe { libc::read(self.event.as_raw_fd(), out, bytes) };
        }
    }
}

/// A bell and at most 64 sockets.
const POLLED_MAX: usize = 65;
const EMPTY: libc::pollfd = libc::pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};

/// Waits until `descriptor` takes more to send, or `most` has passed.
pub(crate) fn wait_writable(descriptor: RawFd, most: Span) {
    wait(
        &mut [libc::pollfd {
            fd: descriptor,
            events: libc::POLLOUT,
            revents: 0,
        }],
        most,
    );
}

fn wait(polled: &mut [libc::pollfd], most: Span) {
    let nanos = most.as_nanos();
    let time = libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    };
    let count = polled.len() as libc::nfds_t;
    // SAFETY: the array has `count` entries, the time lives until the call returns, and no signal
    // mask is passed. An interrupted wait is a short one.
    unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            count,
            &raw const time,
            std::ptr::null(),
        )
    };
}
