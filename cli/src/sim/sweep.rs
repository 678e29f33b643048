//! `gradwire sim sweep`: every combination of a plan runs once, on all cores; finished ones are
//! never run again.
//!
//! - [`options`]: the command line, the form of a plan, the files that are written.
//!
//! Not here: plans, cells and the processes that run them (`gradwire_lab::sweep`), and Ray, which
//! `python/gradwire/sweep.py` drives with the same workers.

pub mod options;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use serde_json::{Value, json};

use gradwire_lab::error::LabError;
use gradwire_lab::sim::cost::cores;
use gradwire_lab::sim::progress;
use gradwire_lab::sweep::cells::{self, SweepCell};
use gradwire_lab::sweep::folder::SweepFolder;
use gradwire_lab::sweep::plan::SweepPlan;
use gradwire_lab::sweep::record::CellRecord;
use gradwire_lab::sweep::worker::{self, CellOrder};
use gradwire_lab::sweep::{crew, parquet, slurm};
use gradwire_report::json;

use crate::exit::{CommandError, Exit};
use options::{ResultFormat, SweepOptions, SweepPart};

/// Cells that a message names at most.
const NAMED_MOST: usize = 4;

/// Runs a plan, or the part of it that was asked for.
///
/// # Errors
/// [`CommandError`] when the plan is wrong, before any file is written; when a file cannot be
/// written; at the end, when cells have failed.
pub fn run(options: &SweepOptions) -> Result<(), CommandError> {
    let Some(path) = &options.plan else {
        let record = worker::run(Exit::PeerLost as u8)?;
        println!("{}", json::line(&record));
        return Ok(());
    };
    let path = absolute(path)?;
    let folder = match &options.out {
        Some(out) => Some(SweepFolder::at(absolute(out)?)),
        None => None,
    };
    let cells = cells_of(&path)?;
    match (options.part(), folder) {
        (SweepPart::List, folder) => {
            list(&cells, folder.as_ref(), options);
            Ok(())
        }
        (SweepPart::Cell(id), folder) => one(&cells, id, folder.as_ref()),
        (SweepPart::Slurm(tasks), Some(folder)) => {
            let tasks = tasks.map_or_else(|| cells.len().min(slurm::TASKS_MOST), usize::from);
            print!("{}", slurm::script(&path, &folder.path(""), tasks));
            Ok(())
        }
        (SweepPart::Gather, Some(folder)) => gather(&cells, &folder, options.format),
        (SweepPart::Shard(shard), Some(folder)) => {
            let share: Vec<&SweepCell> = cells
                .iter()
                .skip(shard.index)
                .step_by(shard.count)
                .collect();
            run_missing(&share, &folder, options)?;
            verdict(&share, &folder)
        }
        (SweepPart::Whole, Some(folder)) => {
            run_missing(&cells.iter().collect::<Vec<_>>(), &folder, options)?;
            gather(&cells, &folder, options.format)
        }
        (_, None) => Err(CommandError::Usage("--out is missing".to_owned())),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, LabError> {
    std::path::absolute(path).map_err(LabError::system(path.display().to_string()))
}

/// The cells of the plan at a path. This process is in the folder of the plan from here on: the
/// files that a plan names are relative to it.
fn cells_of(path: &Path) -> Result<Vec<SweepCell>, CommandError> {
    let unread = |error| CommandError::Usage(format!("cannot read {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(unread)?;
    if let Some(folder) = path.parent() {
        std::env::set_current_dir(folder).map_err(unread)?;
    }
    let wrong = |error| CommandError::Usage(format!("{}: {error}", path.display()));
    let plan = SweepPlan::from_toml(&text).map_err(wrong)?;
    let cells = cells::of(&plan).map_err(wrong)?;
    cells::check(&plan).map_err(wrong)?;
    Ok(cells)
}

fn list(cells: &[SweepCell], folder: Option<&SweepFolder>, options: &SweepOptions) {
    for cell in cells {
        let finished = folder.is_some_and(|folder| folder.is_finished(&cell.id));
        if options.json {
            // Enough for another program to run the cell: the order for a worker, and the files to
            // give it.
            let listed = json!({
                "id": cell.id,
                "label": cell.label,
                "finished": finished,
                "files": cell.files,
                "order": CellOrder::new(&cell.id, &cell.scenario),
            });
            println!("{listed}");
        } else {
            let state = if finished { "finished" } else { "to run" };
            println!("{}  {state:<8}  {}", cell.id, cell.label);
        }
    }
}

fn one(cells: &[SweepCell], id: &str, folder: Option<&SweepFolder>) -> Result<(), CommandError> {
    let cell = cells.iter().find(|cell| cell.id == id);
    let unknown =
        || CommandError::Usage(format!("--cell {id}: no such cell; --list names them all"));
    let cell = cell.ok_or_else(unknown)?;
    crew::run(&[cell], 1, |record| match folder {
        Some(folder) => folder.keep(&record),
        None => {
            println!("{}", json::line(&record));
            record
                .error
                .map_or(Ok(()), |error| Err(LabError::Check(error)))
        }
    })?;
    folder.map_or(Ok(()), |folder| verdict(&[cell], folder))
}

/// Runs those of the cells that have no result yet.
fn run_missing(
    cells: &[&SweepCell],
    folder: &SweepFolder,
    options: &SweepOptions,
) -> Result<(), CommandError> {
    let missing = cells
        .iter()
        .copied()
        .filter(|cell| !folder.is_finished(&cell.id));
    let missing: Vec<&SweepCell> = missing.collect();
    let progress = progress_bar(cells.len(), cells.len() - missing.len());
    let at_once = options.parallel.map_or_else(cores, usize::from);
    let ran = crew::run(&missing, at_once, |record| {
        folder.keep(&record)?;
        progress.inc(1);
        Ok(())
    });
    progress.finish_and_clear();
    Ok(ran.map(drop)?)
}

fn progress_bar(cells: usize, finished: usize) -> ProgressBar {
    let beside = "{pos}/{len} cells, {elapsed} gone, about {eta} left";
    let progress = progress::bar(cells as u64, beside);
    // Earlier cells say little about the time that the rest takes.
    progress.set_position(finished as u64);
    progress.reset_eta();
    progress
}

/// Writes the results of all cells in the order of the plan.
fn gather(
    cells: &[SweepCell],
    folder: &SweepFolder,
    format: ResultFormat,
) -> Result<(), CommandError> {
    let cells: Vec<&SweepCell> = cells.iter().collect();
    let records: Vec<_> = cells.iter().map(|cell| folder.record(&cell.id)).collect();
    if let Some(records) = records.into_iter().collect::<Option<Vec<CellRecord>>>() {
        let lines = |line: fn(&CellRecord) -> String| records.iter().map(line).collect::<String>();
        folder.write("costs.jsonl", lines(CellRecord::cost_line).as_bytes())?;
        folder.write("results.jsonl", lines(CellRecord::result_line).as_bytes())?;
        if format == ResultFormat::Parquet {
            let rows: Vec<Value> = records.iter().map(|record| json!(record)).collect();
            folder.write("results.parquet", &parquet::file(&rows))?;
        }
        println!(
            "{} cells: {}",
            cells.len(),
            folder.path("results.jsonl").display()
        );
    }
    verdict(&cells, folder)
}

/// The failure that a sweep is in which cells have failed or did not run.
fn verdict(cells: &[&SweepCell], folder: &SweepFolder) -> Result<(), CommandError> {
    let fault = |cell: &&SweepCell| match folder.record(&cell.id) {
        Some(record) => Some(format!("{} ({}): {}", cell.id, cell.label, record.error?)),
        None => Some(format!("{} ({}) has not run", cell.id, cell.label)),
    };
    let faults: Vec<String> = cells.iter().filter_map(fault).collect();
    if faults.is_empty() {
        return Ok(());
    }
    let named = faults[..faults.len().min(NAMED_MOST)].join("; ");
    let more = match faults.len().checked_sub(NAMED_MOST) {
        Some(more) if more > 0 => format!("; and {more} more"),
        _ => String::new(),
    };
    let (failed, all) = (faults.len(), cells.len());
    Err(LabError::Check(format!("{failed} of {all} cells: {named}{more}")).into())
}
