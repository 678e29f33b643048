//! State that a communicator keeps between operations: of tensors from step to step, and memory
//! that later operations can use again.

use gradwire_protocol::job::Job;

use crate::engine::phases::TrainingPhases;
use crate::numbers::holes::{PreviousResults, Residuals};
use crate::numbers::magnitude::RunningMeans;
use crate::operation::buffer::Buffer;

/// The state of tensors that is kept between steps.
#[derive(Debug, Default)]
pub(crate) struct StepMemory {
    pub(crate) residuals: Residuals,
    pub(crate) previous: PreviousResults,
    pub(crate) means: RunningMeans,
    pub(crate) phases: TrainingPhases,
    pub(crate) spares: SpareScratch,
}

impl StepMemory {
    /// Before the first step of a job.
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            phases: TrainingPhases::of(job),
            ..Self::default()
        }
    }
}

/// Scratches of short operations and slots of sums that have ended, for those to come.
#[derive(Debug, Default)]
pub(crate) struct SpareScratch(Vec<Vec<u8>>);

impl SpareScratch {
    /// As many as short operations are likely to be on their way at once.
    const KEPT_MAX: usize = 64;
    /// Together they have no more bytes than this: the slots of a few chunks.
    const KEPT_BYTES_MAX: usize = 64 << 20;

    /// At least this many bytes, of any values.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut spare = self.0.pop().unwrap_or_default();
        if spare.len() < bytes {
            spare.clear();
            spare.resize(bytes, 0);
        }
        spare
    }

    /// `count` slots as long as `buffer`, of which number `at` has the same bytes; the others have
    /// any.
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
        let kept: usize = self.0.iter().map(Vec::len).sum();
        let fits = self.0.len() < Self::KEPT_MAX && kept + spare.len() <= Self::KEPT_BYTES_MAX;
        if fits && !spare.is_empty() {
            self.0.push(spare);
        }
    }
}
