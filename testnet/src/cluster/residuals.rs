//! Conservation under error feedback: each value of a contribution is in the result, or its rank
//! owes it to the next step. An operation that fails leaves what its rank owes as it was.

use std::collections::BTreeMap;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::Collective;
use gradwire_protocol::job::HoleFilling;
use gradwire_protocol::units::Rank;

use super::evidence::Found;
use super::numbers::{decode, weight};
use super::program::{PlannedCollective, PlannedOperation};
use super::results::{RankResult, base, elements, seats_of, title};
use super::violation::ClusterCheck;

/// What a rank owes of a tensor, element by element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RankResidual(Vec<f64>);

impl RankResidual {
    /// What the rank owes of an operation's tensor; `None` if that is lost for good.
    pub(crate) fn of(communicator: &Communicator, planned: &PlannedOperation) -> Option<Self> {
        let tensor = planned.tensor_key()?;
        if planned.holes != HoleFilling::ErrorFeedback {
            return None;
        }
        let mut bytes = vec![0; count(planned)? * planned.dtype.bytes()];
        let mut all = communicator.residuals().iter();
        if let Some((_, residual)) = all.find(|&(key, _)| key == tensor) {
            residual.write_to(&mut bytes);
        }
        Some(Self(decode(planned.dtype, &bytes)))
    }

    /// The weight that is owed of an element by the rank at this seat, before the operation.
    fn digit(&self, seat: usize, element: usize) -> f64 {
        self.0[element] / place(seat)
    }
}

/// A weight of one by the rank at this seat.
fn place(seat: usize) -> f64 {
    (base(HoleFilling::ErrorFeedback) as f64).powi(seat as i32)
}

/// The seats and ranks of an operation by host.
fn by_host(planned: &PlannedOperation, hosts: &[u16]) -> BTreeMap<u16, Vec<(usize, Rank)>> {
    let mut by_host: BTreeMap<u16, Vec<(usize, Rank)>> = BTreeMap::new();
    for (seat, &rank) in planned.group.ranks.iter().enumerate() {
        let host = hosts.get(usize::from(rank.0)).copied().unwrap_or(rank.0);
        by_host.entry(host).or_default().push((seat, rank));
    }
    by_host
}

/// Elements of an operation's tensor.
fn count(planned: &PlannedOperation) -> Option<usize> {
    match planned.collective {
        PlannedCollective::Group(collective) => {
            let ranks = planned.group.ranks.len();
            Some(elements(collective, planned.elements, ranks))
        }
        PlannedCollective::Message { .. } => None,
    }
}

/// The rank that has an element of a sum, and its place there. Of a sum that all ranks have, it is
/// `any` of them.
pub(crate) fn holder(planned: &PlannedOperation, any: Rank, element: usize) -> (Rank, usize) {
    match planned.collective {
        PlannedCollective::Group(Collective::Reduce { root }) => (root, element),
        PlannedCollective::Group(Collective::ReduceScatter) => (
            planned.group.ranks[element / planned.elements],
            element % planned.elements,
        ),
        _ => (any, element),
    }
}

fn differs(planned: &PlannedOperation, rank: Rank, element: usize, owed: (f64, f64)) -> Found {
    let (owes, expected) = owed;
    let detail = format!(
        "{}: rank {rank} owes {owes} of element {element} to the next step, expected {expected}",
        title(planned)
    );
    (ClusterCheck::Conservation, detail)
}

/// An operation has failed on a rank: it owes as much as before.
pub(crate) fn check_failed(
    planned: &PlannedOperation,
    rank: Rank,
    before: Option<&RankResidual>,
    after: Option<&RankResidual>,
) -> Result<(), Found> {
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(());
    };
    let pairs = before.0.iter().zip(&after.0);
    match pairs.clone().position(|(before, after)| before != after) {
        None => Ok(()),
        Some(at) => Err(differs(planned, rank, at, (after.0[at], before.0[at]))),
    }
}

/// An operation has succeeded on all ranks: together they owe the weights that are missing in the
/// sum. The first rank of a host owes those of the others, too, whose sum it had sent.
pub(crate) fn check_owed(
    planned: &PlannedOperation,
    results: &BTreeMap<Rank, RankResult>,
    owed: &[Vec<u64>],
) -> Result<(), Found> {
    let residuals: Option<Vec<_>> = results
        .values()
        .map(|result| result.owed.as_ref())
        .collect();
    let (Some(residuals), Some((&any, _))) = (residuals, results.first_key_value()) else {
        return Ok(());
    };
    for element in 0..count(planned).unwrap_or(0) {
        let owes: f64 = residuals.iter().map(|residual| residual.0[element]).sum();
        let seats = owed.iter().enumerate();
        let expected = seats.map(|(seat, owed)| owed[element] as f64 * place(seat));
        let expected: f64 = expected.sum();
        if owes != expected {
            return Err(differs(planned, any, element, (owes, expected)));
        }
    }
    Ok(())
}

/// An operation has succeeded on some ranks, and not on others, which died or aborted: what those
/// ranks owe is missing in the results that there are. The first rank of a host may owe what the
/// others have contributed, so a host one of whose ranks has failed is not judged. `hosts` has the
/// host of each rank, or nothing where each has its own.
pub(crate) fn check_partial<'a>(
    planned: &PlannedOperation,
    hosts: &[u16],
    results: &BTreeMap<Rank, RankResult>,
    owed_before: impl Fn(Rank) -> Option<&'a RankResidual>,
) -> Result<(), Found> {
    let is_well = |result: &&RankResult| result.outcome.is_ok() && result.owed.is_some();
    let ranks = planned.group.ranks.iter().copied();
    let well = |rank: Rank| results.get(&rank).filter(is_well);
    let Some(any) = ranks.clone().find(|&rank| well(rank).is_some()) else {
        return Ok(());
    };
    let decoded =
        |(rank, result): (&Rank, &RankResult)| (*rank, decode(planned.dtype, &result.bytes));
    let decoded: BTreeMap<Rank, Vec<f64>> = results.iter().map(decoded).collect();
    let by_host = by_host(planned, hosts);
    for element in 0..count(planned).unwrap_or(0) {
        let (rank, at) = holder(planned, any, element);
        if well(rank).is_none() {
            continue;
        }
        let digit = |(seat, rank): (usize, Rank)| {
            let owed = owed_before(rank).map_or(0.0, |owed| owed.digit(seat, element));
            weight(planned.index as u64, seat, element) + owed as u64
        };
        let digits: Vec<u64> = ranks.clone().enumerate().map(digit).collect();
        let got = decoded[&rank][at];
        let Some(seats) = seats_of(planned, &digits, got, None) else {
            let detail = format!(
                "{}: element {at} at rank {rank} is {got}, which is no sum of the contributions \
                 {digits:?}, of which some are of ranks that have failed",
                title(planned)
            );
            return Err((ClusterCheck::Values, detail));
        };
        for mates in by_host.values() {
            let owes = |&(_, rank): &(usize, Rank)| Some(well(rank)?.owed.as_ref()?.0[element]);
            let Some(owes) = mates.iter().map(owes).sum::<Option<f64>>() else {
                continue;
            };
            let absent = mates.iter().filter(|(seat, _)| seats >> seat & 1 == 0);
            let expected = absent.map(|&(seat, _)| digits[seat] as f64 * place(seat));
            let expected: f64 = expected.sum();
            if owes != expected {
                return Err(differs(planned, mates[0].1, element, (owes, expected)));
            }
        }
    }
    Ok(())
}
