//! The results of a run.
//!
//! - [`outcome`]: all measurements, as they were taken.
//! - [`statistics`]: percentiles, slowdowns and means of it; [`steps`]: its training steps.

pub mod outcome;
pub mod statistics;
pub mod steps;
