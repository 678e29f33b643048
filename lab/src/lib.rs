//! Experiments: simulated runs, sweeps, evaluations, tuning, and processes that measure.
//!
//! Start here:
//! - [`sim`]: a scenario, its runs, and their tables and pictures. [`files`]: reads fabrics and
//!   workloads.
//! - [`sweep`]: every combination of a plan, each a process of its own.
//! - [`eval`]: whole evaluations, simulated and trained, and their report.
//! - [`tune`]: parameters of a job, found by trials.
//! - [`crew`]: ranks as processes of this machine, in network namespaces ([`netns`]) if asked.
//! - [`job_file`]: jobs read from files and changed. [`output`]: files that are there whole or not
//!   at all.
//! - [`error`]: why an experiment failed.
//!
//! Not here: the command line and its exit codes (`gradwire-cli`), the simulator
//! (`gradwire-netsim`), and the choice of the next trial (`gradwire-tuning`).

pub mod crew;
pub mod error;
pub mod eval;
pub mod files;
pub mod job_file;
pub mod netns;
pub mod output;
pub mod sim;
pub mod sweep;
pub mod tune;
