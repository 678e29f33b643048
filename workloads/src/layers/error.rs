//! Errors of lists of layers.

use crate::model::ForeignError;

/// Errors of a list of layers.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LayersError {
    /// The first line names no known strategy.
    #[error("line {line}: `{given}`{nearest} is no strategy; known are {allowed}")]
    Strategy {
        /// Number of the line.
        line: usize,
        /// The text there.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
        /// All strategies.
        allowed: String,
    },
    /// The key is unknown.
    #[error("line {line}: unknown key `{given}`{nearest}; known keys are {allowed}")]
    Key {
        /// Number of the line.
        line: usize,
        /// The key.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
        /// All keys.
        allowed: String,
    },
    /// The strategy needs a key that is missing.
    #[error("line 1: this strategy needs `{key}: N` behind it, how many ranks a group has")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value is missing or cannot be read.
    #[error("line {line}: {key} `{given}`: allowed is {allowed}")]
    Value {
        /// Number of the line.
        line: usize,
        /// The key of the value.
        key: &'static str,
        /// The value; empty when it is missing.
        given: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A layer has too few or too many columns.
    #[error("line {line}: {found} columns; a layer has {needed}: {names}")]
    Columns {
        /// Number of the line.
        line: usize,
        /// Their number.
        found: usize,
        /// The needed number.
        needed: usize,
        /// Their names.
        names: &'static str,
    },
    /// The collective is unknown.
    #[error("line {line}: `{given}`{nearest} is no collective; known are {allowed}")]
    Collective {
        /// Number of the line.
        line: usize,
        /// The word.
        given: String,
        /// A suggestion, or an empty text.
        nearest: String,
        /// All collectives.
        allowed: String,
    },
    /// The file has more or fewer layers than it announces.
    #[error("line {line} says {said} layers, the file has {found}: correct the one or the other")]
    Count {
        /// Number of the line.
        line: usize,
        /// The announced number.
        said: usize,
        /// Their number.
        found: usize,
    },
    /// A key names no layer, or a layer restarts without a checkpoint before it.
    #[error("line 1: layer {layer} of `{key}`: {rule}")]
    NamedLayer {
        /// The layer, from 0.
        layer: usize,
        /// `checkpoints`, `checkpoint_initiates` or `DLRM_LAST_BOTTOM_LAYER`.
        key: &'static str,
        /// The broken rule.
        rule: &'static str,
    },
    /// The layers make no model.
    #[error(transparent)]
    Model(#[from] ForeignError),
    /// The hosts cannot be divided as the file says.
    #[error("{hosts} hosts cannot run it: {rule}")]
    Hosts {
        /// Their number.
        hosts: u32,
        /// The broken rule.
        rule: String,
    },
}
