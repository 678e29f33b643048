//! Values as they are typed: sizes, shares, lengths of time.

use gradwire_protocol::job::notation;
use gradwire_protocol::units::{ByteCount, Share, Span};

/// Reads a size as it is typed.
///
/// # Errors
/// The forms that are allowed.
pub fn size(text: &str) -> Result<ByteCount, String> {
    notation::size(text).ok_or_else(|| "allowed are bytes, or a number with K, M or G".to_owned())
}

/// Reads a share as it is typed.
///
/// # Errors
/// The forms that are allowed.
pub fn share(text: &str) -> Result<Share, String> {
    notation::share(text).ok_or_else(|| "allowed are 0 to 1, or 0% to 100%".to_owned())
}

/// Reads a length of time as it is typed.
///
/// # Errors
/// The forms that are allowed.
pub fn span(text: &str) -> Result<Span, String> {
    notation::span(text).ok_or_else(|| "allowed is a number with s, ms, us or ns".to_owned())
}

/// Reads a length of simulated time as it is typed.
///
/// # Errors
/// The forms that are allowed.
pub fn span_ps(text: &str) -> Result<Span, String> {
    let allowed = || "allowed is a number with s, ms, us, ns or ps".to_owned();
    notation::span(text).ok_or_else(allowed)
}

/// Reads a seed as it is typed.
///
/// # Errors
/// The numbers that are allowed.
pub fn seed(text: &str) -> Result<u64, String> {
    let seed = text.parse().ok().filter(|seed| *seed <= i64::MAX as u64);
    seed.ok_or_else(|| "allowed are whole numbers from 0".to_owned())
}
