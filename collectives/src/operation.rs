//! Operations as callers see them: how one is submitted, how it is refused, and how it ends.

pub mod buffer;
pub mod call;
mod collective;
mod completion;
pub(crate) mod label;
mod mismatch;
mod refusal;
mod submission;

pub use collective::Collective;
pub use completion::{
    Completion, OperationError, OperationId, OperationOutcome, OperationProgress, TimedOut,
};
pub use label::OperationLabel;
pub use mismatch::{CallMismatch, MessageLengths};
pub use refusal::SubmitError;
pub use submission::{Group, Layers, LossTerms, Operation, Splits, takes_codec};
