//! Flows of a host that may send, each at a rate of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use gradwire_protocol::units::{Instant, Rate};

use super::dcqcn::FlowRate;
use super::turns::Turn;

/// Flows in line, by the time at which their rate lets them send.
#[derive(Debug, Default)]
pub(crate) struct Paced {
    flows: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Paced {
    /// Puts a flow in line for the time at which its rate lets it send, unless it is in line.
    pub(crate) fn line_up(&mut self, now: Instant, flow: u32, pace: &mut FlowPace) {
        if pace.turn == Turn::Waits {
            pace.turn = Turn::Comes;
            pace.next_at = pace.next_at.max(now);
            self.flows.push(Reverse((pace.next_at, flow)));
        }
    }

    /// Takes out a flow whose time has come. The caller says [`FlowPace::leave_line`] to it.
    pub(crate) fn next(&mut self, now: Instant) -> Option<u32> {
        let next = self.flows.peek_mut()?;
        let is_due = next.0.0 <= now;
        is_due.then(|| PeekMut::pop(next).0.1)
    }

    /// When the next flow may send.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.flows.peek().map(|Reverse((at, _))| *at)
    }
}

/// What a flow keeps of its pace.
#[derive(Debug)]
pub(crate) struct FlowPace {
    rate: FlowRate,
    /// When the rate lets it send again.
    next_at: Instant,
    turn: Turn,
}

impl FlowPace {
    /// A flow that begins now, at the rate of its host.
    pub(crate) fn new(now: Instant, rate: Rate) -> Self {
        Self {
            rate: FlowRate::new(rate),
            next_at: now,
            turn: Turn::Waits,
        }
    }

    /// A notification of congestion has come.
    pub(crate) fn notified(&mut self, now: Instant) {
        self.rate.notified(now);
    }

    /// It is no longer in line.
    pub(crate) fn leave_line(&mut self) {
        self.turn = Turn::Waits;
    }

    /// It has sent this many bytes.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u32) {
        self.next_at = now + self.rate.sent(now, bytes);
    }
}
