//! How long after the packets that overtook them late packets arrive: segments (`sender/loss.rs`)
//! and reports (`sender/hearing.rs`). Only packets that were late can show this.

use serde::{Deserialize, Serialize};

use crate::rtt::Rtt;
use crate::units::Span;

/// Packets may be this many times as late as those of late were.
const LATE_AGAIN: u64 = 2;
/// Each report takes this part of the lateness away.
const LATENESS_PART: u64 = 256;

/// The longest time of late by which a packet came after others, which each report shortens.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Lateness(Span);

impl Lateness {
    /// What no packet exceeds: later ones show a path or a host that stood still.
    pub(super) fn most(rtt: &Rtt, gap: Span) -> Span {
        rtt.reordering(gap).max(gap)
    }

    /// A report has arrived.
    pub(super) fn fade(&mut self) {
        self.0 = self.0.beyond(self.0.divided(LATENESS_PART));
    }

    /// A packet was so late; none is later than `most`.
    pub(super) fn learn(&mut self, late: Span, most: Span) {
        self.0 = self.0.max(late).min(most);
    }

    /// Packets may come this much after others that overtook them.
    pub(super) fn expected(self) -> Span {
        self.0 * LATE_AGAIN
    }
}
