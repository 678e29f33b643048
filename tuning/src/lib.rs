//! Finds good values for a job's parameters by few trials: decides which point to try next, and
//! when to stop.
//!
//! - `surface` searches chunk and credit, the two sizes that decide how well gradients overlap with
//!   computing.
//! - `frontier` finds the fastest ways to run the layers of a model within any memory.
//! - `selective` decides which tensors gain from a codec.
//! - `tolerance` searches the loss that a job's own metric tolerates.
//!
//! This crate runs no trial, never waits and reads no file. A caller asks for the next point,
//! measures it where it likes (a simulator, a job's first steps, a script) and reports the result.

pub mod frontier;
pub mod selective;
pub mod surface;
pub mod tolerance;
