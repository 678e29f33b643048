//! Collective operations over simulated networks that lose, reorder and duplicate.

mod algorithms;
mod failures;
mod loss;
mod results;
mod rooted;
mod world;
