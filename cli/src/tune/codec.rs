//! `gradwire tune codec`: the codec that a model gains from on this host and a network.

pub mod options;

use std::time::Duration;

use gradwire_lab::job_file::document;
use gradwire_lab::tune::codec;
use gradwire_lab::tune::codec::trials::CodecTrials;
use gradwire_lab::tune::loss::trial::TrialBench;
use gradwire_protocol::job::CodecName;
use gradwire_protocol::units::ByteCount;
use gradwire_report::printing::OutputForm;
use gradwire_tuning::tolerance::judge::{Better, MetricGoal, TrialLooks};

use crate::exit::CommandError;
use crate::tune::loss::base;
use options::TuneCodecOptions;

/// Of the codecs that cost exactly the margin, at most one minus this share is accepted.
const CONFIDENCE: f64 = 0.9;
/// The timeout of a trial.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Plans, prints the plan, and writes its keys where that is asked for.
///
/// # Errors
/// [`CommandError`] when there is no such model, or a file cannot be written.
pub fn run(options: &TuneCodecOptions) -> Result<(), CommandError> {
    if let Some(path) = &options.write {
        // A job file that cannot be written is reported before the measurements.
        document::read(path)?;
    }
    if let Some(metric) = &options.metric {
        return try_script(options, metric);
    }
    let report = codec::run(&options.question)?;
    let form = OutputForm::from(options.json);
    form.print(|| report.text(), || &report);
    if let Some(path) = &options.write {
        report.write(path)?;
        form.remark(format_args!("# written to {}", path.display()));
    }
    Ok(())
}

/// Finds the strongest codec that a script's metric bears.
fn try_script(options: &TuneCodecOptions, metric: &str) -> Result<(), CommandError> {
    let (least, most) = (usize::from(options.seeds), usize::from(options.max_seeds));
    if least > most {
        return Err(CommandError::Usage(format!(
            "--seeds {least} is more than --max-seeds {most}: give as many or fewer"
        )));
    }
    let path = options.write.clone().unwrap_or_else(|| "job.toml".into());
    let mut job = base(&path)?;
    // Buckets of a small script are encoded, too.
    job.collectives.codec_min = ByteCount::new(0);
    job.collectives.codec_share = options.question.share;
    let trials = CodecTrials {
        bench: TrialBench {
            job,
            command: options.command.clone(),
            metric: metric.to_owned(),
            timeout: TRIAL_TIMEOUT,
            folder: options.out.join("codecs"),
        },
        goal: MetricGoal {
            better: match options.lower_is_better {
                true => Better::Lower,
                false => Better::Higher,
            },
            margin: options.margin,
        },
        looks: TrialLooks::new(least..=most, CONFIDENCE),
    };
    let form = OutputForm::from(options.json);
    let verdicts = trials.run(|verdict| form.remark(format_args!("# {verdict}")))?;
    let accepted = verdicts.iter().find(|verdict| verdict.is_accepted);
    let found = accepted.map_or("none", |verdict| verdict.codec);
    form.print(
        || format!("\n[collectives]\ncodec = \"{found}\"\n"),
        || &verdicts,
    );
    if let Some(path) = &options.write {
        let mut document = document::read(path)?;
        let collectives = document::table(&mut document, "collectives");
        document::put(collectives, "codec", found.into());
        if found == <&str>::from(CodecName::Topk) {
            let share = options.question.share.to_string();
            document::put(collectives, "codec_share", share.into());
        }
        document::save(path, &document)?;
    }
    Ok(())
}
