//! What the tests of the whole workspace are made of: the text of its files, read as code.
//!
//! - [`tree`]: which files there are, and what a test says of one of them.
//! - [`rust_text`]: Rust without its comments and literals; its functions and declared names.
//! - [`python_text`]: the same of Python, as far as indentation tells.
//! - [`licence`]: whether a licence expression is allowed.
//!
//! The rules themselves are in `tests/tests/tidy/`. No rule about formatting is here (rustfmt and
//! ruff have those), and none that clippy can state.

pub mod licence;
pub mod python_text;
pub mod rust_text;
pub mod tree;
