//! Collective operations over simulated networks that lose, reorder and duplicate.

mod failures;
mod loss;
mod results;
mod world;
