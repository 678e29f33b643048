//! The loss that a training script's own metric bears, found by running it under losses.
//!
//! Start here:
//! - [`trial`]: one trial; [`metric`]: the metric in what the script prints.
//! - [`journal`]: finished trials, from which a search goes on.
//! - [`evidence`]: the result and what it rests on, in the job file; [`page`]: as a picture.

pub mod evidence;
pub mod journal;
pub mod metric;
pub mod page;
pub mod trial;
