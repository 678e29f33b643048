//! Errors of execution traces.

use crate::model::ForeignError;

/// Errors of execution traces.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ChakraError {
    /// There is no trace, or there are more traces than ranks can be numbered.
    #[error("{0} traces: give one for every rank, at least one")]
    Ranks(usize),
    /// The bytes are no trace.
    #[error("rank {rank}, byte {byte}: {what}; a trace is a protocol buffer of Chakra (`.et`)")]
    Bytes {
        /// The rank.
        rank: u32,
        /// Offset of the message.
        byte: usize,
        /// The fault, from the reader.
        what: String,
    },
    /// The text is no trace.
    #[error("rank {rank}: {what}")]
    Json {
        /// The rank.
        rank: u32,
        /// The fault, with its line.
        what: String,
    },
    /// The trace has no model.
    #[error(transparent)]
    Model(#[from] ForeignError),
    /// The simulator cannot run this operation.
    #[error("rank {rank}, operation {id} (`{name}`): {what}")]
    Operation {
        /// The rank.
        rank: u32,
        /// Its id.
        id: u64,
        /// Its name.
        name: String,
        /// The fault, and the allowed values.
        what: String,
    },
    /// The process groups are no JSON list of groups.
    #[error("rank {rank}: process groups: {what}")]
    Groups {
        /// The rank.
        rank: u32,
        /// The fault.
        what: String,
    },
}
