//! Makes a failing schedule small: faults, operations and ranks are left out one by one for as
//! long as the same check fails.

use super::schedule::ClusterSchedule;
use super::violation::ClusterViolation;

/// The smallest failing schedule that was found, and how it fails. `run` is
/// [`run`](super::run::run), or what a test puts in its place.
pub fn shrink(
    schedule: &ClusterSchedule,
    violation: ClusterViolation,
    run: impl Fn(&ClusterSchedule) -> Option<ClusterViolation>,
) -> (ClusterSchedule, ClusterViolation) {
    let mut best = (*schedule, violation);
    loop {
        let smaller = candidates(&best.0).into_iter().find_map(|smaller| {
            let violation = run(&smaller)?;
            (violation.check == best.1.check).then_some((smaller, violation))
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Schedules that leave one thing out, those that leave out most first.
fn candidates(schedule: &ClusterSchedule) -> Vec<ClusterSchedule> {
    let faults = schedule.faults.iter().map(|fault| ClusterSchedule {
        faults: schedule.faults.without(fault),
        ..*schedule
    });
    let operations = [schedule.operations / 2, schedule.operations - 1];
    let operations = operations.into_iter().map(|operations| ClusterSchedule {
        operations,
        ..*schedule
    });
    let ranks = (2..schedule.ranks).map(|ranks| ClusterSchedule { ranks, ..*schedule });
    let smaller = operations.chain(ranks).chain(faults);
    smaller.filter(|smaller| smaller.operations > 0).collect()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Instant;

    use super::super::faults::ClusterFault;
    use super::super::violation::ClusterCheck;
    use super::*;

    #[test]
    fn everything_that_does_not_matter_is_left_out() {
        let violation = ClusterViolation {
            check: ClusterCheck::Values,
            at: Instant::START,
            detail: String::new(),
        };
        let all: super::super::faults::FaultSet = ClusterFault::ALL.iter().copied().collect();
        let whole = ClusterSchedule {
            seed: 1,
            faults: all,
            ranks: 6,
            operations: 13,
        };
        let needs = |schedule: &ClusterSchedule| {
            let faults = schedule.faults;
            let fails = faults.has(ClusterFault::Cut)
                && faults.has(ClusterFault::Freeze)
                && schedule.ranks >= 3
                && schedule.operations >= 5;
            fails.then(|| violation.clone())
        };
        let (small, _) = shrink(&whole, violation.clone(), needs);
        let text = "--seed 1 --faults cut+freeze --ranks 3 --operations 5";
        assert_eq!(small.to_string(), text);
        assert_eq!(text.parse(), Ok(small));
    }
}
