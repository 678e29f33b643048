//! The C ABI under the PyTorch backend: `python/include/gradwire.h`, function by function.
//!
//! Start here:
//! - [`abi`]: the entry points. Each catches panics and refuses null and invalid arguments.
//! - `layout`: the structures of the header, field by field.
//! - [`residuals`]: one more entry point, for checkpoints; [`tuning`]: two, for the first steps.
//! - `operation`: from a C operation to one of `gradwire-collectives`.
//!
//! What is not here: what the operations do (`gradwire-collectives`, `gradwire-runtime`), and the
//! binding that calls this (`python/gradwire/csrc`).

pub mod abi;
pub mod layout;
mod operation;
pub mod residuals;
mod text;
pub mod tuning;
