//! Collective operations over simulated networks that lose, reorder and duplicate.

mod algorithms;
mod buckets;
mod failures;
mod hierarchical;
mod loss;
mod mismatch;
mod results;
mod rooted;
mod world;
