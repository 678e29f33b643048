//! Who is faster: our cases of a table, and the references beside them.

use super::super::evidence::{CellPoint, TableEvidence, faster};
use crate::eval::findings::ITERATION;

/// How the names of our own cases begin; all others are references.
const OURS: &str = "gradwire";
/// Ours without any tolerance.
pub(super) const LOSSLESS: &str = "gradwire, p = 0";

/// Our own cases, in the order of the plans.
pub(super) fn ours(evidence: &TableEvidence) -> impl Iterator<Item = &str> {
    let cases = evidence.cases().into_iter();
    cases.filter(|case| case.starts_with(OURS))
}

/// The mean time of a step of a case, in microseconds.
pub(super) fn iteration(evidence: &TableEvidence, point: &CellPoint, case: &str) -> Option<f64> {
    evidence.mean(&point.with_case(case), ITERATION)
}

/// The fastest reference of a point, and its time of a step.
pub(super) fn best<'a>(evidence: &'a TableEvidence, point: &CellPoint) -> Option<(&'a str, f64)> {
    let cases = evidence.cases().into_iter();
    let references = cases.filter(|case| !case.starts_with(OURS));
    let times = references.filter_map(|case| Some((case, iteration(evidence, point, case)?)));
    times.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// How much faster a case is than the best reference, in percents of speed.
pub(super) fn lead(evidence: &TableEvidence, point: &CellPoint, case: &str) -> Option<f64> {
    let (_, time) = best(evidence, point)?;
    faster(Some(time), iteration(evidence, point, case))
}
