//! Asks which sockets have packets, and sleeps until a packet, a command or a point in time.
#![expect(unsafe_code, reason = "poll and epoll take descriptors by number")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;

use gradwire_protocol::units::Span;

/// Ends another thread's sleep. Waking costs a system call only if that thread sleeps.
#[derive(Debug)]
pub(crate) struct ThreadWaker {
    event: EventFd,
    armed: AtomicBool,
}

impl ThreadWaker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self {
            event,
            armed: AtomicBool::new(false),
        })
    }

    /// Wakes the sleeper, now or as soon as it tries to sleep.
    pub(crate) fn wake(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            // The write fails only if the counter is full, and a full counter wakes as well.
            let _ = self.event.write(1);
        }
    }

    /// From here on [`ThreadWaker::wake`] ends a sleep. Look once more for work between this and
    /// [`ThreadWaker::sleep`].
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// The thread does not sleep; waking it costs no system call.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::SeqCst);
    }

    /// Sleeps until a socket or the bell of `others` can be read, a path has room, another thread
    /// wakes this one, or `most` has passed.
    pub(crate) fn sleep(
        &self,
        sockets: &SocketPoller,
        others: (Option<RawFd>, Option<RoomNotice>),
        most: Span,
    ) {
        let (bell, room) = others;
        let event = self.event.as_fd();
        // If there is no descriptor, the event is asked again, which changes nothing.
        let bell = bell.map_or(event, borrowed);
        let (room, flags) = match room {
            Some(RoomNotice::Writable(descriptor)) => (borrowed(descriptor), PollFlags::POLLOUT),
            Some(RoomNotice::Completion(descriptor)) => (borrowed(descriptor), PollFlags::POLLIN),
            None => (event, PollFlags::POLLIN),
        };
        let read = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
        let sockets = read(sockets.epoll.0.as_fd());
        let mut polled = [read(event), sockets, read(bell), PollFd::new(room, flags)];
        wait(&mut polled, most);
        self.disarm();
        if polled[0].any() != Some(false) {
            // Resets the counter, so that the next sleep does not end at once.
            let _ = self.event.read();
        }
    }
}

/// Tells which of several sockets can be read with one system call. Asking eight empty sockets one
/// by one costs twenty times as much.
#[derive(Debug)]
pub(crate) struct SocketPoller {
    epoll: Epoll,
}

/// Sockets reported at a time. The kernel takes turns, so that every socket is reported.
const REPORTED_MAX: usize = 16;

impl SocketPoller {
    /// Watches `sockets`, which must stay open as long as the poller.
    pub(crate) fn of(sockets: impl Iterator<Item = RawFd>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, socket) in sockets.enumerate() {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, index as u64);
            epoll.add(borrowed(socket), event)?;
        }
        Ok(Self { epoll })
    }

    /// The sockets that can be read now, or up to [`REPORTED_MAX`] of them. Does not wait.
    pub(crate) fn readable(&self) -> ReadableSockets {
        let mut events = [const { EpollEvent::new(EpollFlags::empty(), 0) }; REPORTED_MAX];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO);
        let reported = events.iter().take(count.unwrap_or(0));
        reported.map(|event| event.data() as usize).collect()
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

/// How a path tells that it may take packets again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RoomNotice {
    /// This socket can be written to.
    Writable(RawFd),
    /// This channel of an RDMA device can be read: packets have been sent.
    Completion(RawFd),
}

/// Whether the send buffer of `descriptor` has room. Does not wait.
pub(crate) fn is_writable(descriptor: RawFd) -> bool {
    let mut polled = [PollFd::new(borrowed(descriptor), PollFlags::POLLOUT)];
    wait(&mut polled, Span::ZERO);
    polled[0].any() == Some(true)
}

/// Waits until a socket can be read, or `most` has passed.
pub(crate) fn wait_readable(sockets: &SocketPoller, most: Span) {
    let sockets = sockets.epoll.0.as_fd();
    wait(&mut [PollFd::new(sockets, PollFlags::POLLIN)], most);
}

fn wait(polled: &mut [PollFd<'_>], most: Span) {
    let time = TimeSpec::from(std::time::Duration::from_nanos(most.as_nanos()));
    // An error is an interrupted wait, which ends early: callers check again anyway.
    let _ = ppoll(polled, Some(time), None);
}

fn borrowed<'a>(descriptor: RawFd) -> BorrowedFd<'a> {
    // SAFETY: callers own the descriptor for longer than they wait on it. The kernel answers for a
    // closed one with an error, and no memory depends on it.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
