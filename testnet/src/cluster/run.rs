//! Runs one schedule: the loop over packets and driver steps, and the checks along the way.
//!
//! 1. While operations end now and then, faults go on. If none ends for a while although all its
//!    ranks have submitted it, all faults heal, and then every operation must end.
//! 2. After the last operation the network must fall silent, and no message may be left.
//! 3. The first violation ends the run.

mod driving;
mod ending;
mod working;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::RngExt;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::OperationId;
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{Instant, JobId, Rank, Span};

use super::clock::HostClock;
use super::draw::{self, FNV_START};
use super::evidence::{Evidence, Found};
use super::faults::ClusterFault;
use super::host::{ArrivedPacket, ClusterHost};
use super::paths::ClusterPaths;
use super::program::{ClusterProgram, PlannedOperation, PlannedTensor, segment_bytes};
use super::residuals::RankResidual;
use super::results::{RankResult, TensorModel, title};
use super::schedule::ClusterSchedule;
use super::traffic::WaitingTraffic;
use super::violation::{ClusterCheck, ClusterViolation};
use crate::arrivals::ArrivalQueue;

/// Faults heal when no operation has ended for this long.
const PATIENCE: Span = Span::from_millis(4_000);
/// Once healed, an operation must end in this time.
const HEALED_WITHIN: Span = Span::from_millis(20_000);
/// Events without an operation that begins or ends; more mean that it does not get on.
const EVENTS_MAX: u64 = 3_000_000;
/// This many more for each pair and each second of a wait: a peer that waits may be asked.
const EVENTS_PER_SECOND: u64 = 100;
/// Events at one instant; more mean that time stands still.
const EVENTS_AT_ONCE_MAX: u64 = 200_000;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClusterTally {
    /// A hash of every packet's header and time.
    pub hash: u64,
    /// Packets sent.
    pub packets: u64,
    /// Operations that ended well, counted once per rank.
    pub completed: u64,
    /// Operations that failed or were refused, counted once per rank.
    pub failed: u64,
    /// Holes that receivers accepted.
    pub holes: u64,
    /// Segments sent again.
    pub repaired: u64,
    /// The most control packets per minute from one rank to another one while both waited, of waits
    /// of a minute and more.
    pub waiting_per_minute: u64,
    /// Simulated time.
    pub took: Span,
    /// Size of rank 0's state in a long run, as the characters of its `Debug`: once all that it
    /// remembers is full, and at the end.
    pub state: [usize; 2],
}

/// Runs a schedule. A panic of the machine counts as a violation.
///
/// # Errors
/// The first check that failed.
pub fn run(schedule: &ClusterSchedule) -> Result<ClusterTally, ClusterViolation> {
    trace(schedule, None)
}

/// As [`run`]; `show` is given a line for each packet that is sent and each operation that ends.
///
/// # Errors
/// As [`run`].
pub fn trace(
    schedule: &ClusterSchedule,
    show: Option<&mut dyn FnMut(&str)>,
) -> Result<ClusterTally, ClusterViolation> {
    run_program(schedule, ClusterProgram::of(schedule), show)
}

/// Runs a schedule with another program than its seed's.
pub(super) fn run_program(
    schedule: &ClusterSchedule,
    program: ClusterProgram,
    show: Option<&mut dyn FnMut(&str)>,
) -> Result<ClusterTally, ClusterViolation> {
    let run = || ClusterRun::new(schedule, program, show).run();
    let ran = catch_unwind(AssertUnwindSafe(run));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(ClusterViolation {
            check: ClusterCheck::Panic,
            at: Instant::START,
            detail: text.unwrap_or_default(),
        })
    })
}

#[derive(Debug)]
struct Flying {
    to: u16,
    packet: ArrivedPacket,
}

/// The progress of one rank through the program.
#[derive(Debug, Default)]
struct RankProgress {
    /// The operations that it takes part in.
    mine: Vec<usize>,
    next: usize,
    /// Since when it could submit the next one.
    could_since: Option<Instant>,
    running: BTreeMap<OperationId, usize>,
}

/// What the control plane does to a rank.
#[derive(Clone, Debug)]
enum Control {
    Die,
    Lose(Rank),
    Abort,
}

struct ClusterRun<'a> {
    show: Option<&'a mut dyn FnMut(&str)>,
    schedule: ClusterSchedule,
    program: ClusterProgram,
    paths: ClusterPaths,
    hosts: Vec<ClusterHost>,
    ranks: Vec<RankProgress>,
    flying: ArrivalQueue<Flying>,
    evidence: Evidence,
    traffic: WaitingTraffic,
    results: Vec<BTreeMap<Rank, RankResult>>,
    models: Vec<TensorModel>,
    controls: Vec<Vec<(Instant, Control)>>,
    /// The rank that dies, and the operation of its own before which it does.
    doomed: Option<(Rank, usize)>,
    aborts: Option<(Rank, usize)>,
    /// The residual of a tensor that each rank had when it submitted an operation.
    owed_before: BTreeMap<(usize, Rank), RankResidual>,
    /// Whether all ranks were told of a rank that aborted by itself.
    has_spread: bool,
    now: Instant,
    last_stir: Instant,
    healed: Option<Instant>,
    last_packet: Instant,
    tally: ClusterTally,
}

/// A rank at the start of a run.
fn host(schedule: &ClusterSchedule, program: &ClusterProgram, rank: u16) -> ClusterHost {
    let (seed, faults) = (schedule.seed, schedule.faults);
    let identity = Identity {
        rank: Rank(rank),
        world_size: schedule.ranks,
        job: JobId(7),
        epoch: 1,
    };
    let endpoint = Endpoint::new(identity, &program.job, seed + u64::from(rank));
    let endpoint = endpoint.with_first_message(program.first_message);
    let endpoint = endpoint.with_first_number(program.first_number);
    let (limits, kept) = program.limits;
    let communicator = Communicator::new(endpoint.with_limits(limits), &program.job);
    let communicator = communicator.with_limits(kept);
    let communicator = communicator.with_hosts(program.hosts.clone());
    let clock = HostClock::of(seed, rank, faults);
    ClusterHost::new(communicator, clock, seed, faults)
}

impl<'a> ClusterRun<'a> {
    fn new(
        schedule: &ClusterSchedule,
        program: ClusterProgram,
        show: Option<&'a mut dyn FnMut(&str)>,
    ) -> Self {
        let ClusterSchedule {
            seed,
            faults,
            ranks,
            ..
        } = *schedule;
        let gap = program.job.transport.gap;
        let hosts = (0..ranks).map(|rank| host(schedule, &program, rank));
        let mine = |rank: u16| {
            let takes_part = |planned: &&PlannedOperation| planned.ranks().contains(&Rank(rank));
            let mine = program.operations.iter().filter(takes_part);
            RankProgress {
                mine: mine.map(|planned| planned.index).collect(),
                ..RankProgress::default()
            }
        };
        let mut rng = draw::stream(seed, "ends", 0);
        let mut end = |fault| {
            let rank = Rank(rng.random_range(0..ranks));
            let before = rng.random_range(0..schedule.operations);
            faults.has(fault).then_some((rank, before))
        };
        let (doomed, aborts) = (end(ClusterFault::Crash), end(ClusterFault::Abort));
        let model =
            |tensor: &PlannedTensor| TensorModel::of(tensor, program.group_size(tensor.group));
        Self {
            show,
            schedule: *schedule,
            paths: ClusterPaths::of(schedule, &program.job),
            hosts: hosts.collect(),
            ranks: (0..ranks).map(mine).collect(),
            flying: ArrivalQueue::new(),
            evidence: Evidence::new(segment_bytes(&program.job) as u32, gap),
            traffic: WaitingTraffic::new(ranks),
            results: program.operations.iter().map(|_| BTreeMap::new()).collect(),
            models: program.tensors.iter().map(model).collect(),
            controls: vec![Vec::new(); usize::from(ranks)],
            doomed,
            aborts,
            owed_before: BTreeMap::new(),
            has_spread: false,
            now: Instant::START,
            last_stir: Instant::START,
            healed: None,
            last_packet: Instant::START,
            tally: ClusterTally {
                hash: FNV_START,
                ..ClusterTally::default()
            },
            program,
        }
    }

    fn run(mut self) -> Result<ClusterTally, ClusterViolation> {
        let ended = (self.work())
            .and_then(|()| self.clean_paths_repair_nothing())
            .and_then(|()| self.budgets_hold())
            .and_then(|()| self.patience_is_asked_for())
            .and_then(|()| self.contributions_add_up())
            .and_then(|()| self.recover())
            .and_then(|()| self.fall_silent());
        self.tally.took = self.now - Instant::START;
        self.tally.waiting_per_minute = self.traffic.most_per_minute();
        let repaired = |host: &ClusterHost| host.communicator.counters().sender.repaired_segments;
        self.tally.repaired = self.hosts.iter().map(repaired).sum();
        match ended {
            Ok(()) => Ok(self.tally),
            Err((check, detail)) => Err(ClusterViolation {
                check,
                at: self.now,
                detail,
            }),
        }
    }

    /// Runs until every operation has ended.
    fn work(&mut self) -> Result<(), Found> {
        let (mut events, mut at_once, mut stir) = (0_u64, 0_u64, self.last_stir);
        while !self.is_done() {
            let before = self.now;
            if !self.happen()? {
                return Err((
                    ClusterCheck::Liveness,
                    format!("no event is left, but {}", self.pending()),
                ));
            }
            if self.last_stir > stir {
                (events, stir) = (0, self.last_stir);
            }
            events += 1;
            at_once = if self.now == before { at_once + 1 } else { 0 };
            if at_once > EVENTS_AT_ONCE_MAX || events > self.events_max() {
                let detail = format!(
                    "{events} events, {at_once} of them now, and {}",
                    self.pending()
                );
                return Err((ClusterCheck::Liveness, detail));
            }
            self.watch()?;
        }
        Ok(())
    }

    /// How many events may pass between two operations that begin or end.
    fn events_max(&self) -> u64 {
        let pairs = u64::from(self.schedule.ranks).pow(2);
        let seconds = (self.now - self.last_stir).as_picos() / Span::from_millis(1_000).as_picos();
        let most = EVENTS_MAX + seconds * pairs * EVENTS_PER_SECOND;
        // As much more as operations may take longer.
        most * (self.healed_within().as_nanos() / HEALED_WITHIN.as_nanos())
    }

    /// Heals all faults when operations stop ending, and then insists.
    fn watch(&mut self) -> Result<(), Found> {
        let since = self.last_stir;
        if self.now - since < PATIENCE || !self.waits_for_machine() {
            return Ok(());
        }
        match self.healed {
            None => {
                self.heal();
                Ok(())
            }
            Some(healed) if self.now - healed.max(since) > self.healed_within() => Err((
                ClusterCheck::Liveness,
                format!("although all faults are healed, {}", self.pending()),
            )),
            Some(_) => Ok(()),
        }
    }

    /// How long an operation may take once faults are healed. A path that takes no full packet
    /// stays so, and ends the job.
    fn healed_within(&self) -> Span {
        match self.paths.has_shrunk() {
            true => HEALED_WITHIN + self.program.job.transport.peer_timeout * 3,
            false => HEALED_WITHIN,
        }
    }

    fn heal(&mut self) {
        self.healed = Some(self.now);
        self.paths.heal();
        for host in &mut self.hosts {
            host.heal(self.now);
        }
    }

    /// Whether an operation of a living rank waits for no rank that has yet to submit it. A dead
    /// rank submits none: the others are told, and must end.
    fn waits_for_machine(&self) -> bool {
        self.running().any(|(_, index)| {
            let planned = &self.program.operations[index];
            let is_here = |rank: &Rank| {
                let at = usize::from(rank.0);
                let mut running = self.ranks[at].running.values();
                self.hosts[at].is_dead
                    || running.any(|&other| other == index)
                    || self.results[index].contains_key(rank)
            };
            !planned.is_unmatched() && planned.ranks().iter().all(is_here)
        })
    }

    /// The operations that have not ended on living ranks.
    fn running(&self) -> impl Iterator<Item = (usize, usize)> {
        let ranks = self.ranks.iter().zip(&self.hosts).enumerate();
        let living = ranks.filter(|(_, (_, host))| !host.is_dead);
        living.flat_map(|(rank, (progress, _))| {
            let running = progress.running.values();
            running.map(move |&index| (rank, index))
        })
    }

    fn is_done(&self) -> bool {
        let is_done = |(progress, host): (&RankProgress, &ClusterHost)| {
            let mut running = progress.running.values();
            host.is_dead
                || progress.next == progress.mine.len()
                    && running.all(|&index| self.program.operations[index].is_unmatched())
        };
        self.ranks.iter().zip(&self.hosts).all(is_done)
    }

    /// The operations that have not ended, in words.
    fn pending(&self) -> String {
        let mut words = String::new();
        for (rank, index) in self.running() {
            let title = title(&self.program.operations[index]);
            words += &format!("rank {rank} is in {title}; ");
        }
        words
    }
}

/// Runs a schedule twice: both runs must send the same packets at the same times.
///
/// # Errors
/// As [`run`].
pub fn run_twice(schedule: &ClusterSchedule) -> Result<ClusterTally, ClusterViolation> {
    let (first, second) = (run(schedule)?, run(schedule)?);
    if first == second {
        return Ok(first);
    }
    Err(ClusterViolation {
        check: ClusterCheck::Determinism,
        at: Instant::START,
        detail: format!("two runs of one schedule differ: {first:?} and {second:?}"),
    })
}
