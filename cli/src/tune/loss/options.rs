//! The options of `gradwire tune loss`. Doc comments on options are the help text.

use std::path::PathBuf;

use clap::Args;
use gradwire_lab::tune::loss::evidence::LossQuestion;
use gradwire_protocol::job::notation;
use gradwire_protocol::units::Span;
use gradwire_tuning::tolerance::judge::{Better, Margin};

use gradwire_lab::values::span;

/// Help behind the options.
pub const LOSS_EXAMPLES: &str = "\
Examples:
  gradwire tune loss -- torchrun --nproc-per-node 2 train.py --epochs 3 --seed {seed}
  gradwire tune loss --metric loss --lower-is-better --margin 0.02 -- torchrun train.py
  gradwire tune loss --groups 2 --trials 60 --job job.toml -- torchrun train.py
  gradwire tune loss --check 10% -- torchrun train.py
  gradwire tune loss --path-loss 0.1% -- torchrun train.py

The script runs as it is, with GRADWIRE_JOB naming a job that drops packets on purpose, and prints
the metric at its end: a line {\"accuracy\": 0.97}, accuracy=0.97, accuracy: 0.97 or accuracy 0.97;
the last one counts. {seed} in the command, and GRADWIRE_TRIAL_SEED, tell it the seed of a trial.

Trials with odd seeds lose packets independently of each other, those with even seeds in bursts of
8. Each is compared with the lossless trial of its seed. A tolerance is accepted when the mean
difference is below the margin with the confidence (Student's t; looking after each trial is
accounted for), rejected when it is above, or when its last trial still leaves it in doubt. Six more
trials show whether the found tolerance gains time; if it does not, 0% is written.

A search that was ended continues when the same command is given again: finished trials are lines of
journal.jsonl in --out, beside the page report.html.

Exit codes: 1 when --check rejects, or the trials ran out before any tolerance was accepted; 2 when
the script prints no metric, or is not one that can lose anything; 4 when it fails, or a lossless
trial takes longer than --timeout.";

/// Options of `gradwire tune loss`.
#[derive(Args, Clone, Debug)]
pub struct TuneLossOptions {
    /// The command line of the training script, as without this command.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Name of the metric that the script prints.
    #[arg(long, default_value = "accuracy", value_name = "NAME")]
    pub metric: String,
    /// Lower values of the metric are better: a loss, an error, a perplexity.
    #[arg(long)]
    pub lower_is_better: bool,
    /// How much worse the metric may become: a share of it (0.5%), or in its own unit (0.005).
    #[arg(
        long,
        default_value = "0.5%",
        value_parser = margin,
        allow_hyphen_values = true,
        value_name = "MARGIN"
    )]
    pub margin: Margin,
    /// Confidence: of the tolerances that cost exactly the margin, at most one minus this share is
    /// accepted.
    #[arg(
        long,
        default_value = "90%",
        value_parser = confidence,
        value_name = "SHARE"
    )]
    pub confidence: f64,
    /// Test only this tolerance, and exit with 1 if it is rejected; the job file is not changed.
    #[arg(
        long,
        value_parser = tolerance,
        conflicts_with_all = ["groups", "phases"],
        value_name = "SHARE"
    )]
    pub check: Option<f64>,
    /// Also search a tolerance for each of this many groups of layers, the front first.
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=8),
        value_name = "COUNT"
    )]
    pub groups: u8,
    /// Also search a tolerance for calm steps; steps after a change of the gradients keep the one
    /// found before.
    #[arg(long)]
    pub phases: bool,
    /// Minimum trials of a tolerance, each with a seed of its own.
    #[arg(
        long,
        default_value_t = 3,
        value_parser = clap::value_parser!(u8).range(2..=100),
        value_name = "COUNT"
    )]
    pub seeds: u8,
    /// Trials after which a tolerance that is still in doubt is rejected.
    #[arg(
        long,
        default_value_t = 6,
        value_parser = clap::value_parser!(u8).range(2..=100),
        value_name = "COUNT"
    )]
    pub max_seeds: u8,
    /// Maximum trials of the whole search, including those without loss.
    #[arg(
        long,
        default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(3..=100_000),
        value_name = "COUNT"
    )]
    pub trials: u32,
    /// Share of all packets that the network loses: six more trials at this loss, three without the
    /// found tolerance and three with it, show whether the tolerance gains time. If it does not, 0%
    /// is written. With 0% there are no such trials.
    #[arg(long, default_value = "1%", value_parser = path_loss, value_name = "SHARE")]
    pub path_loss: f64,
    /// Maximum time of a trial. A lossy trial that takes longer than this, or longer than half a
    /// minute and ten times the trials without loss, counts as worse than any.
    #[arg(long, default_value = "3600s", value_parser = span, value_name = "SPAN")]
    pub timeout: Span,
    /// The job that the script runs with; the result is written into it. By default GRADWIRE_JOB,
    /// else job.toml.
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Folder of the journal, of the trials' output, and of the page.
    #[arg(long, default_value = "gradwire-tune", value_name = "FOLDER")]
    pub out: PathBuf,
    /// Print JSON objects instead of the table: one a trial, and a last one with the result.
    #[arg(long)]
    pub json: bool,
}

impl TuneLossOptions {
    /// The question for the search.
    pub fn question(&self) -> LossQuestion {
        LossQuestion {
            command: self.command.clone(),
            metric: self.metric.clone(),
            better: self.better(),
            margin: self.margin,
            confidence: self.confidence,
            check: self.check,
        }
    }

    /// Which values of the metric are better.
    pub fn better(&self) -> Better {
        match self.lower_is_better {
            true => Better::Lower,
            false => Better::Higher,
        }
    }
}

/// Reads a margin as it is typed.
///
/// # Errors
/// The forms that are allowed.
pub fn margin(text: &str) -> Result<Margin, String> {
    let (number, make): (_, fn(f64) -> Margin) = match text.strip_suffix('%') {
        Some(percent) => (percent, |percent| Margin::Relative(percent / 100.0)),
        None => (text, Margin::Absolute),
    };
    let value = number.trim().parse::<f64>().ok();
    let value = value.filter(|value| value.is_finite() && *value > 0.0);
    value
        .map(make)
        .ok_or_else(|| "a number above 0 is needed, as 0.5% or 0.005".to_owned())
}

fn confidence(text: &str) -> Result<f64, String> {
    let share = notation::share(text).map(|share| share.get());
    let share = share.filter(|share| (0.6..=0.999).contains(share));
    share.ok_or_else(|| "a share from 60% to 99.9% is needed".to_owned())
}

fn path_loss(text: &str) -> Result<f64, String> {
    let share = notation::share(text).map(|share| share.get());
    let share = share.filter(|share| *share <= 0.5);
    share.ok_or_else(|| "a share from 0% to 50% is needed".to_owned())
}

fn tolerance(text: &str) -> Result<f64, String> {
    let share = notation::share(text).map(|share| share.get());
    let share = share.filter(|share| (0.0001..=0.9).contains(share));
    share.ok_or_else(|| "a share from 0.01% to 90% is needed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_share_or_a_number() {
        assert_eq!(margin("0.5%"), Ok(Margin::Relative(0.005)));
        assert_eq!(margin("0.02"), Ok(Margin::Absolute(0.02)));
        for wrong in ["", "%", "0", "-1%", "inf", "NaN%", "1 percent"] {
            assert!(margin(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_out_of_range_are_refused() {
        assert!(confidence("50%").is_err() && confidence("100%").is_err());
        assert_eq!(confidence("0.9"), Ok(0.9));
        assert!(path_loss("60%").is_err());
        assert_eq!(path_loss("0.1%"), Ok(0.001));
        assert!(tolerance("0").is_err() && tolerance("100%").is_err());
        assert_eq!(tolerance("60%"), Ok(0.6));
    }
}
