//! The options of `gradwire tune`. Doc comments on options are the help text.

use clap::{Args, Subcommand};

use super::codec::options::{CODEC_EXAMPLES, TuneCodecOptions};
use super::loss::options::{LOSS_EXAMPLES, TuneLossOptions};
use super::redundancy::options::{REDUNDANCY_EXAMPLES, TuneRedundancyOptions};
use super::schedule::options::{SCHEDULE_EXAMPLES, ScheduleOptions};

/// The commands.
#[derive(Debug, Subcommand)]
pub enum TuneCommand {
    /// Find the chunk and the credit with which simulated training steps are fastest.
    #[command(after_help = SCHEDULE_EXAMPLES)]
    Schedule(ScheduleOptions),
    /// Find the codec that a model gains from, and the tensors that it serves.
    #[command(after_help = CODEC_EXAMPLES)]
    Codec(TuneCodecOptions),
    /// Find the largest tolerance that keeps a training script's own metric within a margin.
    #[command(after_help = LOSS_EXAMPLES)]
    Loss(TuneLossOptions),
    /// Show what codes cost by which parameter servers keep each other's state.
    #[command(after_help = REDUNDANCY_EXAMPLES)]
    Redundancy(TuneRedundancyOptions),
}

/// A script that is tried in a process of its own.
#[derive(Args, Debug)]
pub struct TrialScript {
    /// The script: a program and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
