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
