//! The options of `gradwire model`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};

const MODEL_LIST_EXAMPLES: &str = "\
Examples:
  gradwire model list
  gradwire model list --json

Sizes are generated from the architectures, 4 bytes a parameter. Measured times are those of a
V100, published with Espresso (EuroSys'23); a forward pass takes 0.523 of its backward pass.
Any other model: `gradwire model show FILE` and `gradwire model record SCRIPT`.";

const MODEL_SHOW_EXAMPLES: &str = "\
Examples:
  gradwire model show vgg16
  gradwire model show bert-base --all
  gradwire model show mine.csv --json
  gradwire model show Resnet50_DataParallel.txt
  gradwire model show chakra.0.et

A file NAME.txt is a list of layers of SimAI, AICB or ASTRA-sim 1.0; NAME.et or NAME.json a Chakra
execution trace of one rank and one step. Lines that begin with # tell which parts of a model such
a file lacks, and which of its parts are left out.

A table of your own, NAME.csv, has a first line `layer,parameters,forward_ns,backward_ns` and a line
per layer, in the order of the forward pass. With a column `tensor`, rows behind each other that
name one layer are its tensors. Lines that begin with # are left out.

  backward us  from the gradient before, or the begin of the backward pass, to this one
  ready ms     from the begin of the backward pass to this gradient
  forward us   of the layer, beside its last gradient";

const MODEL_RECORD_EXAMPLES: &str = "\
Examples:
  gradwire model record train.py --epochs 1
  gradwire model record --steps 50 --out mine.csv examples/train_mnist.py --backend gloo
  torchrun --nproc-per-node 2 -m gradwire.record --out mine.csv train.py

Options of the command stand before the script. The script runs unchanged, as the only process of a
launch, until --steps backward passes have made gradients. A layer is a module with parameters; its
forward time runs from the end of the layer before it. Times are medians, of the
CPU's clock, or of CUDA events where the model is on a GPU.

Exit codes: 0 when the table was written; 1 when the script trained no model, failed, or ended too
early; 2 when there is no such script; 5 when there is no Python with gradwire and PyTorch.";

/// The commands for models.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the models that are known by name.
    #[command(after_help = MODEL_LIST_EXAMPLES)]
    List(ModelList),
    /// Show the gradients of a model: their sizes, and when the backward pass makes them.
    #[command(after_help = MODEL_SHOW_EXAMPLES)]
    Show(ModelShow),
    /// Run a PyTorch script unchanged, and write the cost of its layers as a table.
    #[command(after_help = MODEL_RECORD_EXAMPLES)]
    Record(ModelRecord),
}

/// Options of `gradwire model list`.
#[derive(Args, Clone, Debug)]
pub struct ModelList {
    /// Print one JSON array instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire model show`.
#[derive(Args, Clone, Debug)]
pub struct ModelShow {
    /// A model that `model list` names, or a file: NAME.csv, NAME.txt, NAME.et or NAME.json.
    #[arg(value_name = "MODEL")]
    pub model: String,
    /// Print every gradient, not just those at both ends.
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Options of `gradwire model record`.
#[derive(Args, Clone, Debug)]
pub struct ModelRecord {
    /// How many steps to record; the first two do not count. The script ends after them.
    #[arg(long, default_value_t = 20, value_name = "COUNT",
          value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub steps: u32,
    /// The table to write.
    #[arg(long, default_value = "recorded.csv", value_name = "FILE")]
    pub out: PathBuf,
    /// Also write the steps as events into this folder, for `gradwire trace replay` and Perfetto.
    #[arg(long, value_name = "FOLDER")]
    pub events: Option<PathBuf>,
    /// Python that has gradwire and PyTorch; else that of VIRTUAL_ENV, else .venv/bin/python, else
    /// python3.
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Print one JSON object instead of the summary.
    #[arg(long)]
    pub json: bool,
    /// The script, and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    pub script: Vec<String>,
}
