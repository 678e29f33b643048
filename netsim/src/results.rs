//! What came out of a run.
//!
//! - [`outcome`]: everything that was measured, as it was measured.
//! - [`statistics`]: percentiles, slowdowns and means of it; [`steps`]: its training steps.

pub mod outcome;
pub mod statistics;
pub mod steps;
