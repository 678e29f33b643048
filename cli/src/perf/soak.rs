//! `gradwire perf soak`: many all-reduces after each other, and the resident set of each rank.

use std::time::Duration;

use gradwire_protocol::units::ByteCount;
use gradwire_report::printing::OutputForm;
use serde_json::json;

use super::ground::{job_on, one_size, passed, progress_bar, security};
use super::options::SoakOptions;
use super::table::rounded;
use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::launcher::Crew;
use gradwire_lab::crew::messages::{Measured, Round};
use gradwire_lab::crew::rounds::{median, slowest};
use gradwire_lab::crew::verdict;
use gradwire_lab::error::LabError;

/// The count is done in this many parts, with a sample of memory after each.
const PARTS: u32 = 20;
/// Longest that one part may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Watches memory.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, a result is wrong, or memory grows.
pub fn run(options: &SoakOptions) -> Result<(), CommandError> {
    let bytes = one_size(options.ranks, options.bytes)?;
    let job = job_on(&options.ground)?;
    let place = options.ground.place(options.ranks)?;
    let mut crew = Crew::of_ranks(options.ranks, &job, &place)?;
    let report = SoakReport {
        form: options.ground.form(),
        wire: crew.wire().to_owned(),
        security: security(&job, crew.wire()),
        bytes,
        options,
    };
    report.head(place.network());
    let progress = progress_bar(PARTS as usize + 2);
    let mut wrong = Vec::new();
    let mut part = |iterations: u32| {
        let round = Round {
            kind: PerfCollective::AllReduce,
            bytes,
            iterations,
        };
        let measured = crew.round(&round, PATIENCE)?;
        wrong.extend(verdict::faults_of_round(
            PerfCollective::AllReduce,
            &measured,
            &job,
        ));
        progress.inc(1);
        Ok::<_, CommandError>(measured)
    };
    // As long as the parts that follow, so that the memory of a round itself is counted from the
    // start.
    let size = options.count.div_ceil(PARTS);
    let mut times = Vec::new();
    part(size)?;
    let before = resident(&part(size)?);
    report.sample(0, &before);
    let mut after = before.clone();
    let mut done = 0;
    while done < options.count {
        let iterations = size.min(options.count - done);
        let measured = part(iterations)?;
        done += iterations;
        times.extend(slowest(&measured));
        after = resident(&measured);
        report.sample(done, &after);
    }
    progress.finish_and_clear();
    let growth = report.finish((&before, &after), median(times));
    crew.end()?;
    passed(wrong)?;
    if growth > options.growth.get() {
        let (grown, most) = (ByteCount::new(growth), options.growth);
        let text = format!("the resident set of a rank grew by {grown}, allowed is {most}");
        return Err(LabError::Check(text).into());
    }
    Ok(())
}

fn resident(ranks: &[Measured]) -> Vec<u64> {
    ranks.iter().map(|rank| rank.resident_bytes).collect()
}

/// The most that one rank grew.
fn growth(before: &[u64], after: &[u64]) -> u64 {
    let grown = before.iter().zip(after);
    let grown = grown.map(|(before, after)| after.saturating_sub(*before));
    grown.max().unwrap_or(0)
}

struct SoakReport<'a> {
    form: OutputForm,
    wire: String,
    security: &'static str,
    bytes: u64,
    options: &'a SoakOptions,
}

impl SoakReport<'_> {
    fn head(&self, network: &str) {
        let (count, bytes, ranks) = (self.options.count, self.bytes, self.options.ranks);
        self.form.remark(format_args!(
            "# {count} all-reduces of {bytes} bytes, {ranks} ranks on this machine ({network}) \
             over {}, security {}\n#{:>11}  resident set of each rank, KiB",
            self.wire, self.security, "all-reduces"
        ));
    }

    fn sample(&self, done: u32, resident: &[u64]) {
        let text = || {
            let ranks = resident.iter();
            let ranks = ranks.map(|bytes| format!(" {:>10}", bytes / 1024));
            format!("{done:>12} {}", ranks.collect::<String>())
        };
        let value = || json!({ "all_reduces": done, "resident_bytes": resident });
        self.form.print(text, value);
    }

    fn finish(&self, (before, after): (&[u64], &[u64]), time_us: f64) -> u64 {
        let (growth, allowed) = (growth(before, after), self.options.growth.get());
        let text = || {
            let (growth, allowed) = (growth / 1024, allowed / 1024);
            format!(
                "# grown by at most {growth} KiB of {allowed} KiB allowed; median time \
                 {time_us:.1} us"
            )
        };
        let value = || {
            json!({
                "summary": {
                    "ranks": self.options.ranks,
                    "size_bytes": self.bytes,
                    "all_reduces": self.options.count,
                    "wire": self.wire,
                    "security": self.security,
                    "time_us": rounded(time_us),
                    "growth_bytes": growth,
                    "growth_allowed_bytes": allowed,
                }
            })
        };
        self.form.print(text, value);
        growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_grew_most_counts() {
        assert_eq!(growth(&[100, 200], &[90, 260]), 60);
        assert_eq!(growth(&[100], &[90]), 0);
    }
}
