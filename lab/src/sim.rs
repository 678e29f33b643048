//! Simulated runs: their scenario, their numbers, and their pictures.
//!
//! Start here:
//! - [`scenario`]: the parameters of a run, and how they become a setup of the simulator.
//! - [`mod@run`], [`compare`], [`report`]: one run; several transports and seeds; a page.
//! - [`fuzz`]: seeds of a cluster with random faults.
//! - [`summary`]: the numbers of one run, for programs; [`training`]: of its training steps.
//! - [`cost`]: CPU time, wall time and memory of a run; [`progress`]: its progress bar.
//! - [`traced`]: the events of a run, for `gradwire trace`; [`flows`]: its flows as CSV.
//! - [`chart`], [`timeline`], [`map`], [`step`], [`steps`], [`page`]: the pictures and the page of
//!   a report; [`explorer`]: what a reader can move and choose on it.
//!
//! Not here: the simulator (`gradwire-netsim`), which reads no file and no clock.

pub mod chart;
pub mod compare;
pub mod cost;
pub mod drawn;
pub mod explorer;
pub mod flows;
pub mod fuzz;
pub mod map;
pub mod page;
pub mod progress;
pub mod report;
pub mod room;
pub mod run;
pub mod scenario;
pub mod step;
pub mod steps;
pub mod summary;
pub mod timeline;
pub mod traced;
pub mod training;
