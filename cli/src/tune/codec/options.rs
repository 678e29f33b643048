//! The options of `gradwire tune codec`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::Args;

use gradwire_lab::tune::codec::CodecQuestion;
use gradwire_tuning::tolerance::judge::Margin;

use crate::tune::loss::options::margin;

/// Shown below the options.
pub const CODEC_EXAMPLES: &str = "\
Examples:
  gradwire tune codec --model vgg19 --servers 4 --bandwidth 10G
  gradwire tune codec --model resnet50 --servers 8 --bandwidth 100G --write job.toml
  gradwire tune codec --model vgg19 --servers 4 --published
  gradwire tune codec --metric accuracy -- torchrun --nproc-per-node 2 train.py --seed {seed}

Each codec is timed on one core of this host. For each tensor the plan compares the time on the
wire with the time to encode, send the shorter message and decode, for 1 to N parts, as HiPress
(SOSP'21) does. It says \"none\" where no tensor gains. Times are those of the gradients alone, one
tensor after the other. How well a training learns with a codec is not part of the plan: --metric
finds that by short trainings, and takes the first codec that the metric bears.

JSON: one object, {model, servers, bandwidth_gbps, codecs: [{codec, plain_ms, all_encoded_ms,
planned_ms, encoded, min_elements, tensors: [{name, elements, is_encoded, parts, plain_ms,
encoded_ms}]}], best}. With --metric one array, [{codec, is_accepted, trials, worse_by, at_most}],
in the order of the trials.";

/// Options of `gradwire tune codec`.
#[derive(Args, Clone, Debug)]
pub struct TuneCodecOptions {
    /// The plan.
    #[command(flatten)]
    pub question: CodecQuestion,
    /// Try codecs with a training script, the shortest encodings first, and find the first that
    /// this metric bears; the script prints the metric as for `gradwire tune loss`.
    #[arg(long, requires = "command", value_name = "NAME")]
    pub metric: Option<String>,
    /// Lower values of the metric are better: a loss, an error, a perplexity.
    #[arg(long)]
    pub lower_is_better: bool,
    /// How much worse the metric may become: a share of it (0.5%), or in its own unit (0.005).
    #[arg(long, default_value = "0.5%", value_parser = margin, value_name = "MARGIN")]
    pub margin: Margin,
    /// Minimum trials of each codec, each with a seed of its own.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=100),
          value_name = "COUNT")]
    pub seeds: u8,
    /// Trials after which a codec that is still in doubt is rejected.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=100),
          value_name = "COUNT")]
    pub max_seeds: u8,
    /// Folder of the trials' output.
    #[arg(long, default_value = "gradwire-tune", value_name = "FOLDER")]
    pub out: PathBuf,
    /// The command line of the training script.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the keys into this job file; everything else in it stays as it is.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Print one object of JSON.
    #[arg(long)]
    pub json: bool,
}
