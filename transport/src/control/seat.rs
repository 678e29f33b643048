//! A rank's place at the control plane's thread: what it brings along, and the runtime it runs on.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use quinn::Endpoint;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::error::JoinError;
use super::identity::setup;
use super::messages::Admission;
use super::participant::{ControlCommand, Participant};
use super::{JoinRole, Membership, OnEvent, leader, member};

/// How much longer than its timeout a blocking call may take: the time to say goodbye.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Sockets are closed after at most this long, whether peers confirm or not.
pub(super) const FLUSH: Duration = Duration::from_secs(1);

/// Nobody waits longer, so that deadlines can be added to any time.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// `timeout`, at most a week.
pub(super) fn bounded(timeout: Duration) -> Duration {
    timeout.min(LONGEST)
}

/// What the thread of the control plane starts with.
pub(super) struct ControlTask {
    pub(super) membership: Membership,
    pub(super) timeout: Duration,
    pub(super) on_event: OnEvent,
    pub(super) commands: UnboundedReceiver<ControlCommand>,
    pub(super) joined: JoinReply,
}

impl ControlTask {
    pub(super) fn new(
        membership: Membership,
        timeout: Duration,
        on_event: OnEvent,
        joined: SyncSender<Result<Admission, JoinError>>,
    ) -> (UnboundedSender<ControlCommand>, Self) {
        let (sender, commands) = unbounded_channel();
        let seat = Self {
            membership,
            timeout: bounded(timeout),
            on_event,
            commands,
            joined: JoinReply(joined),
        };
        (sender, seat)
    }

    /// Lives from joining to closing.
    pub(super) fn run(self, role: JoinRole) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                match role {
                    JoinRole::Leader(listener) => leader::run(listener, self).await,
                    JoinRole::Member(leader) => member::run(leader, self).await,
                }
            }),
            Err(error) => self
                .joined
                .answer(Err(setup("starting its event loop", &error))),
        }
    }
}

/// Where [`super::join`] waits.
pub(super) struct JoinReply(SyncSender<Result<Admission, JoinError>>);

impl JoinReply {
    /// Lets [`super::join`] return.
    pub(super) fn answer(&self, verdict: Result<Admission, JoinError>) {
        // Whoever called `join` has gone when this fails, and drops the commands' end too.
        let _ = self.0.send(verdict);
    }
}

/// Notices that this process did not run: it was stopped, or starved. The other ranks count it as
/// dead after a while, and it cannot know which of what happened meanwhile still holds.
pub(super) struct StallDetector {
    limit: Duration,
    looked: Instant,
}

impl StallDetector {
    /// Looks between two looks.
    const LOOKS: u32 = 16;

    /// A rank that does not run for `limit` counts as dead.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            looked: Instant::now(),
        }
    }

    /// Ends when it is time to look again.
    pub(super) async fn tick(&self) {
        tokio::time::sleep_until(self.looked + self.limit / Self::LOOKS).await;
    }

    /// Tells the rank if it has not run for too long.
    pub(super) fn look(&mut self, participant: &mut Participant) {
        let now = Instant::now();
        let gap = now - std::mem::replace(&mut self.looked, now);
        if gap > self.limit {
            participant.stalled(gap, self.limit);
        }
    }
}

/// Waits until `deadline`, for ever without one.
pub(super) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Closes all connections and lets the last packets out.
pub(super) async fn close(endpoint: &Endpoint) {
    endpoint.close(0_u32.into(), b"");
    // Peers that do not confirm find out by silence.
    let _ = timeout(FLUSH, endpoint.wait_idle()).await;
}
