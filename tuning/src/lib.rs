//! What a job's parameters should be, found by few trials: which point to try next, and when to
//! stop.
//!
//! `surface` searches chunk and credit, the two sizes that decide how well gradients overlap with
//! computing. `tolerance` searches the loss that a job's own metric bears. Nothing here runs a
//! trial, waits or reads a file: a caller asks for the next point, measures it wherever it likes (a
//! simulator, a job's first steps, a script) and tells what it has seen.

pub mod surface;
pub mod tolerance;
