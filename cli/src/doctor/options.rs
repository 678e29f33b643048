//! The options of `gradwire doctor`. Doc comments on options are the help text.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use gradwire_protocol::units::Span;

use gradwire_lab::values::span;

/// Shown below the options.
pub const DOCTOR_EXAMPLES: &str = "\
Examples:
  gradwire doctor                                        this host alone
  gradwire doctor --ranks 8 --world 64 --job job.toml    this host for such a job
  gradwire doctor --nccl                                 this host, and the plugin of NCCL
  gradwire doctor --serve --bind 10.0.0.2                on one host: answer probes, and
  gradwire doctor --peer 10.0.0.2:29410 --json           on another: check the path to it
  gradwire doctor --rank 0 --world 2 --rendezvous 10.0.0.1:29400 --token secret
                                                         on every host with its rank: all pairs

Findings:
  ok         as it should be
  warning    a job works, with less than it could have
  problem    a job hangs, fails, or loses more than half of its speed; makes the exit code 1

Speeds were measured on one core with packets of 1,400 bytes; trust the ratios. JSON: one object,
{\"host\": {\"checks\": [{name, state, found, costs, mend}]}, \"pairs\": [{from, to, checks}]}.
A server answers only its own protocol, never with more bytes than it was sent; it runs until it is
interrupted.";

/// Options of `gradwire doctor`.
#[derive(Args, Clone, Debug)]
pub struct Doctor {
    /// Local address that a job would use; by default the one that reaches the peers, or those of
    /// all interfaces. With --serve, the address to answer on: 0.0.0.0 by default, "::" for IPv6.
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,
    /// Ranks of the job on this host.
    #[arg(
        short = 'n',
        long,
        default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=65_536),
        value_name = "COUNT"
    )]
    pub ranks: u32,
    /// Number of ranks of the job; by default those of this host.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "COUNT")]
    pub world: Option<u16>,
    /// The job file; by default GRADWIRE_JOB, else the default job.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Print one JSON object instead of the list.
    #[arg(long)]
    pub json: bool,
    /// Check the plugin of NCCL too, by the Python of the active environment: its symbols, and
    /// messages through two connections.
    #[arg(long, conflicts_with = "serve")]
    pub nccl: bool,
    /// Check the path to a host where `gradwire doctor --serve` runs; may be given several times.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Paths to other hosts")]
    pub peer: Vec<String>,
    /// Answer the probes of other hosts instead of checking this one.
    #[arg(long, conflicts_with_all = ["peer", "rank"], help_heading = "Paths to other hosts")]
    pub serve: bool,
    /// Port to answer on; 0 for any free port.
    #[arg(
        long,
        default_value_t = 29_410,
        requires = "serve",
        help_heading = "Paths to other hosts"
    )]
    pub port: u16,
    /// This rank, from 0: the ranks of a job check the paths between all of them.
    #[arg(
        long,
        requires_all = ["world", "rendezvous"],
        conflicts_with = "peer",
        help_heading = "Paths between ranks"
    )]
    pub rank: Option<u16>,
    /// Where rank 0 listens: host:port. Rank 0 opens this port itself.
    #[arg(
        long,
        requires = "rank",
        value_name = "HOST:PORT",
        help_heading = "Paths between ranks"
    )]
    pub rendezvous: Option<String>,
    /// The secret that all ranks share; by default GRADWIRE_TOKEN.
    #[arg(long, requires = "rank", help_heading = "Paths between ranks")]
    pub token: Option<String>,
    /// How long to wait for the other ranks.
    #[arg(
        long,
        default_value = "30s",
        value_parser = span,
        value_name = "SPAN",
        help_heading = "Paths between ranks"
    )]
    pub join_timeout: Span,
}
