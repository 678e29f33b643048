//! Finds parameters of a job by trials.
//!
//! - [`codec`]: the codec that a model gains from, and its tensors.
//! - [`schedule`]: chunk and credit, with simulated training steps.
//! - [`loss`]: the loss that a training script's metric bears.
//! - [`redundancy`]: costs of codes over parameter servers.
//! - [`guard`]: the process around a tried script, which leaves no process of it behind.
//!
//! `gradwire-tuning` decides which trial comes next.

pub mod codec;
pub mod guard;
pub mod loss;
pub mod redundancy;
pub mod schedule;
