//! How long the operations of a rank took, by collective.

use std::time::Instant;

use gradwire_collectives::operation::Collective;
use gradwire_protocol::metrics::TimeHistogram;
use gradwire_protocol::units::Span;

use super::snapshot::{OperationTimes, TimeSpread};

/// The collectives, in the order of their index.
const NAMES: [&str; 12] = [
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "send",
    "receive",
    "receive_any",
];

fn index(collective: Collective) -> usize {
    match collective {
        Collective::AllReduce => 0,
        Collective::Broadcast { .. } => 1,
        Collective::AllGather => 2,
        Collective::ReduceScatter => 3,
        Collective::Reduce { .. } => 4,
        Collective::Gather { .. } => 5,
        Collective::Scatter { .. } => 6,
        Collective::AllToAll => 7,
        Collective::Barrier => 8,
        Collective::Send { .. } => 9,
        Collective::Receive { .. } => 10,
        Collective::ReceiveAny { .. } => 11,
    }
}

/// The name of a collective, without the rank that it names.
pub(crate) fn name(collective: Collective) -> &'static str {
    NAMES[index(collective)]
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BegunOperation {
    index: usize,
    pub(crate) at: Instant,
}

impl BegunOperation {
    #[expect(clippy::disallowed_methods, reason = "operations are timed here")]
    pub(crate) fn now(collective: Collective) -> Self {
        Self {
            index: index(collective),
            at: Instant::now(),
        }
    }
}

/// How an operation has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OperationEnd {
    Well,
    Failed,
}

#[derive(Clone, Debug, Default)]
struct EndedCounts {
    times: TimeHistogram,
    failed: u64,
}

/// The operations that have ended. Memory is taken with the first operation of a collective.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperationTally {
    ended: [Option<Box<EndedCounts>>; NAMES.len()],
}

impl OperationTally {
    pub(crate) fn note(&mut self, begun: BegunOperation, end: OperationEnd) {
        let ended = self.ended[begun.index].get_or_insert_default();
        match end {
            OperationEnd::Well => {
                let took = begun.at.elapsed().as_nanos();
                ended.times.record(Span::from_nanos(took as u64));
            }
            OperationEnd::Failed => ended.failed += 1,
        }
    }

    /// The counts of each collective that was used.
    pub(crate) fn collected(&self) -> Vec<OperationTimes> {
        let named = NAMES.iter().zip(&self.ended);
        let used = named.filter_map(|(name, ended)| Some((name, ended.as_ref()?)));
        used.map(|(name, ended)| OperationTimes {
            collective: (*name).to_owned(),
            failed: ended.failed,
            times: TimeSpread::new(&ended.times),
        })
        .collect()
    }
}
