//! Codes that keep the state of parameter servers on all of them, so that the loss of some servers
//! loses nothing: product-matrix MBR and MSR, and Reed-Solomon as a reference.
//!
//! - [`Code`] numbers the symbols of a code and says how some of them follow from others. Each
//!   server's own data are symbols that it stores as they are.
//! - `families` constructs the codes, `span` solves for coefficients, `field` has the arithmetic
//!   of bytes.
//! - [`curve`]: storage against repair traffic, as far as any code can go.
//!
//! A symbol is a run of bytes; all symbols of a snapshot have the same length. Not here: snapshots,
//! messages, and the death of servers (`python/gradwire/ps`).

mod code;
pub mod curve;
mod families;
mod field;
mod span;

pub use code::{Code, CodeError, combine};
