//! The work of the ranks: what they submit, how it ends, and ranks that end on the way.

use gradwire_protocol::units::{ByteCount, Instant, Rank, Span};

use super::{ClusterRun, Control};
use crate::cluster::draw::{self, span_between};
use crate::cluster::encoded;
use crate::cluster::evidence::{Found, MessageName};
use crate::cluster::faults::ClusterFault;
use crate::cluster::program::PlannedOperation;
use crate::cluster::residuals::{self, RankResidual};
use crate::cluster::results::{self, RankResult, title};
use crate::cluster::violation::ClusterCheck;

/// A rank remembers its last 1,024 operations: it has as many then.
const WARM: usize = 1_500;

impl ClusterRun<'_> {
    /// Runs the commands of a rank that are due: of the control plane, and of its program.
    pub(super) fn command(&mut self, at: usize) -> Result<(), Found> {
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

    pub(super) fn control(&mut self, at: usize, control: Control) {
        let host = &mut self.hosts[at];
        host.worked = true;
        match control {
            Control::Die => host.is_dead = true,
            Control::Lose(rank) => host.communicator.fail_peer(rank, "it was killed"),
            Control::Abort => host.communicator.abort("a rank aborted"),
        }
    }

    /// When a rank may submit its next operation, if no running one has to end before.
    pub(super) fn next_submission(&mut self, at: usize) -> Option<Instant> {
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

    pub(super) fn submit(&mut self, at: usize) -> Result<(), Found> {
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
        if let Some(owed) = RankResidual::of(&host.communicator, &planned) {
            self.owed_before.insert((index, rank), owed);
        }
        let reading = host.clock.reading(self.now);
        if let Some(chunk) = planned.chunk {
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
    pub(super) fn end_rank_before(&mut self, rank: Rank, index: usize) {
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

    pub(super) fn take_completions(&mut self, at: usize) -> Result<(), Found> {
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
            let planned = &self.program.operations[index];
            let mut result = RankResult::of(completion, self.now);
            result.owed = RankResidual::of(&self.hosts[at].communicator, planned);
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
                    let before = self.owed_before.get(&(index, rank));
                    let planned = &self.program.operations[index];
                    residuals::check_failed(planned, rank, before, result.owed.as_ref())?;
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

    /// A rank that aborts by itself tells the others.
    pub(super) fn spread_abort(&mut self, at: usize) {
        let aborted = self.hosts[at].communicator.aborted().is_some();
        if !aborted || !self.paths.has_shrunk() || self.has_spread {
            return;
        }
        self.has_spread = true;
        let mut rng = draw::stream(self.schedule.seed, "spread", 0);
        for (controls, host) in self.controls.iter_mut().zip(&mut self.hosts) {
            let wait = span_between(&mut rng, Span::from_micros(1), Span::from_millis(2_000));
            controls.push((self.now + wait, Control::Abort));
            host.command_at = host.command_at.into_iter().chain([self.now + wait]).min();
            host.look_again(self.now);
        }
    }

    /// An operation failed on a rank, which only the end of a rank may cause.
    pub(super) fn fail(&mut self, rank: Rank, index: usize, error: &str) -> Result<(), Found> {
        self.tally.failed += 1;
        let planned = &self.program.operations[index];
        if let Some(tensor) = planned.tensor {
            self.models[tensor].is_unknown = true;
        }
        let is_dead = |doomed: &(Rank, usize)| planned.group.ranks.contains(&doomed.0);
        let faults = self.schedule.faults;
        let may_fail = faults.has(ClusterFault::Abort)
            || self.doomed.as_ref().is_some_and(is_dead)
            || self.paths.has_shrunk();
        if may_fail {
            return Ok(());
        }
        let detail = format!("{} failed at rank {rank}: {error}", title(planned));
        Err((ClusterCheck::Liveness, detail))
    }

    /// Checks an operation once it has ended on all its ranks.
    pub(super) fn check(&mut self, index: usize) -> Result<(), Found> {
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
            .holes(|&(_, _, key): &MessageName| planned.owns(key));
        self.tally.holes += told.segments;
        let owed_before = |rank: Rank| self.owed_before.get(&(index, rank));
        let checked = results::check(&self.program, planned, results, told, &mut self.models)
            .and_then(|()| encoded::check(planned, results, owed_before));
        for result in self.results[index].values_mut() {
            result.bytes = Vec::new();
            result.owed = None;
        }
        self.owed_before.retain(|&(of, _), _| of != index);
        self.note_state(index);
        checked
    }

    /// Notes the size of rank 0's state twice in a long run: once all that it remembers is full,
    /// and at the end.
    fn note_state(&mut self, index: usize) {
        let last = self.program.operations.len() - 1;
        let mark = [WARM, last].iter().position(|&mark| mark == index);
        if let Some(mark) = mark.filter(|_| last > WARM * 2) {
            self.tally.state[mark] = format!("{:?}", self.hosts[0].communicator).len();
        }
    }
}
