//! The loss that a training script's own metric bears, found by running it under losses.
//!
//! Start here:
//! - [`trial`]: one trial; [`metric`]: finds the metric in the script's output.
//! - [`journal`]: finished trials, from which a search goes on.
//! - [`evidence`]: the result and its reasons, in the job file; [`page`]: as a picture.

pub mod evidence;
pub mod journal;
pub mod metric;
pub mod page;
pub mod trial;
