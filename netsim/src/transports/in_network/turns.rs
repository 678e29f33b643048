//! The all-reduces of each job at a host: one after the other, in the order of the program.
//!
//! Slots are safe only if a member begins a tensor when it has all of the one before.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::host::Begin;
use crate::transports::reference::manifest::SumFlow;

/// All-reduces that have come up.
#[derive(Debug, Default)]
pub(super) struct SumTurns {
    /// By job and number of the first packet.
    waiting: BTreeMap<(u32, u32), Begin>,
    /// The number of the packet with which each job's next all-reduce begins.
    next: BTreeMap<u32, u32>,
    /// Jobs whose all-reduce is being summed.
    busy: BTreeSet<u32>,
}

impl SumTurns {
    /// An all-reduce has come up.
    pub(super) fn wait(&mut self, flow: &SumFlow<'_>, begin: Begin) {
        self.waiting.insert((flow.job, flow.numbers.start), begin);
    }

    /// Takes out the all-reduce of a job whose turn it is.
    pub(super) fn start(&mut self, job: u32) -> Option<Begin> {
        let next = self.next.get(&job).copied().unwrap_or(0);
        if self.busy.contains(&job) {
            return None;
        }
        let begin = self.waiting.remove(&(job, next))?;
        self.busy.insert(job);
        Some(begin)
    }

    /// An all-reduce is over.
    pub(super) fn end(&mut self, flow: &SumFlow<'_>) {
        self.busy.remove(&flow.job);
        self.next.insert(flow.job, flow.numbers.end);
    }
}
