//! `gradwire perf all-reduce` and its like: one collective over a range of sizes, with other
//! libraries in turn.

use gradwire_protocol::job::Job;
use gradwire_protocol::job::notation::show_share;

use super::ground::{job_on, passed, progress_bar, refuse_spinning, security, sizes};
use super::options::{CollectiveOptions, RivalOptions};
use super::table::{Backend, PerfSubject, PerfTable, SizeRow};
use crate::exit::CommandError;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::launcher::Crew;
use gradwire_lab::crew::messages::{Measured, Round};
use gradwire_lab::crew::place::CrewPlace;
use gradwire_lab::crew::rival::{self, Rival};
use gradwire_lab::crew::rounds::{ROUND_PATIENCE, RoundsPlan};
use gradwire_lab::crew::verdict;
use gradwire_lab::error::LabError;

/// Measures one collective.
///
/// # Errors
/// [`CommandError`] when options make no sense, ranks fail, or a result is wrong.
pub fn run(kind: PerfCollective, options: &CollectiveOptions) -> Result<(), CommandError> {
    let (ground, comparison) = (&options.ground, &options.comparison);
    let job = job_on(ground)?;
    let sizes = sizes(kind, options.ranks, &options.sizes)?;
    if !comparison.against.is_empty() {
        refuse_spinning(&job)?;
    }
    let place = ground.place(options.ranks)?;
    let mut field = Field::new((kind, options.ranks), &job, (comparison, &place))?;
    let subject = PerfSubject {
        kind,
        ranks: options.ranks,
        rounds: comparison.rounds(),
        network: place.network(),
        backends: field.backends(&job),
        remarks: field.remarks(&job),
        job: job.clone(),
    };
    let mut table = PerfTable::new(subject, options.form());
    let progress = progress_bar(sizes.len());
    let mut wrong = Vec::new();
    for bytes in sizes {
        progress.set_message(format!("{bytes} bytes"));
        let plan = RoundsPlan {
            kind,
            bytes,
            rounds: comparison.rounds(),
            iterations: options.iterations,
            warmup: options.warmup,
        };
        let series = plan.alternate(field.crews.len(), &mut |at, round| {
            field.round(at, round, &job)
        })?;
        wrong.extend(verdict::faults(kind, bytes, &series[0], &job));
        for (rival, series) in comparison.rivals().iter().zip(&series[1..]) {
            wrong.extend(verdict::faults_of_rival(rival.name(), bytes, series));
        }
        progress.suspend(|| table.print(SizeRow { bytes, series }));
        progress.inc(1);
    }
    progress.finish_and_clear();
    table.finish();
    field.end()?;
    Ok(passed(wrong)?)
}

/// Who is measured: gradwire's ranks first, then the rivals'.
struct Field<'a> {
    crews: Vec<Crew>,
    rivals: Vec<Rival>,
    place: &'a CrewPlace,
}

impl<'a> Field<'a> {
    fn new(
        (kind, ranks): (PerfCollective, u16),
        job: &Job,
        (comparison, place): (&RivalOptions, &'a CrewPlace),
    ) -> Result<Self, CommandError> {
        let mut crews = vec![Crew::of_ranks(ranks, job, place)?];
        let rivals = comparison.rivals();
        for rival in &rivals {
            crews.push(rival::crew(
                *rival,
                &comparison.python(),
                (kind, ranks),
                place,
            )?);
        }
        Ok(Self {
            crews,
            rivals,
            place,
        })
    }

    fn backends(&self, job: &Job) -> Vec<Backend> {
        let names = self.rivals.iter().map(|rival| (rival.name(), "none"));
        let names = [("gradwire", security(job, self.crews[0].wire()))]
            .into_iter()
            .chain(names);
        let backend = |(crew, (name, security)): (&Crew, (&'static str, &'static str))| Backend {
            name,
            wire: crew.wire().to_owned(),
            security,
        };
        self.crews.iter().zip(names).map(backend).collect()
    }

    /// Where the kernel drops this contestant's packets, if it does.
    fn lab(&self, at: usize, job: &Job) -> Option<&gradwire_lab::crew::place::Lab> {
        let is_gloo = at > 0 && self.rivals[at - 1] == Rival::Gloo;
        match self.place {
            CrewPlace::Lab(lab) if is_gloo && !job.faults.drop.is_none() => Some(lab),
            _ => None,
        }
    }

    fn remarks(&self, job: &Job) -> Vec<String> {
        let dropped = show_share(job.faults.drop);
        let with_gloo = self.rivals.contains(&Rival::Gloo);
        let mut remarks = Vec::new();
        if with_gloo && !job.faults.drop.is_none() {
            remarks.push(match self.place {
                CrewPlace::Lab(_) => format!(
                    "gloo: the kernel drops {dropped} of its packets where they arrive (tc, BPF), \
                     with segmentation offload off on its links meanwhile"
                ),
                CrewPlace::Host | CrewPlace::Addresses(_) => {
                    "gloo: none of its packets are dropped; dropping them needs --netns".to_owned()
                }
            });
        }
        if self.rivals.contains(&Rival::Openmpi) {
            remarks.push("openmpi: shared memory between the ranks of this host".to_owned());
        }
        remarks
    }

    fn round(&mut self, at: usize, round: &Round, job: &Job) -> Result<Vec<Measured>, LabError> {
        if let Some(lab) = self.lab(at, job) {
            lab.disturb(job.faults.drop)?;
        }
        let measured = self.crews[at].round(round, ROUND_PATIENCE)?;
        if let Some(lab) = self.lab(at, job) {
            lab.calm()?;
        }
        Ok(measured)
    }

    fn end(self) -> Result<(), CommandError> {
        Ok(self.crews.into_iter().try_for_each(Crew::end)?)
    }
}
