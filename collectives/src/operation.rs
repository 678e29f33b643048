//! What callers ask for and get back: an operation, how it is refused, and how it ends.

pub mod buffer;
pub mod call;
mod collective;
mod completion;
pub(crate) mod label;
mod mismatch;
mod refusal;
mod submission;

pub use collective::Collective;
pub use completion::{Completion, OperationError, OperationId, Outcome, Progress, TimedOut};
pub use label::Label;
pub use mismatch::{Lengths, Mismatch};
pub use refusal::SubmitError;
pub use submission::{Group, Layers, Loss, Operation, Splits};
