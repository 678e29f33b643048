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
//! those of the whole tensor, as SimAI takes them (`MockNcclGroup.cc`); ASTRA-sim takes those of
//! an `ALLGATHER` for one rank's part, which only the author of a file can tell.
//!
//! Order of a step, as in the `iterate_...` functions there: the layers forward, each collective
//! blocking; then backward, where the collective of a weight gradient never blocks. The
//! collective of an input gradient blocks the weight gradient of its layer for transformers and
//! the layer before for other hybrids. `DATA` and `HYBRID_DLRM` compute the weight gradient
//! first. A layer of `checkpoint_initiates` runs forward again from the checkpoint before it.
//! In `HYBRID_DLRM` the all-to-all of the first layer blocks the layer behind
//! `DLRM_LAST_BOTTOM_LAYER` only.
//!
//! Who takes part (`groups`): with `DATA`, `HYBRID_DLRM` and `MICRO` all ranks share weight
//! gradients and nothing else; with `MODEL` and `DISTRIBUTED_INFERENCE` all share everything but
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

/// Why a list of layers is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LayersError {
    /// The first line names no known strategy.
    #[error("line {line}: `{given}`{nearest} is no strategy; known are {allowed}")]
    Strategy {
        /// Number of the line.
        line: usize,
        /// What stands there.
        given: String,
        /// A suggestion, or nothing.
        nearest: String,
        /// All strategies.
        allowed: String,
    },
    /// A key that is not known.
    #[error("line {line}: unknown key `{given}`{nearest}; known keys are {allowed}")]
    Key {
        /// Number of the line.
        line: usize,
        /// The key.
        given: String,
        /// A suggestion, or nothing.
        nearest: String,
        /// All keys.
        allowed: String,
    },
    /// A key that the strategy needs.
    #[error("line 1: this strategy needs `{key}: N` behind it, how many ranks a group has")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A value that is missing or cannot be read.
    #[error("line {line}: {key} `{given}`: allowed is {allowed}")]
    Value {
        /// Number of the line.
        line: usize,
        /// What it is the value of.
        key: &'static str,
        /// The value; empty when it is missing.
        given: String,
        /// What may be written.
        allowed: &'static str,
    },
    /// A layer with too few or too many columns.
    #[error("line {line}: {found} columns; a layer has {needed}: {names}")]
    Columns {
        /// Number of the line.
        line: usize,
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
        /// What they are.
        names: &'static str,
    },
    /// A collective that is not known.
    #[error("line {line}: `{given}`{nearest} is no collective; known are {allowed}")]
    Collective {
        /// Number of the line.
        line: usize,
        /// The word.
        given: String,
        /// A suggestion, or nothing.
        nearest: String,
        /// All collectives.
        allowed: String,
    },
    /// More or fewer layers than announced.
    #[error("line {line} says {said} layers, the file has {found}: correct the one or the other")]
    Count {
        /// Number of the line.
        line: usize,
        /// What it says.
        said: usize,
        /// How many there are.
        found: usize,
    },
    /// A key that names no layer, or a layer that begins again without a checkpoint before it.
    #[error("line 1: layer {layer} of `{key}`: {rule}")]
    NamedLayer {
        /// The layer, from 0.
        layer: usize,
        /// `checkpoints`, `checkpoint_initiates` or `DLRM_LAST_BOTTOM_LAYER`.
        key: &'static str,
        /// What must hold.
        rule: &'static str,
    },
    /// Layers that are no model.
    #[error(transparent)]
    Model(#[from] ForeignError),
    /// Ranks that cannot be divided as the file says.
    #[error("{hosts} hosts cannot run it: {rule}")]
    Hosts {
        /// How many there are.
        hosts: u32,
        /// What must hold.
        rule: String,
    },
}

impl Workload {
    /// Reads a list of layers and makes one training step on `hosts` ranks of it.
    ///
    /// # Errors
    /// [`LayersError`] names the first line that is wrong, or what the hosts must be.
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
