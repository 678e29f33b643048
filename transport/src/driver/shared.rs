//! The state that a driver shares with other threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::counters::{COUNTERS, DriverCounters};

/// The driver has stopped, or its machine has panicked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the driver thread has stopped: {reason}")]
pub struct DriverStopped {
    /// Why it stopped.
    pub reason: String,
}

/// Counters and flags of a driver.
#[derive(Debug, Default)]
pub(super) struct DriverShared {
    counters: [AtomicU64; COUNTERS],
    pub(super) stop: AtomicBool,
    /// Whether a caller drives, or is about to.
    pub(super) called: AtomicBool,
    /// Whether a caller has driven a single round since the driver's thread last looked.
    pub(super) polled: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl DriverShared {
    /// Stores the driver's counts, for other threads.
    pub(super) fn publish(&self, counters: DriverCounters) {
        for (counter, value) in self.counters.iter().zip(counters.values()) {
            counter.store(value, Ordering::Relaxed);
        }
    }

    /// The counters as last published.
    pub(super) fn counters(&self) -> DriverCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DriverCounters::of(self.counters.each_ref().map(read))
    }

    /// Records that the driver has ended, for `reason` unless there was a reason before.
    pub(super) fn ended(&self, reason: String) -> DriverStopped {
        self.stop.store(true, Ordering::SeqCst);
        let failure = self.failure.lock();
        let mut failure = failure.unwrap_or_else(PoisonError::into_inner);
        let reason = failure.get_or_insert(reason).clone();
        DriverStopped { reason }
    }

    /// Why the driver stopped, or is stopping.
    pub(super) fn stopped(&self) -> DriverStopped {
        let failure = self.failure.lock();
        let failure = failure.unwrap_or_else(PoisonError::into_inner);
        DriverStopped {
            reason: failure.clone().unwrap_or_else(|| "it is ending".to_owned()),
        }
    }
}
