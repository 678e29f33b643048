//! The options of `gradwire aggregate`. Doc comments on options are the help text.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use gradwire_protocol::units::Share;

use gradwire_lab::values::share;

/// Shown below the options.
pub const AGGREGATE_EXAMPLES: &str = "\
Example (the token is the one of the ranks):
  GRADWIRE_TOKEN_FILE=token gradwire aggregate --listen 10.0.0.9:4700

The ranks' job has collectives.algorithm = \"in-network\" and collectives.aggregator =
\"10.0.0.9:4700\". TCP and UDP from the ranks must reach this host. Prints a JSON object when it
is ready, and one at the end, when its standard input closes with --until-input-ends. While it
cannot be reached, the ranks sum alone. It sees the tensors in clear: AEAD protects them on the
way only.";

/// Options of `gradwire aggregate`.
#[derive(Args, Clone, Debug)]
pub struct Aggregate {
    /// Where the ranks reach it. Port 0 is any free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// The secret that it shares with the ranks; by default GRADWIRE_TOKEN, or the text in
    /// GRADWIRE_TOKEN_FILE.
    #[arg(long)]
    pub token: Option<String>,
    /// The ranks' job file, for transport, faults and security; by default GRADWIRE_JOB, else
    /// the default job.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Share of arriving packets to drop on purpose, such as 1% or 0.01.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub drop: Option<Share>,
    /// End when standard input does, so that it never outlives the program that has started it.
    #[arg(long)]
    pub until_input_ends: bool,
}
