//! Elements of tensors: their types, the loops over them, and what stands in for those that were
//! lost. Nothing here knows ranks, messages or operations.

pub mod dtype;
pub mod hadamard;
pub mod holes;
pub mod kernels;
pub mod magnitude;
