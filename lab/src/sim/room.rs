//! The memory that a run needs, and that this machine has: a run without room is refused before it
//! starts, not killed in the middle.

use std::collections::BTreeSet;

use gradwire_netsim::setup::{Setup, Transport};
use gradwire_protocol::units::Span;
use gradwire_workloads::arrivals::DrawLimits;

use crate::error::LabError;

/// Memory of a flow during a run: its record, its outcome, and its rows in the report.
const OF_FLOW: u64 = 700;
/// Memory of two hosts of gradwire that have something for each other.
const OF_PAIR: u64 = 2_500;
/// Pairs are counted up to this many flows; above, each flow counts as a pair of its own.
const COUNTED_MOST: usize = 10_000_000;

/// The flows that may be drawn: as many as the free memory can run, and none that begin at the time
/// limit or later.
pub fn draw_limits(until: Span) -> DrawLimits {
    let limits = DrawLimits::default();
    let fit = free_memory().map_or(limits.flows, |bytes| bytes / OF_FLOW);
    DrawLimits {
        flows: limits.flows.min(fit),
        until,
    }
}

/// Checks that a run fits the free memory.
///
/// # Errors
/// [`LabError::Usage`] has the estimate and the free memory.
pub fn check(setup: &Setup) -> Result<(), LabError> {
    let flows = setup.workload.flows.len();
    let Some(free) = free_memory() else {
        return Ok(());
    };
    if flows as u64 * (OF_FLOW + OF_PAIR) <= free {
        // Even if each flow is a pair of its own: nothing has to be counted.
        return Ok(());
    }
    let needed = estimate(setup);
    if needed > free {
        return Err(LabError::Usage(format!(
            "`{}` has {flows} flows, whose run takes about {}; {} are free: use fewer hosts or \
             flows",
            setup.workload.name,
            gigabytes(needed),
            gigabytes(free)
        )));
    }
    Ok(())
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// Approximate memory of a run's flows. Programs are not counted: they hold little that is idle.
fn estimate(setup: &Setup) -> u64 {
    let flows = &setup.workload.flows;
    let pairs = match setup.transport {
        Transport::Gradwire if flows.len() <= COUNTED_MOST => {
            let pairs = flows.iter().map(|flow| (flow.source, flow.destination));
            pairs.collect::<BTreeSet<_>>().len()
        }
        Transport::Gradwire => flows.len(),
        _ => 0,
    };
    flows.len() as u64 * OF_FLOW + pairs as u64 * OF_PAIR
}

/// Memory that the system can give to programs, in bytes; `None` where it does not say so.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    #[test]
    fn an_estimate_grows_with_flows_and_pairs() {
        let of = |transport: &str, workload: &str| {
            let scenario = Scenario {
                transport: transport.to_owned(),
                ..Scenario::new("single:8@100G", workload)
            };
            estimate(&scenario.load().expect("it is small").setup)
        };
        assert_eq!(of("ndp", "all-to-all:1KB"), 56 * OF_FLOW);
        assert_eq!(of("gradwire", "all-to-all:1KB"), 56 * (OF_FLOW + OF_PAIR));
        let twice = of("gradwire", "all-to-all:1KB + all-to-all:1KB");
        assert_eq!(twice, 56 * (2 * OF_FLOW + OF_PAIR));
    }

    #[test]
    fn flows_that_begin_after_the_limit_are_not_drawn() {
        let of = |limit| {
            let scenario = Scenario {
                limit,
                ..Scenario::new("single:8@100G", "poisson:websearch@0.5:20ms")
            };
            scenario.load().expect("it is small").flows
        };
        let (short, long) = (of(Span::from_millis(2)), of(Span::from_millis(1_000)));
        assert!(short > 0 && short * 5 < long, "{short} of {long}");
    }
}
