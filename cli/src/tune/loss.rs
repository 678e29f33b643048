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
use gradwire_lab::tune::loss::evidence::{self, SearchEvidence};
use gradwire_lab::tune::loss::journal::{Heading, Journal};
use gradwire_lab::tune::loss::trial::TrialBench;
use gradwire_lab::tune::loss::{evidence::of, page};
use gradwire_protocol::job::{Job, Mtu, WireChoice};
use gradwire_protocol::units::Share;
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
    let question = options.question();
    let evidence = SearchEvidence {
        question: &question,
        finding: &finding,
        records: journal.records(),
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
            journal.records().len()
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
fn base(path: &Path) -> Result<Job, CommandError> {
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
        let done: Vec<ToleranceTrial> = journal
            .records()
            .iter()
            .map(|one| one.trial.clone())
            .collect();
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
                teller.begin((&setting, seed), remaining, journal.records());
                let name = name_of(journal.records().len() + 1, &setting, seed);
                let patience = bench.patience(journal.records());
                let record = bench
                    .run((&setting, seed), &name, patience)
                    .inspect_err(|_| teller.end())?;
                teller.done(&record);
                journal.add(record)?;
            }
        }
    }
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
