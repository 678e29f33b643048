//! The C ABI under the PyTorch backend: `python/include/gradwire.h`, function by function. And the
//! net plugin of NCCL.
//!
//! Start here:
//! - [`abi`]: the entry points. Each catches panics and refuses null and invalid arguments.
//! - `layout`: the structures of the header, field by field.
//! - [`residuals`]: one more entry point, for checkpoints; [`tuning`]: two, for the first steps.
//! - [`redundancy`]: the code of parameter servers, which needs no rank.
//! - [`nccl`]: the plugin by which NCCL sends, beside that interface.
//! - [`lines`]: one for the lines of the log; `termination`: the recorders at SIGTERM.
//! - `lent`: the memory of tensors while an operation has it.
//! - `operation`: turns a C operation into one of `gradwire-collectives`.
//!
//! Not here: the operations themselves (`gradwire-collectives`, `gradwire-runtime`), and the
//! binding that calls this library (`python/gradwire/csrc`).

pub mod abi;
pub mod layout;
mod lent;
pub mod lines;
pub mod nccl;
mod operation;
pub mod redundancy;
pub mod residuals;
mod termination;
mod text;
pub mod tuning;
