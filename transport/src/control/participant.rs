//! One rank's view of a started job: its pending calls, and the ranks that are gone.
//!
//! All ranks run it. Rank 0 exchanges messages with its `hub` in memory, the others over a link.
//! No sockets and no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use tokio::time::Instant;

use super::command::{ControlCommand, Reply};
use super::error::{BarrierError, LeaveError, stall_reason};
use super::event::{ControlEvent, OnEvent};
use super::messages::{FromLeader, FromMember};
use super::rank_list::RankList;

const LEADER: Rank = Rank(0);

/// How much later than at rank 0 a barrier times out here. Rank 0 knows which ranks are missing, so
/// its answer gets this much time to arrive.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// This rank in a started job.
pub(super) struct Participant {
    rank: Rank,
    gone: BTreeMap<Rank, Absence>,
    present: Vec<Rank>,
    aborted: Option<(Rank, String)>,
    /// Why the connection to rank 0 has ended, if it has.
    leaderless: Option<String>,
    reached: u64,
    barriers: BTreeMap<u64, PendingCall<BarrierError>>,
    leave: Option<PendingCall<LeaveError>>,
    outgoing: VecDeque<FromMember>,
    on_event: OnEvent,
    finished: bool,
}

enum Absence {
    Left,
    Lost(String),
}

/// A blocking call that waits for its result.
struct PendingCall<E> {
    timeout: Duration,
    deadline: Instant,
    reply: Reply<E>,
}

impl<E> PendingCall<E> {
    fn answer(self, result: Result<(), E>) {
        // This fails only if the caller's own timeout has passed.
        let _ = self.reply.try_send(result);
    }
}

impl Participant {
    /// `rank` in a job of `ranks`, all of them present.
    pub(super) fn new(rank: Rank, ranks: impl Iterator<Item = Rank>, on_event: OnEvent) -> Self {
        Self {
            rank,
            gone: BTreeMap::new(),
            present: ranks.filter(|other| *other != rank).collect(),
            aborted: None,
            leaderless: None,
            reached: 0,
            barriers: BTreeMap::new(),
            leave: None,
            outgoing: VecDeque::new(),
            on_event,
            finished: false,
        }
    }

    /// Handles a call of the owner.
    pub(super) fn command(&mut self, command: ControlCommand, now: Instant) {
        match command {
            ControlCommand::Barrier { timeout, reply } => {
                let deadline = now + timeout + ANSWER_TIME;
                self.barrier(PendingCall {
                    timeout,
                    deadline,
                    reply,
                });
            }
            ControlCommand::Abort { reason } => self.abort(reason),
            ControlCommand::Ask { question } => {
                self.outgoing.push_back(FromMember::Ask { question });
            }
            ControlCommand::Answer { to, answer } => {
                self.outgoing.push_back(FromMember::Answer { to, answer });
            }
            ControlCommand::Lost { rank, reason } if rank == LEADER => self.leader_lost(&reason),
            ControlCommand::Lost { rank, reason } => {
                self.lost(rank, reason.clone());
                self.outgoing.push_back(FromMember::Lost { rank, reason });
            }
            ControlCommand::Leave { timeout, reply } => {
                let deadline = now + timeout;
                self.leave(PendingCall {
                    timeout,
                    deadline,
                    reply,
                });
            }
            ControlCommand::Close => self.finished = true,
        }
    }

    fn abort(&mut self, reason: String) {
        self.outgoing.push_back(FromMember::Abort {
            reason: reason.clone(),
        });
        self.aborted = Some((self.rank, reason));
        self.fail_barriers();
    }

    /// Aborts, because this process has not run for longer than `limit` and the others count it as
    /// dead.
    pub(super) fn stalled(&mut self, gap: Duration, limit: Duration) {
        let reason = stall_reason(gap, limit);
        self.abort(reason.clone());
        let rank = self.rank;
        (self.on_event)(ControlEvent::Aborted { rank, reason });
    }

    /// Handles a message of rank 0.
    pub(super) fn receive(&mut self, message: FromLeader) {
        match message {
            FromLeader::BarrierPassed { index } => {
                if let Some(wait) = self.barriers.remove(&index) {
                    wait.answer(Ok(()));
                }
            }
            FromLeader::BarrierTimedOut { index, missing } => self.timed_out(index, missing),
            FromLeader::PeerLost { rank, reason } => self.lost(rank, reason),
            FromLeader::PeerLeft { rank } => {
                self.depart(rank, Absence::Left);
                (self.on_event)(ControlEvent::PeerLeft { rank });
            }
            FromLeader::Aborted { rank, reason } => {
                self.aborted = Some((rank, reason.clone()));
                self.fail_barriers();
                (self.on_event)(ControlEvent::Aborted { rank, reason });
            }
            FromLeader::Asked { rank, question } => {
                (self.on_event)(ControlEvent::Asked { rank, question });
            }
            FromLeader::Answered { rank, answer } => {
                (self.on_event)(ControlEvent::Answered { rank, answer });
            }
            FromLeader::Released => self.part(Ok(())),
            FromLeader::Prove { .. }
            | FromLeader::Refused(_)
            | FromLeader::Lifeline(_)
            | FromLeader::Waiting { .. }
            | FromLeader::Secrets(_)
            | FromLeader::Start(_) => {
                self.leader_lost("it greeted this rank a second time");
            }
        }
    }

    /// The connection to rank 0 has ended.
    pub(super) fn leader_lost(&mut self, reason: &str) {
        self.lost(LEADER, reason.to_owned());
        self.leaderless = Some(reason.to_owned());
        if self.leave.is_some() {
            self.part(Err(LeaveError::LeaderLost {
                reason: reason.to_owned(),
            }));
        }
    }

    /// When [`Participant::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let barriers = self.barriers.values().map(|wait| wait.deadline);
        let leave = self.leave.iter().map(|wait| wait.deadline);
        barriers.chain(leave).min()
    }

    /// Fails the calls whose deadline has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let late = |wait: &PendingCall<BarrierError>| wait.deadline <= now;
        while let Some(index) = self.barriers.iter().find(|(_, wait)| late(wait)) {
            self.timed_out(*index.0, RankList::default());
        }
        if let Some(wait) = self.leave.as_ref().filter(|wait| wait.deadline <= now) {
            let error = match self.leaderless.clone() {
                Some(reason) => LeaveError::LeaderLost { reason },
                None => LeaveError::TimedOut {
                    waited: wait.timeout,
                    present: self.present.iter().copied().collect(),
                },
            };
            self.part(Err(error));
        }
    }

    /// The next message to rank 0.
    pub(super) fn poll_outgoing(&mut self) -> Option<FromMember> {
        self.outgoing.pop_front()
    }

    /// Whether this rank is done with the job.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Raises an event that rank 0 found outside the started job.
    pub(super) fn raise(&self, event: ControlEvent) {
        (self.on_event)(event);
    }

    fn barrier(&mut self, wait: PendingCall<BarrierError>) {
        if let Some(error) = self.obstacle() {
            wait.answer(Err(error));
            return;
        }
        self.reached += 1;
        let timeout_ms = u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX);
        self.outgoing.push_back(FromMember::Barrier {
            index: self.reached,
            timeout_ms,
        });
        self.barriers.insert(self.reached, wait);
    }

    fn leave(&mut self, wait: PendingCall<LeaveError>) {
        self.leave = Some(wait);
        match (self.leaderless.clone(), self.gone.get(&LEADER)) {
            (None, _) => self.outgoing.push_back(FromMember::Leave),
            // No rank hears who else leaves, so this one stays only for its last answers.
            (Some(_), Some(Absence::Left)) => {
                if let Some(wait) = &mut self.leave {
                    wait.deadline = wait
                        .deadline
                        .min(wait.deadline - wait.timeout + ANSWER_TIME);
                }
            }
            (Some(reason), _) => self.part(Err(LeaveError::LeaderLost { reason })),
        }
        // The job is over: no rank waits for an answer of this one.
        if self.aborted.is_some() {
            self.part(Ok(()));
        }
    }

    fn lost(&mut self, rank: Rank, reason: String) {
        if self.gone.contains_key(&rank) {
            return;
        }
        self.depart(rank, Absence::Lost(reason.clone()));
        (self.on_event)(ControlEvent::PeerLost { rank, reason });
    }

    fn depart(&mut self, rank: Rank, absence: Absence) {
        self.present.retain(|other| *other != rank);
        self.gone.insert(rank, absence);
        self.fail_barriers();
    }

    /// Ends membership, and the `leave` call that waits for that.
    fn part(&mut self, result: Result<(), LeaveError>) {
        if let Some(wait) = self.leave.take() {
            wait.answer(result);
        }
        self.finished = true;
    }

    /// The reason why no barrier can be passed any more, if there is one.
    fn obstacle(&self) -> Option<BarrierError> {
        if let Some((rank, reason)) = self.aborted.clone() {
            return Some(BarrierError::Aborted { rank, reason });
        }
        let (&rank, absence) = self.gone.first_key_value()?;
        Some(match absence {
            Absence::Left => BarrierError::PeerLeft { rank },
            Absence::Lost(reason) => BarrierError::PeerLost {
                rank,
                reason: reason.clone(),
            },
        })
    }

    fn fail_barriers(&mut self) {
        let error = self
            .obstacle()
            .expect("called after a rank is gone or has aborted");
        for wait in std::mem::take(&mut self.barriers).into_values() {
            wait.answer(Err(error.clone()));
        }
    }

    fn timed_out(&mut self, index: u64, missing: RankList) {
        if let Some(wait) = self.barriers.remove(&index) {
            let waited = wait.timeout;
            wait.answer(Err(BarrierError::TimedOut { waited, missing }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel, sync_channel};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    fn participant() -> (Participant, Receiver<ControlEvent>) {
        let (sender, events) = channel();
        let on_event = Box::new(move |event| sender.send(event).expect("the test listens"));
        let participant = Participant::new(Rank(1), (0..3).map(Rank), on_event);
        (participant, events)
    }

    fn wait_at_barrier(
        participant: &mut Participant,
        now: Instant,
    ) -> Receiver<Result<(), BarrierError>> {
        let (reply, result) = sync_channel(1);
        let timeout = TIMEOUT;
        participant.command(ControlCommand::Barrier { timeout, reply }, now);
        result
    }

    fn leave(participant: &mut Participant, now: Instant) -> Receiver<Result<(), LeaveError>> {
        let (reply, result) = sync_channel(1);
        let timeout = TIMEOUT;
        participant.command(ControlCommand::Leave { timeout, reply }, now);
        result
    }

    #[test]
    fn a_lost_peer_fails_all_further_barriers() {
        let (mut participant, events) = participant();
        let now = Instant::now();
        let this = wait_at_barrier(&mut participant, now);
        let (rank, reason) = (Rank(2), String::from("killed"));
        participant.receive(FromLeader::PeerLost {
            rank,
            reason: reason.clone(),
        });
        let next = wait_at_barrier(&mut participant, now);
        let error = Err(BarrierError::PeerLost { rank, reason });
        assert_eq!(this.try_recv(), Ok(error.clone()));
        assert_eq!(next.try_recv(), Ok(error));
        assert!(matches!(
            events.try_recv(),
            Ok(ControlEvent::PeerLost { .. })
        ));
    }

    #[test]
    fn a_stalled_rank_ends_itself() {
        let (mut participant, events) = participant();
        let waits = wait_at_barrier(&mut participant, Instant::now());
        participant.stalled(Duration::from_secs(12), Duration::from_secs(8));
        let Ok(ControlEvent::Aborted { rank, reason }) = events.try_recv() else {
            panic!("another event");
        };
        assert_eq!(rank, Rank(1));
        assert!(reason.starts_with("it did not run for 12.0s"), "{reason}");
        let failed = waits.try_recv();
        assert_eq!(failed, Ok(Err(BarrierError::Aborted { rank, reason })));
        let told = std::iter::from_fn(|| participant.poll_outgoing());
        assert!(
            told.last()
                .is_some_and(|last| matches!(last, FromMember::Abort { .. }))
        );
    }

    #[test]
    fn a_barrier_ends_although_rank_0_is_silent() {
        let (mut participant, _events) = participant();
        let result = wait_at_barrier(&mut participant, Instant::now());
        let deadline = participant.poll_timeout().expect("waits");
        participant.handle_timeout(deadline);
        let error = result.try_recv().expect("answered");
        assert!(matches!(error, Err(BarrierError::TimedOut { .. })));
        assert_eq!(participant.poll_timeout(), None);
    }

    #[test]
    fn rank_0_may_close_after_leaving() {
        let (mut participant, events) = participant();
        participant.receive(FromLeader::PeerLeft { rank: LEADER });
        participant.leader_lost("closed");
        let raised: Vec<ControlEvent> = events.try_iter().collect();
        assert_eq!(raised, [ControlEvent::PeerLeft { rank: LEADER }]);
    }

    #[test]
    fn leaving_after_rank_0_takes_a_second() {
        let (mut participant, _events) = participant();
        participant.receive(FromLeader::PeerLeft { rank: LEADER });
        participant.leader_lost("closed");
        let now = Instant::now();
        let result = leave(&mut participant, now);
        let deadline = participant.poll_timeout().expect("waits");
        assert_eq!(deadline, now + ANSWER_TIME.min(TIMEOUT));
        participant.handle_timeout(deadline);
        let reason = "closed".into();
        let error = Err(LeaveError::LeaderLost { reason });
        assert_eq!(result.try_recv(), Ok(error));
        assert!(participant.is_finished());
    }

    #[test]
    fn a_leave_timeout_names_the_remaining_ranks() {
        let (mut participant, _events) = participant();
        let result = leave(&mut participant, Instant::now());
        participant.receive(FromLeader::PeerLeft { rank: LEADER });
        let deadline = participant.poll_timeout().expect("waits");
        participant.handle_timeout(deadline);
        let present = [Rank(2)].into_iter().collect();
        let waited = TIMEOUT;
        let error = Err(LeaveError::TimedOut { waited, present });
        assert_eq!(result.try_recv(), Ok(error));
        assert!(participant.is_finished());
    }

    #[test]
    fn leaving_a_job_that_is_over_ends_at_once() {
        let (mut participant, _events) = participant();
        let (rank, reason) = (Rank(2), String::from("a mismatch"));
        participant.receive(FromLeader::Aborted { rank, reason });
        let result = leave(&mut participant, Instant::now());
        assert_eq!(result.try_recv(), Ok(Ok(())));
        let said = participant.poll_outgoing();
        assert!(matches!(said, Some(FromMember::Leave)));
        assert!(participant.is_finished());
    }

    #[test]
    fn an_ended_process_is_reported_once() {
        let (mut participant, events) = participant();
        let (rank, reason) = (Rank(2), String::from("its process has ended"));
        let told = (rank, reason.clone());
        participant.command(ControlCommand::Lost { rank, reason }, Instant::now());
        let said = participant.poll_outgoing();
        assert!(matches!(said, Some(FromMember::Lost { rank, .. }) if rank == told.0));
        let (rank, reason) = told.clone();
        participant.receive(FromLeader::PeerLost { rank, reason });
        let raised: Vec<ControlEvent> = events.try_iter().collect();
        let (rank, reason) = told;
        assert_eq!(raised, [ControlEvent::PeerLost { rank, reason }]);
    }

    #[test]
    fn leaving_a_lost_rank_0_ends_at_once() {
        let (mut participant, _events) = participant();
        participant.leader_lost("killed");
        let result = leave(&mut participant, Instant::now());
        let reason = "killed".into();
        assert_eq!(
            result.try_recv(),
            Ok(Err(LeaveError::LeaderLost { reason }))
        );
        assert!(participant.is_finished());
    }
}
