//! Parameters of a job, found by trials.
//!
//! - [`schedule`]: chunk and credit, with simulated training steps.
//! - [`loss`]: the loss that a training script's own metric bears.
//! - [`guard`]: the process around a script that is tried, which leaves nothing of it behind.
//!
//! What is not here: which trial comes next (`gradwire-tuning`).

pub mod guard;
pub mod loss;
pub mod schedule;
