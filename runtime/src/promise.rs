//! Operations handed to the driver, and the promise to call back when one has ended.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::holes::Hole;
use gradwire_collectives::operation::{Operation, OperationOutcome};
use gradwire_protocol::units::Span;

use crate::error::EndError;
use crate::pool::CallbackPool;
use crate::trace::{FlightRecorder, RecordedOperation};

/// An operation and its maximum duration.
#[derive(Debug)]
pub struct RankTask {
    /// The operation; its deadline is set from `timeout`.
    pub operation: Operation,
    /// How long it may take from the moment it is submitted.
    pub timeout: Option<Span>,
}

/// The buffers and counts of an operation that has succeeded.
#[derive(Debug)]
pub struct EndedOperation {
    /// Its buffer with the result.
    pub buffer: Buffer,
    /// Its input, unchanged.
    pub input: Option<Buffer>,
    /// Bytes of the buffer that a receive with tolerance did not get, in ascending order. They are
    /// as they were.
    pub holes: Vec<Hole>,
    /// Segments sent, received and lost.
    pub outcome: OperationOutcome,
}

/// Called once when an operation has ended, on a thread that may block.
pub type Done = Box<dyn FnOnce(Result<EndedOperation, EndError>) + Send>;

/// An operation that has been handed to the driver.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) task: RankTask,
    pub(crate) promise: CallbackPromise,
    pub(crate) recorded: RecordedOperation,
}

/// The promise to call back exactly once: with a result, or with [`EndError::Closed`] if it is
/// dropped, wherever that happens.
pub(crate) struct CallbackPromise {
    done: Option<Done>,
    caller: CallbackPlace,
    pending: Arc<PendingCount>,
    recorder: Arc<FlightRecorder>,
}

/// Where a callback runs.
#[derive(Clone, Debug)]
pub(crate) enum CallbackPlace {
    /// On the thread that drives, at once: for callbacks that never block and are ours.
    Driver,
    /// On a thread that may block: one of the pool, or the one that waits with the ticket.
    CallbackPool(Arc<CallbackPool>, Ticket),
}

/// An operation that was submitted, to wait for it by driving.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<TicketSlot>);

/// A callback that waits for the first thread that takes it.
#[derive(Default)]
struct TicketSlot {
    has_ended: AtomicBool,
    /// Whether a thread drives until the end and then calls back.
    is_awaited: AtomicBool,
    call: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for TicketSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("has_ended", &self.has_ended)
            .finish_non_exhaustive()
    }
}

impl Ticket {
    /// Whether the operation has ended; its callback may still be about to run.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// The operation has ended. The waiting thread runs `call`, or the pool if no thread waits.
    fn end(self, call: Box<dyn FnOnce() + Send>, pool: &CallbackPool) {
        *self.0.call.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
        self.0.has_ended.store(true, Ordering::SeqCst);
        if !self.0.is_awaited.load(Ordering::SeqCst) {
            pool.run(move || self.call());
        }
    }

    /// Waits by `drive`, which may return early. Then calls back here, if the operation has ended
    /// and no other thread has called back. If it has not ended, the pool will call back.
    pub(crate) fn await_by(&self, drive: impl FnOnce()) {
        self.0.is_awaited.store(true, Ordering::SeqCst);
        if !self.has_ended() {
            drive();
        }
        self.0.is_awaited.store(false, Ordering::SeqCst);
        if self.has_ended() {
            self.call();
        }
    }

    fn call(&self) {
        let call = self
            .0
            .call
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(call) = call {
            call();
        }
    }
}

impl fmt::Debug for CallbackPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise")
            .field("kept", &self.done.is_none())
            .finish_non_exhaustive()
    }
}

impl CallbackPromise {
    pub(crate) fn new(
        done: Done,
        caller: CallbackPlace,
        ends: (&Arc<PendingCount>, &Arc<FlightRecorder>),
    ) -> Self {
        let (pending, recorder) = ends;
        pending.on_submitted();
        Self {
            done: Some(done),
            caller,
            pending: Arc::clone(pending),
            recorder: Arc::clone(recorder),
        }
    }

    pub(crate) fn keep(mut self, result: Result<EndedOperation, EndError>) {
        self.call(result);
    }

    fn call(&mut self, result: Result<EndedOperation, EndError>) {
        if let Some(done) = self.done.take() {
            match &self.caller {
                CallbackPlace::Driver => done(result),
                CallbackPlace::CallbackPool(pool, ticket) => {
                    let recorder = Arc::clone(&self.recorder);
                    let call = move || done(result.map_err(|error| error.traced(&recorder)));
                    ticket.clone().end(Box::new(call), pool);
                }
            }
            self.pending.on_ended();
        }
    }
}

impl Drop for CallbackPromise {
    fn drop(&mut self) {
        self.call(Err(EndError::Closed));
    }
}

/// How many operations have not ended.
#[derive(Debug, Default)]
pub(crate) struct PendingCount {
    state: Mutex<PendingState>,
    all_ended: Condvar,
}

#[derive(Debug, Default)]
struct PendingState {
    operations: usize,
    /// Threads that wait until all have ended. Without any, `notify_all` is left out: it would
    /// enter the kernel all the same.
    waiting: usize,
}

impl PendingCount {
    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_submitted(&self) {
        self.lock().operations += 1;
    }

    fn on_ended(&self) {
        let mut state = self.lock();
        state.operations -= 1;
        if state.operations == 0 && state.waiting > 0 {
            self.all_ended.notify_all();
        }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.lock().operations > 0
    }

    /// Waits until the count is zero. Returns whether that happened within `patience`.
    pub(crate) fn wait_for_none(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.waiting += 1;
        let any = |state: &mut PendingState| state.operations > 0;
        let waited = self.all_ended.wait_timeout_while(state, patience, any);
        let (mut state, ended) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !ended.timed_out()
    }
}
