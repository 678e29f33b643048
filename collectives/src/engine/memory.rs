//! State that a communicator keeps between operations: of tensors from step to step, and memory for
//! reuse.

use gradwire_protocol::job::Job;

use crate::engine::patience::UsualTimes;
use crate::engine::phases::TrainingPhases;
use crate::numbers::holes::{PreviousResults, Residuals};
use crate::numbers::magnitude::RunningMeans;
use crate::operation::buffer::Buffer;

/// The state of tensors that is kept between steps.
#[derive(Debug)]
pub(crate) struct StepMemory {
    pub(crate) residuals: Residuals,
    pub(crate) previous: PreviousResults,
    pub(crate) means: RunningMeans,
    pub(crate) phases: TrainingPhases,
    pub(crate) times: UsualTimes,
    pub(crate) spares: SpareScratch,
    /// Copies of single cells, of sums in the order of ranks.
    pub(crate) cells: SpareScratch,
}

impl StepMemory {
    /// Before the first step of a job.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            phases: TrainingPhases::of(job),
            times: UsualTimes::of(job),
            residuals: Residuals::default(),
            previous: PreviousResults::default(),
            means: RunningMeans::default(),
            spares: SpareScratch::default(),
            cells: SpareScratch::default(),
        }
    }
}

/// Memory for reuse: the last freed is used first, since it is most likely in the cache.
#[derive(Debug, Default)]
pub(crate) struct SpareScratch {
    spares: Vec<Vec<u8>>,
    /// Bytes of all of them.
    bytes: usize,
}

impl SpareScratch {
    /// Together they hold at most this many bytes: the slots of a few chunks.
    const KEPT_BYTES_MAX: usize = 64 << 20;

    /// At least this many bytes, with undefined values.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut spare = self.spares.pop().unwrap_or_default();
        self.bytes -= spare.len();
        if spare.len() < bytes {
            spare.clear();
            spare.resize(bytes, 0);
        }
        spare
    }

    /// `count` slots as long as `buffer`; slot `at` has a copy of it, the others have undefined
    /// values.
    pub(crate) fn slots_of(&mut self, buffer: &Buffer, at: usize, count: usize) -> Buffer {
        let whole = buffer.len() * count;
        let Some(bytes) = buffer.bytes() else {
            return Buffer::Virtual(whole);
        };
        let mut slots = self.take(whole);
        slots[at * bytes.len()..][..bytes.len()].copy_from_slice(bytes);
        Buffer::Owned(slots)
    }

    /// Keeps bytes that [`SpareScratch::take`] gave.
    pub(crate) fn keep(&mut self, spare: Vec<u8>) {
        if self.bytes + spare.len() <= Self::KEPT_BYTES_MAX && !spare.is_empty() {
            self.bytes += spare.len();
            self.spares.push(spare);
        }
    }
}
