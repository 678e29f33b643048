//! Threads for callbacks. A callback may block, even until a later operation ends. So the pool
//! starts a new thread whenever none is idle, up to [`THREADS_MAX`]: the callback of the later
//! operation can then run.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// If more callbacks than this block at one time, they wait for each other.
pub const THREADS_MAX: usize = 64;

type Callback = Box<dyn FnOnce() + Send>;

/// A set of threads that grows with the number of callbacks that block.
#[derive(Debug)]
pub struct CallbackPool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    wake: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Callback>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("queued", &self.queue.len())
            .finish_non_exhaustive()
    }
}

impl Default for CallbackPool {
    fn default() -> Self {
        let shared = PoolShared {
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl CallbackPool {
    /// Runs a callback on one of the threads, soon.
    pub fn run(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        state.queue.push_back(Box::new(callback));
        if state.queue.len() > state.idle && state.threads.len() < THREADS_MAX {
            let shared = Arc::clone(&self.shared);
            let name = format!("gradwire-done-{}", state.threads.len());
            let spawned = std::thread::Builder::new()
                .name(name)
                .spawn(move || shared.work());
            // Without a new thread the callback waits for one of the others.
            state.threads.extend(spawned.ok());
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Runs the queued callbacks, then ends all threads. Does not wait for the calling thread,
    /// which may be one of them.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut self.shared.lock().threads);
        let me = std::thread::current().id();
        for thread in threads
            .into_iter()
            .filter(|thread| thread.thread().id() != me)
        {
            // A callback's panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl PoolShared {
    /// Poison is ignored: callbacks, which may panic, run outside of the lock.
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(callback) = state.queue.pop_front() {
                drop(state);
                // The panic hook prints a panicking callback, which ends alone.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(callback));
                state = self.lock();
                continue;
            }
            if state.closed {
                return;
            }
            state.idle += 1;
            state = self
                .wake
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_callback_may_wait_for_a_later_one() {
        let pool = CallbackPool::default();
        let (done, finished) = mpsc::channel();
        let mut next: Option<mpsc::Sender<()>> = None;
        for _ in 0..THREADS_MAX - 1 {
            let (wake, woken) = mpsc::channel();
            let before = next.replace(wake);
            let done = done.clone();
            pool.run(move || {
                woken
                    .recv_timeout(PATIENCE)
                    .expect("the later callback runs");
                let _ = before.map(|before| before.send(()));
                let _ = done.send(());
            });
        }
        pool.run(move || {
            let _ = next.expect("there are callbacks").send(());
        });
        for _ in 0..THREADS_MAX - 1 {
            finished
                .recv_timeout(PATIENCE)
                .expect("every callback ends");
        }
        pool.close();
    }

    #[test]
    fn closing_runs_what_is_queued() {
        let pool = CallbackPool::default();
        let (done, finished) = mpsc::channel();
        for _ in 0..200 {
            let done = done.clone();
            pool.run(move || {
                let _ = done.send(());
            });
        }
        pool.close();
        assert_eq!(finished.try_iter().count(), 200);
    }

    #[test]
    fn a_panicking_callback_ends_alone() {
        let pool = CallbackPool::default();
        pool.run(|| panic!("on purpose"));
        let (done, finished) = mpsc::channel();
        pool.run(move || {
            let _ = done.send(());
        });
        finished
            .recv_timeout(PATIENCE)
            .expect("the next callback runs");
        pool.close();
    }
}
