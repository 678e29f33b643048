//! The options of `gradwire model`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gradwire_lab::plan::PlanQuestion;

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

  backward us  from the gradient before, or the start of the backward pass, to this one
  ready ms     from the start of the backward pass to this gradient
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

const MODEL_PLAN_EXAMPLES: &str = "\
Examples:
  gradwire model plan vgg16 --devices 8 --memory 4GB --link 25G
  gradwire model plan llama-8b --devices 16 --memory 80GB --out plan.html
  gradwire model plan mine.csv --devices 4 --memory 16G --json

A block is a layer, or all layers of one number, such as transformer.h.0. Its way is
  d  data parallel: weights on every device, gradients summed
  s  sharded: a part of the weights on each device, gathered for each pass (ZeRO-3, FSDP)
  t  tensor parallel: each device computes a part of the block for all samples (Megatron-LM)
  r  behind one of them: keeps the block's input only and computes the rest again
so 2d-11tr-1s is two blocks data parallel, eleven tensor parallel that recompute, one sharded. The
table is the frontier of time and memory: plans that no other beats in both.

Assumptions: every device has the same number of samples, whose computing takes the times of `model
show`, tensor parallel too. Parts of a step follow one another: exchanges overlap with nothing. An
update takes no time. The model is a chain. Memory is 16 bytes a parameter (weight, gradient, two
moments of Adam), activations of 4 bytes, and the largest need of a block while it runs; buffers of
libraries and fragmentation come on top. A model from a file has no activations: then there is no t
and no r. docs/plans.md has the formulas.

Exit codes: 0 when a plan fits; 1 when none does, with the memory that the smallest one takes; 2
when the command line or the model is wrong.
JSON: one object on one line; times in microseconds, memory in bytes on a device.";

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
    /// Plan a step on several devices: the fastest ways to run its blocks that fit their memory.
    #[command(after_help = MODEL_PLAN_EXAMPLES)]
    Plan(ModelPlan),
}

/// Options of `gradwire model plan`.
#[derive(Args, Clone, Debug)]
pub struct ModelPlan {
    /// What to plan.
    #[command(flatten)]
    pub question: PlanQuestion,
    /// Also write a page with a picture of the frontier.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
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
