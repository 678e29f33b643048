//! `gradwire model plan`: how to run the blocks of a model on several devices, within their memory.

use gradwire_lab::output::WholeFile;
use gradwire_lab::plan::{self, page};
use gradwire_report::printing::OutputForm;

use super::options::ModelPlan;
use crate::exit::CommandError;

/// Runs the command.
///
/// # Errors
/// [`CommandError`] when there is no such model, or when no plan fits; then the plans that there
/// are have been printed.
pub(super) fn plan(options: &ModelPlan) -> Result<(), CommandError> {
    let file = options.out.as_deref().map(WholeFile::create).transpose()?;
    let report = plan::run(&options.question)?;
    let form = OutputForm::from(options.json);
    form.print(|| report.text(), || &report);
    if let (Some(file), Some(path)) = (file, &options.out) {
        file.keep(page::page(&report).as_bytes())?;
        form.remark(format_args!("# written to {}", path.display()));
    }
    match &report.fastest {
        Some(_) => Ok(()),
        None => Err(CommandError::NothingFits(report.nothing_fits())),
    }
}
