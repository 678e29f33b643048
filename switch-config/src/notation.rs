//! The notations of configurations: how a text is read into a tree, and a tree or a change written.

pub mod indented;
pub mod json;
pub mod set_lines;
pub(crate) mod words;
pub mod yaml;
