//! A rank that has joined its job: takes operations from any thread and calls back when they end.

use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::holes::{Residual, TensorShape};
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::Job;
use gradwire_protocol::launch;
use gradwire_protocol::reach::MemoryPath;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Rank, Span};
use gradwire_transport::address::Address;
use gradwire_transport::control::{
    self, ControlPlane, ControlSender, JoinRole, LeaveError, Membership, OnEvent, RosterPeer,
};
use gradwire_transport::driver::{self, DriverSetup, MachineCommand};
use gradwire_transport::faults::FaultInjector;
use gradwire_transport::http::HttpServer;
use gradwire_transport::interface::AUTO_MTU_MAX;
use gradwire_transport::seal::Seal;
use gradwire_transport::shm::RankLife;
use gradwire_transport::wires::Wires;
use gradwire_tuning::surface::SchedulePoint;

use crate::counters::RankCounters;
use crate::error::{EndError, RankJoinError, ResidualError};
use crate::in_network::{AggregatorLine, AggregatorTerms};
use crate::inbox::{ANSWER_PATIENCE, DriverInbox};
use crate::metrics::snapshot::RankSubject;
use crate::metrics::{self, Snapshot, SnapshotSource};
use crate::open::OpenRank;
use crate::pool::CallbackPool;
use crate::promise::{
    CallbackPlace, CallbackPromise, Done, EndedOperation, PendingCount, RankTask, Submission,
    Ticket,
};
use crate::rank_driver::RankDriver;
use crate::start::{self, JobName, RankInUse};
use crate::trace::{FlightRecorder, TraceDump};
use crate::tuner::{JobTuner, TuningAdvice};
use crate::vicinity;
use crate::vigil::ProcessVigil;

/// How long a closing rank waits while the messages that it owes others make no progress.
const DEBT_PATIENCE: Duration = Duration::from_secs(10);
/// How often a closing rank checks whether it still owes a message.
const DEBT_PAUSE: Duration = Duration::from_millis(5);
/// How long a closing rank that owes nothing keeps answering others that are not done.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);
/// The same after an abort: the others have ended their operations, too, and have been told why.
const ABORTED_PATIENCE: Duration = Duration::from_millis(500);
/// How long a trace waits for the state that only the driver knows.
const TRACE_PATIENCE: Duration = Duration::from_secs(1);

/// A joined rank. If it is dropped without [`LocalRank::close`], the others see it as lost.
#[derive(Debug)]
pub struct LocalRank {
    rank: Rank,
    wire: &'static str,
    job: Job,
    segment_bytes: u32,
    control: Mutex<Option<ControlPlane>>,
    inbox: Arc<DriverInbox>,
    vigil: Mutex<Option<ProcessVigil>>,
    aggregator: Mutex<Option<AggregatorLine>>,
    pool: Arc<CallbackPool>,
    recorder: Arc<FlightRecorder>,
    pending: Arc<PendingCount>,
    watch: Arc<SnapshotSource>,
    watched_at: Mutex<Option<HttpServer>>,
    schedule: Mutex<SchedulePoint>,
    tuner: Mutex<JobTuner>,
}

impl LocalRank {
    pub(crate) fn start(
        open: OpenRank,
        role: JoinRole,
        membership: Membership,
        timeout: Duration,
    ) -> Result<Self, RankJoinError> {
        let inbox = Arc::new(DriverInbox::default());
        let token = membership.token.clone();
        let control = control::join(role, membership, timeout, listener(&inbox))?;
        let OpenRank {
            job,
            rank,
            world_size,
            sockets,
            local_rank,
            trace_folder,
            inbox: memory,
            ..
        } = open;
        let name = JobName::of(&job);
        let job = launch::fitted(job, &vicinity::launch_facts(control.roster()));
        let identity = identity_of(&control, world_size);
        let near = vicinity::enter(&job, &control, (memory, timeout))?;
        let wire = wire_of(&near.reached, world_size, sockets.name());
        let endpoint = endpoint_of(&job, identity, near.path.map(|path| (near.reached, path)));
        let segment_bytes = endpoint.segment_bytes();
        let communicator = communicator_of(endpoint, &job, control.roster());
        let terms = aggregator_terms(&job, identity, (&sockets, token));
        let pace = vicinity::pace(job.transport.idle, control.roster(), rank);
        let subject = RankSubject::new(&job, identity, control.roster(), wire);
        let recorder = FlightRecorder::new(subject.clone(), job.trace.entries, trace_folder);
        let lanes = vicinity::lanes(control.roster());
        let pool = Arc::default();
        let setup = DriverSetup {
            sockets,
            peers: data_addresses(control.roster()),
            seal: Seal::of(&job, identity, control.secrets(), lanes),
            faults: FaultInjector::new(&job.faults, rank),
            neighbours: near.neighbours,
            pace,
        };
        let seat = RankDriver::new(communicator, &job, &recorder, &pool);
        let seat = seat.heard_by_others(control.sender());
        let link = driver::spawn(seat, setup, RankDriver::hand_out);
        inbox.connect(link.map_err(RankJoinError::Driver)?);
        let aggregator = AggregatorLine::of(terms, &inbox);
        control.barrier(timeout)?;
        drop(near.names);
        let watch = SnapshotSource::new(subject, &inbox);
        let watched_at = metrics::open(&job.metrics, local_rank, &watch);
        let in_use = RankInUse::of(rank, wire, watched_at.as_ref().map(HttpServer::address));
        start::tell(&name, &job, control.roster(), in_use);
        Ok(Self {
            schedule: Mutex::new(JobTuner::own_point(&job)),
            tuner: Mutex::new(JobTuner::new(&job)),
            rank,
            wire,
            job,
            segment_bytes,
            vigil: Mutex::new(Some(vigil_over(near.lives, control.sender()))),
            control: Mutex::new(Some(control)),
            inbox,
            aggregator: Mutex::new(aggregator),
            pool,
            recorder,
            pending: Arc::default(),
            watch,
            watched_at: Mutex::new(watched_at),
        })
    }

    /// Which rank this is.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// The wire that carries packets to the other ranks: "udp", "uring", "rdma", "shm", or
    /// "shm+udp" if some ranks share memory with this one.
    pub fn wire(&self) -> &'static str {
        self.wire
    }

    /// The job with its MTU resolved.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Payload bytes of a full packet.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    /// Starts an operation. `done` is called exactly once, also when the operation is refused: on
    /// a thread of its own, or on one that [waits](LocalRank::wait) with the ticket.
    pub fn submit(&self, task: RankTask, done: Done) -> Ticket {
        if self.inbox.is_of_parent() {
            // The callback may need locks that this thread holds.
            std::thread::spawn(move || done(Err(EndError::Forked)));
            return Ticket::default();
        }
        let ticket = Ticket::default();
        let caller = CallbackPlace::CallbackPool(Arc::clone(&self.pool), ticket.clone());
        let submission = self.submission(task, done, caller);
        self.inbox.with(|link| {
            // A driver that has stopped drops the promise, which calls back.
            let _ = link.submit(Box::new(move |seat, now| seat.submit(now, submission)));
        });
        ticket
    }

    fn submission(&self, task: RankTask, done: Done, caller: CallbackPlace) -> Submission {
        Submission {
            recorded: self.recorder.submitted(&task.operation),
            task,
            promise: CallbackPromise::new(done, caller, (&self.pending, &self.recorder)),
        }
    }

    /// Drives this rank on the calling thread until the operation has ended, and then calls back
    /// here, without a change of threads. May return early, if another thread drives already or
    /// `patience` is over; the pool then runs the callback.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a caller waits is no matter of the protocol"
    )]
    pub fn wait(&self, ticket: &Ticket, patience: Duration) {
        if self.inbox.is_of_parent() {
            return;
        }
        let start = std::time::Instant::now();
        ticket.await_by(|| {
            self.drive(Box::new(|_, _| {}), || {
                ticket.has_ended() || start.elapsed() > patience
            });
        });
    }

    /// Drives until `is_done`, unless another thread drives already.
    fn drive(&self, command: MachineCommand<RankDriver>, is_done: impl FnMut() -> bool) {
        self.inbox.with(|link| {
            // A driver that has stopped drops its promises, which call back.
            let _ = link.drive(command, is_done);
            if self.pending.any() {
                link.hand_back();
            }
        });
    }

    /// Starts an operation and waits for its end.
    ///
    /// # Errors
    /// [`EndError`] when the operation is refused or fails.
    pub fn run(&self, task: RankTask) -> Result<EndedOperation, EndError> {
        if self.inbox.is_of_parent() {
            return Err(EndError::Forked);
        }
        let (tell, told) = sync_channel(1);
        let done = Box::new(move |result| {
            let _ = tell.send(result);
        });
        let submission = self.submission(task, done, CallbackPlace::Driver);
        let mut result = None;
        let command = move |seat: &mut RankDriver, now| seat.submit(now, submission);
        self.drive(Box::new(command), || {
            result = told.try_recv().ok();
            result.is_some()
        });
        let result = result.unwrap_or_else(|| told.recv().unwrap_or(Err(EndError::Closed)));
        result.map_err(|error| error.traced(&self.recorder))
    }

    /// The counts so far; zeros if the rank has been closed.
    pub fn counters(&self) -> RankCounters {
        let counted =
            self.ask(|seat| RankCounters::of(seat.communicator().endpoint(), seat.sum_counts()));
        let driver = self.inbox.with(|link| link.counters()).unwrap_or_default();
        counted.unwrap_or_default().with_driver(driver)
    }

    /// Chunk and credit of operations that are submitted now.
    pub fn schedule(&self) -> SchedulePoint {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes chunk and credit of operations that are submitted from now on. All ranks must do so
    /// between the same two operations.
    pub fn reschedule(&self, point: SchedulePoint) {
        let schedule = self.schedule.lock();
        *schedule.unwrap_or_else(PoisonError::into_inner) = point;
        self.inbox.with(|link| {
            let change = move |seat: &mut RankDriver, now| {
                let communicator = seat.communicator_mut();
                communicator.set_chunk(point.chunk);
                communicator.set_credit(now, point.credit);
            };
            let _ = link.submit(Box::new(change));
        });
    }

    /// The next advice of the job's tuning, after steps with the previous one took `step` on
    /// average. This changes no setting: one rank asks, and tells the others.
    pub fn tune(&self, step: Duration) -> TuningAdvice {
        let tuner = self.tuner.lock();
        tuner
            .unwrap_or_else(PoisonError::into_inner)
            .advise(step.as_secs_f64())
    }

    /// Takes the lost values that error feedback keeps of a tensor of this shape: the next step no
    /// longer adds them. `None` if there are none.
    ///
    /// # Errors
    /// [`ResidualError`] when the rank has been closed or does not answer, and when the tensor has
    /// another shape: its lost values stay with the rank.
    pub fn take_residual(
        &self,
        tensor_key: u64,
        shape: TensorShape,
    ) -> Result<Option<Residual>, ResidualError> {
        let take = move |seat: &mut RankDriver| {
            let communicator = seat.communicator_mut();
            match communicator.residuals().shape(tensor_key) {
                Some(kept) if kept != shape => Err(ResidualError::Shape { kept, asked: shape }),
                _ => Ok(communicator.take_residual(tensor_key)),
            }
        };
        self.ask(take).unwrap_or(Err(ResidualError::Closed))
    }

    /// Multiplies the lost values that error feedback keeps of a tensor by the factor by which the
    /// scale of the loss has changed; see [`Communicator::scale_residual`].
    ///
    /// # Errors
    /// [`ResidualError`] when the rank has been closed or does not answer, and for a factor that is
    /// not positive and finite.
    pub fn scale_residual(&self, tensor_key: u64, factor: f64) -> Result<(), ResidualError> {
        if !(factor.is_finite() && factor > 0.0) {
            return Err(ResidualError::Factor { given: factor });
        }
        self.ask(move |seat| {
            seat.communicator_mut().scale_residual(tensor_key, factor);
        })
        .ok_or(ResidualError::Closed)
    }

    /// The counts so far, by peer and class; `None` if the rank has been closed.
    pub fn metrics(&self) -> Option<Snapshot> {
        self.watch.snapshot()
    }

    /// Whether operations can still begin: false once the job has ended on any rank, by an abort, a
    /// mismatch or a missed deadline, and after [`LocalRank::close`].
    pub fn takes_operations(&self) -> bool {
        self.ask(|seat| seat.communicator().aborted().is_none())
            .unwrap_or(false)
    }

    /// A dump of the flight recorder. If the driver does not answer within a second, it lacks the
    /// needs of pending operations.
    pub fn trace(&self) -> TraceDump {
        let (tell, told) = sync_channel(1);
        let ask = move |seat: &mut RankDriver, _| {
            seat.record_messages();
            let _ = tell.send(seat.situation());
        };
        let asked = self.inbox.with(|link| link.submit(Box::new(ask)));
        let situation = match asked {
            Some(Ok(())) => told.recv_timeout(TRACE_PATIENCE).ok(),
            _ => {
                return self
                    .recorder
                    .dump_alone("the rank was closed, or its driver has failed");
            }
        };
        match situation {
            Some(situation) => self.recorder.dump(situation),
            None => self
                .recorder
                .dump_alone("the driver has not answered within a second"),
        }
    }

    /// Writes the flight recorder into its folder, if it has one and no failure was written before.
    pub fn keep_trace(&self, reason: &str) {
        let situation = self.ask(|seat| seat.situation());
        self.recorder
            .note_failure(reason, || situation.unwrap_or_default());
        self.recorder.keep();
    }

    /// Where the metrics can be asked for over HTTP, at `/metrics` and `/snapshot`, if the job
    /// wants that.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.door().as_ref().map(HttpServer::address)
    }

    fn door(&self) -> MutexGuard<'_, Option<HttpServer>> {
        let door = self.watched_at.lock();
        door.unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the driver; `None` if the rank has been closed or does not answer in time.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut RankDriver) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = sync_channel(1);
        let ask = move |seat: &mut RankDriver, _| {
            let _ = tell.send(question(seat));
        };
        let asked = self.inbox.with(|link| link.submit(Box::new(ask)));
        asked.and_then(|_| told.recv_timeout(ANSWER_PATIENCE).ok())
    }

    /// Fails every operation here and on all other ranks.
    pub fn abort(&self, reason: &str) {
        if self.inbox.is_of_parent() {
            return;
        }
        if let Some(control) = self.control().as_ref() {
            control.abort(reason);
        }
        let reason = reason.to_owned();
        self.inbox.with(|link| {
            let _ = link.submit(Box::new(move |seat, _| seat.abort(&reason)));
        });
    }

    /// Ends a group on this rank: its pending operations here fail, messages that it has sent and
    /// no rank has received are cancelled, and messages that come for it later are refused. Slower
    /// ranks still get the messages that completed operations owe them. The group's number is not
    /// used again.
    pub fn end_group(&self, group: u16) {
        self.inbox.with(|link| {
            let _ = link.submit(Box::new(move |seat, now| seat.end_group(now, group)));
        });
    }

    /// Waits up to `patience` for operations to end, and until the others have received the
    /// messages that those owe them, as long as these make progress. Stays reachable for 5 s, or
    /// until the others are done too; the log names those that are not. Then stops all threads.
    /// Operations that have not ended fail with [`EndError::Closed`]. Closing twice does nothing.
    pub fn close(&self, patience: Duration) {
        self.close_within(patience, DEBT_PATIENCE);
    }

    /// Like [`LocalRank::close`], but waits for others that make no progress no longer than
    /// `others`.
    pub fn close_within(&self, patience: Duration, others: Duration) {
        if self.inbox.is_of_parent() {
            return;
        }
        self.pending.wait_for_none(patience);
        self.pay_debts(others);
        let aborted = self.ask(|seat| seat.communicator().aborted().is_some());
        let is_aborted = aborted.unwrap_or(false);
        let others = others.min(if is_aborted {
            ABORTED_PATIENCE
        } else {
            LEAVE_PATIENCE
        });
        let control = self.control().take();
        if let Some(control) = control {
            if let Err(error @ LeaveError::TimedOut { .. }) = control.leave(others)
                && !others.is_zero()
                && !is_aborted
            {
                log::warn!("{error}");
            }
            self.recorder.leave(|| self.watch.snapshot());
        }
        self.end();
    }

    /// Waits until the other ranks have received the messages of operations that have ended here.
    /// Ranks that are lost need none.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a caller waits is no matter of the protocol"
    )]
    fn pay_debts(&self, patience: Duration) {
        let (mut before, mut progressed) = (None, std::time::Instant::now());
        loop {
            let debt = self.ask(|seat| seat.communicator().debt());
            let Some(debt) = debt.filter(|debt| !debt.ranks.is_empty()) else {
                return;
            };
            if progressed.elapsed() > patience {
                let owed: Vec<u16> = debt.ranks.iter().map(|rank| rank.0).collect();
                log::warn!(
                    "ranks {owed:?} have received nothing within {patience:?} of the messages of \
                    operations that ended here: this rank leaves anyway"
                );
                return;
            }
            if before
                .replace(debt.clone())
                .is_none_or(|before| before != debt)
            {
                progressed = std::time::Instant::now();
            }
            std::thread::sleep(DEBT_PAUSE);
        }
    }

    /// Ends all threads but those of the control plane.
    fn end(&self) {
        drop(self.door().take());
        let vigil = self.vigil.lock();
        drop(vigil.unwrap_or_else(PoisonError::into_inner).take());
        let aggregator = self.aggregator.lock();
        drop(aggregator.unwrap_or_else(PoisonError::into_inner).take());
        self.inbox.disconnect();
        self.pool.close();
    }

    fn control(&self) -> MutexGuard<'_, Option<ControlPlane>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocalRank {
    fn drop(&mut self) {
        if self.inbox.is_of_parent() {
            // Threads, connections and files belong to the parent, which ends them.
            let control = self.control.get_mut();
            std::mem::forget(control.unwrap_or_else(PoisonError::into_inner).take());
            let vigil = self.vigil.get_mut();
            std::mem::forget(vigil.unwrap_or_else(PoisonError::into_inner).take());
            let aggregator = self.aggregator.get_mut();
            std::mem::forget(aggregator.unwrap_or_else(PoisonError::into_inner).take());
            let watched_at = self.watched_at.get_mut();
            std::mem::forget(watched_at.unwrap_or_else(PoisonError::into_inner).take());
            std::mem::forget((Arc::clone(&self.inbox), Arc::clone(&self.pool)));
            return;
        }
        drop(self.control().take());
        self.end();
    }
}

/// Hands events of the control plane to the driver.
fn listener(inbox: &Arc<DriverInbox>) -> OnEvent {
    let inbox = Arc::clone(inbox);
    Box::new(move |event| inbox.take(event))
}

fn communicator_of(endpoint: Endpoint, job: &Job, roster: &[RosterPeer]) -> Communicator {
    let round_trips = roster
        .iter()
        .map(|peer| Span::from_micros(peer.round_trip_us));
    Communicator::new(endpoint, job)
        .with_hosts(vicinity::hosts(roster))
        .with_round_trips(round_trips.collect())
}

fn identity_of(control: &ControlPlane, world_size: u16) -> Identity {
    Identity {
        rank: control.rank(),
        world_size,
        job: control.job_id(),
        epoch: control.epoch(),
    }
}

/// Reports to all ranks which of those that share memory with this one have ended.
fn vigil_over(lives: Vec<(Rank, RankLife)>, voice: ControlSender) -> ProcessVigil {
    ProcessVigil::over(lives, move |rank| voice.lost(rank, "its process has ended"))
}

fn aggregator_terms(
    job: &Job,
    identity: Identity,
    (sockets, token): (&Wires, String),
) -> AggregatorTerms {
    AggregatorTerms {
        job: job.clone(),
        training: identity.job,
        token,
        addresses: sockets.addresses().to_vec(),
        mtu: Option::from(job.transport.mtu).unwrap_or(AUTO_MTU_MAX),
        receive_buffer: sockets.receive_buffer(),
    }
}

fn data_addresses(roster: &[RosterPeer]) -> Vec<Vec<Address>> {
    let addresses = roster.iter().map(|peer| peer.data_addresses.clone());
    addresses.collect()
}

/// The wire that carries packets to the others: memory to those that share it, `wires` to the rest.
fn wire_of(reached: &[Rank], world_size: u16, wires: &'static str) -> &'static str {
    let others = usize::from(world_size) - 1;
    match reached.len() {
        0 => wires,
        near if near == others => "shm",
        _ => "shm+udp",
    }
}

fn endpoint_of(job: &Job, identity: Identity, near: Option<(Vec<Rank>, MemoryPath)>) -> Endpoint {
    let seed = u64::from(identity.job.0) << 16 | u64::from(identity.rank.0);
    let endpoint = Endpoint::new(identity, job, seed);
    let mut endpoint = match near {
        Some((ranks, path)) => endpoint.with_neighbours(ranks, path),
        None => endpoint,
    };
    endpoint.keep_metrics();
    endpoint
}
