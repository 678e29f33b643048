//! Experiments: simulated runs, sweeps, evaluations, tuning, and processes that measure.
//!
//! Start here:
//! - [`sim`]: a scenario, its runs, and their tables and pictures. [`files`]: reads fabrics and
//!   workloads.
//! - [`sweep`]: every combination of a plan, each a process of its own.
//! - [`eval`]: whole evaluations, simulated and trained, and their report.
//! - [`tune`]: parameters of a job, found by trials.
//! - [`trace`]: the notes of ranks, compared and drawn.
//! - [`mod@plan`]: how to run the blocks of a model on several devices.
//! - [`crew`]: ranks as processes of this machine, in network namespaces ([`netns`]) if asked.
//! - [`job_file`]: jobs read from files and changed. [`output`]: files that are there whole or not
//!   at all.
//! - [`mod@side_by_side`]: several runs at a time. [`shell`]: command lines.
//!   [`error`]: why an experiment failed.
//!
//! The parameters of experiments are typed on the command line, too, by the names of their fields:
//! their comments are its help text. [`values`]: sizes, shares and times as they are typed.
//!
//! Not here: the commands and their exit codes (`gradwire-cli`), the simulator
//! (`gradwire-netsim`), and the choice of the next trial (`gradwire-tuning`).

pub mod crew;
pub mod error;
pub mod eval;
pub mod files;
pub mod job_file;
pub mod netns;
pub mod output;
pub mod plan;
pub mod shell;
pub mod side_by_side;
pub mod sim;
pub mod sweep;
pub mod trace;
pub mod tune;
pub mod values;
