//! Sweeps: every combination of a plan runs once; a finished one never runs again.
//!
//! Start here:
//! - [`plan`]: reads a plan, each value with its line.
//! - [`cells`]: which cells follow from it, and their ids; [`inputs`]: the files that they name.
//! - [`crew`]: processes that run them; [`worker`]: one of those.
//! - [`record`]: the result of a cell; [`folder`]: the files that keep it.
//! - [`parquet`]: results as columns. [`slurm`]: a sweep as a job array.

pub mod cells;
pub mod crew;
pub mod folder;
pub mod inputs;
pub mod parquet;
pub mod plan;
pub mod record;
pub mod slurm;
pub mod worker;
