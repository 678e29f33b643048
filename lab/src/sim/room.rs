//! The memory that a run needs, and that it may take. Where it is short, hosts pack what they know of
//! peers at rest; a run without room for that is refused before it starts, not killed in the middle.

use std::collections::BTreeSet;

use gradwire_netsim::setup::{Setup, Transport};
use gradwire_protocol::units::{ByteCount, Span};
use gradwire_workloads::arrivals::DrawLimits;
use gradwire_workloads::workload::Workload;

use crate::error::LabError;

/// Memory of a flow during a run: its record, its outcome, and its rows in the report.
const OF_FLOW: u64 = 700;
/// Memory of what a host of gradwire knows of one peer, with a message each way.
const OF_PEER: u64 = 6_000;
/// The same while it is packed.
const OF_PACKED_PEER: u64 = 600;
/// Peers of a host that are not packed, at least: those of which it has just heard.
const AWAKE_LEAST: u64 = 16;
/// Peers are counted up to this many flows; above, each flow counts as two.
const COUNTED_MOST: usize = 10_000_000;

/// The memory that a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In bytes; `None` where the system does not say how much is free.
    bytes: Option<u64>,
}

impl Room {
    /// As much as somebody says, or as is free.
    pub fn new(said: Option<ByteCount>) -> Self {
        let said = said.map(ByteCount::get);
        Self {
            bytes: said.or_else(free_memory),
        }
    }

    /// The flows that may be drawn: as many as can run, and none that begin at the time limit or
    /// later.
    pub fn draw_limits(self, until: Span) -> DrawLimits {
        let limits = DrawLimits::default();
        let fit = self.bytes.map_or(limits.flows, |bytes| bytes / OF_FLOW);
        DrawLimits {
            flows: limits.flows.min(fit),
            until,
        }
    }

    /// The peers of a host that need not be packed for a run to fit.
    ///
    /// # Errors
    /// [`LabError::Usage`] has the estimate and the room.
    pub fn awake_peers(self, setup: &Setup) -> Result<usize, LabError> {
        let Some(room) = self.bytes else {
            return Ok(usize::MAX);
        };
        let flows = setup.workload.flows.len() as u64;
        let hosts = u64::from(setup.fabric.hosts);
        let peers = match setup.transport {
            Transport::Gradwire => peers_of_flows(&setup.workload),
            _ => 0,
        };
        let awake_least = peers.min(hosts * AWAKE_LEAST);
        let least =
            flows * OF_FLOW + awake_least * OF_PEER + (peers - awake_least) * OF_PACKED_PEER;
        if least > room {
            return Err(LabError::Usage(format!(
                "`{}` has {flows} flows, whose run takes about {}; {} are free or allowed: use \
                 fewer hosts or flows",
                setup.workload.name,
                gigabytes(least),
                gigabytes(room)
            )));
        }
        let all = peers + peers_of_programs(&setup.workload);
        if flows * OF_FLOW + all * OF_PEER <= room {
            return Ok(usize::MAX);
        }
        let left = room.saturating_sub(flows * OF_FLOW + all * OF_PACKED_PEER);
        let awake = left / (OF_PEER * hosts.max(1));
        Ok(awake.max(AWAKE_LEAST) as usize)
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// How many peers all hosts have for their flows.
fn peers_of_flows(workload: &Workload) -> u64 {
    let flows = &workload.flows;
    if flows.len() > COUNTED_MOST {
        return 2 * flows.len() as u64;
    }
    let ends = flows.iter().map(|flow| (flow.source, flow.destination));
    let peers: BTreeSet<_> = ends.flat_map(|(a, b)| [(a, b), (b, a)]).collect();
    peers.len() as u64
}

/// How many peers all hosts have at most for their collectives: most algorithms need few of them,
/// so no run is refused for them.
fn peers_of_programs(workload: &Workload) -> u64 {
    let ranks = workload.groups.iter().map(|group| group.len() as u64);
    ranks.map(|ranks| ranks * ranks.saturating_sub(1)).sum()
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

    fn awake(transport: &str, workload: &str, room: u64) -> Result<usize, LabError> {
        let scenario = Scenario {
            transport: transport.to_owned(),
            ..Scenario::new("single:64@100G", workload)
        };
        let setup = scenario.load().expect("it is small").setup;
        Room { bytes: Some(room) }.awake_peers(&setup)
    }

    #[test]
    fn a_run_packs_peers_before_it_is_refused() {
        let of = |room| awake("gradwire", "all-to-all:1KB", room);
        let pairs = 64 * 63;
        let all = pairs * (OF_FLOW + OF_PEER);
        assert_eq!(of(all).ok(), Some(usize::MAX));
        assert_eq!(of(all - 1).ok(), Some(56));
        let least = pairs * OF_FLOW + 64 * (16 * OF_PEER + 47 * OF_PACKED_PEER);
        assert_eq!(of(least).ok(), Some(16));
        let refused = of(least - 1).expect_err("there is no room");
        assert!(refused.to_string().contains("4032 flows"), "{refused}");
    }

    #[test]
    fn only_hosts_of_gradwire_know_peers() {
        let flows = 64 * 63 * OF_FLOW;
        assert!(awake("ndp", "all-to-all:1KB", flows).is_ok());
        assert!(awake("gradwire", "all-to-all:1KB", flows).is_err());
        let both = awake(
            "gradwire",
            "all-to-all:1KB + all-to-all:1KB",
            64 * 63 * 7_400,
        );
        assert_eq!(both.ok(), Some(usize::MAX), "two flows of the same peers");
        let program = awake("gradwire", "all-reduce:1KB", 0);
        assert_eq!(
            program.ok(),
            Some(16),
            "a ring has two peers, and none is packed"
        );
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
