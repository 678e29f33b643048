//! Sweeps: run every combination of a plan once, and a finished one never again.
//!
//! Start here:
//! - [`plan`]: the content of a plan, with its lines.
//! - [`cells`]: the cells of a plan and their ids; [`inputs`]: the files that they name.
//! - [`crew`]: processes that run them; [`worker`]: one of those.
//! - [`record`]: the result of a cell; [`folder`]: the folder of all records.
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
