//! `gradwire tune loss`: runs a training script again and again under losses, until the tolerance
//! that its metric bears is known.
//!
//! Start here:
//! - [`run`]: asks `gradwire_tuning` for the next trial, runs it, keeps it, and tells the result.
//! - [`told`]: the output on the terminal.
//!
//! Not here: trials, their journal, and the evidence of the result (`gradwire_lab::tune::loss`).

pub mod options;
pub mod told;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gradwire_lab::error::LabError;
use gradwire_lab::job_file::{self, document};
use gradwire_lab::output::WholeFile;
use gradwire_lab::tune::loss::evidence::{self, SearchEvidence, TimedTolerance};
use gradwire_lab::tune::loss::journal::{Heading, Journal, TrialPurpose, TrialRecord};
use gradwire_lab::tune::loss::trial::{TrialBench, TrialRequest};
use gradwire_lab::tune::loss::{evidence::of, page};
use gradwire_protocol::job::{Job, Mtu, WireChoice};
use gradwire_protocol::units::Share;
use gradwire_tuning::tolerance::gain::TimeGain;
use gradwire_tuning::tolerance::judge::{MetricGoal, ToleranceVerdict, TrialLooks};
use gradwire_tuning::tolerance::search::{
    PhaseTolerance, SearchStep, SearchSubject, ToleranceFinding, ToleranceSearch,
};
use gradwire_tuning::tolerance::{ToleranceSetting, ToleranceTrial};

use crate::environment::Environment;
use crate::exit::CommandError;
use options::TuneLossOptions;
use told::Teller;

/// Runs the search and prints the result.
///
/// # Errors
/// [`CommandError`] when options make no sense, when the script fails or cannot be tuned, and when
/// a tolerance that was to be checked is rejected.
pub fn run(options: &TuneLossOptions) -> Result<(), CommandError> {
    let search = search_of(options)?;
    let path = job_path(options);
    let document = document::read(&path)?;
    let job = base(&path)?;
    let heading = Heading::new(&options.command, &options.metric, job.to_toml());
    let mut journal = Journal::open(&options.out, &heading)?;
    let bench = TrialBench {
        job,
        command: options.command.clone(),
        metric: options.metric.clone(),
        timeout: Duration::from_nanos(options.timeout.as_picos() / 1_000),
        folder: options.out.join("trials"),
    };
    let teller = Teller::new(options, &journal);
    let finding = find(&search, &bench, (&mut journal, &teller))?;
    let timed = match options.check.is_some() || finding.found.is_lossless() {
        true => None,
        false => time(
            options.path_loss,
            &finding.found,
            &bench,
            (&mut journal, &teller),
        )?,
    };
    let question = options.question();
    let records: Vec<TrialRecord> = journal.of(TrialPurpose::Metric).cloned().collect();
    let evidence = SearchEvidence {
        question: &question,
        finding: &finding,
        records: &records,
        timed: timed.as_ref(),
    };
    WholeFile::create(&options.out.join("report.html"))?.keep(page::page(&evidence).as_bytes())?;
    if options.check.is_some() {
        teller.found(&evidence, None);
        return Ok(checked(&evidence)?);
    }
    if finding.found.is_lossless() && !finding.is_complete {
        teller.found(&evidence, None);
        let message = format!(
            "{} trials ended before any tolerance was accepted: give more with --trials, or a \
             wider --margin; finished trials are kept",
            records.len()
        );
        return Err(LabError::Check(message).into());
    }
    evidence::write(&path, document, &evidence)?;
    teller.found(&evidence, Some(&path));
    Ok(())
}

fn search_of(options: &TuneLossOptions) -> Result<ToleranceSearch, CommandError> {
    let (least, most) = (usize::from(options.seeds), usize::from(options.max_seeds));
    if least > most {
        return Err(CommandError::Usage(format!(
            "--seeds {least} is more than --max-seeds {most}: give as many or fewer"
        )));
    }
    let subject = match options.check {
        Some(share) => SearchSubject::Check(share),
        None => SearchSubject::Largest {
            groups: usize::from(options.groups),
            phases: match options.phases {
                true => PhaseTolerance::Tightened,
                false => PhaseTolerance::Alike,
            },
        },
    };
    Ok(ToleranceSearch {
        goal: MetricGoal {
            better: options.better(),
            margin: options.margin,
        },
        subject,
        looks: TrialLooks::new(least..=most, options.confidence),
        budget: options.trials as usize,
    })
}

/// The file of the job, which need not be there.
fn job_path(options: &TuneLossOptions) -> PathBuf {
    let given = options.job.clone().or_else(|| Environment::read().job);
    given.unwrap_or_else(|| PathBuf::from("job.toml"))
}

/// The largest packet of trials whose job leaves it open: as on most networks between hosts. Larger
/// ones, or memory of one host, would leave a message with too few packets to lose one of.
const PACKET: u32 = 1_500;

/// The job in a file, if there is one, without the keys that a trial sets.
///
/// # Errors
/// [`CommandError`] when the file is no job.
pub fn base(path: &Path) -> Result<Job, CommandError> {
    let mut job = match path.exists() {
        true => job_file::read(path)?,
        false => Job::default(),
    };
    let default = Job::default();
    job.tolerance = Share::NONE;
    job.loss.layer_tolerances = default.loss.layer_tolerances;
    job.loss.tight_tolerance = default.loss.tight_tolerance;
    job.faults.drop = default.faults.drop;
    job.faults.drop_from = default.faults.drop_from;
    job.faults.burst = default.faults.burst;
    job.faults.seed = default.faults.seed;
    if job.transport.mtu == Mtu::Auto {
        job.transport.mtu = Mtu::Bytes(PACKET);
    }
    if job.transport.wire == WireChoice::Auto {
        job.transport.wire = WireChoice::Udp;
    }
    Ok(job)
}

fn find(
    search: &ToleranceSearch,
    bench: &TrialBench,
    (journal, teller): (&mut Journal, &Teller<'_>),
) -> Result<ToleranceFinding, CommandError> {
    loop {
        let done = journal.of(TrialPurpose::Metric);
        let done: Vec<ToleranceTrial> = done.map(|one| one.trial.clone()).collect();
        match search.next(&done) {
            SearchStep::Done(finding) => {
                teller.end();
                return Ok(finding);
            }
            SearchStep::Try {
                setting,
                seed,
                remaining,
            } => {
                let request = TrialRequest::of_metric(&setting, seed);
                run_trial(&request, remaining, bench, (journal, teller))?;
            }
        }
    }
}

/// Runs one trial; about this many are still to come, this one with them.
fn run_trial(
    request: &TrialRequest<'_>,
    remaining: usize,
    bench: &TrialBench,
    (journal, teller): (&mut Journal, &Teller<'_>),
) -> Result<(), CommandError> {
    let done = journal.records();
    teller.begin((request.setting, request.seed), remaining, done);
    let name = name_of(done.len() + 1, request.setting, request.seed);
    let record = bench
        .run(request, &name, bench.patience(done))
        .inspect_err(|_| teller.end())?;
    teller.done(&record);
    Ok(journal.add(record)?)
}

/// Pairs of trials from which the gained time is computed.
const TIMED_PAIRS: u64 = 3;

/// Measures the time that a tolerance gains where a path loses this share of all packets, in pairs
/// of trials, without the tolerance and with it; `None` where the path loses no packets.
fn time(
    path_loss: f64,
    found: &ToleranceSetting,
    bench: &TrialBench,
    (journal, teller): (&mut Journal, &Teller<'_>),
) -> Result<Option<TimedTolerance>, CommandError> {
    if path_loss == 0.0 {
        return Ok(None);
    }
    let lossless = ToleranceSetting::lossless();
    let requests: Vec<TrialRequest<'_>> = (1..=TIMED_PAIRS)
        .flat_map(|seed| [&lossless, found].map(|of| TrialRequest::of_time(of, seed, path_loss)))
        .collect();
    let mut times = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let told = |journal: &Journal| {
            let mut timed = journal.of(TrialPurpose::Time);
            let done = timed.find(|record| request.is_done_by(record));
            done.map(|record| record.all_reduce_us)
        };
        if told(journal).is_none() {
            run_trial(request, requests.len() - at, bench, (journal, teller))?;
        }
        times.push(told(journal).flatten());
    }
    teller.end();
    let pairs = times
        .chunks_exact(2)
        .filter_map(|pair| pair[0].zip(pair[1]));
    Ok(Some(TimedTolerance {
        path_loss,
        gain: TimeGain::of(pairs),
    }))
}

/// The folder of a trial.
fn name_of(number: usize, setting: &ToleranceSetting, seed: u64) -> String {
    format!(
        "{number:03}-{}-seed{seed}",
        of(setting).replace([' ', ','], "")
    )
}

fn checked(evidence: &SearchEvidence<'_>) -> Result<(), LabError> {
    let Some(cell) = evidence.finding.cells.first() else {
        return Err(LabError::Check(
            "the trials ended before the tolerance was judged: give more with --trials".to_owned(),
        ));
    };
    match cell.judgement.verdict {
        ToleranceVerdict::Accepted => Ok(()),
        _ => Err(LabError::Check(evidence.sentence(cell))),
    }
}
