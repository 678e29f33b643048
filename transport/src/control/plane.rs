//! The handle that the owner of a joined rank keeps.

use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_protocol::units::{JobId, Rank};
use tokio::sync::mpsc::UnboundedSender;

use super::command::ControlCommand;
use super::error::{BarrierError, LeaveError};
use super::membership::RosterPeer;
use super::messages::{Admission, shortened};
use super::secrets::PairSecrets;
use super::task::{GRACE, bounded};

/// Membership in a started job. If it is dropped without [`ControlPlane::leave`], the connections
/// close and the peers see this rank as lost.
#[derive(Debug)]
pub struct ControlPlane {
    rank: Rank,
    admission: Admission,
    commands: UnboundedSender<ControlCommand>,
    thread: Option<JoinHandle<()>>,
}

impl ControlPlane {
    pub(super) fn new(
        rank: Rank,
        admission: Admission,
        commands: UnboundedSender<ControlCommand>,
        thread: JoinHandle<()>,
    ) -> Self {
        Self {
            rank,
            admission,
            commands,
            thread: Some(thread),
        }
    }

    /// The rank of this process.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// All ranks of the job, in the order of ranks.
    pub fn roster(&self) -> &[RosterPeer] {
        &self.admission.start.roster
    }

    /// The identity of this job, drawn by rank 0. A receiver drops packets with another one.
    pub fn job_id(&self) -> JobId {
        JobId(self.admission.start.job_id)
    }

    /// The number of this membership of the job, counted from 0.
    pub fn epoch(&self) -> u16 {
        self.admission.start.epoch
    }

    /// The secrets that this rank shares with each other rank; packet keys derive from them.
    pub fn secrets(&self) -> &PairSecrets {
        &self.admission.secrets
    }

    /// Tells every other rank that the job is over. Does not wait; the message is delivered even
    /// when this handle is dropped right after.
    pub fn abort(&self, reason: &str) {
        self.sender().abort(reason);
    }

    /// A handle that speaks to the other ranks, from any thread, as long as this rank is a member.
    pub fn sender(&self) -> ControlSender {
        ControlSender(self.commands.clone())
    }

    /// Blocks until every rank has called this as often as this one.
    ///
    /// # Errors
    /// [`BarrierError`], at once when a rank is lost, has left or has aborted; after `timeout`
    /// with the ranks that did not arrive.
    pub fn barrier(&self, timeout: Duration) -> Result<(), BarrierError> {
        let timeout = bounded(timeout);
        let (reply, passed) = mpsc::sync_channel(1);
        let _ = self
            .commands
            .send(ControlCommand::Barrier { timeout, reply });
        answer(&passed, timeout).unwrap_or(Err(BarrierError::Stopped))
    }

    /// Announces that this rank is done, then stays reachable until every other rank is done or
    /// lost, or until `timeout`. The data plane must keep answering retransmissions until then.
    ///
    /// # Errors
    /// [`LeaveError`] when others still worked at `timeout`, or rank 0 is gone.
    pub fn leave(self, timeout: Duration) -> Result<(), LeaveError> {
        let timeout = bounded(timeout);
        let (reply, left) = mpsc::sync_channel(1);
        let _ = self.commands.send(ControlCommand::Leave { timeout, reply });
        answer(&left, timeout).unwrap_or(Err(LeaveError::Stopped))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.commands.send(ControlCommand::Close);
        let thread = self.thread.take().expect("taken here only");
        // The event callback may drop this handle on the control thread, which cannot join itself.
        if thread.thread().id() != std::thread::current().id() {
            // A panic of that thread was a panic of the event callback, printed there.
            let _ = thread.join();
        }
    }
}

/// Speaks to the other ranks and never blocks.
#[derive(Clone, Debug)]
pub struct ControlSender(UnboundedSender<ControlCommand>);

impl ControlSender {
    /// Tells every other rank that the job is over, as [`ControlPlane::abort`] does.
    pub fn abort(&self, reason: &str) {
        let reason = shortened(reason);
        // This fails when the control thread has ended: no connection is left to speak over.
        let _ = self.0.send(ControlCommand::Abort { reason });
    }

    /// Reports that the process of `rank` has ended, sooner than its silence shows it: rank 0 tells
    /// all others, and stops waiting for that rank.
    pub fn lost(&self, rank: Rank, reason: &str) {
        let reason = shortened(reason);
        let _ = self.0.send(ControlCommand::Lost { rank, reason });
    }

    /// Asks all other ranks. Each answer arrives as
    /// [`ControlEvent::Answered`](super::ControlEvent::Answered), if it does.
    pub fn ask(&self, question: &str) {
        let question = shortened(question);
        let _ = self.0.send(ControlCommand::Ask { question });
    }

    /// Answers a rank that has asked.
    pub fn answer(&self, to: Rank, answer: &str) {
        let answer = shortened(answer);
        let _ = self.0.send(ControlCommand::Answer { to, answer });
    }
}

/// The reply to a command that is answered within `timeout`; `None` when the thread has ended.
fn answer<T>(reply: &Receiver<T>, timeout: Duration) -> Option<T> {
    reply.recv_timeout(timeout + GRACE).ok()
}
