//! Which sockets have something, and sleeping until a packet, a command or a point in time comes.
#![expect(unsafe_code, reason = "epoll, ppoll and eventfd are raw system calls")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use gradwire_protocol::units::Span;

/// A bell that ends another thread's sleep. Ringing costs a system call only if it sleeps.
#[derive(Debug)]
pub(crate) struct ThreadWaker {
    event: OwnedFd,
    asleep: AtomicBool,
}

impl ThreadWaker {
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

    /// From here on [`ThreadWaker::ring`] wakes. Look once more for work between this and
    /// [`ThreadWaker::sleep`].
    pub(crate) fn lie_down(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// Work was found after all.
    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Sleeps until a socket can be read, `other` too, the bell rings, or `most` has passed.
    pub(crate) fn sleep(&self, sockets: &SocketPoller, other: Option<RawFd>, most: Span) {
        let waits_on = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // What is no descriptor is not waited for (poll(2)).
        let other = other.unwrap_or(-1);
        let mut polled = [self.event.as_raw_fd(), sockets.epoll.as_raw_fd(), other].map(waits_on);
        wait(&mut polled, most);
        self.get_up();
        if polled[0].revents != 0 {
            let mut counter = [0_u8; 8];
            let (out, bytes) = (counter.as_mut_ptr().cast(), counter.len());
            // SAFETY: eight bytes are written to a live array.
            let _ = unsafe { libc::read(self.event.as_raw_fd(), out, bytes) };
        }
    }
}

/// Which of several sockets can be read, for the price of one system call: asking eight empty
/// sockets one by one costs twenty times as much.
#[derive(Debug)]
pub(crate) struct SocketPoller {
    epoll: OwnedFd,
}

/// Sockets reported at a time. The kernel goes round, so that none is forgotten.
const REPORTED_MAX: usize = 16;

impl SocketPoller {
    pub(crate) fn of(sockets: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(descriptor) };
        for (index, socket) in sockets.enumerate() {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: index as u64,
            };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: the event lives until the call returns.
            if unsafe { libc::epoll_ctl(descriptor, add, socket, &raw mut event) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { epoll })
    }

    /// The sockets that can be read now, or some of them when they are many.
    pub(crate) fn readable(&self) -> ReadableSockets {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; REPORTED_MAX];
        let (out, most) = (events.as_mut_ptr(), REPORTED_MAX as libc::c_int);
        // SAFETY: the array has room for `most` events. The call does not wait.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), out, most, 0) };
        let reported = events.iter().take(count.max(0) as usize);
        reported.map(|event| event.u64 as usize).collect()
    }
}

/// A set of sockets, by their index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadableSockets(u64);

impl ReadableSockets {
    /// Whether no socket could be read.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<usize> for ReadableSockets {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        Self(indices.into_iter().fold(0, |set, index| set | 1 << index))
    }
}

impl Iterator for ReadableSockets {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let index = (self.0 != 0).then(|| self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        index
    }
}

/// Waits until `descriptor` takes more to send, or `most` has passed.
pub(crate) fn wait_writable(descriptor: RawFd, most: Span) {
    wait_for(libc::POLLOUT, descriptor, most);
}

/// Waits until a socket can be read, or `most` has passed.
pub(crate) fn wait_readable(sockets: &SocketPoller, most: Span) {
    wait_for(libc::POLLIN, sockets.epoll.as_raw_fd(), most);
}

/// Waits until `descriptor` can be read, or `most` has passed.
pub(crate) fn wait_descriptor(descriptor: RawFd, most: Span) {
    wait_for(libc::POLLIN, descriptor, most);
}

fn wait_for(events: libc::c_short, fd: RawFd, most: Span) {
    let polled = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    wait(&mut [polled], most);
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
