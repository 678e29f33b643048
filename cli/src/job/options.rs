//! The options of `gradwire job`, and those that other commands share to choose a job. Doc comments
//! on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradwire_protocol::units::Share;

use gradwire_lab::values::share;

/// The commands for job files.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Check a job file and print the job it resolves to.
    #[command(after_help = "Example:\n  gradwire job check job.toml --json")]
    Check(JobCheck),
    /// List every key of a job file: its purpose, the allowed values, its default.
    #[command(after_help = "Example:\n  gradwire job keys")]
    Keys,
}

/// Options of `gradwire job check`.
#[derive(Args, Debug)]
pub struct JobCheck {
    /// The job file.
    pub path: PathBuf,
    /// Print one JSON object of dotted keys instead of TOML.
    #[arg(long)]
    pub json: bool,
}

/// Options that choose and change a job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job")]
pub struct JobOptions {
    /// The job file; by default GRADWIRE_JOB, else the default job.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Share of a message that may be missing, such as 2% or 0.02.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub tolerance: Option<Share>,
    /// Share of packets to drop on purpose, such as 1% or 0.01.
    #[arg(long, value_parser = share, value_name = "SHARE")]
    pub drop: Option<Share>,
    /// Seed of the drops.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Largest IP packet in bytes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(576..=65_535), value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// The wire that carries packets: auto, udp, uring, shm, xdp or rdma.
    #[arg(long, value_name = "WIRE")]
    pub wire: Option<String>,
    /// Protection of packets: aead or none.
    #[arg(long, value_name = "SECURITY")]
    pub security: Option<String>,
    /// How a rank waits: busy, adaptive or block.
    #[arg(long, value_name = "POLICY")]
    pub idle: Option<String>,
    /// Algorithm of all-reduces: auto, direct, ring, halving-doubling, hierarchical or in-network.
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<String>,
    /// Address of the `gradwire aggregate` that sums for the algorithm in-network.
    #[arg(long, value_name = "HOST:PORT")]
    pub aggregator: Option<String>,
    /// Codec of all-reduces and reduce-scatters between hosts: none, onebit, tbq, terngrad, topk or
    /// blockfloat.
    #[arg(long, value_name = "NAME")]
    pub codec: Option<String>,
}
