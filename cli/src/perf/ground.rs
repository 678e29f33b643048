//! The common start and end of all commands of `perf`: their job, the sizes they measure, their
//! progress bar, and whether results were right.

use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::error::LabError;
use gradwire_lab::sim::progress;
use gradwire_protocol::job::{IdleMode, Job, ReduceAlgorithm, WireChoice};
use gradwire_protocol::units::ByteCount;
use indicatif::ProgressBar;

use super::options::{GroundOptions, SizeRange};
use crate::exit::CommandError;
use crate::job;

/// Most ranks that one machine is asked to run.
const RANKS_MAX: u16 = 64;

/// The job on some ground: shared memory would go past the links between namespaces, so that a
/// wire that the job leaves open is UDP there.
pub(super) fn job_on(ground: &GroundOptions) -> Result<Job, CommandError> {
    let mut options = ground.job.clone();
    // The crew starts an aggregator of its own, and knows its address only then.
    let is_own = ground.has_own_aggregator();
    options.algorithm.take_if(|_| is_own);
    let mut job = job::with_options(&options)?;
    if is_own && job.collectives.aggregator.is_none() {
        job.collectives.algorithm = ReduceAlgorithm::InNetwork;
    }
    if ground.netns {
        job.transport.wire = on_the_network(job.transport.wire);
    }
    job::say_if_unprotected(&job);
    Ok(job)
}

pub(super) fn on_the_network(wire: WireChoice) -> WireChoice {
    match wire {
        WireChoice::Auto => WireChoice::Udp,
        named => named,
    }
}

/// Ranks that spin while others are measured take their cores.
pub(super) fn refuse_spinning(job: &Job) -> Result<(), CommandError> {
    match job.transport.idle {
        IdleMode::Adaptive | IdleMode::Block => Ok(()),
        IdleMode::Busy => Err(CommandError::Usage(
            "ranks with idle policy \"busy\" would take cores from the rivals that are measured in \
            alternation: allowed here are \"adaptive\" and \"block\""
                .to_owned(),
        )),
    }
}

/// The protection of a job's packets over a wire: memory of one host is never sealed.
pub(super) fn security(job: &Job, wire: &str) -> &'static str {
    match wire {
        "shm" => "none",
        _ => job.protection(),
    }
}

pub(super) fn check_ranks(ranks: u16) -> Result<(), CommandError> {
    if ranks < 2 {
        return Err(CommandError::Usage(format!(
            "-n {ranks}: a collective needs at least 2 ranks"
        )));
    }
    if ranks > RANKS_MAX {
        let text = format!("-n {ranks}: at most {RANKS_MAX} ranks run on one machine");
        return Err(CommandError::Usage(text));
    }
    Ok(())
}

/// The sizes of a range, each a multiple of the collective's granule.
pub(super) fn sizes(
    kind: PerfCollective,
    ranks: u16,
    range: &SizeRange,
) -> Result<Vec<u64>, CommandError> {
    check_ranks(ranks)?;
    let SizeRange { begin, end, factor } = *range;
    if kind == PerfCollective::Barrier {
        return Ok(vec![0]);
    }
    if begin > end {
        return Err(CommandError::Usage(format!(
            "-b {begin} is larger than -e {end}"
        )));
    }
    let granule = kind.granule(ranks);
    if begin.get() < granule || end.get() > u64::from(u32::MAX) {
        let text = format!("sizes {begin} to {end}: allowed are {granule} bytes to below 4GiB");
        return Err(CommandError::Usage(text));
    }
    let steps = std::iter::successors(Some(begin.get()), |bytes| bytes.checked_mul(factor));
    Ok(steps
        .take_while(|bytes| *bytes <= end.get())
        .map(|bytes| bytes / granule * granule)
        .collect())
}

/// One size of an all-reduce.
pub(super) fn one_size(ranks: u16, bytes: ByteCount) -> Result<u64, CommandError> {
    let range = SizeRange {
        begin: bytes,
        end: bytes,
        factor: 2,
    };
    Ok(sizes(PerfCollective::AllReduce, ranks, &range)?[0])
}

pub(super) fn progress_bar(steps: usize) -> ProgressBar {
    progress::bar(steps as u64, "{pos}/{len} {msg} {elapsed}")
}

/// An end of a command whose results were checked.
pub(super) fn passed(faults: Vec<String>) -> Result<(), LabError> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(LabError::Check(faults.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};
    use crate::perf::options::{self, PerfCommand};

    fn options(line: &str) -> options::CollectiveOptions {
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

    fn sizes_of(kind: PerfCollective, line: &str) -> Result<Vec<u64>, CommandError> {
        let options = options(line);
        sizes(kind, options.ranks, &options.sizes)
    }

    #[test]
    fn sizes_go_up_by_the_factor() {
        let sizes = sizes_of(PerfCollective::AllReduce, "-b 4K -e 64K -f 4");
        assert_eq!(sizes.expect("sizes are allowed"), [4096, 16384, 65536]);
    }

    #[test]
    fn sizes_of_blocks_are_whole_blocks() {
        let sizes = sizes_of(PerfCollective::AllToAll, "-n 3 -b 4K -e 8K");
        assert_eq!(sizes.expect("sizes are allowed"), [4092, 8184]);
        let error =
            sizes_of(PerfCollective::AllToAll, "-n 3 -b 8").expect_err("a block is 12 bytes");
        assert!(error.to_string().contains("allowed are 12 bytes to"));
    }

    #[test]
    fn one_rank_is_too_few() {
        let error = sizes_of(PerfCollective::Barrier, "-n 1").expect_err("one rank");
        assert_eq!(
            error.to_string(),
            "-n 1: a collective needs at least 2 ranks"
        );
    }

    #[test]
    fn options_change_the_job() {
        let line = "--drop 20% --tolerance 0.1 --seed 7 --mtu 1500 --idle block --algorithm ring";
        let job = job::with_options(&options(line).ground.job).expect("the options are allowed");
        assert_eq!(job.flat()["faults.drop"], "\"20%\"");
        assert_eq!(job.flat()["tolerance"], "\"10%\"");
        assert_eq!(job.flat()["transport.idle"], "\"block\"");
        assert_eq!(job.flat()["collectives.algorithm"], "\"ring\"");
        assert_eq!(job.faults.seed, 7);
        assert_eq!(job.transport.mtu, gradwire_protocol::job::Mtu::Bytes(1500));
        let error = job::with_options(&options("--wire tcp").ground.job).expect_err("no such wire");
        assert!(error.to_string().contains("\"auto\", \"udp\""), "{error}");
    }

    #[test]
    fn an_open_wire_is_udp_between_namespaces() {
        let wire = |line: &str| job_on(&options(line).ground).map(|job| job.transport.wire);
        assert_eq!(wire("").expect("the default"), WireChoice::Auto);
        assert_eq!(wire("--netns").expect("allowed"), WireChoice::Udp);
        let named = wire("--netns --wire uring").expect("allowed");
        assert_eq!(named, WireChoice::Uring);
    }
}
