//! Collective operations over simulated networks that lose, reorder and duplicate.

mod algorithms;
mod buckets;
mod codecs;
mod conservation;
mod failures;
mod far;
mod forgetting;
mod hierarchical;
mod in_network;
mod loss;
mod messages;
mod mismatch;
mod order;
mod patience;
mod points;
mod rechunked;
mod results;
mod rooted;
mod scheduling;
mod transform;
mod uneven;
mod world;
mod wraps;

/// Whether long tests are wanted.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for by the environment"
)]
fn is_slow() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}
