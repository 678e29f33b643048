//! The submission and completion queues that are shared with the kernel.
#![expect(unsafe_code, reason = "submissions hold raw pointers")]

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::RawFd;

use io_uring::squeue::Entry;
use io_uring::{IoUring, cqueue, opcode, types};

use super::slots::{GROUP, SLOTS, UringSlots};
use crate::message;
use crate::udp;
use crate::wake::ReadableSockets;

/// The maximum number of waiting submissions: one receive for each of at most 64 sockets, and one
/// send.
const SUBMISSIONS: u32 = 128;
/// The maximum number of waiting completions: one per slot, the end of each receive, and one send;
/// doubled.
const COMPLETIONS: u32 = 256;
/// Marks the completion of a send. Receives are marked with the index of their socket.
const SENT: u64 = u64::MAX;
/// Rounds in which ended receives are armed again, before sockets count as empty.
const ARMINGS_MAX: usize = 4;
/// Retries when the kernel is interrupted or short of memory.
const TRIES_MAX: usize = 1000;

/// Receives of several sockets, and one send at a time.
pub(super) struct UringQueue {
    /// Before the slots, so that it is closed first.
    ring: IoUring,
    slots: UringSlots,
    descriptors: Vec<RawFd>,
    standing: QueueStage,
    /// Sockets whose receive is not armed.
    unarmed: VecDeque<usize>,
    /// Sockets that have filled slots since receives were last armed, one bit each.
    fed: u64,
    /// Filled slots in the order of their arrival.
    filled: VecDeque<FilledSlot>,
    /// The result of the last send, when it has completed.
    sent: Option<i32>,
    /// The error of a receive, until it is reported.
    failure: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QueueStage {
    /// No thread has entered yet.
    New,
    /// One thread has entered, and owns the ring.
    Entered,
    /// The kernel refused to continue. Submissions may hold stale pointers, so no call enters
    /// again.
    Broken,
}

/// A slot that the kernel has filled.
#[derive(Clone, Copy, Debug)]
struct FilledSlot {
    socket: usize,
    slot: u16,
}

/// The room that receives leave in a slot before its packets. It is a static, so that its address
/// is valid as long as the kernel may read it.
struct ReceiveTemplate(libc::msghdr);

// SAFETY: all its pointers are null, and it is never written.
unsafe impl Sync for ReceiveTemplate {}

static TEMPLATE: ReceiveTemplate = ReceiveTemplate(message::ring_template());

impl fmt::Debug for UringQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("standing", &self.standing)
            .field("unarmed", &self.unarmed)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

impl UringQueue {
    /// Queues for these sockets, which must live as long. Only the thread that looks or sends first
    /// may use them.
    pub(super) fn new(descriptors: Vec<RawFd>) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .setup_cqsize(COMPLETIONS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_r_disabled()
            .dontfork();
        let ring = builder.build(SUBMISSIONS)?;
        let slots = UringSlots::new();
        slots.register(&ring.submitter())?;
        let unarmed = (0..descriptors.len()).collect();
        Ok(Self {
            ring,
            slots,
            descriptors,
            standing: QueueStage::New,
            unarmed,
            fed: 0,
            filled: VecDeque::with_capacity(usize::from(SLOTS)),
            sent: None,
            failure: None,
        })
    }

    /// The sockets with arrived packets.
    pub(super) fn look(&mut self) -> io::Result<ReadableSockets> {
        for _ in 0..ARMINGS_MAX {
            let idle = self.unarmed.is_empty() && !self.has_news();
            if !self.filled.is_empty() || idle {
                break;
            }
            self.arm()?;
            self.enter(0)?;
            self.reap();
        }
        match self.failure.take() {
            Some(error) => Err(error),
            None => Ok(self.filled.iter().map(|filled| filled.socket).collect()),
        }
    }

    /// Exchanges `bytes` for the oldest filled slot of a socket, if it has one.
    pub(super) fn take(&mut self, socket: usize, bytes: &mut Vec<u8>) -> bool {
        let of_socket = |filled: &FilledSlot| filled.socket == socket;
        let at = self.filled.iter().position(of_socket);
        let filled = at.and_then(|at| self.filled.remove(at));
        if let Some(filled) = filled {
            self.slots.exchange(filled.slot, bytes);
        }
        filled.is_some()
    }

    /// Sends a message and waits until the kernel is done with it, which takes no time: the send
    /// does not block.
    pub(super) fn send(&mut self, descriptor: RawFd, message: &libc::msghdr) -> io::Result<()> {
        let send = opcode::SendMsg::new(types::Fd(descriptor), message)
            .flags(libc::MSG_DONTWAIT as u32)
            .build()
            .user_data(SENT);
        self.sent = None;
        // SAFETY: the message and all that it points to live until this call returns. Then the
        // kernel has completed the send, or it has not taken the submission and never will.
        unsafe { self.push(&send)? };
        self.enter(0)?;
        self.reap();
        while self.sent.is_none() {
            self.enter(1)?;
            self.reap();
        }
        match self.sent {
            Some(errno) if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
            _ => Ok(()),
        }
    }

    /// Whether the kernel has completions or work to do.
    fn has_news(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// Arms receives for all sockets that have none. Sockets that filled slots last time come last,
    /// so that a flood through one socket does not take all slots again.
    fn arm(&mut self) -> io::Result<()> {
        let fed = std::mem::take(&mut self.fed);
        for turn in [0, 1] {
            for _ in 0..self.unarmed.len() {
                let Some(socket) = self.unarmed.pop_front() else {
                    break;
                };
                if fed >> socket & 1 == turn {
                    self.arm_one(socket)?;
                } else {
                    self.unarmed.push_back(socket);
                }
            }
        }
        Ok(())
    }

    fn arm_one(&mut self, socket: usize) -> io::Result<()> {
        let descriptor = types::Fd(self.descriptors[socket]);
        let receive = opcode::RecvMsgMulti::new(descriptor, &raw const TEMPLATE.0, GROUP);
        let receive = receive.build().user_data(socket as u64);
        // SAFETY: the template is a static, and the slots outlive the ring.
        unsafe { self.push(&receive) }
    }

    /// Puts a submission into the queue; the kernel takes it at the next entry.
    ///
    /// # Safety
    /// Its targets live until the kernel no longer needs them.
    unsafe fn push(&mut self, entry: &Entry) -> io::Result<()> {
        if self.standing == QueueStage::Broken {
            return Err(io::Error::other("the ring has failed before"));
        }
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(io::Error::other)
    }

    /// Lets the kernel take all submissions and work until there are `wanted` completions.
    fn enter(&mut self, wanted: usize) -> io::Result<()> {
        if self.standing == QueueStage::New {
            self.ring.submitter().register_enable_rings()?;
            self.standing = QueueStage::Entered;
        }
        for _ in 0..TRIES_MAX {
            match self.ring.submit_and_wait(wanted) {
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) if is_worth_another_try(&error) => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
        Err(self.broken(io::Error::other("the kernel does not take submissions")))
    }

    fn broken(&mut self, error: io::Error) -> io::Error {
        self.standing = QueueStage::Broken;
        match error.raw_os_error() {
            Some(libc::EEXIST) => {
                io::Error::other("a ring belongs to the thread that used it first")
            }
            _ => error,
        }
    }

    /// Reads all completions.
    fn reap(&mut self) {
        for completion in self.ring.completion() {
            let (result, flags) = (completion.result(), completion.flags());
            if completion.user_data() == SENT {
                self.sent = Some(result);
                continue;
            }
            let socket = completion.user_data() as usize;
            if !cqueue::more(flags) {
                self.unarmed.push_back(socket);
            }
            match cqueue::buffer_select(flags) {
                Some(slot) if result >= 0 => {
                    self.fed |= 1 << socket;
                    self.filled.push_back(FilledSlot { socket, slot });
                }
                Some(slot) => self.slots.give_back(slot),
                None => self.failure = self.failure.take().or_else(|| failure(result)),
            }
        }
    }
}

/// The error of a receive that ended without a slot. `None` if it may be armed again: no slot was
/// free, or it was cancelled.
fn failure(result: i32) -> Option<io::Error> {
    let error = io::Error::from_raw_os_error(-result);
    let passing = udp::is_passing(&error) || is_worth_another_try(&error);
    (result < 0 && !passing).then_some(error)
}

fn is_worth_another_try(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}
