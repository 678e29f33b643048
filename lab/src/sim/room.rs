//! The memory that a run needs, and that it may take. Where it is short, hosts pack what they know
//! of peers at rest. A run without room for that is refused before it starts, not killed in the
//! middle.

use gradwire_netsim::setup::{Setup, Transport};
use gradwire_protocol::units::{ByteCount, Layer, Span};
use gradwire_workloads::arrivals::DrawLimits;
use gradwire_workloads::workload::{Flow, Workload};

use crate::error::LabError;

/// Memory of a flow during a run: its record, its outcome, and its rows in the report.
const OF_FLOW: u64 = 700;
/// Memory of what a host of gradwire knows of one peer, with a message each way.
const OF_PEER: u64 = 6_000;
/// The same while it is packed.
const OF_PACKED_PEER: u64 = 600;
/// Peers of an endpoint that are not packed, at least: those of which it has just heard.
const AWAKE_LEAST: u64 = 16;
/// Peers are counted up to this many flows; above, each flow counts as two.
const COUNTED_MOST: usize = 10_000_000;

/// The memory that a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// In bytes; `None` where the system does not say how much is free.
    bytes: Option<u64>,
    given: bool,
}

/// The peers that the endpoints of a run have.
struct PeerCounts {
    /// Those of its flows.
    of_flows: u64,
    /// Those of its collectives at most. Most algorithms need few of them, so no run is refused for
    /// them.
    of_programs: u64,
    endpoints: u64,
}

impl Room {
    /// The given limit, or else the free memory.
    pub fn new(limit: Option<ByteCount>) -> Self {
        Self {
            bytes: limit.map(ByteCount::get).or_else(free_memory),
            given: limit.is_some(),
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

    /// The peers of an endpoint that need not be packed for a run to fit.
    ///
    /// # Errors
    /// [`LabError::Usage`] has the estimate and the room.
    pub fn awake_peers(self, setup: &Setup) -> Result<usize, LabError> {
        let Some(room) = self.bytes else {
            return Ok(usize::MAX);
        };
        let flows = setup.workload.flows.len() as u64;
        let most = PeerCounts::bound(setup);
        if flows * OF_FLOW + (most.of_flows + most.of_programs) * OF_PEER <= room {
            // Even if each flow has peers of its own: nothing has to be counted.
            return Ok(usize::MAX);
        }
        let peers = most.counted(&setup.workload);
        let awake_least = peers.of_flows.min(peers.endpoints * AWAKE_LEAST);
        let packed_most = peers.of_flows - awake_least;
        let least = flows * OF_FLOW + awake_least * OF_PEER + packed_most * OF_PACKED_PEER;
        if least > room {
            return Err(self.refusal(setup, least));
        }
        let all = peers.of_flows + peers.of_programs;
        if flows * OF_FLOW + all * OF_PEER <= room {
            return Ok(usize::MAX);
        }
        let left = room.saturating_sub(flows * OF_FLOW + all * OF_PACKED_PEER);
        let awake = left / (OF_PEER * peers.endpoints.max(1));
        Ok(awake.max(AWAKE_LEAST) as usize)
    }

    fn refusal(self, setup: &Setup, least: u64) -> LabError {
        let (allows, remedy) = match self.given {
            true => ("--memory allows", "allow more, or use fewer hosts or flows"),
            false => ("free are", "use fewer hosts or flows"),
        };
        LabError::Usage(format!(
            "`{}` has {} flows, whose run takes at least {}; {allows} {}: {remedy}",
            setup.workload.name,
            setup.workload.flows.len(),
            readable(least),
            readable(self.bytes.unwrap_or_default()),
        ))
    }
}

impl PeerCounts {
    /// As many as there can be.
    fn bound(setup: &Setup) -> Self {
        let Workload {
            flows,
            programs,
            groups,
            ..
        } = &setup.workload;
        let hosts = u64::from(setup.fabric.hosts);
        let all = hosts * hosts.saturating_sub(1);
        let groups = groups.iter().map(|group| group.len() as u64);
        let (of_flows, of_programs) = match setup.transport {
            Transport::Gradwire => (
                2 * flows.len() as u64,
                groups.map(|ranks| ranks * ranks.saturating_sub(1)).sum(),
            ),
            _ => (0, 0),
        };
        Self {
            of_flows: of_flows.min(all),
            of_programs: of_programs.min(all),
            endpoints: hosts + programs.len() as u64,
        }
    }

    /// The same, with the peers of flows counted unless there are too many. Untagged flows are of a
    /// background that rides another transport.
    fn counted(self, workload: &Workload) -> Self {
        if workload.flows.len() > COUNTED_MOST {
            return self;
        }
        let tagged = |flow: &&Flow| flow.layer != Layer::UNTAGGED;
        let ends = workload.flows.iter().filter(tagged);
        let pair = |flow: &Flow| {
            let (a, b) = (flow.source, flow.destination);
            (a.min(b), a.max(b))
        };
        let mut pairs: Vec<(u32, u32)> = ends.map(pair).collect();
        pairs.sort_unstable();
        pairs.dedup();
        Self {
            of_flows: self.of_flows.min(2 * pairs.len() as u64),
            ..self
        }
    }
}

fn readable(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
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
        Room::new(Some(ByteCount::new(room))).awake_peers(&setup)
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
        for part in ["4032 flows", "at least 11 MB", "--memory allows 11 MB"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
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
