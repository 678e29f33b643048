//! The memory that a run needs, and that it may take. Where it is short, hosts pack what they know
//! of peers that they did not use lately. A run without room for that is refused before it starts,
//! not killed in the middle.

use gradwire_netsim::setup::{Setup, Transport};
use gradwire_protocol::units::{ByteCount, Layer, Span};
use gradwire_report::numbers::bytes;
use gradwire_workloads::arrivals::DrawLimits;
use gradwire_workloads::workload::{Flow, Workload};

use crate::error::LabError;

/// Memory of a flow during a run: its record, its outcome, and its rows in the report.
const OF_FLOW: u64 = 700;
/// Memory of what a host of gradwire knows of one peer, with a message each way.
const OF_PEER: u64 = 6_000;
/// The same while it is packed.
const OF_PACKED_PEER: u64 = 600;
/// Memory that a peer takes more when it is not packed.
const OF_UNPACKING: u64 = OF_PEER - OF_PACKED_PEER;
/// Peers of an endpoint that are not packed, at least: those of which it has just heard.
const AWAKE_LEAST: u64 = 16;
/// Peers are counted up to this many flows; above, each flow counts as two.
const COUNTED_MOST: usize = 10_000_000;

/// The memory that a run may take.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    limit: Option<ByteCount>,
    /// In bytes; `None` where the system does not say how much is free.
    bytes: Option<u64>,
}

/// The peers that the endpoints of a run have.
struct PeerCounts {
    /// Those of its flows.
    of_flows: u64,
    /// Of these, the least number that is awake.
    awake_least: u64,
    /// An upper bound of those of its collectives. Most algorithms need far fewer, so no run is
    /// refused for them.
    of_programs: u64,
    /// The endpoints that have peers.
    endpoints: u64,
}

impl Room {
    /// The given limit, or else the free memory.
    pub fn new(limit: Option<ByteCount>) -> Self {
        Self {
            limit,
            bytes: limit.map(ByteCount::get).or_else(free_memory),
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
        let of_flows = setup.workload.flows.len() as u64 * OF_FLOW;
        let most = PeerCounts::bound(setup);
        if of_flows + (most.of_flows + most.of_programs) * OF_PEER <= room {
            // Even if each flow has peers of its own: nothing has to be counted.
            return Ok(usize::MAX);
        }
        let peers = most.counted(&setup.workload);
        let all = peers.of_flows + peers.of_programs;
        if of_flows + all * OF_PEER <= room {
            return Ok(usize::MAX);
        }
        let least = of_flows + peers.of_flows * OF_PACKED_PEER + peers.awake_least * OF_UNPACKING;
        if least > room {
            return Err(self.refusal(setup, least));
        }
        let left = room.saturating_sub(of_flows + all * OF_PACKED_PEER);
        let awake = left / (OF_UNPACKING * peers.endpoints.max(1));
        Ok(awake.max(AWAKE_LEAST) as usize)
    }

    fn refusal(self, setup: &Setup, least: u64) -> LabError {
        let room = match self.limit {
            Some(limit) => format!("--memory {limit} allows less: allow more, or"),
            None => format!("only {} are free:", bytes(self.bytes.unwrap_or_default())),
        };
        LabError::Usage(format!(
            "`{}` has {} flows, whose run takes at least {}; {room} use fewer hosts or flows",
            setup.workload.name,
            setup.workload.flows.len(),
            bytes(least),
        ))
    }
}

impl PeerCounts {
    /// As many as there can be.
    fn bound(setup: &Setup) -> Self {
        let workload = &setup.workload;
        let hosts = u64::from(setup.fabric.hosts);
        let groups = workload.groups.iter().map(|group| group.len() as u64);
        let (of_flows, of_programs) = match setup.transport {
            Transport::Gradwire => (
                2 * workload.flows.len() as u64,
                groups.map(|ranks| ranks * ranks.saturating_sub(1)).sum(),
            ),
            _ => (0, 0),
        };
        let all = hosts * hosts.saturating_sub(1);
        let of_flows = of_flows.min(all);
        Self {
            of_flows,
            awake_least: of_flows.min(hosts * AWAKE_LEAST),
            of_programs: of_programs.min(all),
            endpoints: hosts + workload.programs.len() as u64,
        }
    }

    /// The same, with the peers of flows counted unless there are too many flows. Those without a
    /// tag are of a background that rides another transport.
    fn counted(self, workload: &Workload) -> Self {
        if self.of_flows == 0 || workload.flows.len() > COUNTED_MOST {
            return self;
        }
        let tagged = |flow: &&Flow| flow.layer != Layer::UNTAGGED;
        let ends = workload.flows.iter().filter(tagged);
        let mut ends: Vec<(u32, u32)> = ends
            .map(|flow| (flow.source, flow.destination))
            .flat_map(|(a, b)| [(a, b), (b, a)])
            .collect();
        ends.sort_unstable();
        ends.dedup();
        let by_host = ends.chunk_by(|one, next| one.0 == next.0);
        let of_each: Vec<u64> = by_host.map(|peers| peers.len() as u64).collect();
        Self {
            of_flows: of_each.iter().sum(),
            awake_least: of_each.iter().map(|&peers| peers.min(AWAKE_LEAST)).sum(),
            endpoints: (of_each.len() + workload.programs.len()) as u64,
            ..self
        }
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
        assert_eq!(of(all - 1).ok(), Some(62));
        let least = pairs * OF_FLOW + 64 * (16 * OF_PEER + 47 * OF_PACKED_PEER);
        assert_eq!(of(least).ok(), Some(16));
        let refused = of(least - 1).expect_err("there is no room");
        for part in ["4032 flows", "at least 10.77 MB", "--memory 10771199B"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn only_hosts_of_gradwire_know_peers() {
        let flows = 64 * 63 * OF_FLOW;
        assert!(awake("ndp", "all-to-all:1KB", flows).is_ok());
        assert!(awake("gradwire", "all-to-all:1KB", flows).is_err());
        let program = awake("gradwire", "all-reduce:1KB", 0);
        assert_eq!(
            program.ok(),
            Some(16),
            "a ring has two peers, and none is packed"
        );
    }

    #[test]
    fn flows_of_the_same_hosts_share_peers() {
        // Two flows of each of 63 pairs: 126 peers.
        let twice = "incast:63x1KB + incast:63x1KB";
        let all = 126 * (OF_FLOW + OF_PEER);
        assert_eq!(awake("gradwire", twice, all).ok(), Some(usize::MAX));
        assert_eq!(awake("gradwire", twice, all - 1).ok(), Some(16));
        let least = 126 * (OF_FLOW + OF_PACKED_PEER) + (16 + 63) * OF_UNPACKING;
        assert!(awake("gradwire", twice, least).is_ok());
        assert!(awake("gradwire", twice, least - 1).is_err());
    }

    #[test]
    fn a_background_on_another_transport_has_no_peers() {
        let scenario = Scenario {
            background: Some("incast:63x1KB".to_owned()),
            ..Scenario::new("single:64@100G", "incast:63x1KB")
        };
        let setup = scenario.load().expect("it is small").setup;
        let peers = PeerCounts::bound(&setup).counted(&setup.workload);
        assert_eq!((peers.of_flows, peers.endpoints), (126, 64));
        let background = Workload {
            flows: setup.workload.flows[63..].to_vec(),
            ..Workload::default()
        };
        let peers = PeerCounts::bound(&setup).counted(&background);
        assert_eq!((peers.of_flows, peers.endpoints), (0, 0));
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
