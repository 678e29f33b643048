//! A member of a job: it sends its contributions to a tensor, and takes the results.
//!
//! The result of packet k lets packet k + window leave, in the same slot; no other window is kept
//! (self-clocking of SwitchML). A contribution without a result for a timeout is sent again.

use std::collections::VecDeque;
use std::ops::Range;

use gradwire_protocol::units::{Instant, Span};

use super::{PartialSum, SumKind, SumPacket};

/// A member's part in the sum of one tensor.
#[derive(Debug)]
pub struct SumWorker {
    job: u32,
    seat: usize,
    numbers: Range<u32>,
    terms: WorkerTerms,
    /// Packets that may leave for the first time.
    ready: VecDeque<u32>,
    /// Contributions without a result when they left, by the time at which they are sent again.
    waiting: VecDeque<(Instant, u32)>,
    done: Box<[u64]>,
    left: u32,
}

/// How a member sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkerTerms {
    /// Packets that may wait for their results.
    pub window: u32,
    /// How long one waits until it is sent again.
    pub timeout: Span,
}

impl SumWorker {
    /// The member on a seat, before the packets with these numbers.
    pub fn new(job: u32, seat: usize, numbers: Range<u32>, terms: WorkerTerms) -> Self {
        let count = numbers.end - numbers.start;
        let first = numbers.start + count.min(terms.window);
        Self {
            job,
            seat,
            terms,
            ready: (numbers.start..first).collect(),
            waiting: VecDeque::new(),
            done: vec![0; count.div_ceil(u64::BITS) as usize].into(),
            left: count,
            numbers,
        }
    }

    /// Whether all results are here.
    pub const fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The next packet to send: a contribution whose time is over, or one that was never sent.
    pub fn send(&mut self, now: Instant) -> Option<SumPacket> {
        let (number, kind) = match self.overdue(now) {
            Some(number) => (number, SumKind::Again),
            None => (self.ready.pop_front()?, SumKind::Contribution),
        };
        self.waiting.push_back((now + self.terms.timeout, number));
        Some(SumPacket {
            job: self.job,
            number,
            kind,
            sum: PartialSum::of(self.seat),
        })
    }

    /// How long contributions wait that leave from now on.
    pub const fn set_timeout(&mut self, timeout: Span) {
        self.terms.timeout = timeout;
    }

    /// Takes the result of a packet; returns whether it is new.
    pub fn take(&mut self, job: u32, number: u32) -> bool {
        if job != self.job || !self.numbers.contains(&number) || !self.lacks(number) {
            return false;
        }
        let (word, bit) = self.place(number);
        self.done[word] |= bit;
        self.left -= 1;
        self.forget_answered();
        let next = number + self.terms.window;
        if self.numbers.contains(&next) {
            self.ready.push_back(next);
        }
        true
    }

    /// When it sends a contribution again, if no result comes.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }

    fn overdue(&mut self, now: Instant) -> Option<u32> {
        let is_due = self.wakes_at().is_some_and(|at| at <= now);
        let (_, number) = is_due.then(|| self.waiting.pop_front()).flatten()?;
        self.forget_answered();
        Some(number)
    }

    /// Forgets sums that have their result, up to the first that still waits for one.
    fn forget_answered(&mut self) {
        while let Some((_, number)) = self.waiting.front()
            && !self.lacks(*number)
        {
            self.waiting.pop_front();
        }
    }

    /// Whether the window has let a contribution leave.
    #[cfg(test)]
    pub(super) fn may_send(&self, number: u32) -> bool {
        let before = number.checked_sub(self.terms.window);
        let before = before.filter(|before| self.numbers.contains(before));
        before.is_none_or(|before| !self.lacks(before))
    }

    const fn place(&self, number: u32) -> (usize, u64) {
        let index = number - self.numbers.start;
        ((index / u64::BITS) as usize, 1 << (index % u64::BITS))
    }

    fn lacks(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        self.done[word] & bit == 0
    }
}
