//! The options of `gradwire tune redundancy`. Doc comments on options are the help text.

use clap::Args;

use gradwire_lab::tune::redundancy::RedundancyQuestion;

/// Shown below the options.
pub const REDUNDANCY_EXAMPLES: &str = "\
Examples:
  gradwire tune redundancy --servers 10
  gradwire tune redundancy --servers 14 --needed 10 --rebuilders 13 --json

The curve is the least storage of a server for each number of bytes that rebuild one, by any code.
The codes are those of the job key servers.redundancy; \"own state\" is the part of the bytes that
comes first, after which a rebuilt server serves again. Encoding is timed on one core of this host.

JSON: one object, {servers, needed, rebuilders, corners: [{storage, repair}], codes: [{redundancy,
storage, repair, own_state, encode_gb_per_s}], copy_gb_per_s}.";

/// Options of `gradwire tune redundancy`.
#[derive(Args, Clone, Debug)]
pub struct TuneRedundancyOptions {
    /// The servers.
    #[command(flatten)]
    pub question: RedundancyQuestion,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
