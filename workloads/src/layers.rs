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
//! blocking; then backward, where the collective of a weight gradient never blocks. The collective
//! of an input gradient blocks the weight gradient of its layer for transformers and the layer
//! before for other hybrids. `DATA` and `HYBRID_DLRM` compute the weight gradient first. A layer of
//! `checkpoint_initiates` runs forward again from the checkpoint before it. In `HYBRID_DLRM` the
//! all-to-all of the first layer blocks only the layer after `DLRM_LAST_BOTTOM_LAYER`.
//!
//! LayerGroups (`groups`): with `DATA`, `HYBRID_DLRM` and `MICRO` all ranks share weight
//! gradients only; with `MODEL` and `DISTRIBUTED_INFERENCE` all share everything but
//! these. Otherwise the forward pass and input gradients are shared by a tensor-parallel group and
//! weight gradients by a data-parallel group; a collective that ends in `_EP` or `_DP_EP` by the
//! expert-parallel group or the ranks that hold the same experts. Every host is a rank. Stages of
//! a pipeline (`pp:`) run side by side without sending to each other, as SimAI lets them.

mod file;
mod groups;
mod model;
mod step;

use crate::fault::TextError;
use crate::workload::{Program, Workload};

impl Workload {
    /// Reads a list of layers and makes one training step on `hosts` ranks of it.
    ///
    /// # Errors
    /// [`TextError`] names the first faulty line, or the number of hosts that the file needs.
    pub fn from_layers(text: &str, hosts: u32) -> Result<Self, TextError> {
        let file = file::File::parse(text)?;
        let groups = groups::LayerGroups::new(&file, hosts)?;
        let programs = (0..hosts).map(|host| Program {
            host,
            tasks: step::LayerStep::of(&file, |side| groups.of(host, side)),
        });
        Ok(Self {
            programs: programs.collect(),
            layer_count: file.layers.len() as u16,
            groups: groups.members,
            ..Self::default()
        })
    }
}
