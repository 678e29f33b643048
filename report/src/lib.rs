//! The output of commands, for people and for programs.
//!
//! Start here:
//! - [`numbers`]: counts and bytes as people read them; [`columns`]: names above rows of them.
//!   [`json`]: values as lines for programs.
//! - [`svg`]: shapes and scales; [`plot`]: axes and curves made of them; [`timeline`]: rows over
//!   time; [`html`]: the page around.
//! - [`printing`]: prints, and ends the program when its reader has gone.
//!
//! Not here: the command line, jobs, simulations and measurements.

pub mod columns;
pub mod html;
pub mod json;
pub mod numbers;
pub mod plot;
pub mod printing;
pub mod svg;
pub mod timeline;
