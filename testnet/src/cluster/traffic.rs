//! How many control packets a pair of ranks exchanges while it waits.

use gradwire_protocol::units::{Instant, Span};

use super::evidence::Found;
use super::violation::ClusterCheck;

/// A pair waits once it has exchanged no DATA and posted no message for this long.
const QUIET: Span = Span::from_millis(5_000);
/// Control packets per second that a waiting rank may send to one peer.
const PER_SECOND: f64 = 10.0;
/// Control packets beyond that rate in one go, of several messages at once for example.
const AT_ONCE: f64 = 40.0;

/// The control packets of one direction of a pair.
#[derive(Clone, Copy, Debug, Default)]
struct ControlTraffic {
    quiet_since: Instant,
    counted: f64,
}

/// The control packets of all pairs.
#[derive(Debug)]
pub(crate) struct WaitingTraffic {
    ranks: u16,
    pairs: Vec<ControlTraffic>,
}

impl WaitingTraffic {
    pub(crate) fn new(ranks: u16) -> Self {
        Self {
            ranks,
            pairs: vec![ControlTraffic::default(); usize::from(ranks * ranks)],
        }
    }

    /// DATA was sent between two ranks.
    pub(crate) fn data(&mut self, now: Instant, (a, b): (u16, u16)) {
        for (from, to) in [(a, b), (b, a)] {
            self.pairs[usize::from(from * self.ranks + to)] = ControlTraffic {
                quiet_since: now,
                counted: 0.0,
            };
        }
    }

    /// A rank has begun or ended an operation.
    pub(crate) fn stir(&mut self, now: Instant, rank: u16) {
        for other in 0..self.ranks {
            self.data(now, (rank, other));
        }
    }

    /// A control packet was sent.
    pub(crate) fn control(&mut self, now: Instant, (from, to): (u16, u16)) -> Result<(), Found> {
        let pair = &mut self.pairs[usize::from(from * self.ranks + to)];
        let quiet = (now - pair.quiet_since).beyond(QUIET);
        if quiet == Span::ZERO {
            return Ok(());
        }
        pair.counted += 1.0;
        let allowed = AT_ONCE + PER_SECOND * quiet.as_secs_f64();
        if pair.counted <= allowed {
            return Ok(());
        }
        let detail = format!(
            "rank {from} sent {} control packets to rank {to} in {quiet} while both waited",
            pair.counted
        );
        Err((ClusterCheck::Economy, detail))
    }
}
