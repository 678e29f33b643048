//! Compares our cases of a table with the references beside them.

use super::super::evidence::{CellPoint, TableEvidence, faster};
use crate::eval::findings::ITERATION;

/// The prefix of our own cases; all others are references.
const OURS: &str = "gradwire";
/// Our case without tolerance.
pub(super) const LOSSLESS: &str = "gradwire, p = 0";

/// Returns our own cases, in the order of the plans.
pub(super) fn ours(evidence: &TableEvidence) -> impl Iterator<Item = &str> {
    let cases = evidence.cases().into_iter();
    cases.filter(|case| case.starts_with(OURS))
}

/// Returns the mean time of a step of a case, in microseconds.
pub(super) fn iteration(evidence: &TableEvidence, point: &CellPoint, case: &str) -> Option<f64> {
    evidence.mean(&point.with_case(case), ITERATION)
}

/// Returns the fastest reference of a point, and its time of a step.
pub(super) fn best<'a>(evidence: &'a TableEvidence, point: &CellPoint) -> Option<(&'a str, f64)> {
    let cases = evidence.cases().into_iter();
    let references = cases.filter(|case| !case.starts_with(OURS));
    let times = references.filter_map(|case| Some((case, iteration(evidence, point, case)?)));
    times.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// Returns how much faster a case is than the best reference, in percent of speed.
pub(super) fn lead(evidence: &TableEvidence, point: &CellPoint, case: &str) -> Option<f64> {
    let (_, time) = best(evidence, point)?;
    faster(Some(time), iteration(evidence, point, case))
}
