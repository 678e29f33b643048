//! The machine that the driver thread drives: the communicator, and the callers that wait for its
//! operations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gradwire_collectives::aggregation::network_sums::{AggregatorPair, NetworkSums, SumCounts};
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::{Completion, OperationId};
use gradwire_collectives::overdue::OverdueQuestion;
use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::machine::{ArrivedRun, Machine, Transmit, UnsentRun};
use gradwire_protocol::units::{Instant, Rank, Span};
use gradwire_transport::control::{self, ControlEvent, ControlSender};

use log::Level;

use crate::error::EndError;
use crate::inquiry::{self, OverdueInquiry};
use crate::metrics::operations::{BegunOperation, OperationEnd, OperationTally};
use crate::path_faults;
use crate::pool::CallbackPool;
use crate::promise::{CallbackPromise, EndedOperation, Submission};
use crate::trace::{DriverSituation, FlightRecorder, RecordedOperation};

/// How long operations with a peer that has left may still end. A peer leaves when all its own
/// operations have ended, and keeps answering; its last answers may be in flight.
const LEFT_GRACE: Span = Span::from_millis(2_000);
/// How a peer that has left was lost; with the words of Gloo, which programs that go on after
/// failures look for.
const LEFT: &str = "it has left the job: Connection closed by peer";

/// The communicator of a rank with the callbacks of its operations.
#[derive(Debug)]
pub(crate) struct RankDriver {
    communicator: Communicator,
    /// Its all-reduces in the network, if the job wants them there.
    sums: Option<NetworkSums>,
    /// The time of the last call.
    now: Instant,
    waiting: BTreeMap<OperationId, WaitingCaller>,
    operations: OperationTally,
    left: Vec<(Instant, Rank)>,
    /// Sends to the other ranks, if there is a control plane.
    voice: Option<ControlSender>,
    /// Whether the other ranks know that everything has failed here.
    standing: FailureNews,
    /// The operation that is overdue.
    inquiry: Option<OverdueInquiry>,
    /// The last question of another rank, which rank asked it, and when.
    asked: Option<(Instant, Rank, OverdueQuestion)>,
    recorder: Arc<FlightRecorder>,
    pool: Arc<CallbackPool>,
    /// The first failure that the recorder does not know yet.
    failure: Option<String>,
}

/// The caller that waits for an operation, and the operation's place in the records.
#[derive(Debug)]
struct WaitingCaller {
    promise: CallbackPromise,
    begun: BegunOperation,
    recorded: RecordedOperation,
}

impl RankDriver {
    pub(crate) fn new(
        communicator: Communicator,
        job: &Job,
        recorder: &Arc<FlightRecorder>,
        pool: &Arc<CallbackPool>,
    ) -> Self {
        let mut communicator = communicator;
        let is_summed = job.collectives.algorithm == ReduceAlgorithm::InNetwork;
        let sums = is_summed.then(|| NetworkSums::new(&communicator, job));
        if recorder.is_on() {
            communicator.keep_journal();
        }
        Self {
            communicator,
            sums,
            now: Instant::START,
            waiting: BTreeMap::new(),
            operations: OperationTally::default(),
            left: Vec::new(),
            voice: None,
            standing: FailureNews::Unknown,
            inquiry: None,
            asked: None,
            recorder: Arc::clone(recorder),
            pool: Arc::clone(pool),
            failure: None,
        }
    }

    /// Lets this rank tell the others of failures, and ask them before an operation fails because
    /// it takes too long.
    pub(crate) fn heard_by_others(mut self, voice: ControlSender) -> Self {
        self.communicator = self.communicator.with_inquiries();
        self.voice = Some(voice);
        self
    }

    /// The aggregator of the job takes packets.
    pub(crate) fn aggregator_is_there(&mut self, pair: AggregatorPair) {
        if let Some(sums) = &mut self.sums {
            sums.connect(pair);
        }
    }

    /// The aggregator of the job has ended.
    pub(crate) fn aggregator_is_gone(&mut self, now: Instant) {
        if let Some(sums) = &mut self.sums {
            sums.disconnect(now, &mut self.communicator);
        }
    }

    /// How sums in the network have ended.
    pub(crate) fn sum_counts(&self) -> SumCounts {
        self.sums
            .as_ref()
            .map(NetworkSums::counts)
            .unwrap_or_default()
    }

    pub(crate) fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    pub(crate) fn communicator_mut(&mut self) -> &mut Communicator {
        &mut self.communicator
    }

    /// How long operations took.
    pub(crate) fn operations(&self) -> &OperationTally {
        &self.operations
    }

    /// Starts an operation. A refusal reaches the caller like any other end.
    pub(crate) fn submit(&mut self, now: Instant, submission: Submission) {
        let Submission {
            task,
            promise,
            recorded,
        } = submission;
        let begun = BegunOperation::now(task.operation.collective);
        self.recorder.note_clock(now);
        let mut operation = task.operation;
        operation.deadline = task.timeout.map(|timeout| now + timeout);
        let label = operation.label();
        log::trace!("{label}: {} bytes", operation.tensor_bytes());
        self.now = now;
        let submitted = match &mut self.sums {
            Some(sums) => sums.submit(now, &mut self.communicator, operation),
            None => self.communicator.submit(now, operation),
        };
        match submitted {
            Ok(id) => {
                self.recorder.started(recorded, begun.at);
                let waiting = WaitingCaller {
                    promise,
                    begun,
                    recorded,
                };
                self.waiting.insert(id, waiting);
            }
            Err(refused) => {
                self.recorder.failed(recorded, &refused, None);
                promise.keep(Err(EndError::Refused(refused)));
            }
        }
    }

    /// The state of operations that the recorder does not know by itself.
    pub(crate) fn situation(&self) -> DriverSituation {
        DriverSituation::new(&self.communicator, |id| {
            self.waiting.get(&id).map(|waiting| waiting.recorded)
        })
    }

    /// Fails everything here. The caller tells the other ranks.
    pub(crate) fn abort(&mut self, reason: &str) {
        self.standing = FailureNews::Known;
        self.notes(Level::Info, || format!("this rank ended the job: {reason}"));
        self.communicator.abort(reason);
    }

    /// Ends a group here.
    pub(crate) fn end_group(&mut self, now: Instant, group: u16) {
        self.communicator.end_group(now, group);
        if let Some(sums) = &mut self.sums {
            sums.end_group(now, &mut self.communicator, group);
        }
    }

    /// Handles an event of the control plane.
    pub(crate) fn on_control(&mut self, now: Instant, event: ControlEvent) {
        match event {
            // A rank that has left may end its process.
            ControlEvent::PeerLost { rank, .. } if self.has_left(rank) => {}
            ControlEvent::PeerLost { rank, reason } => {
                self.fails(|| format!("rank {rank} was lost ({reason})"));
                self.communicator.fail_peer(rank, &reason);
            }
            ControlEvent::PeerLeft { rank } => self.left.push((now + LEFT_GRACE, rank)),
            ControlEvent::Aborted { rank, reason } => {
                self.standing = FailureNews::Known;
                let me = self.communicator.endpoint().settings().identity.rank;
                let reason = match rank == me {
                    true => format!("this rank ended the job: {reason}"),
                    false => format!("rank {rank} ended the job: {reason}"),
                };
                self.fails(|| reason.clone());
                self.communicator.abort(&reason);
            }
            ControlEvent::Asked { rank, question } => self.reply(now, rank, &question),
            ControlEvent::Answered { rank, answer } => {
                let inquiry = self.inquiry.as_mut();
                if inquiry.is_some_and(|inquiry| inquiry.take(rank, &answer)) {
                    self.conclude(now);
                }
            }
            ControlEvent::Refused { .. } => {}
        }
    }

    /// Why operations that need a rank that has left fail. If another was lost before, the rank has
    /// probably left for that, and its leaving is not the cause to look for.
    fn reason_of_leaving(&self) -> String {
        let first = self.communicator.lost().iter().next();
        first.map_or_else(
            || LEFT.to_owned(),
            |(lost, reason)| format!("{LEFT}, after rank {lost} was lost: {reason}"),
        )
    }

    fn has_left(&self, rank: Rank) -> bool {
        self.left.iter().any(|&(_, left)| left == rank)
    }

    fn reply(&mut self, now: Instant, rank: Rank, question: &str) {
        let asked = inquiry::asked(question);
        if let (Some(asked), Some(voice)) = (asked, &self.voice) {
            let whereabouts = self.communicator.whereabouts(rank, &asked);
            voice.answer(rank, &inquiry::answer(&asked, &whereabouts));
            self.asked = Some((now, rank, asked));
        }
    }

    /// Asks the other ranks about an overdue operation, unless one of them asks already.
    fn inquire(&mut self, now: Instant) {
        let (Some(overdue), Some(voice)) = (self.communicator.poll_overdue(), &self.voice) else {
            return;
        };
        let me = self.communicator.endpoint().settings().identity.rank;
        let inquiry = OverdueInquiry::new(now, me, &overdue);
        let recently = |at: Instant| now - at < inquiry::VERDICT_TIME;
        self.inquiry = Some(match self.asked {
            Some((at, asker, same)) if same == overdue.question && recently(at) => {
                inquiry.of_another(now, asker)
            }
            _ => {
                voice.ask(&inquiry::question(&overdue.question));
                inquiry
            }
        });
    }

    /// Ends the job if a deadline has passed long ago: this process was stopped. Then the silence
    /// of other ranks in that time is no evidence, and they have not waited for this one.
    fn look_at_the_clock(&mut self, now: Instant) {
        let limit = self.communicator.endpoint().settings().peer_timeout;
        let late = self.poll_timeout().filter(|due| *due < now);
        let Some(gap) = late.map(|due| now - due).filter(|gap| *gap > limit) else {
            return;
        };
        let [gap, limit] = [gap, limit].map(|span| Duration::from_nanos(span.as_nanos()));
        let reason = control::stall_reason(gap, limit);
        let reason = format!("this rank ended the job: {reason}");
        self.fails(|| reason.clone());
        self.communicator.abort(&reason);
    }

    fn conclude(&mut self, now: Instant) {
        if let Some(inquiry) = self.inquiry.take() {
            let verdict = inquiry.verdict();
            self.communicator.conclude(now, inquiry.id, verdict);
        }
    }

    fn fails(&mut self, reason: impl FnOnce() -> String) {
        self.notes(Level::Error, reason);
    }

    /// Notes a failure for the recorder, and logs it; what follows from an abort at level debug.
    fn notes(&mut self, level: Level, reason: impl FnOnce() -> String) {
        if self.failure.is_none() {
            let reason = reason();
            let is_known = self.communicator.aborted().is_some();
            log::log!(if is_known { Level::Debug } else { level }, "{reason}");
            self.failure = Some(reason);
        }
    }

    /// Gives the recorder the messages that have ended.
    pub(crate) fn record_messages(&mut self) {
        self.recorder.ended(self.communicator.take_journal());
    }

    /// Gives completions to the callers that wait for them.
    pub(crate) fn hand_out(&mut self) {
        // Before any caller here learns of it, since the caller may then end the process.
        if self.standing == FailureNews::Unknown
            && let Some(reason) = self.communicator.aborted()
        {
            self.standing = FailureNews::Known;
            if let Some(voice) = &self.voice {
                voice.abort(reason);
            }
        }
        while let Some((rank, fault)) = self.communicator.poll_path_fault() {
            log::warn!("{}", path_faults::line(rank, fault));
        }
        self.record_messages();
        let mut failed = Vec::new();
        self.end_sums();
        while let Some(completion) = self.next_completion() {
            let Completion {
                id,
                buffer,
                input,
                holes,
                result,
                unfinished,
            } = completion;
            let Some(waiting) = self.waiting.remove(&id) else {
                continue;
            };
            let WaitingCaller {
                promise,
                begun,
                recorded,
            } = waiting;
            log::trace!("operation {} ended: {result:?}", id.0);
            match result {
                Ok(outcome) => {
                    self.operations.note(begun, OperationEnd::Well);
                    self.recorder.completed(recorded);
                    promise.keep(Ok(EndedOperation {
                        buffer,
                        input,
                        holes,
                        outcome,
                    }));
                }
                Err(error) => {
                    self.operations.note(begun, OperationEnd::Failed);
                    self.recorder.failed(recorded, &error, unfinished);
                    self.fails(|| error.to_string());
                    failed.push((promise, error));
                }
            }
        }
        if let Some(reason) = self.failure.take() {
            self.dump(&reason);
        }
        // After the dump, which their errors name.
        for (promise, error) in failed {
            promise.keep(Err(EndError::Failed { error, trace: None }));
        }
    }

    /// Tells people about sums in the network, and ends these if everything has ended.
    fn end_sums(&mut self) {
        let Some(sums) = &mut self.sums else {
            return;
        };
        while let Some(notice) = sums.poll_notice() {
            log::warn!("{notice}");
        }
        if let Some(reason) = self.communicator.aborted().map(str::to_owned) {
            sums.abort(self.now, &mut self.communicator, &reason);
        }
    }

    /// The next operation of a caller that has ended.
    fn next_completion(&mut self) -> Option<Completion> {
        let Some(sums) = &mut self.sums else {
            return self.communicator.poll_completion();
        };
        loop {
            if let Some(ended) = sums.poll_completion() {
                return Some(ended);
            }
            let completion = self.communicator.poll_completion()?;
            if let Some(ended) = sums.take(self.now, &mut self.communicator, completion) {
                return Some(ended);
            }
        }
    }

    /// Has a thread of the pool write the recorder at the first failure: a file system may be slow.
    fn dump(&self, reason: &str) {
        if self.recorder.note_failure(reason, || self.situation()) {
            let recorder = Arc::clone(&self.recorder);
            self.pool.run(move || {
                recorder.keep();
            });
        }
    }
}

impl Machine for RankDriver {
    fn handle_run(&mut self, now: Instant, run: &ArrivedRun<'_>) {
        self.now = now;
        match &mut self.sums {
            Some(sums) if sums.is_pair(run.first.header.job) => {
                sums.handle_run(now, &mut self.communicator, run);
            }
            _ => self.communicator.handle_run(now, run),
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.look_at_the_clock(now);
        let gone: Vec<_> = self
            .left
            .extract_if(.., |(until, _)| *until <= now)
            .collect();
        for (_, rank) in gone {
            let reason = self.reason_of_leaving();
            self.communicator.fail_peer(rank, &reason);
        }
        self.now = now;
        self.communicator.handle_timeout(now);
        if let Some(sums) = &mut self.sums {
            sums.handle_timeout(now, &mut self.communicator);
        }
        self.inquire(now);
        if self.inquiry.as_ref().is_some_and(|one| one.until() <= now) {
            self.conclude(now);
        }
    }

    fn handle_host_drops(&mut self, now: Instant) {
        self.communicator.handle_host_drops(now);
    }

    fn handle_unsent(&mut self, now: Instant, unsent: &UnsentRun) {
        // Packets that did not leave for the aggregator leave again in time.
        let is_own = |sums: &NetworkSums| sums.is_pair(unsent.template.job);
        if !self.sums.as_ref().is_some_and(is_own) {
            self.communicator.handle_unsent(now, unsent);
        }
    }

    fn tolerates_loss(&self) -> bool {
        self.communicator.tolerates_loss()
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.now = now;
        if let Some(sums) = &mut self.sums
            && let Some(transmit) = sums.poll_transmit(now)
        {
            return Some(transmit);
        }
        self.communicator.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let left = self.left.iter().map(|(until, _)| *until);
        let inquiry = self.inquiry.as_ref().map(OverdueInquiry::until);
        let communicator = self.communicator.poll_timeout();
        let sums = self.sums.as_ref().and_then(NetworkSums::poll_timeout);
        left.chain(inquiry).chain(communicator).chain(sums).min()
    }

    fn handle_end(&mut self, _now: Instant, reason: &str) {
        self.fails(|| reason.to_owned());
        self.communicator.abort(reason);
    }
}

/// Whether the other ranks have heard that everything failed here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FailureNews {
    Known,
    Unknown,
}
