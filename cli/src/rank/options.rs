//! The options of `gradwire rank`. Doc comments on options are the help text.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;
use gradwire_protocol::units::{ByteCount, Span};

use crate::job::options::JobOptions;
use gradwire_lab::values::{size, span};

/// Shown below the options.
pub const RANK_EXAMPLES: &str = "\
Examples (two hosts; the token may also be given in GRADWIRE_TOKEN):
  gradwire rank --rank 0 --world 2 --bind 10.0.0.1 --rendezvous 10.0.0.1:29400 --token secret
  gradwire rank --rank 1 --world 2 --bind 10.0.0.2 --rendezvous 10.0.0.1:29400 --token secret";

/// Options of `gradwire rank`.
#[derive(Args, Clone, Debug)]
pub struct Rank {
    /// This rank, from 0.
    #[arg(long)]
    pub rank: u16,
    /// How many ranks the job has, at least 2.
    #[arg(long)]
    pub world: u16,
    /// Where rank 0 listens: host:port. Rank 0 opens this port itself; port 0 is any free one.
    #[arg(long, value_name = "HOST:PORT")]
    pub rendezvous: String,
    /// The secret that all ranks of the job share; by default GRADWIRE_TOKEN.
    #[arg(long)]
    pub token: Option<String>,
    /// This rank's certificate in PEM, with --key and --ca; by default GRADWIRE_CERT.
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The key of the certificate; by default GRADWIRE_KEY.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The authority that must have signed every rank's certificate; by default GRADWIRE_CA.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Local address that peers can reach.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub bind: IpAddr,
    /// Size of each all-reduce, the same on all ranks.
    #[arg(long, default_value = "1M", value_parser = size, value_name = "SIZE")]
    pub bytes: ByteCount,
    /// How many all-reduces, the same on all ranks.
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub iterations: u32,
    /// File with this rank's contribution, 32-bit floats, for one all-reduce instead of generated
    /// ones. The files of all ranks must have the same size.
    #[arg(
        long,
        requires = "result",
        conflicts_with_all = ["bytes", "iterations"],
        value_name = "FILE"
    )]
    pub tensor: Option<PathBuf>,
    /// File to write the sum of the ranks' tensors to.
    #[arg(long, requires = "tensor", value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// How long to wait for the other ranks.
    #[arg(long, default_value = "30s", value_parser = span, value_name = "SPAN")]
    pub join_timeout: Span,
    /// The job.
    #[command(flatten)]
    pub job: JobOptions,
}
