//! Runs one schedule: the loop over packets and driver steps, and the checks along the way.
//!
//! 1. While operations end now and then, faults go on. Once none has ended for a while although
//!    all its ranks have submitted it, all faults heal, and then every operation must end.
//! 2. After the last operation the network must fall silent, and no message may be left.
//! 3. The first violation ends the run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rand::RngExt;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::OperationId;
use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::machine::Machine;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{ByteCount, Instant, JobId, MessageKey, Rank, Share, Span};
use gradwire_protocol::wire::{Header, PacketKind, SegmentReport};

use super::clock::HostClock;
use super::draw::{self, FNV_START, fold, span_between};
use super::evidence::{Evidence, Found, MessageName};
use super::faults::ClusterFault;
use super::host::{ArrivedPacket, ClusterHost, DriverStep, HostArrival, IDLE_ROUNDS_MAX};
use super::paths::ClusterPaths;
use super::program::{
    ClusterProgram, PlannedCollective, PlannedOperation, PlannedTensor, segment_bytes,
};
use super::results::{self, RankResult, TensorModel, title};
use super::schedule::ClusterSchedule;
use super::traffic::WaitingTraffic;
use super::violation::{ClusterCheck, ClusterViolation};

/// Faults heal when no operation has ended for this long.
const PATIENCE: Span = Span::from_millis(4_000);
/// Once healed, an operation must end in this time.
const HEALED_WITHIN: Span = Span::from_millis(20_000);
/// After the last operation, the network is silent by then.
const SILENT_WITHIN: Span = Span::from_millis(60_000);
/// Events of a run; more mean that it does not get on.
const EVENTS_MAX: u64 = 3_000_000;
/// Events at one instant; more mean that time stands still.
const EVENTS_AT_ONCE_MAX: u64 = 200_000;
/// Runs of packets that a driver sends before it reads again.
const RUNS_PER_ROUND: usize = 16;
/// Parts of messages from here on are of messages from rank to rank.
const MESSAGE_PARTS: u16 = 1 << 15;

/// What a run did.
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
    /// Simulated time.
    pub took: Span,
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
    let ran = catch_unwind(AssertUnwindSafe(|| ClusterRun::new(schedule, show).run()));
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
    at: Instant,
    number: u64,
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
    flying: BinaryHeap<Reverse<Flying>>,
    evidence: Evidence,
    traffic: WaitingTraffic,
    results: Vec<BTreeMap<Rank, RankResult>>,
    models: Vec<TensorModel>,
    controls: Vec<Vec<(Instant, Control)>>,
    /// The rank that dies, and the operation of its own before which it does.
    doomed: Option<(Rank, usize)>,
    aborts: Option<(Rank, usize)>,
    now: Instant,
    last_stir: Instant,
    healed: Option<Instant>,
    last_packet: Instant,
    copies: u64,
    tally: ClusterTally,
}

impl<'a> ClusterRun<'a> {
    fn new(schedule: &ClusterSchedule, show: Option<&'a mut dyn FnMut(&str)>) -> Self {
        let ClusterSchedule {
            seed,
            faults,
            ranks,
            ..
        } = *schedule;
        let program = ClusterProgram::of(schedule);
        let gap = program.job.transport.gap;
        let hosts = (0..ranks).map(|rank| {
            let identity = Identity {
                rank: Rank(rank),
                world_size: ranks,
                job: JobId(7),
                epoch: 1,
            };
            let endpoint = Endpoint::new(identity, &program.job, seed + u64::from(rank));
            let communicator = Communicator::new(endpoint, &program.job);
            let communicator = communicator.with_hosts(program.hosts.clone());
            ClusterHost::new(
                communicator,
                HostClock::of(seed, rank, faults),
                seed,
                faults,
            )
        });
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
            paths: ClusterPaths::of(seed, ranks, faults, gap),
            hosts: hosts.collect(),
            ranks: (0..ranks).map(mine).collect(),
            flying: BinaryHeap::new(),
            evidence: Evidence::new(segment_bytes(&program.job) as u32, gap),
            traffic: WaitingTraffic::new(ranks),
            results: program.operations.iter().map(|_| BTreeMap::new()).collect(),
            models: program.tensors.iter().map(model).collect(),
            controls: vec![Vec::new(); usize::from(ranks)],
            doomed,
            aborts,
            now: Instant::START,
            last_stir: Instant::START,
            healed: None,
            last_packet: Instant::START,
            copies: 0,
            tally: ClusterTally {
                hash: FNV_START,
                ..ClusterTally::default()
            },
            program,
        }
    }

    fn run(mut self) -> Result<ClusterTally, ClusterViolation> {
        let ended = self.work().and_then(|()| self.fall_silent());
        self.tally.took = self.now - Instant::START;
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
        let (mut events, mut at_once) = (0_u64, 0_u64);
        while !self.is_done() {
            let before = self.now;
            if !self.happen()? {
                return Err((
                    ClusterCheck::Liveness,
                    format!("no event is left, but {}", self.pending()),
                ));
            }
            events += 1;
            at_once = if self.now == before { at_once + 1 } else { 0 };
            if at_once > EVENTS_AT_ONCE_MAX || events > EVENTS_MAX {
                let detail = format!(
                    "{events} events, {at_once} of them now, and {}",
                    self.pending()
                );
                return Err((ClusterCheck::Liveness, detail));
            }
            self.watch()?;
        }
        self.clean_paths_repair_nothing()
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
            Some(healed) if self.now - healed.max(since) > HEALED_WITHIN => Err((
                ClusterCheck::Liveness,
                format!("although all faults are healed, {}", self.pending()),
            )),
            Some(_) => Ok(()),
        }
    }

    fn heal(&mut self) {
        self.healed = Some(self.now);
        self.paths.heal();
        for host in &mut self.hosts {
            host.heal(self.now);
        }
    }

    /// Whether an operation waits for no rank that has yet to submit it.
    fn waits_for_machine(&self) -> bool {
        self.program.operations.iter().any(|planned| {
            let ranks = planned.ranks();
            let is_running = |rank: &Rank| {
                let progress = &self.ranks[usize::from(rank.0)];
                progress
                    .running
                    .values()
                    .any(|&index| index == planned.index)
            };
            let is_here =
                |rank: &Rank| is_running(rank) || self.results[planned.index].contains_key(rank);
            !planned.is_unmatched() && ranks.iter().any(is_running) && ranks.iter().all(is_here)
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
        for (rank, progress) in self.ranks.iter().enumerate() {
            for &index in progress.running.values() {
                let title = title(&self.program.operations[index]);
                words += &format!("rank {rank} is in {title}; ");
            }
        }
        words
    }

    /// The next event; `false` if there is none.
    fn happen(&mut self) -> Result<bool, Found> {
        let arrival = self.flying.peek().map(|Reverse(flying)| flying.at);
        let hosts = self.hosts.iter().enumerate();
        let step = hosts
            .filter_map(|(at, host)| Some((host.next()?, at)))
            .min();
        match (arrival, step) {
            (None, None) => return Ok(false),
            (Some(at), step) if step.is_none_or(|(step, _)| at <= step) => {
                self.now = self.now.max(at);
                let Reverse(flying) = self.flying.pop().expect("just seen");
                self.arrive(flying);
            }
            (_, Some((at, host))) => {
                self.now = self.now.max(at);
                self.step(host)?;
            }
            (Some(_), None) => unreachable!("an arrival without a step comes first"),
        }
        Ok(true)
    }

    fn arrive(&mut self, flying: Flying) {
        let host = &mut self.hosts[usize::from(flying.to)];
        if host.is_dead {
            return;
        }
        let header = flying.packet.header;
        let arrival = host.arrive(self.now, flying.packet);
        if header.kind != PacketKind::Data {
            return;
        }
        match arrival {
            HostArrival::Shown => {}
            HostArrival::Late(by) => self.evidence.held(flying.to, &header, self.now, (by, by)),
            HostArrival::Stalled(by) => {
                self.evidence
                    .held(flying.to, &header, self.now, (by, Span::ZERO));
            }
            HostArrival::Dropped => self.evidence.dropped(flying.to, &header, self.now),
        }
    }

    /// One step of a host's driver.
    fn step(&mut self, at: usize) -> Result<(), Found> {
        let now = self.now;
        let host = &mut self.hosts[at];
        match host.step {
            DriverStep::Sleep | DriverStep::Receive => {
                let (evidence, to) = (&mut self.evidence, host.rank.0);
                host.receive(now, |header| {
                    if header.kind == PacketKind::Data {
                        evidence.handed(to, header, now);
                    }
                });
                host.go_on(now, DriverStep::Timeouts);
            }
            DriverStep::Timeouts => {
                host.time_out();
                host.go_on(now, DriverStep::Commands);
            }
            DriverStep::Commands => {
                self.command(at)?;
                self.hosts[at].go_on(now, DriverStep::Send);
            }
            DriverStep::Send => {
                let more = self.send(at)?;
                self.end_round(at, more)?;
            }
        }
        self.take_completions(at)
    }

    fn end_round(&mut self, at: usize, more: bool) -> Result<(), Found> {
        let host = &mut self.hosts[at];
        host.idle_rounds = if host.worked { 0 } else { host.idle_rounds + 1 };
        host.worked = false;
        if host.idle_rounds > IDLE_ROUNDS_MAX {
            let detail = format!("rank {at} spins: {IDLE_ROUNDS_MAX} rounds without work");
            return Err((ClusterCheck::Liveness, detail));
        }
        let next = if more {
            DriverStep::Receive
        } else {
            DriverStep::Sleep
        };
        host.go_on(self.now, next);
        Ok(())
    }

    /// Sends runs until the machine has none, or the host takes no more; tells whether there may be
    /// more to send at once.
    fn send(&mut self, at: usize) -> Result<bool, Found> {
        for _ in 0..RUNS_PER_ROUND {
            let host = &mut self.hosts[at];
            if self.now < host.full_until {
                return Ok(false);
            }
            let room = host.draw_room();
            let reading = host.clock.reading(self.now);
            let Some(transmit) = host.communicator.poll_transmit(reading) else {
                host.decided = None;
                return Ok(false);
            };
            host.worked = true;
            let (to, ecn, count) = (transmit.to.0, transmit.ecn, transmit.packets());
            let packet = |index| {
                let header = transmit.header(index);
                let payload = transmit.payload(&header);
                let payload = payload.bytes().unwrap_or_default().to_vec();
                ArrivedPacket {
                    header,
                    payload,
                    ecn,
                }
            };
            let mut packets: Vec<ArrivedPacket> = (0..count).map(packet).collect();
            let stops = packets
                .iter()
                .filter(|packet| packet.header.kind == PacketKind::Stop);
            let stops: Vec<ArrivedPacket> = stops.cloned().collect();
            if let Some((taken, pause)) = room {
                packets.truncate(taken % count);
                let unsent = transmit.unsent_from(packets.len());
                host.communicator.handle_unsent(reading, &unsent);
                host.full_until = self.now + pause;
            }
            for stop in stops {
                self.hear_stop(at as u16, to, &stop)?;
            }
            for packet in packets {
                self.transmit(at as u16, to, packet)?;
            }
        }
        Ok(true)
    }

    fn transmit(&mut self, from: u16, to: u16, packet: ArrivedPacket) -> Result<(), Found> {
        let header = packet.header;
        self.show_packet(from, to, &header);
        self.note_packet(to, &header);
        if header.kind == PacketKind::Data {
            self.traffic.data(self.now, (from, to));
        } else {
            self.traffic.control(self.now, (from, to))?;
        }
        let copies = self.paths.carry(self.now, (from, to), &header, packet.ecn);
        if header.kind == PacketKind::Data {
            self.evidence.sent(to, &header, &copies);
        }
        for copy in copies.into_iter().flatten() {
            self.copies += 1;
            self.flying.push(Reverse(Flying {
                at: copy.arrives,
                number: self.copies,
                to,
                packet: ArrivedPacket {
                    ecn: copy.ecn,
                    ..packet.clone()
                },
            }));
        }
        Ok(())
    }

    fn show_packet(&mut self, from: u16, to: u16, header: &Header) {
        if let Some(show) = &mut self.show {
            let at: Span = self.now - Instant::START;
            let (group, sequence, part) = header.key.parts();
            let Header {
                kind,
                segment,
                segments,
                ..
            } = header;
            show(&format!(
                "{at} {from}->{to} {kind:?} group {group} sequence {sequence} part {part} \
                 segment {segment} of {segments}"
            ));
        }
    }

    fn note_packet(&mut self, to: u16, header: &Header) {
        self.last_packet = self.now;
        self.tally.packets += 1;
        let time = (self.now - Instant::START).as_nanos();
        let mut bytes = [0; 96];
        header.encode(&mut bytes);
        let hash = fold(self.tally.hash, &bytes);
        self.tally.hash = fold(fold(hash, &time.to_le_bytes()), &to.to_le_bytes());
    }

    fn hear_stop(&mut self, from: u16, to: u16, packet: &ArrivedPacket) -> Result<(), Found> {
        let Some(report) = SegmentReport::decode(&packet.payload) else {
            return Ok(());
        };
        let key = packet.header.key;
        let decided = self.hosts[usize::from(from)].decided;
        let tolerance = self.tolerance(Rank(from), key);
        let decided = decided.unwrap_or(self.now);
        self.evidence
            .stopped((to, from, key), report, decided, tolerance)
    }

    /// What a rank tolerates in a message that it receives.
    fn tolerance(&self, rank: Rank, key: MessageKey) -> Share {
        let planned = self
            .program
            .operations
            .iter()
            .find(|planned| owns(planned, key));
        planned.map_or(Share::NONE, |planned| {
            planned.tolerances[usize::from(rank.0)]
        })
    }

    /// Runs the commands of a rank that are due: of the control plane, and of its program.
    fn command(&mut self, at: usize) -> Result<(), Found> {
        let now = self.now;
        let due = |(when, _): &mut (Instant, Control)| *when <= now;
        let controls: Vec<(Instant, Control)> = self.controls[at].extract_if(.., due).collect();
        for (_, control) in controls {
            self.control(at, control);
        }
        self.hosts[at].command_at = None;
        while let Some(when) = self.next_submission(at) {
            if when > now || self.hosts[at].is_dead {
                self.hosts[at].command_at = Some(when);
                break;
            }
            self.submit(at)?;
        }
        let controls = self.controls[at].iter().map(|&(when, _)| when);
        let command_at = &mut self.hosts[at].command_at;
        *command_at = controls.chain(*command_at).min();
        Ok(())
    }

    fn control(&mut self, at: usize, control: Control) {
        let host = &mut self.hosts[at];
        host.worked = true;
        match control {
            Control::Die => host.is_dead = true,
            Control::Lose(rank) => host.communicator.fail_peer(rank, "it was killed"),
            Control::Abort => host.communicator.abort("a rank aborted"),
        }
    }

    /// When a rank may submit its next operation, if no running one has to end before.
    fn next_submission(&mut self, at: usize) -> Option<Instant> {
        let progress = &self.ranks[at];
        let planned = &self.program.operations[*progress.mine.get(progress.next)?];
        let running = progress
            .running
            .values()
            .map(|&index| &self.program.operations[index]);
        let running: Vec<&PlannedOperation> =
            running.filter(|planned| !planned.is_unmatched()).collect();
        let is_full = running.len() >= self.program.windows[at];
        let same =
            |other: &&PlannedOperation| planned.tensor.is_some() && other.tensor == planned.tensor;
        if is_full || running.iter().any(same) {
            return None;
        }
        let delay = planned.delays[at];
        let progress = &mut self.ranks[at];
        Some(*progress.could_since.get_or_insert(self.now) + delay)
    }

    fn submit(&mut self, at: usize) -> Result<(), Found> {
        let rank = Rank(at as u16);
        let progress = &mut self.ranks[at];
        let index = progress.mine[progress.next];
        progress.next += 1;
        progress.could_since = None;
        self.end_rank_before(rank, index);
        let planned = self.program.operations[index].clone();
        self.traffic.stir(self.now, rank.0);
        self.last_stir = self.now;
        let host = &mut self.hosts[at];
        host.worked = true;
        let reading = host.clock.reading(self.now);
        if let Some(chunk) = self.program.chunk(index) {
            host.communicator.set_chunk(chunk);
        }
        if self.schedule.faults.has(ClusterFault::Credit) {
            let credit = (index as u64 * 7919 + at as u64 * 31) % 5 * 4_000;
            host.communicator
                .set_credit(reading, ByteCount::new(credit));
        }
        let submitted = host
            .communicator
            .submit(reading, results::operation(&planned, rank));
        host.note_holes();
        match submitted {
            Ok(id) => {
                self.ranks[at].running.insert(id, index);
                Ok(())
            }
            Err(refusal) => self.fail(rank, index, &refusal.to_string()),
        }
    }

    /// A rank that is to die or to abort before this operation does so now.
    fn end_rank_before(&mut self, rank: Rank, index: usize) {
        let mut rng = draw::stream(self.schedule.seed, "notice", index as u64);
        let most = Span::from_millis(2_000);
        let mut after = || span_between(&mut rng, Span::from_micros(1), most);
        if let Some((doomed, before)) = self.doomed
            && doomed == rank
            && index >= before
            && self.controls.iter().all(|controls| {
                let dies = |(_, control): &(Instant, Control)| {
                    matches!(control, Control::Die | Control::Lose(_))
                };
                !controls.iter().any(dies)
            })
            && !self.hosts[usize::from(rank.0)].is_dead
        {
            let dies_at = self.now + after().divided(1000);
            for (other, controls) in self.controls.iter_mut().enumerate() {
                controls.push(match other == usize::from(rank.0) {
                    true => (dies_at, Control::Die),
                    false => (dies_at + after(), Control::Lose(rank)),
                });
            }
        }
        if let Some((aborting, before)) = self.aborts
            && aborting == rank
            && index >= before
        {
            self.aborts = None;
            for (other, controls) in self.controls.iter_mut().enumerate() {
                let wait = if other == usize::from(rank.0) {
                    Span::ZERO
                } else {
                    after()
                };
                controls.push((self.now + wait, Control::Abort));
            }
        }
        for (host, controls) in self.hosts.iter_mut().zip(&self.controls) {
            let first = controls.iter().map(|&(when, _)| when).min();
            host.command_at = host.command_at.into_iter().chain(first).min();
            host.look_again(self.now);
        }
    }

    fn take_completions(&mut self, at: usize) -> Result<(), Found> {
        let rank = Rank(at as u16);
        while let Some(completion) = self.hosts[at].communicator.poll_completion() {
            let Some(index) = self.ranks[at].running.remove(&completion.id) else {
                return Err((
                    ClusterCheck::Values,
                    format!("rank {rank} ended an unknown operation"),
                ));
            };
            self.last_stir = self.now;
            self.traffic.stir(self.now, rank.0);
            let result = RankResult::of(completion, self.now);
            if let Some(show) = &mut self.show {
                let (at, title): (Span, _) = (
                    self.now - Instant::START,
                    title(&self.program.operations[index]),
                );
                show(&format!(
                    "{at} rank {rank} ends {title}: {:?}",
                    result.outcome
                ));
            }
            match &result.outcome {
                Ok(_) => self.tally.completed += 1,
                Err(error) => {
                    let error = error.clone();
                    self.fail(rank, index, &error)?;
                }
            }
            self.results[index].insert(rank, result);
            self.check(index)?;
            // The next operation may be submitted now.
            self.hosts[at].command_at = Some(self.now);
            self.hosts[at].look_again(self.now);
        }
        Ok(())
    }

    /// An operation failed on a rank, which only the end of a rank may cause.
    fn fail(&mut self, rank: Rank, index: usize, error: &str) -> Result<(), Found> {
        self.tally.failed += 1;
        let planned = &self.program.operations[index];
        if let Some(tensor) = planned.tensor {
            self.models[tensor].is_unknown = true;
        }
        let is_dead = |doomed: &(Rank, usize)| planned.group.ranks.contains(&doomed.0);
        let faults = self.schedule.faults;
        let may_fail = faults.has(ClusterFault::Abort) || self.doomed.as_ref().is_some_and(is_dead);
        if may_fail {
            return Ok(());
        }
        let detail = format!("{} failed at rank {rank}: {error}", title(planned));
        Err((ClusterCheck::Liveness, detail))
    }

    /// Checks an operation once it has ended on all its ranks.
    fn check(&mut self, index: usize) -> Result<(), Found> {
        let planned = &self.program.operations[index];
        let results = &self.results[index];
        let mut ranks = planned.ranks().into_iter();
        let is_well = |rank| {
            results
                .get(&rank)
                .is_some_and(|result| result.outcome.is_ok())
        };
        if planned.is_unmatched() || !ranks.all(is_well) {
            return Ok(());
        }
        let told = self
            .evidence
            .holes(|&(_, _, key): &MessageName| owns(planned, key));
        self.tally.holes += told.segments;
        results::check(&self.program, planned, results, told, &mut self.models)
    }

    /// A job without faults that lose, delay or reorder packets repairs none.
    fn clean_paths_repair_nothing(&self) -> Result<(), Found> {
        let mut faults = self.schedule.faults.iter();
        if faults.any(ClusterFault::disturbs_packets) {
            return Ok(());
        }
        for host in &self.hosts {
            let sender = host.communicator.counters().sender;
            let lost = host.communicator.counters().receiver.lost_segments;
            if sender.repaired_segments + sender.found_lost + lost > 0 {
                let detail = format!(
                    "rank {} repaired {} segments, found {} lost and did without {lost} on clean paths",
                    host.rank, sender.repaired_segments, sender.found_lost
                );
                return Err((ClusterCheck::Economy, detail));
            }
        }
        Ok(())
    }

    /// After the last operation all state must go, and the network fall silent.
    fn fall_silent(&mut self) -> Result<(), Found> {
        self.heal();
        let until = self.now + SILENT_WITHIN;
        let is_open = self.schedule.faults.has(ClusterFault::Unmatched);
        while self.now < until && self.happen()? {}
        if is_open {
            return Ok(());
        }
        for host in self.hosts.iter().filter(|host| !host.is_dead) {
            if host.communicator.endpoint().is_busy() || host.communicator.pending() > 0 {
                let detail = format!(
                    "rank {} still has messages {SILENT_WITHIN} after the end",
                    host.rank
                );
                return Err((ClusterCheck::Memory, detail));
            }
        }
        if self.now >= until && until - self.last_packet < Span::from_millis(10_000) {
            let detail = format!("packets are still sent {SILENT_WITHIN} after the end");
            return Err((ClusterCheck::Economy, detail));
        }
        Ok(())
    }
}

/// Whether a message belongs to an operation.
fn owns(planned: &PlannedOperation, key: MessageKey) -> bool {
    let (group, sequence, part) = key.parts();
    if group != planned.group.id {
        return false;
    }
    match planned.collective {
        PlannedCollective::Group(_) => part < MESSAGE_PARTS && sequence == planned.sequence,
        PlannedCollective::Message { tag, .. } => {
            part >= MESSAGE_PARTS && sequence >> 16 == u32::from(tag)
        }
    }
}

impl Flying {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
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
