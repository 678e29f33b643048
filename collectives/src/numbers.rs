//! Elements of tensors: their types, the loops over them, and the values that stand in for lost
//! ones. This room does not know ranks, messages or operations.

pub mod codec;
pub mod dtype;
pub mod fixed_point;
pub mod hadamard;
pub mod holes;
pub mod kernels;
pub mod magnitude;
