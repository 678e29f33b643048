//! Drives a rank's machine with sockets and shared memory.
//!
//! One round (`engine`):
//! 1. Read the clock.
//! 2. Drain all rings and sockets.
//! 3. Let the machine's timeouts happen at that clock reading, so that no packet that had arrived
//!    by then looks lost.
//! 4. Run commands, send (`sending`), and report progress.
//!
//! After some rounds without work the driving thread sleeps until a packet, a command or a timeout.
//! Other threads talk to the machine by commands: closures that run between two rounds. A packet
//! meets no lock.
//!
//! One thread drives at a time. That is the driver's own thread, until a thread that must wait for
//! the outcome of its command [drives itself](DriverLink::drive). This saves two thread switches,
//! which cost more than a small message. The driver's thread comes back when no caller has driven
//! for a millisecond, or for up to four if callers drove all the time before.
//!
//! Beside the ranks of its job, a driver may know [guests](DriverGuest): peers of other jobs, taken
//! and forgotten while it runs.

mod cores;
mod counters;
mod engine;
mod foreign;
mod guests;
mod patience;
mod receiving;
mod sending;
mod setup;
mod shared;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_protocol::machine::Machine;

use crate::wake::ThreadWaker;
use crate::wires::WireThreads;

pub use counters::DriverCounters;
use engine::DriverEngine;
pub use guests::{DriverGuest, GuestName};
use guests::{DriverOrder, GuestChange};
pub use setup::{DrivePace, DriverSetup, MachineCommand, ProgressHook};
use shared::DriverShared;
pub use shared::DriverStopped;

/// Commands that may wait; the next one blocks its thread.
const COMMANDS_WAITING: usize = 1024;
/// How long the driver's thread stays away after a caller has driven. It stays away for longer as
/// long as callers drive all the time: each look costs some 15 us of processor time, which ranks on
/// busy cores lack.
const NAP: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(4);

/// Other threads reach a driver's machine through this link. Dropping it stops the driver.
#[derive(Debug)]
pub struct DriverLink<M> {
    orders: SyncSender<DriverOrder<M>>,
    waker: Arc<ThreadWaker>,
    shared: Arc<DriverShared>,
    engine: Arc<Mutex<Option<DriverEngine<M>>>>,
    threads: WireThreads,
    thread: Option<JoinHandle<()>>,
}

/// Starts driving `machine`. `progress` runs on the thread that drives.
///
/// # Errors
/// When the system refuses a thread or a descriptor.
pub fn spawn<M: Machine + Send + 'static>(
    machine: M,
    setup: DriverSetup,
    progress: impl FnMut(&mut M) + Send + 'static,
) -> io::Result<DriverLink<M>> {
    let (orders, waiting) = sync_channel(COMMANDS_WAITING);
    let threads = setup.sockets.threads();
    let engine = DriverEngine::new(machine, setup, Box::new(progress), waiting)?;
    let (waker, shared) = (Arc::clone(&engine.waker), Arc::clone(&engine.shared));
    let engine = Arc::new(Mutex::new(Some(engine)));
    let (driven, seen) = (Arc::clone(&engine), Arc::clone(&shared));
    let thread = std::thread::Builder::new()
        .name("gradwire-driver".to_owned())
        .spawn(move || drive_until_stopped(&driven, &seen))?;
    Ok(DriverLink {
        orders,
        waker,
        shared,
        engine,
        threads,
        thread: Some(thread),
    })
}

/// The body of the driver's own thread.
fn drive_until_stopped<M: Machine>(engine: &Mutex<Option<DriverEngine<M>>>, shared: &DriverShared) {
    let mut nap = NAP;
    while !shared.stop.load(Ordering::SeqCst) {
        if shared.called.load(Ordering::SeqCst) || shared.polled.swap(false, Ordering::SeqCst) {
            std::thread::park_timeout(nap);
            nap = (nap * 2).min(NAP_MAX);
            continue;
        }
        nap = NAP;
        let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = || shared.called.load(Ordering::Relaxed);
        // A failure is recorded in `shared`, where callers find it.
        let _ = turn(&mut engine, |running| running.run(None, wanted));
    }
    // Dropping the machine tells pending operations that they will not end.
    *engine.lock().unwrap_or_else(PoisonError::into_inner) = None;
    shared.ended("it was asked to".to_owned());
}

/// Lets the engine work. Removes an engine that fails or whose machine panics.
fn turn<M: Machine>(
    engine: &mut Option<DriverEngine<M>>,
    work: impl FnOnce(&mut DriverEngine<M>) -> io::Result<()>,
) -> Result<(), DriverStopped> {
    let Some(running) = engine else {
        return Err(DriverStopped {
            reason: "it has ended".to_owned(),
        });
    };
    let shared = Arc::clone(&running.shared);
    let result = catch_unwind(AssertUnwindSafe(|| work(running)));
    let reason = match result {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => {
            let reason = running.reason(&error);
            running.fail(&reason);
            reason
        }
        Err(panic) => format!("its machine panicked: {}", panic_text(panic.as_ref())),
    };
    *engine = None;
    Err(shared.ended(reason))
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_else(|| "without a message".to_owned())
}

impl<M: Machine> DriverLink<M> {
    /// Runs `command`, and drives the machine on this thread until `is_done`, which is asked
    /// between rounds. If another caller drives, or only the driver's own thread can drive, that
    /// thread runs the command and this call returns at once.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn drive(
        &self,
        command: MachineCommand<M>,
        is_done: impl FnMut() -> bool,
    ) -> Result<(), DriverStopped> {
        if self.threads == WireThreads::First || self.shared.called.swap(true, Ordering::SeqCst) {
            return self.submit(command);
        }
        self.turn_here(|running| running.run(Some(command), is_done))
    }

    /// Drives one round on this thread, unless another one drives: for a caller that asks again and
    /// again. The driver's own thread stays away for some milliseconds. Never sleeps.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn poll(&self) -> Result<(), DriverStopped> {
        if self.threads == WireThreads::First || self.shared.called.swap(true, Ordering::SeqCst) {
            return match self.shared.stop.load(Ordering::Relaxed) {
                true => Err(self.shared.stopped()),
                false => Ok(()),
            };
        }
        self.shared.polled.store(true, Ordering::SeqCst);
        self.turn_here(DriverEngine::run_once)
    }

    /// Works with the engine on this thread, which has called it.
    fn turn_here(
        &self,
        work: impl FnOnce(&mut DriverEngine<M>) -> io::Result<()>,
    ) -> Result<(), DriverStopped> {
        // The driver's thread may be asleep while it holds the engine.
        self.waker.wake();
        let result = {
            let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
            turn(&mut engine, work)
        };
        self.shared.called.store(false, Ordering::SeqCst);
        result.map_err(|_| self.shared.stopped())
    }
}

impl<M> DriverLink<M> {
    /// Wakes the driver's thread for operations that no caller is driving.
    pub fn hand_back(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Runs `command` on the driver's thread between two rounds. Blocks while
    /// 1,024 commands wait; never call it from `progress` or from another command.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn submit(&self, command: MachineCommand<M>) -> Result<(), DriverStopped> {
        self.order(DriverOrder::Command(command))
    }

    /// Takes a peer of another job. Orders that follow find it there.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn take_guest(&self, name: GuestName, guest: DriverGuest) -> Result<(), DriverStopped> {
        self.order(DriverOrder::Guest(GuestChange::Take(name, Box::new(guest))))
    }

    /// Forgets a peer of another job, once the orders before this have run: by then the machine
    /// sends nothing more to it.
    ///
    /// # Errors
    /// [`DriverStopped`] when the driver no longer runs.
    pub fn forget_guest(&self, name: GuestName) -> Result<(), DriverStopped> {
        self.order(DriverOrder::Guest(GuestChange::Forget(name)))
    }

    fn order(&self, order: DriverOrder<M>) -> Result<(), DriverStopped> {
        let sent = self.orders.send(order);
        sent.map_err(|_| self.shared.stopped())?;
        self.waker.wake();
        if !self.shared.called.load(Ordering::SeqCst) {
            self.hand_back();
        }
        Ok(())
    }

    /// The counters as of the last round that did something.
    pub fn counters(&self) -> DriverCounters {
        self.shared.counters()
    }

    /// Stops the driver, waits until its thread has ended, and returns why it stopped.
    pub fn stop(&mut self) -> DriverStopped {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        self.hand_back();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.stopped()
    }
}

impl<M> Drop for DriverLink<M> {
    fn drop(&mut self) {
        self.stop();
    }
}
