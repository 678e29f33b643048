//! The strongest codec that a training script's own metric bears, by short trials.
//!
//! Codecs are tried from the shortest encodings on. Each trial is compared with the trial without a
//! codec of the same seed, and judged as tolerances are (`gradwire_tuning::tolerance::judge`); the
//! first codec that is accepted is the answer.

use std::fmt;

use gradwire_protocol::job::CodecName;
use gradwire_tuning::tolerance::ToleranceSetting;
use gradwire_tuning::tolerance::judge::{
    MetricGoal, ToleranceJudge, ToleranceJudgement, ToleranceVerdict, TrialLooks,
};
use serde::Serialize;

use super::measured::CODECS;
use crate::error::LabError;
use crate::tune::loss::trial::{TrialBench, TrialRequest};

/// The trials of a script.
#[derive(Debug)]
pub struct CodecTrials {
    /// How a script is run. Its job has no codec.
    pub bench: TrialBench,
    /// The margin of the metric.
    pub goal: MetricGoal,
    /// How many seeds a codec gets.
    pub looks: TrialLooks,
}

/// The judgement of one codec.
#[derive(Clone, Debug, Serialize)]
pub struct CodecVerdict {
    /// The codec.
    pub codec: &'static str,
    /// Whether it costs less than the margin.
    pub is_accepted: bool,
    /// The seeds that were tried.
    pub trials: usize,
    /// By how much the metric was worse in the mean; `None` if it was no number.
    pub worse_by: Option<f64>,
    /// Upper bound of that; `None` after a single trial.
    pub at_most: Option<f64>,
}

impl CodecTrials {
    /// Tries codecs until one is accepted, and tells each verdict as it falls.
    ///
    /// # Errors
    /// [`LabError`] when the script cannot be started, fails, or prints no metric.
    pub fn run(&self, told: impl Fn(&CodecVerdict)) -> Result<Vec<CodecVerdict>, LabError> {
        let mut plain = Vec::new();
        while plain.len() < self.looks.least() {
            plain.push(self.trial(CodecName::None, plain.len() + 1)?);
        }
        let baseline: Vec<f64> = plain.iter().filter_map(|metric| *metric).collect();
        let judge = ToleranceJudge::new(self.goal, &self.looks, &baseline);
        let mut verdicts = Vec::new();
        for codec in CODECS {
            let verdict = self.verdict(codec, &judge, &mut plain)?;
            told(&verdict);
            let is_accepted = verdict.is_accepted;
            verdicts.push(verdict);
            if is_accepted {
                break;
            }
        }
        Ok(verdicts)
    }

    fn verdict(
        &self,
        codec: CodecName,
        judge: &ToleranceJudge<'_>,
        plain: &mut Vec<Option<f64>>,
    ) -> Result<CodecVerdict, LabError> {
        let mut differences = Vec::new();
        loop {
            let seed = differences.len() + 1;
            if plain.len() < seed {
                plain.push(self.trial(CodecName::None, seed)?);
            }
            let with = self.trial(codec, seed)?;
            differences.push(judge.worse_by(with, plain[seed - 1].unwrap_or(f64::NAN)));
            let ToleranceJudgement {
                verdict,
                worse_by,
                at_most,
                ..
            } = judge.judge(&differences);
            if verdict != ToleranceVerdict::Open {
                return Ok(CodecVerdict {
                    codec: codec.into(),
                    is_accepted: verdict == ToleranceVerdict::Accepted,
                    trials: differences.len(),
                    worse_by: Some(worse_by).filter(|worse| worse.is_finite()),
                    at_most,
                });
            }
        }
    }

    /// The metric of one run of the script.
    fn trial(&self, codec: CodecName, seed: usize) -> Result<Option<f64>, LabError> {
        let lossless = ToleranceSetting::lossless();
        let request = TrialRequest::of_metric(&lossless, seed as u64);
        let mut bench = self.bench.clone();
        bench.job.collectives.codec = codec;
        let name = format!("{}-seed{seed}", <&str>::from(codec));
        let record = bench.run(&request, &name, bench.timeout)?;
        Ok(record.trial.metric)
    }
}

/// "onebit: accepted after 3 seeds, 0.0012 worse in the mean, at most 0.0031".
impl fmt::Display for CodecVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_accepted {
            "accepted"
        } else {
            "rejected"
        };
        write!(f, "{}: {word} after {} seeds", self.codec, self.trials)?;
        match self.worse_by {
            Some(worse) => write!(f, ", {worse:.4} worse in the mean")?,
            None => write!(f, ", its metric is no number")?,
        }
        match self.at_most {
            Some(most) => write!(f, ", at most {most:.4}"),
            None => Ok(()),
        }
    }
}
