//! One training step from a list of layers: text workloads of SimAI / AICB and ASTRA-sim 1.0.
//!
//! Format, as read by `Workload::initialize_workload` of SimAI (`astra-sim/workload/Workload.cc`):
//! a line with the strategy and its keys, a line with the number of layers, and a line per layer:
//!
//! ```text
//! HYBRID_TRANSFORMER model_parallel_NPU_group: 2
//! 1
//! name  -1  500 ALLREDUCE 4096  400 ALLREDUCE 4096  300 ALLREDUCE 65536  10
//! ```
//!
//! that is a name, a dependency (not used), and for the forward pass, the input gradient and the
//! weight gradient each the compute time in nanoseconds (cycles of 1 GHz in ASTRA-sim 1.0), the
//! collective and its bytes; at last the time that a layer needs behind each collective. Bytes are
//! those of the whole tensor, as SimAI takes them (`MockNcclGroup.cc`). ASTRA-sim takes those of an
//! `ALLGATHER` for one rank's part; only the author of a file knows which one was meant.
//!
//! Order of a step, as in the `iterate_...` functions there: the layers forward, each collective
//! blocking; then backward, where the collective of a weight gradient never blocks. The
//! collective of an input gradient blocks the weight gradient of its layer for transformers and
//! the layer before for other hybrids. `DATA` and `HYBRID_DLRM` compute the weight gradient
//! first. A layer of `checkpoint_initiates` runs forward again from the checkpoint before it.
//! In `HYBRID_DLRM` the all-to-all of the first layer blocks the layer behind
//! `DLRM_LAST_BOTTOM_LAYER` only.
//!
//! Groups (`groups`): with `DATA`, `HYBRID_DLRM` and `MICRO` all ranks share weight
//! gradients only; with `MODEL` and `DISTRIBUTED_INFERENCE` all share everything but
//! these. Otherwise the forward pass and input gradients are shared by a tensor-parallel group and
//! weight gradients by a data-parallel group; a collective that ends in `_EP` or `_DP_EP` by the
//! expert-parallel group or the ranks that hold the same experts. Every host is a rank. Stages of
//! a pipeline (`pp:`) run side by side without sending to each other, as SimAI lets them.

mod file;
mod groups;
mod model;
mod step;

use crate::model::ForeignError;
use crate::workload::{Program, Workload};

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

impl Workload {
    /// Reads a list of layers and makes one training step on `hosts` ranks of it.
    ///
    /// # Errors
    /// [`LayersError`] names the first faulty line, or the number of hosts that the file needs.
    pub fn from_layers(text: &str, hosts: u32) -> Result<Self, LayersError> {
        let file = file::File::parse(text)?;
        let groups = groups::Groups::new(&file, hosts)?;
        let programs = (0..hosts).map(|host| Program {
            host,
            tasks: step::Step::of(&file, |side| groups.of(host, side)),
        });
        Ok(Self {
            programs: programs.collect(),
            layer_count: file.layers.len() as u16,
            groups: groups.members,
            ..Self::default()
        })
    }
}
