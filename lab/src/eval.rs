//! Whole evaluations, and their report.
//!
//! Start here:
//! - [`request`]: the caller's choices.
//! - [`tables`]: the list of tables; each turns its cells into [`findings`].
//! - [`plans`]: the simulated cells, as plans of sweeps; [`work`] runs them.
//! - [`evidence`]: the results of the cells; [`published`]: published figures beside ours.
//! - [`training`]: tables of real training, which other commands run.
//! - [`taxonomy`]: the map of ways to train, an evaluation by itself.
//! - [`section`], [`report`], [`markdown`], [`page`]: the report and its forms.
//!
//! The simulator, sweeps ([`crate::sweep`]) and training (`gradwire.study` in Python) are
//! elsewhere.

pub mod evidence;
pub mod findings;
pub mod markdown;
pub mod page;
pub mod plans;
pub mod published;
pub mod report;
pub mod request;
pub mod section;
pub mod tables;
pub mod taxonomy;
pub mod training;
pub mod work;

use std::path::PathBuf;
use std::time::Instant;

use crate::error::LabError;
use crate::sim::cost::{cores, now};
use crate::sweep::cells::SweepCell;
use crate::sweep::folder::SweepFolder;
use evidence::TableEvidence;
use gradwire_report::printing::OutputForm;
use plans::Written;
use report::{EvalCost, EvalReport};
use request::{EvalRequest, Extent, Suite};
use section::{Section, Source, TableOutcome};
use tables::{Content, EvalTable};
use work::CellWork;

/// An evaluation that can be listed or run.
#[derive(Debug)]
pub struct Evaluation<'a> {
    suite: Suite,
    request: &'a EvalRequest,
    folder: SweepFolder,
    tables: Vec<&'static EvalTable>,
    plans: Vec<Written>,
    work: CellWork,
    cores: usize,
    began: Instant,
}

impl<'a> Evaluation<'a> {
    /// Makes the evaluation of the requested tables.
    ///
    /// # Errors
    /// [`LabError`] when a plan cannot be read or is faulty.
    pub fn new(suite: Suite, request: &'a EvalRequest) -> Result<Self, LabError> {
        let began = now();
        let tables = tables::of(suite)
            .iter()
            .filter(|table| is_chosen(table, request));
        let tables: Vec<&EvalTable> = tables.collect();
        let (mut work, mut plans) = (CellWork::default(), Vec::new());
        for table in &tables {
            plans.extend(plans_of(table, request)?);
        }
        for plan in &plans {
            work.add(plan)?;
        }
        Ok(Self {
            suite,
            request,
            folder: SweepFolder::at(request.out.clone()),
            tables,
            plans,
            work,
            cores: request.parallel.map_or_else(cores, usize::from),
            began,
        })
    }

    /// Lists the cells, one a line.
    pub fn list(&self, form: OutputForm) -> String {
        self.work.list(&self.folder, form)
    }

    /// Says in words how many cells there are and how long they take.
    pub fn outlook(&self) -> String {
        let (cells, cores) = (self.work.cells().count(), self.cores);
        let minutes = self.work.seconds() / 60.0 / cores as f64;
        format!(
            "{cells} simulated cells, about {minutes:.0} min on {cores} cores when none is finished"
        )
    }

    /// Returns the path of a file of the report.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    /// Runs the unfinished cells and writes the report.
    ///
    /// # Errors
    /// [`LabError`] when a process cannot be started or a file cannot be written.
    pub fn run(&mut self) -> Result<EvalReport, LabError> {
        let folder = &self.folder;
        for plan in &self.plans {
            folder.write(&format!("plans/{}", plan.name), plan.text.as_bytes())?;
        }
        self.work.run(folder, self.cores)?;
        let sections = self.tables.iter();
        let sections = sections.map(|table| section(table, (self.suite, self.request), folder));
        let sections = sections.collect::<Result<_, _>>()?;
        let report = EvalReport {
            title: self.suite.title(),
            about: about(self.request),
            version: env!("CARGO_PKG_VERSION"),
            sections,
            cost: EvalCost {
                wall_s: now().duration_since(self.began).as_secs_f64(),
                cores: self.cores,
                ..cost(&self.work, folder)
            },
        };
        report.write(folder)?;
        Ok(report)
    }
}

fn is_chosen(table: &EvalTable, request: &EvalRequest) -> bool {
    request.only.is_empty() || request.only.iter().any(|name| name == table.name)
}

fn plans_of(table: &EvalTable, request: &EvalRequest) -> Result<Vec<Written>, LabError> {
    let plans = match table.content {
        Content::Simulated(plans, _) => plans.of(request.extent()),
        Content::Trained(_) => &[],
    };
    let folder = request.plans.as_deref();
    plans.iter().map(|plan| plan.read(folder)).collect()
}

fn section(
    table: &EvalTable,
    (suite, request): (Suite, &EvalRequest),
    folder: &SweepFolder,
) -> Result<Section, LabError> {
    let (source, mut outcome) = match table.content {
        Content::Simulated(_, found) => {
            let plans = plans_of(table, request)?;
            let cells = plans.iter().map(Written::cells);
            let cells: Vec<SweepCell> = cells.collect::<Result<Vec<_>, _>>()?.concat();
            let evidence = TableEvidence::of(&cells, folder);
            let outcome = TableOutcome {
                found: found(&evidence),
                commands: plans.iter().map(|plan| sweep(plan, request)).collect(),
                missing: evidence.missing,
                written: None,
            };
            (Source::Simulated, outcome)
        }
        Content::Trained(study) => (Source::Trained, training::run(study, request, folder)),
    };
    outcome.commands.insert(0, again(table, suite, request));
    Ok(Section {
        name: table.name,
        title: table.title,
        source,
        outcome,
    })
}

/// Returns the command that makes a table again.
fn again(table: &EvalTable, suite: Suite, request: &EvalRequest) -> String {
    let option = request.extent().option();
    let option = option.map_or_else(String::new, |option| format!(" {option}"));
    let (name, out) = (table.name, request.out.display());
    let suite = suite.command();
    format!("gradwire eval {suite}{option} --only {name} --out {out}")
}

/// Returns the sweep that has the same cells.
fn sweep(plan: &Written, request: &EvalRequest) -> String {
    let (name, out) = (plan.name, request.out.display());
    format!("gradwire sim sweep {out}/plans/{name} --out {out}")
}

fn about(request: &EvalRequest) -> String {
    let extent = match request.extent() {
        Extent::Quick => {
            "The quick evaluation: few cells of each table, to see that all of it works. "
        }
        Extent::Whole => {
            "The whole evaluation, made for an hour on two cores; --thorough has more models, \
             rates and seeds. "
        }
        Extent::Thorough => "The thorough evaluation: all models, rates and seeds. ",
    };
    format!(
        "{extent}Tables that are labelled \"simulated\" come from gradwire's simulator, which runs \
         the protocol code that ships, packet by packet, on fabrics that nobody has built; those \
         labelled \"real training\" come from PyTorch on this machine, over real sockets."
    )
}

fn cost(work: &CellWork, folder: &SweepFolder) -> EvalCost {
    let mut cost = EvalCost {
        kept: work.kept,
        ..EvalCost::default()
    };
    let records = work.cells().filter_map(|cell| folder.record(&cell.id));
    records.for_each(|record| cost.add(&record));
    cost
}
