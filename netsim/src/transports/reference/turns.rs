//! Flows of a host that may send, one packet each in turn.

use std::collections::VecDeque;

/// Whether a flow is in the row; the flow keeps it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Turn {
    /// It does not.
    #[default]
    Waits,
    /// It does.
    Comes,
}

/// The row.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    row: VecDeque<u32>,
}

impl Turns {
    /// Puts a flow at the end of the row, unless it is in it already.
    pub(crate) fn line_up(&mut self, flow: u32, turn: &mut Turn) {
        if *turn == Turn::Waits {
            *turn = Turn::Comes;
            self.row.push_back(flow);
        }
    }

    /// Takes out the flow whose turn it is. The caller sets the [`Turn`] of that flow.
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.row.pop_front()
    }

    /// Whether the row is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.row.is_empty()
    }
}
