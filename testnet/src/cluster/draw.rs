//! Random numbers by name: each use draws from a stream of its own, so that a fault that is
//! switched off changes no draw of the others.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_protocol::units::Span;

/// A stream of random numbers for one purpose and one subject, a rank for example.
pub fn stream(seed: u64, purpose: &str, subject: u64) -> ChaCha8Rng {
    let mut hash = fold(FNV_START, &seed.to_le_bytes());
    hash = fold(hash, purpose.as_bytes());
    ChaCha8Rng::seed_from_u64(fold(hash, &subject.to_le_bytes()))
}

/// Start of [`fold`]'s hash.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds bytes to a hash (FNV-1a).
pub(crate) fn fold(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(hash, step)
}

/// A span between two, whose logarithm is even: as often milliseconds as seconds.
pub(crate) fn span_between(rng: &mut impl Rng, least: Span, most: Span) -> Span {
    let (least, most) = (least.as_nanos().max(1) as f64, most.as_nanos() as f64);
    let nanos = (rng.random_range(least.ln()..=most.ln())).exp();
    Span::from_nanos(nanos as u64)
}

/// One of the values.
pub(crate) fn pick<T: Copy>(rng: &mut impl Rng, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}
