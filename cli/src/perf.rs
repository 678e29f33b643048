//! `gradwire perf`: starts ranks on this machine, has them do collectives, measures and checks.
//!
//! Start here:
//! - the commands:
//!   - [`sweep`]: one collective over sizes, and rivals in turn with it.
//!   - [`loss`]: goodput when packets are dropped.
//!   - [`tune`]: which algorithm is fastest, written into a job file.
//!   - [`buckets`]: the order in which many all-reduces at once are complete.
//!   - [`soak`]: whether memory stays flat.
//! - `ground`: the job, the sizes, the end. [`options`]: the command line. [`table`]: rows for
//!   people and for programs.
//!
//! Not here: the ranks and their processes (`gradwire_lab::crew`).

pub mod buckets;
mod ground;
pub mod loss;
pub mod options;
pub mod soak;
pub mod sweep;
pub mod table;
pub mod tune;

use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use options::PerfCommand;

/// `gradwire perf`.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, or a result is wrong.
pub fn run(command: &PerfCommand) -> Result<(), CommandError> {
    match command {
        PerfCommand::AllReduce(options) => sweep::run(PerfCollective::AllReduce, options),
        PerfCommand::ReduceScatter(options) => sweep::run(PerfCollective::ReduceScatter, options),
        PerfCommand::AllGather(options) => sweep::run(PerfCollective::AllGather, options),
        PerfCommand::Broadcast(options) => sweep::run(PerfCollective::Broadcast, options),
        PerfCommand::Reduce(options) => sweep::run(PerfCollective::Reduce, options),
        PerfCommand::AllToAll(options) => sweep::run(PerfCollective::AllToAll, options),
        PerfCommand::Barrier(options) => sweep::run(PerfCollective::Barrier, options),
        PerfCommand::SendRecv(options) => sweep::run(PerfCollective::SendRecv, options),
        PerfCommand::Loss(options) => loss::run(options),
        PerfCommand::Tune(options) => tune::run(options),
        PerfCommand::Buckets(options) => buckets::run(options),
        PerfCommand::Soak(options) => soak::run(options),
    }
}
