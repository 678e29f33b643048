//! How the other threads of a rank reach the driver.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradwire_transport::control::ControlEvent;
use gradwire_transport::driver::DriverLink;
use gradwire_transport::process::ProcessMark;

use crate::rank_driver::RankDriver;

/// How long a question to the driver thread may take.
pub(crate) const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Access to the driver for several threads. Keeps the events of the control plane until there is a
/// driver.
#[derive(Debug)]
pub(crate) struct DriverInbox {
    state: Mutex<InboxState>,
    /// The process that has the driver's thread.
    owner: ProcessMark,
}

impl Default for DriverInbox {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            owner: ProcessMark::current(),
        }
    }
}

#[derive(Debug)]
enum InboxState {
    Early(Vec<ControlEvent>),
    Connected(Arc<DriverLink<RankDriver>>),
    Closed,
}

impl Default for InboxState {
    fn default() -> Self {
        Self::Early(Vec::new())
    }
}

impl DriverInbox {
    /// Whether this is a forked child of the process that has the driver. Its copies of locks may
    /// never be free.
    pub(crate) fn is_of_parent(&self) -> bool {
        !self.owner.is_current()
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes an event on to the driver, now or when there is one.
    pub(crate) fn take(&self, event: ControlEvent) {
        if let InboxState::Early(events) = &mut *self.lock() {
            events.push(event);
            return;
        }
        self.with(|link| {
            let _ = link.submit(Box::new(move |seat, now| seat.on_control(now, event)));
        });
    }

    pub(crate) fn connect(&self, link: DriverLink<RankDriver>) {
        let before = std::mem::replace(&mut *self.lock(), InboxState::Connected(Arc::new(link)));
        if let InboxState::Early(events) = before {
            events.into_iter().for_each(|event| self.take(event));
        }
    }

    /// Does something with the driver, if there is one in this process.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&DriverLink<RankDriver>) -> T) -> Option<T> {
        if self.is_of_parent() {
            return None;
        }
        let link = match &*self.lock() {
            InboxState::Connected(link) => Arc::clone(link),
            InboxState::Early(_) | InboxState::Closed => return None,
        };
        Some(act(&link))
    }

    /// Stops the driver, as soon as no other thread is talking to it.
    pub(crate) fn disconnect(&self) {
        let before = std::mem::replace(&mut *self.lock(), InboxState::Closed);
        drop(before);
    }
}
