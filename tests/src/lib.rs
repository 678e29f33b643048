//! The text of the repository's files, read as code, for the tests of the whole workspace.
//!
//! - [`tree`]: the files of the repository, and a finding at a line of one.
//! - [`rooms`]: which file of a package takes names from which other, and circles of files.
//! - [`rust_text`]: Rust without its comments and literals; its functions and declared names.
//! - [`python_text`]: the same of Python, as far as indentation tells.
//! - [`licence`]: whether a licence expression is allowed.
//!
//! The rules themselves are in `tests/tests/tidy/`. Formatting belongs to rustfmt and ruff, and
//! rules that clippy can state belong to clippy.

pub mod licence;
pub mod python_text;
pub mod rooms;
pub mod rust_text;
pub mod tree;
