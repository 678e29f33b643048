//! Parameters of a job, found by trials.
//!
//! - [`schedule`]: chunk and credit, with simulated training steps.
//! - [`loss`]: the loss that a training script's own metric bears.
//! - [`guard`]: the process around a script that is tried; it ends all processes of the script.
//!
//! Not here: the choice of the next trial (`gradwire-tuning`).

pub mod guard;
pub mod loss;
pub mod schedule;
