//! Sweeps: every combination of a plan is run once, and what is finished is never run again.
//!
//! Start here:
//! - [`plan`]: what a plan says, and on which line.
//! - [`cells`]: which cells follow from it, and their ids; [`inputs`]: the files that they name.
//! - [`crew`]: processes that run them; [`worker`]: one of those.
//! - [`record`]: what is known of a cell that has run; [`folder`]: where that is kept.
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
