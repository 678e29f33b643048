//! Finds the loss that a training script's metric bears, by running the script under losses.
//!
//! Start here:
//! - [`trial`]: one trial; [`metric`]: the metric in the script's output.
//! - [`journal`]: finished trials, from which a search goes on.
//! - [`evidence`]: the result and its evidence, in the job file; [`page`]: the same as a picture.

pub mod evidence;
pub mod journal;
pub mod metric;
pub mod page;
pub mod trial;
