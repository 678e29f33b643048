//! `gradwire eval`: a whole evaluation from one command, and the report of it.
//!
//! Start here:
//! - [`options`]: what can be typed, what is written.
//! - [`tables`]: which tables there are, and what each makes of its cells.
//! - [`plans`]: what is simulated, as plans of sweeps; [`work`]: running that.
//! - [`evidence`]: what the cells brought; [`published`]: figures that stand beside ours.
//! - [`training`]: tables of real training, which other commands run.
//! - [`section`], [`report`], [`markdown`], [`page`]: what is said, and how it is written.
//!
//! What is not here: the simulator, sweeps (`sim::sweep`), and training (`gradwire.study` in
//! Python).

pub mod evidence;
pub mod markdown;
pub mod options;
pub mod page;
pub mod plans;
pub mod published;
pub mod report;
pub mod section;
pub mod tables;
pub mod training;
pub mod work;

use std::time::Instant;

use crate::exit::Failure;
use crate::sim::run::json;
use crate::sim::sweep::cells::Cell;
use crate::sim::sweep::folder::Folder;
use evidence::Evidence;
use options::{Dlcp, EvalCommand};
use plans::Written;
use report::{Cost, Report};
use section::{Section, Source};
use tables::{Content, TABLES, Table};
use work::{Form, Work};

/// Missing things that a message names at most.
const NAMED_MOST: usize = 3;

/// Runs the command.
///
/// # Errors
/// [`Failure`] when something cannot be started or written; at the end, when cells have failed.
pub fn run(command: &EvalCommand) -> Result<(), Failure> {
    let EvalCommand::Dlcp(options) = command;
    let began = now();
    let folder = Folder::at(options.out.clone());
    let chosen: Vec<&Table> = TABLES
        .iter()
        .filter(|table| is_chosen(table, options))
        .collect();
    let cores = options.parallel.map_or_else(cores, usize::from);
    let mut work = Work::default();
    let mut plans = Vec::new();
    for table in &chosen {
        plans.extend(plans_of(table, options)?);
    }
    for plan in &plans {
        work.add(plan)?;
    }
    if options.list {
        let form = match options.json {
            true => Form::Json,
            false => Form::Words,
        };
        list(&work, &folder, (form, cores));
        return Ok(());
    }
    for plan in &plans {
        folder.write(&format!("plans/{}", plan.name), plan.text.as_bytes())?;
    }
    work.run(&folder, cores)?;
    let sections = chosen.iter().map(|table| section(table, options, &folder));
    let sections = sections.collect::<Result<_, _>>()?;
    let report = Report {
        title: "gradwire: DLCP's evaluation, and ByteScheduler's",
        about: about(options),
        version: env!("CARGO_PKG_VERSION"),
        sections,
        cost: Cost {
            wall_s: now().duration_since(began).as_secs_f64(),
            cores,
            ..cost(&work, &folder)
        },
    };
    report.write(&folder)?;
    tell(&report, options, &folder);
    verdict(&report)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the report states how long it took"
)]
fn now() -> Instant {
    Instant::now()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn is_chosen(table: &Table, options: &Dlcp) -> bool {
    options.only.is_empty() || options.only.iter().any(|name| name == table.name)
}

fn plans_of(table: &Table, options: &Dlcp) -> Result<Vec<Written>, Failure> {
    let plans = match table.content {
        Content::Simulated(quick, _, _) if options.quick => quick,
        Content::Simulated(_, whole, _) => whole,
        Content::Trained(_) => &[],
    };
    let folder = options.plans.as_deref();
    plans.iter().map(|plan| plan.read(folder)).collect()
}

fn list(work: &Work, folder: &Folder, (form, cores): (Form, usize)) {
    print!("{}", work.list(folder, form));
    let minutes = work.seconds() / 60.0 / cores as f64;
    let cells = work.cells().count();
    eprintln!(
        "{cells} simulated cells, about {minutes:.0} min on {cores} cores when none is finished"
    );
}

fn section(table: &Table, options: &Dlcp, folder: &Folder) -> Result<Section, Failure> {
    let (found, source, mut commands, missing, written) = match table.content {
        Content::Simulated(_, _, found) => {
            let plans = plans_of(table, options)?;
            let cells: Vec<Cell> = plans
                .iter()
                .map(Written::cells)
                .collect::<Result<Vec<_>, _>>()?
                .concat();
            let evidence = Evidence::of(&cells, folder);
            let sweeps = plans.iter().map(|plan| sweep(plan, options));
            (
                found(&evidence),
                Source::Simulated,
                sweeps.collect(),
                evidence.missing,
                None,
            )
        }
        Content::Trained(study) => {
            let trained = training::run(study, options, folder);
            (
                trained.found,
                Source::Trained,
                trained.commands,
                trained.missing,
                trained.written,
            )
        }
    };
    commands.insert(0, again(table, options));
    Ok(Section {
        name: table.name,
        title: table.title,
        source,
        about: found.about,
        grids: found.grids,
        charts: found.charts,
        goals: found.goals,
        written,
        commands,
        missing,
    })
}

/// The command that makes a table again.
fn again(table: &Table, options: &Dlcp) -> String {
    let quick = if options.quick { " --quick" } else { "" };
    let (name, out) = (table.name, options.out.display());
    format!("gradwire eval dlcp{quick} --only {name} --out {out}")
}

/// The sweep that has the same cells.
fn sweep(plan: &Written, options: &Dlcp) -> String {
    let (name, out) = (plan.name, options.out.display());
    format!("gradwire sim sweep {out}/plans/{name} --out {out}")
}

fn about(options: &Dlcp) -> String {
    let extent = match options.quick {
        true => "The quick evaluation: few cells of each table, to see that all of it works. ",
        false => "",
    };
    format!(
        "{extent}Tables that are labelled \"simulated\" come from gradwire's simulator, which runs \
         the protocol code that ships, packet by packet, on fabrics that nobody has built; those \
         labelled \"real training\" come from PyTorch on this machine, over real sockets."
    )
}

fn cost(work: &Work, folder: &Folder) -> Cost {
    let mut cost = Cost {
        kept: work.kept,
        ..Cost::default()
    };
    let records = work.cells().filter_map(|cell| folder.record(&cell.id));
    records.for_each(|record| cost.add(&record));
    cost
}

fn tell(report: &Report, options: &Dlcp, folder: &Folder) {
    if options.json {
        println!("{}", json(report));
        return;
    }
    let goals = report.sections.iter().flat_map(|section| &section.goals);
    for goal in goals {
        println!("{:<7} {}: {}", goal.state.label(), goal.what, goal.found);
    }
    println!("{}", report.cost.told());
    println!("{}", folder.path("report.html").display());
}

/// The failure that an evaluation is in which something is missing.
fn verdict(report: &Report) -> Result<(), Failure> {
    let missing: Vec<&str> = report.missing().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let named = missing[..missing.len().min(NAMED_MOST)].join("; ");
    let more = match missing.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!("; and {more} more, see the report"),
    };
    Err(Failure::Check(format!("the report lacks {named}{more}")))
}
