//! `gradwire sim`: simulated fabrics from the command line.
//!
//! Start here:
//! - [`scenario`]: what is simulated: the options that all commands share, and how they become a
//!   setup of the simulator; [`files`]: fabrics and workloads as they are given.
//! - [`run`], [`compare`], [`sweep`], [`report`]: the commands.
//! - [`summary`]: the numbers of one run, for programs; [`training`]: of its training steps.
//! - [`cost`]: what a run takes of this machine; [`progress`]: how far it is.
//! - [`svg`], [`plot`], [`chart`], [`timeline`], [`map`], [`html`], [`page`]: the pictures and the
//!   page of a report.
//! - [`output`]: files that are there whole or not at all.
//!
//! What is not here: the simulator (`gradwire-netsim`), which reads no file and no clock.

pub mod chart;
pub mod compare;
pub mod cost;
pub mod files;
pub mod html;
pub mod map;
pub mod output;
pub mod page;
pub mod plot;
pub mod progress;
pub mod report;
pub mod run;
pub mod scenario;
pub mod step;
pub mod steps;
pub mod summary;
pub mod svg;
pub mod sweep;
pub mod timeline;
pub mod training;
