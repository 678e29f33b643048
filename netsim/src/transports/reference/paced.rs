//! Flows of a host that may send, each at a rate of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use gradwire_protocol::units::Instant;

use super::turns::Turn;

/// Flows in line, by the time at which their rate lets them send.
#[derive(Debug, Default)]
pub(crate) struct Paced {
    flows: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Paced {
    /// Puts a flow in line for a time, unless it is in line already.
    pub(crate) fn line_up(&mut self, at: Instant, flow: u32, turn: &mut Turn) {
        if *turn == Turn::Waits {
            *turn = Turn::Comes;
            self.flows.push(Reverse((at, flow)));
        }
    }

    /// Takes out a flow whose time has come. The caller sets the [`Turn`] of that flow.
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
