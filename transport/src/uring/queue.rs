//! The two queues shared with the kernel: what it is asked, what it has done.
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

/// Submissions that may wait: one receive per socket, of which there are at most 64, and one send.
const SUBMISSIONS: u32 = 128;
/// Completions that may wait: a slot each, the end of each receive, and one send; twice as many.
const COMPLETIONS: u32 = 256;
/// What marks the completion of a send. Receives are marked with the index of their socket.
const SENT: u64 = u64::MAX;
/// How often receives that ended are armed again before sockets count as empty.
const ARMINGS_MAX: usize = 4;
/// How often the kernel is asked again when it is interrupted or short of memory.
const TRIES_MAX: usize = 1000;

/// Receives of several sockets, and one send at a time.
pub(super) struct UringQueue {
    /// Before the slots, so that it is closed first.
    ring: IoUring,
    slots: UringSlots,
    descriptors: Vec<RawFd>,
    standing: QueueStage,
    /// Sockets whose receive is not with the kernel.
    unarmed: VecDeque<usize>,
    /// Sockets that were given slots since receives were armed last, a bit each.
    fed: u64,
    /// Filled slots in the order of their arrival.
    filled: VecDeque<FilledSlot>,
    /// What became of the last send.
    sent: Option<i32>,
    /// What was wrong with a receive.
    failure: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QueueStage {
    /// No thread has entered.
    New,
    /// One thread enters.
    Entered,
    /// The kernel refused to go on: submissions may hold stale pointers, so nobody enters again.
    Broken,
}

/// A slot that the kernel has filled.
#[derive(Clone, Copy, Debug)]
struct FilledSlot {
    socket: usize,
    slot: u16,
}

/// How much room receives leave in a slot before its packets. A constant, so that its address is
/// good as long as the kernel may want it.
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
    /// Queues for these sockets, which live as long. The thread that looks or sends first is the
    /// only one that may.
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

    /// The sockets of which something has arrived.
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

    /// Sends a message and waits until the kernel is done with it, which it is at once.
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

    /// Whether entering would bring something.
    fn has_news(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// Hands receives to the kernel for all sockets that have none there. Those that were given
    /// slots last time come last, so that a flood through one socket does not take all again.
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

    /// Puts a submission where the kernel takes it at the next entry.
    ///
    /// # Safety
    /// What it points to lives until the kernel has no more use for it.
    unsafe fn push(&mut self, entry: &Entry) -> io::Result<()> {
        if self.standing == QueueStage::Broken {
            return Err(io::Error::other("the ring has failed before"));
        }
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(io::Error::other)
    }

    /// Lets the kernel take all submissions and do its work, until `wanted` completions are there.
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

    /// Takes everything that has completed.
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

/// Why a receive ended without a slot, unless that will pass: no slot was free, or it was told to.
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
