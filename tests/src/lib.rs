//! The text of the repository's files, read as code, for the tests of the whole workspace.
//!
//! - [`tree`]: the files of the repository, and findings at their lines.
//! - [`rooms`]: which files of a package use which others, and circles among them.
//! - [`rust_text`]: Rust without its comments and literals; its functions and declared names.
//! - [`python_text`]: functions and declared names of Python, by indentation.
//! - [`licence`]: whether a licence expression is allowed.
//!
//! The rules themselves are in `tests/tests/tidy/`. rustfmt and ruff check formatting; rules that
//! clippy can state are left to clippy.

pub mod licence;
pub mod python_text;
pub mod rooms;
pub mod rust_text;
pub mod tree;
