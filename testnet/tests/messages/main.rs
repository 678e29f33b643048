//! The life of messages between endpoints: their ids, their end, their cancelling, and the memory
//! that they leave.

mod cancels;
mod ids;
mod lengths;
mod memory;
mod order;
mod pair;
mod reports;
mod stops;
mod tolerances;
mod trimmed;
