//! One file per algorithm, each headed by its steps and its bytes on the wire; [`selection`]
//! chooses between them.
//!
//! An algorithm is a function that writes the `MessagePlan` of one rank, or gives a formula for it
//! (`operation_plan`). The `engine` runs plans on the bytes of tensors; [`outline`] hands plans
//! without bytes to simulated transports.

mod all_gather;
mod all_to_all;
mod barrier;
mod broadcast;
mod direct;
mod gather;
mod halving_doubling;
mod hierarchical;
mod one_step;
pub(crate) mod operation_plan;
pub mod outline;
mod point_to_point;
mod reduce;
mod ring;
mod scatter;
pub(crate) mod selection;
