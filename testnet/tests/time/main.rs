//! The protocol over long times: clocks that wrap, hours of waiting, slow paths and outages.

mod clocks;
mod ends;
mod grants;
mod pair;
mod parity;
mod paths;
mod waiting;

/// Whether long tests are wanted.
#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for by the environment"
)]
fn is_slow() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}
