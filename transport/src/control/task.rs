//! The inputs that a control thread starts with, and the time limits of its waits.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use quinn::Endpoint;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::command::ControlCommand;
use super::error::JoinError;
use super::event::OnEvent;
use super::membership::Membership;
use super::messages::Admission;
use super::participant::Participant;
use super::stall::StallDetector;

/// How much longer than its timeout a blocking call may take: the time to say goodbye.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// The longest wait for peers to confirm before sockets close.
pub(super) const FLUSH: Duration = Duration::from_secs(1);

/// The longest timeout, so that deadlines can be added to any time.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// `timeout`, at most a week.
pub(super) fn bounded(timeout: Duration) -> Duration {
    timeout.min(LONGEST)
}

/// Everything the control thread needs to join and serve.
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
        let task = Self {
            membership,
            timeout: bounded(timeout),
            on_event,
            commands,
            joined: JoinReply(joined),
        };
        (sender, task)
    }
}

/// Carries the outcome of joining to the caller of [`super::join`].
pub(super) struct JoinReply(SyncSender<Result<Admission, JoinError>>);

impl JoinReply {
    /// Lets [`super::join`] return.
    pub(super) fn answer(&self, verdict: Result<Admission, JoinError>) {
        // This fails when the caller of `join` gave up; it has then dropped the command sender
        // too, so the thread ends by itself.
        let _ = self.0.send(verdict);
    }
}

/// This process as a rank of a started job, on the control thread.
pub(super) struct LocalParticipant {
    pub(super) participant: Participant,
    pub(super) stall: StallDetector,
    pub(super) commands: UnboundedReceiver<ControlCommand>,
}

/// Waits until `deadline`, forever without one.
pub(super) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Closes all connections and gives the last packets time to leave.
pub(super) async fn close(endpoint: &Endpoint) {
    endpoint.close(0_u32.into(), b"");
    // A peer that does not confirm notices the end by silence.
    let _ = timeout(FLUSH, endpoint.wait_idle()).await;
}
