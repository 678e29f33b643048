//! The checks behind the last operation: repairs, budgets, windows and silence.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::units::{Rank, Share, Span, Step};

use super::ClusterRun;
use crate::cluster::evidence::Found;
use crate::cluster::faults::ClusterFault;
use crate::cluster::host::ClusterHost;
use crate::cluster::residuals;
use crate::cluster::violation::ClusterCheck;

/// After the last operation, the network is silent by then.
const SILENT_WITHIN: Span = Span::from_millis(60_000);
/// Bytes that each rank sends each other one to show that windows have recovered.
const EPILOGUE_BYTES: usize = 32 << 10;
/// Round trips that this takes at most, on paths that lose and delay no packet any more.
const RECOVERED_WITHIN: u64 = 32;
/// A peer that was silent when faults healed is asked by then: after a 128th part of its silence,
/// which lasts seconds.
const ASKED_WITHIN: Span = Span::from_millis(100);
/// A round trip in this sum is no shorter than hosts take to react.
const ROUND_TRIP_MIN: Span = Span::from_micros(100);

impl ClusterRun<'_> {
    /// A job without faults that lose, delay or reorder packets repairs none.
    pub(super) fn clean_paths_repair_nothing(&self) -> Result<(), Found> {
        let mut faults = self.schedule.faults.iter();
        if faults.any(ClusterFault::disturbs_packets) {
            return Ok(());
        }
        // Where a report overtakes the STOP of a receiver that has lost patience, what it gave up
        // counts as lost.
        let receivers = self
            .hosts
            .iter()
            .map(|host| host.communicator.counters().receiver);
        let given_up: u64 = receivers.map(|counters| counters.given_up_segments).sum();
        for host in &self.hosts {
            let sender = host.communicator.counters().sender;
            let receiver = host.communicator.counters().receiver;
            let lost = receiver.lost_segments - receiver.given_up_segments;
            let found = sender.found_lost.saturating_sub(given_up);
            if sender.repaired_segments + found + lost > 0 {
                let detail = format!(
                    "rank {} repaired {} segments, found {} lost and did without {lost} on clean \
                     paths",
                    host.rank, sender.repaired_segments, sender.found_lost
                );
                return Err((ClusterCheck::Economy, detail));
            }
        }
        Ok(())
    }

    /// Only a rank whose patience may end gives up segments that are not lost.
    pub(super) fn patience_is_asked_for(&self) -> Result<(), Found> {
        let receiver = |host: &ClusterHost| host.communicator.counters().receiver;
        let gave_up = |host: &&ClusterHost| receiver(host).given_up_segments > 0;
        let is_endless = self.program.job.collectives.patience.is_none();
        match self.hosts.iter().find(gave_up).filter(|_| is_endless) {
            None => Ok(()),
            Some(host) => {
                let given_up = receiver(host).given_up_segments;
                let detail = format!("rank {} gave up {given_up} segments", host.rank);
                Err((ClusterCheck::Provenance, detail))
            }
        }
    }

    /// No step of a rank misses more than the messages of the step tolerate together, each at most
    /// the share of the whole step.
    pub(super) fn budgets_hold(&self) -> Result<(), Found> {
        // A message that its sender never began is owed, too.
        if self.ends_early() {
            return Ok(());
        }
        let cap = self.program.job.loss.step_tolerance.unwrap_or(Share::ALL);
        let steps: BTreeSet<Step> = (self.program.operations.iter())
            .map(|planned| planned.step)
            .collect();
        for rank in 0..self.schedule.ranks {
            for &step in &steps {
                let told = self.evidence.told(rank, |key| {
                    let planned = self.program.find(key)?;
                    let share = planned.tolerances[usize::from(rank)];
                    (planned.step == step).then(|| share.min(cap))
                });
                if told.missing > told.allowed {
                    let detail = format!(
                        "rank {rank} misses {} bytes of step {step}, {} allowed",
                        told.missing, told.allowed
                    );
                    return Err((ClusterCheck::Bounds, detail));
                }
            }
        }
        Ok(())
    }

    /// Where a rank's operation has ended well although another one's has not: each value of its
    /// contribution is in the results, or owed to the next step.
    pub(super) fn contributions_add_up(&self) -> Result<(), Found> {
        for planned in &self.program.operations {
            let results = &self.results[planned.index];
            let owed = |rank: Rank| self.owed_before.get(&(planned.index, rank));
            residuals::check_partial(planned, &self.program.hosts, results, owed)?;
        }
        Ok(())
    }

    /// Whether a rank may end before its operations.
    fn ends_early(&self) -> bool {
        let faults = self.schedule.faults;
        let ends = faults.has(ClusterFault::Crash) || faults.has(ClusterFault::Abort);
        ends || self.paths.has_shrunk()
    }

    /// Once all faults are healed, windows have recovered after some round trips: an all-to-all of
    /// all ranks takes no longer.
    pub(super) fn recover(&mut self) -> Result<(), Found> {
        if self.ends_early() || self.schedule.faults.has(ClusterFault::Unmatched) {
            return Ok(());
        }
        // On a path that has lost most packets for seconds a sender tries one packet at a time.
        let has_fallen = |host: &ClusterHost| host.communicator.counters().sender.path_failures > 0;
        self.heal();
        // Ranks that are silent to each other hear each other first.
        for (bytes, wait) in [(1, ASKED_WITHIN), (EPILOGUE_BYTES, Span::ZERO)] {
            self.begin_epilogue(bytes);
            let (begun, clear) = (self.now, self.paths.clear_at() - self.now);
            let round_trip = self.paths.round_trip().max(ROUND_TRIP_MIN);
            let most = round_trip * RECOVERED_WITHIN + clear + wait;
            while !self.is_done() {
                let goes_on = self.happen()?;
                let is_late = self.now - begun > most;
                if is_late && self.hosts.iter().any(has_fallen) {
                    return Ok(());
                }
                if !goes_on || is_late {
                    let detail = format!(
                        "{most} after all faults are healed, {RECOVERED_WITHIN} round trips, {}",
                        self.pending()
                    );
                    return Err((ClusterCheck::Economy, detail));
                }
            }
        }
        Ok(())
    }

    /// All ranks begin an all-to-all of this many bytes for each.
    fn begin_epilogue(&mut self, bytes: usize) {
        let index = self.program.add_epilogue(bytes);
        self.results.push(BTreeMap::new());
        for (progress, host) in self.ranks.iter_mut().zip(&mut self.hosts) {
            progress.mine.push(index);
            host.command_at = Some(self.now);
            host.look_again(self.now);
        }
    }

    /// After the last operation all state must go, and the network fall silent.
    pub(super) fn fall_silent(&mut self) -> Result<(), Found> {
        self.heal();
        let until = match self.paths.has_shrunk() {
            true => self.now + SILENT_WITHIN + self.program.job.transport.peer_timeout * 2,
            false => self.now + SILENT_WITHIN,
        };
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
        let keeps = |host: &&ClusterHost| !host.is_dead && host.communicator.kept_messages() > 0;
        if let Some(host) = self.hosts.iter().find(keeps) {
            let detail = format!(
                "rank {} keeps {} messages after the end",
                host.rank,
                host.communicator.kept_messages()
            );
            return Err((ClusterCheck::Memory, detail));
        }
        if self.now >= until && until - self.last_packet < Span::from_millis(10_000) {
            let detail = format!("packets are still sent {SILENT_WITHIN} after the end");
            return Err((ClusterCheck::Economy, detail));
        }
        Ok(())
    }
}
