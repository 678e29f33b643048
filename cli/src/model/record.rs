//! `gradwire model record`: runs a PyTorch script and keeps the cost of its layers as a table.
//!
//! The recorder is Python (`python -m gradwire.record`) and reports its outcome as one line of JSON
//! on its standard output; the script's output goes to standard error. This file starts the
//! recorder and reads the table back, as a check.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use gradwire_lab::error::LabError;
use gradwire_lab::files;
use gradwire_report::numbers::count;
use serde::Deserialize;
use serde_json::json;

use super::options::ModelRecord;
use super::{millis, totals};
use crate::environment::Environment;
use crate::exit::{CommandError, Exit};

/// The recorder's report.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecorderAnswer {
    /// The script gave no table.
    Failed { error: String },
    /// It gave one.
    Done { steps: u32, iteration_us: f64 },
}

/// Runs the command.
///
/// # Errors
/// [`CommandError`] says why the script gave no table.
pub(super) fn record(options: &ModelRecord) -> Result<(), CommandError> {
    let (script, arguments) = script(options)?;
    let (steps, iteration_us) = match told(options, script, arguments)? {
        RecorderAnswer::Done {
            steps,
            iteration_us,
        } => (steps, iteration_us),
        RecorderAnswer::Failed { error } => return Err(LabError::Check(error).into()),
    };
    let out = options.out.display().to_string();
    let model = files::model(&out)?;
    if options.json {
        let mut object = totals(&model);
        object["steps"] = json!(steps);
        object["iteration_us"] = json!(iteration_us);
        println!("{object}");
        return Ok(());
    }
    println!(
        "{out}: {} parameters in {} layers, forward {:.3} ms, backward {:.3} ms, of {steps} steps\n\
         \n  gradwire model show {out}\n  gradwire sim run single:8@25G step:{out}:ddp",
        count(model.parameters()),
        model.layers.len(),
        millis(model.forward()),
        millis(model.backward()),
    );
    Ok(())
}

/// The script and its arguments.
fn script(options: &ModelRecord) -> Result<(&str, &[String]), CommandError> {
    let example = "give a Python script to record, such as train.py";
    let Some((script, arguments)) = options.script.split_first() else {
        return Err(CommandError::Usage(example.to_owned()));
    };
    let path = Path::new(script);
    if path.file_name().is_some_and(|name| name == "torchrun") {
        return Err(CommandError::Usage(format!(
            "{script} starts the recorder itself: torchrun --nproc-per-node 2 -m gradwire.record \
             --out {} train.py",
            options.out.display()
        )));
    }
    if !path.is_file() {
        return Err(CommandError::Usage(format!(
            "`{script}` is not a file; {example}"
        )));
    }
    if options.out.extension().is_none_or(|ending| ending != "csv") {
        let out = options.out.display();
        return Err(CommandError::Usage(format!(
            "--out {out}: the name must end in .csv, by which the simulator recognizes tables"
        )));
    }
    Ok((script, arguments))
}

fn told(
    options: &ModelRecord,
    script: &str,
    arguments: &[String],
) -> Result<RecorderAnswer, LabError> {
    let python = Environment::read().python(options.python.as_deref());
    let mut command = Command::new(&python);
    command.args(["-m", "gradwire.record", "--told", "--steps"]);
    command.arg(options.steps.to_string());
    command.arg("--out").arg(&options.out);
    if let Some(folder) = &options.events {
        command.arg("--events").arg(folder);
    }
    command.arg(script).args(arguments);
    let process = command.stderr(Stdio::inherit()).output();
    let process = process.map_err(LabError::system(format!(
        "cannot start {}, a Python with gradwire and PyTorch is needed, see --python",
        python.display()
    )))?;
    let text = String::from_utf8_lossy(&process.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|_| ended(script, &python, process.status))
}

/// The recorder printed no report: it was killed, or Python lacks a package that it needs, and has
/// said so.
fn ended(script: &str, python: &Path, status: ExitStatus) -> LabError {
    LabError::Process {
        who: script.to_owned(),
        message: format!(
            "`{} -m gradwire.record` reported no outcome ({status}; see its output above); it \
            needs \
             a Python with gradwire and PyTorch, see --python",
            python.display()
        ),
        code: Some(Exit::Refused as u8),
    }
}
