//! Sums of encoded contributions: results are near the sums, and what a result does not have its
//! ranks owe to the next step.

use std::collections::BTreeMap;

use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_protocol::units::Rank;

use super::evidence::Found;
use super::program::PlannedOperation;
use super::residuals::{RankResidual, count, holder};
use super::results::{RankResult, check_replicas, decoded, title, value};
use super::violation::ClusterCheck;

/// An encoded operation has succeeded on all ranks: replicas are equal, and the result and all that
/// is owed now are the contributions and all that was owed before, but for rounding.
pub(crate) fn check<'a>(
    planned: &PlannedOperation,
    results: &BTreeMap<Rank, RankResult>,
    owed_before: impl Fn(Rank) -> Option<&'a RankResidual>,
) -> Result<(), Found> {
    if !planned.is_encoded() {
        return Ok(());
    }
    check_replicas(planned, results)?;
    let ranks = &planned.group.ranks;
    let owed_now = |rank| results.get(&rank).and_then(|result| result.owed.as_ref());
    let owes = |residual: Option<&RankResidual>, element| {
        residual.map_or(0.0, |residual| residual.of_element(element))
    };
    let decoded = decoded(planned, results);
    let averaged = match planned.op {
        ReduceOp::Avg => ranks.len() as f64,
        _ => 1.0,
    };
    let sums = (0..count(planned).unwrap_or(0)).map(|element| {
        let (rank, at) = holder(planned, ranks[0], element);
        let (mut had, mut given) = (decoded[&rank][at] * averaged, 0.0);
        for (seat, &rank) in ranks.iter().enumerate() {
            had += owes(owed_now(rank), element);
            given += value(planned, seat, element) + owes(owed_before(rank), element);
        }
        (had, given)
    });
    let sums: Vec<(f64, f64)> = sums.collect();
    let largest = sums
        .iter()
        .fold(1.0, |most: f64, (_, sum)| most.max(sum.abs()));
    let rounding = match planned.dtype {
        DType::F64 => 1e-12,
        _ => 1e-5,
    };
    let is_off = |(had, given): &(f64, f64)| (had - given).abs() > rounding * largest;
    match sums.iter().position(is_off) {
        None => Ok(()),
        Some(element) => {
            let (had, given) = sums[element];
            let detail = format!(
                "{}: of element {element} the result and what is owed are {had}, expected {given}",
                title(planned)
            );
            Err((ClusterCheck::Conservation, detail))
        }
    }
}
