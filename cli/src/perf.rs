//! `gradwire perf`: starts ranks on this machine, has them do collectives, measures and checks.
//!
//! Start here:
//! - this file: which job and which sizes; the commands are:
//!   - [`sweep`]: one collective over sizes, and rivals in turn with it.
//!   - [`loss`]: goodput when packets are dropped.
//!   - [`tune`]: which algorithm is fastest, written into a job file.
//!   - [`buckets`]: the order in which many all-reduces at once are complete.
//!   - [`soak`]: whether memory stays flat.
//! - [`options`]: what can be typed. [`table`]: rows for people and for programs.
//!
//! What is not here: the ranks and the processes that they are in (`gradwire_lab::crew`).

pub mod buckets;
pub mod loss;
pub mod options;
pub mod soak;
pub mod sweep;
pub mod table;
pub mod tune;

use gradwire_protocol::job::{IdleMode, Job, PacketSecurity, WireChoice};
use gradwire_protocol::units::ByteCount;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Failure;
use crate::job;
use gradwire_lab::crew::kind::Kind;
use options::{Ground, PerfCommand, Sizes};

/// Most ranks that one machine is asked to run.
const RANKS_MAX: u16 = 64;

/// `gradwire perf`.
///
/// # Errors
/// [`Failure`] when options make no sense, ranks fail, or a result is wrong.
pub fn run(command: &PerfCommand) -> Result<(), Failure> {
    match command {
        PerfCommand::AllReduce(options) => sweep::run(Kind::AllReduce, options),
        PerfCommand::ReduceScatter(options) => sweep::run(Kind::ReduceScatter, options),
        PerfCommand::AllGather(options) => sweep::run(Kind::AllGather, options),
        PerfCommand::Broadcast(options) => sweep::run(Kind::Broadcast, options),
        PerfCommand::Reduce(options) => sweep::run(Kind::Reduce, options),
        PerfCommand::AllToAll(options) => sweep::run(Kind::AllToAll, options),
        PerfCommand::Barrier(options) => sweep::run(Kind::Barrier, options),
        PerfCommand::SendRecv(options) => sweep::run(Kind::SendRecv, options),
        PerfCommand::Loss(options) => loss::run(options),
        PerfCommand::Tune(options) => tune::run(options),
        PerfCommand::Buckets(options) => buckets::run(options),
        PerfCommand::Soak(options) => soak::run(options),
    }
}

/// The job on some ground: shared memory would go past the links between namespaces, so that a
/// wire that the job leaves open is UDP there.
fn job_on(ground: &Ground) -> Result<Job, Failure> {
    let mut job = job::with_options(&ground.job)?;
    if ground.netns {
        job.transport.wire = on_the_network(job.transport.wire);
    }
    job::say_if_unprotected(&job);
    Ok(job)
}

fn on_the_network(wire: WireChoice) -> WireChoice {
    match wire {
        WireChoice::Auto => WireChoice::Udp,
        named => named,
    }
}

/// Ranks that spin while others are measured take their cores.
fn refuse_spinning(job: &Job) -> Result<(), Failure> {
    match job.transport.idle {
        IdleMode::Adaptive | IdleMode::Block => Ok(()),
        IdleMode::Busy => Err(Failure::Usage(
            "ranks with idle policy \"busy\" would take the cores of what is measured in turn \
             with them: allowed here are \"adaptive\" and \"block\""
                .to_owned(),
        )),
    }
}

/// What protects the packets of a job over a wire: memory of one host is never sealed.
fn security(job: &Job, wire: &str) -> &'static str {
    match job.security {
        PacketSecurity::Aead if wire != "shm" => "aead",
        PacketSecurity::Aead | PacketSecurity::None => "none",
    }
}

fn check_ranks(ranks: u16) -> Result<(), Failure> {
    if ranks < 2 {
        return Err(Failure::Usage(format!(
            "-n {ranks}: a collective needs at least 2 ranks"
        )));
    }
    if ranks > RANKS_MAX {
        let text = format!("-n {ranks}: at most {RANKS_MAX} ranks run on one machine");
        return Err(Failure::Usage(text));
    }
    Ok(())
}

/// The sizes of a range, each a multiple of the collective's granule.
fn sizes(kind: Kind, ranks: u16, range: &Sizes) -> Result<Vec<u64>, Failure> {
    check_ranks(ranks)?;
    let Sizes { begin, end, factor } = *range;
    if kind == Kind::Barrier {
        return Ok(vec![0]);
    }
    if begin > end {
        return Err(Failure::Usage(format!(
            "-b {begin} is larger than -e {end}"
        )));
    }
    let granule = kind.granule(ranks);
    if begin.get() < granule || end.get() > u64::from(u32::MAX) {
        let text = format!("sizes {begin} to {end}: allowed are {granule} bytes to below 4GiB");
        return Err(Failure::Usage(text));
    }
    let steps = std::iter::successors(Some(begin.get()), |bytes| bytes.checked_mul(factor));
    Ok(steps
        .take_while(|bytes| *bytes <= end.get())
        .map(|bytes| bytes / granule * granule)
        .collect())
}

/// One size of an all-reduce.
fn one_size(ranks: u16, bytes: ByteCount) -> Result<u64, Failure> {
    let range = Sizes {
        begin: bytes,
        end: bytes,
        factor: 2,
    };
    Ok(sizes(Kind::AllReduce, ranks, &range)?[0])
}

fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}");
    let style = style.expect("the template is constant and well-formed");
    ProgressBar::new(steps as u64).with_style(style)
}

/// An end of a command whose results were checked.
fn passed(faults: Vec<String>) -> Result<(), Failure> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Failure::Check(faults.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn options(line: &str) -> options::Sweep {
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

    fn sizes_of(kind: Kind, line: &str) -> Result<Vec<u64>, Failure> {
        let options = options(line);
        sizes(kind, options.ranks, &options.sizes)
    }

    #[test]
    fn sizes_go_up_by_the_factor() {
        let sizes = sizes_of(Kind::AllReduce, "-b 4K -e 64K -f 4");
        assert_eq!(sizes.expect("sizes are allowed"), [4096, 16384, 65536]);
    }

    #[test]
    fn sizes_of_blocks_are_whole_blocks() {
        let sizes = sizes_of(Kind::AllToAll, "-n 3 -b 4K -e 8K");
        assert_eq!(sizes.expect("sizes are allowed"), [4092, 8184]);
        let error = sizes_of(Kind::AllToAll, "-n 3 -b 8").expect_err("a block is 12 bytes");
        assert!(error.to_string().contains("allowed are 12 bytes to"));
    }

    #[test]
    fn one_rank_is_too_few() {
        let error = sizes_of(Kind::Barrier, "-n 1").expect_err("one rank");
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
