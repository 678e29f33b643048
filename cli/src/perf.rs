//! `gradwire perf`: starts ranks on this machine, has them do collectives, measures and checks.
//!
//! Start here:
//! - this file: which sizes, how many iterations, what becomes a row.
//! - [`launcher`]: processes that are told what to do line by line, and never left behind.
//! - [`messages`]: those lines.
//! - [`worker`]: one rank: the process at the other end.
//! - [`pattern`]: the numbers that are summed, and what their sum must be.
//! - [`verdict`]: what the results of all ranks together must fulfil.
//! - [`table`]: rows for people and for programs.
//! - [`rival`]: Gloo in the same harness.

pub mod launcher;
pub mod messages;
pub mod pattern;
pub mod rival;
pub mod table;
pub mod verdict;
pub mod worker;

use std::time::Duration;

use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::units::ByteCount;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::{JobOptions, Perf};
use crate::exit::Failure;
use crate::job;
use launcher::Crew;
use messages::{Measured, Round};
use table::{Row, Table};

/// Most ranks that one machine is asked to run.
const RANKS_MAX: u16 = 64;
/// Bytes of an element: 32-bit floats.
pub const ELEMENT_BYTES: u64 = 4;
/// Time for the timed iterations of a size, when their number is not given.
const BUDGET_MICROS: f64 = 500_000.0;
/// Time for which a size is warmed up after its first all-reduces.
const WARMUP_MICROS: f64 = 50_000.0;
/// Parts that the iterations are done in when two libraries alternate.
const TURNS: u32 = 5;
/// Longest that one round of a size may take.
const ROUND_PATIENCE: Duration = Duration::from_secs(300);

/// `gradwire perf all-reduce`.
///
/// # Errors
/// [`Failure`] when options make no sense, ranks fail, or a result is wrong.
pub fn all_reduce(options: &Perf) -> Result<(), Failure> {
    let job = job_with(&options.job)?;
    let sizes = sizes(options)?;
    let mut ours = Crew::of_ranks(options.ranks, &job)?;
    let mut theirs = match options.against {
        Some(_) => Some(rival::crew(options)?),
        None => None,
    };
    let table = Table::new(options, &job);
    let progress = progress_bar(sizes.len());
    let mut wrong = Vec::new();
    for bytes in sizes {
        progress.set_message(bytes.to_string());
        let row = measure(options, bytes, &mut ours, theirs.as_mut())?;
        wrong.extend(verdict::faults(&row, &job));
        progress.suspend(|| table.print(&row));
        progress.inc(1);
    }
    progress.finish_and_clear();
    table.finish();
    ours.end()?;
    if let Some(theirs) = theirs {
        theirs.end()?;
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(wrong.join("; "))),
    }
}

/// The job of a file, changed by the options.
///
/// # Errors
/// [`Failure`] when the file is wrong, or the job after the change.
pub fn job_with(options: &JobOptions) -> Result<Job, Failure> {
    let mut job = job::given_or_default(options.job.as_ref())?;
    job.tolerance = options.tolerance.unwrap_or(job.tolerance);
    job.faults.drop = options.drop.unwrap_or(job.faults.drop);
    job.faults.seed = options.seed.unwrap_or(job.faults.seed);
    job.transport.mtu = options.mtu.map_or(job.transport.mtu, Mtu::Bytes);
    job.checked()
        .map_err(|error| Failure::Options(Box::new(error)))
}

fn sizes(options: &Perf) -> Result<Vec<ByteCount>, Failure> {
    let Perf {
        ranks,
        begin,
        end,
        factor,
        ..
    } = options;
    if *ranks < 2 {
        return Err(Failure::Usage(format!(
            "-n {ranks}: a collective needs at least 2 ranks"
        )));
    }
    if *ranks > RANKS_MAX {
        let text = format!("-n {ranks}: at most {RANKS_MAX} ranks run on one machine");
        return Err(Failure::Usage(text));
    }
    if begin > end {
        return Err(Failure::Usage(format!(
            "-b {begin} is larger than -e {end}"
        )));
    }
    if begin.get() < ELEMENT_BYTES || end.get() > u64::from(u32::MAX) {
        let text = format!("sizes {begin} to {end}: allowed are 4 bytes to below 4GiB");
        return Err(Failure::Usage(text));
    }
    let whole = |bytes: u64| ByteCount::new(bytes / ELEMENT_BYTES * ELEMENT_BYTES);
    let steps = std::iter::successors(Some(begin.get()), |bytes| bytes.checked_mul(*factor));
    Ok(steps
        .take_while(|bytes| *bytes <= end.get())
        .map(whole)
        .collect())
}

fn progress_bar(sizes: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}");
    let style = style.expect("the template is constant and well-formed");
    ProgressBar::new(sizes as u64).with_style(style)
}

/// Measures one size: a warm-up that also tells how long an iteration takes, then the timed ones.
fn measure(
    options: &Perf,
    bytes: ByteCount,
    ours: &mut Crew,
    theirs: Option<&mut Crew>,
) -> Result<Row, Failure> {
    let warmup = |crew: &mut Crew, iterations: u32| {
        crew.round(
            &Round {
                bytes: bytes.get(),
                iterations,
            },
            ROUND_PATIENCE,
        )
    };
    let mut parts = vec![warmup(ours, options.warmup.max(1))?];
    // Small sizes are over before clocks, caches and windows have settled.
    let more = affordable(&slowest(&parts[0]), WARMUP_MICROS);
    parts.push(warmup(ours, more)?);
    let mut rival_times = Vec::new();
    let turns = if theirs.is_some() { TURNS } else { 1 };
    let iterations = options
        .iterations
        .unwrap_or_else(|| affordable(&slowest(&parts[1]), BUDGET_MICROS).max(5));
    let round = Round {
        bytes: bytes.get(),
        iterations: iterations.div_ceil(turns),
    };
    match theirs {
        None => parts.push(ours.round(&round, ROUND_PATIENCE)?),
        Some(theirs) => {
            warmup(theirs, options.warmup.max(more))?;
            for _ in 0..turns {
                parts.push(ours.round(&round, ROUND_PATIENCE)?);
                rival_times.extend(slowest(&theirs.round(&round, ROUND_PATIENCE)?));
            }
        }
    }
    let times = parts[2..].iter().flat_map(|part| slowest(part)).collect();
    Ok(Row::new(options.ranks, bytes, parts, (times, rival_times)))
}

fn affordable(times: &[f64], budget_micros: f64) -> u32 {
    ((budget_micros / table::median(times.to_vec()).max(1.0)) as u32).clamp(1, 200)
}

/// Of each iteration the time of its slowest rank.
fn slowest(ranks: &[Measured]) -> Vec<f64> {
    let iterations = ranks
        .iter()
        .map(|rank| rank.times_us.len())
        .min()
        .unwrap_or(0);
    let times = |at: usize| ranks.iter().map(move |rank| rank.times_us[at]);
    (0..iterations)
        .map(|at| times(at).fold(0.0, f64::max))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command, PerfCommand};

    fn options(line: &str) -> Perf {
        let words = ["gradwire", "perf", "all-reduce"]
            .into_iter()
            .chain(line.split_whitespace());
        match Arguments::try_parse_from(words)
            .expect("the line is right")
            .command
        {
            Command::Perf(PerfCommand::AllReduce(perf)) => perf,
            other => panic!("{other:?} is not what was typed"),
        }
    }

    #[test]
    fn sizes_go_up_by_the_factor() {
        let sizes = sizes(&options("-b 4K -e 64K -f 4")).expect("sizes are allowed");
        assert_eq!(
            sizes,
            [ByteCount::kib(4), ByteCount::kib(16), ByteCount::kib(64)]
        );
    }

    #[test]
    fn one_rank_is_too_few() {
        let error = sizes(&options("-n 1")).expect_err("one rank");
        assert_eq!(
            error.to_string(),
            "-n 1: a collective needs at least 2 ranks"
        );
    }

    #[test]
    fn the_slowest_rank_counts() {
        let rank = |times_us: &[f64]| Measured {
            times_us: times_us.to_vec(),
            ..Measured::default()
        };
        assert_eq!(slowest(&[rank(&[1.0, 5.0]), rank(&[2.0, 3.0])]), [2.0, 5.0]);
    }

    #[test]
    fn options_change_the_job() {
        let job = job_with(&options("--drop 20% --tolerance 0.1 --seed 7 --mtu 1500").job);
        let job = job.expect("the options are allowed");
        assert_eq!(job.flat()["faults.drop"], "\"20%\"");
        assert_eq!(job.flat()["tolerance"], "\"10%\"");
        assert_eq!(job.faults.seed, 7);
        assert_eq!(job.transport.mtu, Mtu::Bytes(1500));
    }
}
