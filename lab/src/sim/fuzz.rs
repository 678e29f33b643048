//! Seeds of the cluster, one after the other: which of them break a promise, and the least that
//! breaks it.
//!
//! Seeds are independent of each other, so several run at a time; the report is in order of seeds
//! and the same for any number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use gradwire_protocol::units::Instant;
use gradwire_testnet::cluster::faults::FaultSet;
use gradwire_testnet::cluster::run::{ClusterTally, run, run_twice, trace};
use gradwire_testnet::cluster::schedule::ClusterSchedule;
use gradwire_testnet::cluster::shrink::shrink;
use gradwire_testnet::cluster::violation::ClusterViolation;
use gradwire_testnet::cluster::week;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Each seed that this divides runs twice, and must do the same.
const TWICE: u64 = 16;

/// Which seeds to run, and how.
#[derive(Clone, Debug)]
pub struct FuzzPlan {
    /// The first seed.
    pub seed: u64,
    /// How many.
    pub count: u64,
    /// These faults instead of those that each seed draws.
    pub faults: Option<FaultSet>,
    /// This many ranks instead of those that each seed draws.
    pub ranks: Option<u16>,
    /// This many operations instead of those that each seed draws.
    pub operations: Option<usize>,
    /// Seeds that run at a time.
    pub parallel: u16,
}

/// A seed that breaks a promise.
#[derive(Clone, Debug, Serialize)]
pub struct FuzzFinding {
    /// The seed.
    pub seed: u64,
    /// The check that fails.
    pub check: &'static str,
    /// Simulated time, in microseconds.
    pub at_us: f64,
    /// Given, allowed, and where, in words.
    pub detail: String,
    /// The faults without which the check does not fail.
    pub faults: String,
    /// The command that runs the shrunk schedule again.
    pub replay: String,
}

/// The seeds that ran.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FuzzReport {
    /// How many.
    pub seeds: u64,
    /// Packets that all runs sent.
    pub packets: u64,
    /// Operations that succeeded, counted once per rank.
    pub completed: u64,
    /// Operations that failed or were refused, as they had to.
    pub failed: u64,
    /// Holes that receivers accepted, as they might.
    pub holes: u64,
    /// Simulated time of all runs, in seconds.
    pub simulated_s: f64,
    /// The seeds that break a promise.
    pub findings: Vec<FuzzFinding>,
}

impl FuzzPlan {
    /// The schedule of a seed.
    fn schedule(&self, seed: u64) -> ClusterSchedule {
        let drawn = ClusterSchedule::of_seed(seed);
        ClusterSchedule {
            faults: self.faults.unwrap_or(drawn.faults),
            ranks: self.ranks.unwrap_or(drawn.ranks),
            operations: self.operations.unwrap_or(drawn.operations),
            ..drawn
        }
    }

    /// Runs the first seed, and gives `show` a line for each packet and each end of an operation.
    ///
    /// # Errors
    /// The check that fails.
    pub fn trace(&self, show: &mut dyn FnMut(&str)) -> Result<(), ClusterViolation> {
        trace(&self.schedule(self.seed), Some(show)).map(|_| ())
    }
}

/// Runs the seeds of a plan; a bar on standard error shows how far it is.
pub fn fuzz(plan: &FuzzPlan) -> FuzzReport {
    let style = "{bar:30} {percent:>3}%  {pos} of {len} seeds, about {eta} left  {msg}";
    let style = ProgressStyle::with_template(style);
    let style = style.expect("the template is constant and well-formed");
    let bar = ProgressBar::new(plan.count).with_style(style);
    let next = AtomicU64::new(0);
    let report = Mutex::new(FuzzReport::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.parallel {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= plan.count {
                        return;
                    }
                    let ended = once(&plan.schedule(plan.seed.wrapping_add(at)));
                    let mut report = report.lock().expect("no holder panics");
                    report.add(ended);
                    bar.set_message(match report.findings.len() {
                        0 => String::new(),
                        count => format!("{count} failed"),
                    });
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut report = report.into_inner().expect("no holder panics");
    report.findings.sort_by_key(|finding| finding.seed);
    report
}

/// A week of a training job, simulated on paths that lose no packet.
#[derive(Clone, Debug, Serialize)]
pub struct FuzzWeek {
    /// Simulated time, in hours.
    pub simulated_h: f64,
    /// Operations that succeeded, counted once per rank.
    pub completed: u64,
    /// Packets.
    pub packets: u64,
    /// Segments sent again: none is lost.
    pub repaired: u64,
    /// The most control packets per minute from one rank to another one while both waited.
    pub waiting_per_minute: u64,
    /// Characters of a rank's state, once all that it remembers is full, and at the end.
    pub state: [usize; 2],
}

/// Runs a training job for a week.
///
/// # Errors
/// The check that fails.
pub fn week(seed: u64) -> Result<FuzzWeek, ClusterViolation> {
    let tally = week::train(seed, week::WEEK_HOURS)?;
    Ok(FuzzWeek {
        simulated_h: tally.took.as_secs_f64() / 3600.0,
        completed: tally.completed,
        packets: tally.packets,
        repaired: tally.repaired,
        waiting_per_minute: tally.waiting_per_minute,
        state: tally.state,
    })
}

impl FuzzWeek {
    /// For people, in one line.
    pub fn text(&self) -> String {
        let Self {
            simulated_h,
            completed,
            packets,
            repaired,
            waiting_per_minute,
            state: [early, late],
        } = self;
        format!(
            "{simulated_h:.0} h simulated, {completed} operations, {packets} packets, {repaired} \
             repairs; while ranks waited at most {waiting_per_minute} control packets per minute \
             and peer; state {early} characters early, {late} at the end\n"
        )
    }
}

/// Runs a schedule, and shrinks it if it fails.
fn once(schedule: &ClusterSchedule) -> Result<ClusterTally, FuzzFinding> {
    let run_it = if schedule.seed.is_multiple_of(TWICE) {
        run_twice
    } else {
        run
    };
    run_it(schedule).map_err(|violation| {
        let (small, violation) = shrink(schedule, violation, |smaller| run_it(smaller).err());
        let at = violation.at - Instant::START;
        FuzzFinding {
            seed: schedule.seed,
            check: violation.check.word(),
            at_us: at.as_secs_f64() * 1e6,
            detail: violation.detail,
            faults: small.faults.to_string(),
            replay: format!("gradwire sim fuzz --count 1 {small}"),
        }
    })
}

impl FuzzReport {
    fn add(&mut self, ended: Result<ClusterTally, FuzzFinding>) {
        self.seeds += 1;
        match ended {
            Ok(tally) => {
                self.packets += tally.packets;
                self.completed += tally.completed;
                self.failed += tally.failed;
                self.holes += tally.holes;
                self.simulated_s += tally.took.as_secs_f64();
            }
            Err(finding) => self.findings.push(finding),
        }
    }

    /// For people: the sums, and each seed that failed.
    pub fn text(&self) -> String {
        let Self {
            seeds,
            packets,
            completed,
            failed,
            holes,
            simulated_s,
            findings,
        } = self;
        let mut text = format!(
            "{seeds} seeds, {packets} packets, {simulated_s:.0} s simulated: {completed} \
             operations succeeded, {failed} failed as they had to, {holes} holes accepted as \
             they may be\n"
        );
        for finding in findings {
            let FuzzFinding {
                seed,
                check,
                at_us,
                detail,
                replay,
                ..
            } = finding;
            text += &format!("seed {seed}: {check} at {at_us:.3} us: {detail}\n  {replay}\n");
        }
        text
    }

    /// How many seeds failed, if any did.
    pub fn failure(&self) -> Option<String> {
        let (failed, seeds) = (self.findings.len(), self.seeds);
        (failed > 0).then(|| format!("{failed} of {seeds} seeds break a promise"))
    }
}
