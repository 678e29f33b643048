//! The checks of a path to another host, measured by probes. Whether packets get through is judged
//! here; their tags, runs and order in [`traffic`].

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use gradwire_protocol::job::{Job, Mtu};
use gradwire_protocol::machine::Ecn;
use gradwire_transport::interface::{self, AUTO_MTU_MAX};
use gradwire_transport::probe::SOCKETS;
use gradwire_transport::probe::{PathMtu, PathReach, ProbeClient, ProbeConnectError, RoundTrips};
use serde::{Deserialize, Serialize};

use super::finding::HostFinding;
use super::traffic::{self, ELSEWHERE};

/// Round trips that are measured, one after the other.
const ROUND_TRIPS: u32 = 200;
/// Small packets that are counted.
const SERIES: u32 = 10_000;

/// The findings between this host and another.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pair {
    /// This side: an address, or a rank.
    pub from: String,
    /// The other side.
    pub to: String,
    /// Median round trip in microseconds.
    pub round_trip_us: Option<f64>,
    /// Longest IP packet that passes both ways, in bytes.
    pub mtu: Option<u32>,
    /// The findings.
    pub checks: Vec<HostFinding>,
}

/// Probes the path to the server at `server`.
pub fn check(server: SocketAddr, bind: Option<IpAddr>, job: &Job) -> Pair {
    let mut pair = Pair {
        from: bind.map_or_else(|| "this host".to_owned(), |address| address.to_string()),
        to: server.to_string(),
        round_trip_us: None,
        mtu: None,
        checks: Vec::new(),
    };
    match ProbeClient::connect(server, bind) {
        Ok(mut client) => {
            pair.from = client.local().to_string();
            pair.checks
                .push(HostFinding::ok("reachable", "probes arrive both ways"));
            measure(&mut client, job, &mut pair);
        }
        Err(error) => pair.checks.push(unreachable(&error)),
    }
    pair
}

fn measure(client: &mut ProbeClient, job: &Job, pair: &mut Pair) {
    if let Some(trips) = client.round_trips(ROUND_TRIPS) {
        pair.round_trip_us = Some(micros(trips.median));
        pair.checks.extend(round_trips(&trips));
    }
    let interface = interface::name(client.local()).unwrap_or_else(|_| ELSEWHERE.to_owned());
    let local = interface::mtu(client.local()).unwrap_or(AUTO_MTU_MAX);
    let interfaces = client.server_mtu().map_or(local, |mtu| mtu.min(local));
    let most = match job.transport.mtu {
        Mtu::Auto => interfaces.min(AUTO_MTU_MAX),
        Mtu::Bytes(bytes) => bytes,
    };
    let path = client.path_mtu(most);
    pair.mtu = path.back.map(|reach| reach.bytes);
    pair.checks.extend(path_mtu(&path, client.server().ip()));
    let dscps = job
        .priority
        .dscps
        .iter()
        .chain(&job.priority.droppable_dscps);
    let dscps: Vec<u8> = dscps.map(|dscp| dscp.0 << 2).collect();
    pair.checks.push(traffic::dscp(&client.tags(&dscps)));
    let first = dscps.first().copied().unwrap_or(0);
    let ecns = [Ecn::Ect, Ecn::Ce].map(|ecn| first | ecn as u8);
    pair.checks.push(traffic::ecn(&client.tags(&ecns)));
    pair.checks.extend(traffic::runs(
        &client.runs(pair.mtu.unwrap_or(0)),
        &interface,
    ));
    pair.checks.push(ports(&client.open_ports()));
    match client.series(SERIES) {
        Some(measured) => pair.checks.extend(traffic::series(&measured)),
        None => pair.checks.push(
            HostFinding::problem("loss", "the path fell silent under 10,000 probes a second")
                .costs("a job stops with the peer lost")
                .mend("nft list ruleset  # look for a rate limit of UDP, on both hosts"),
        ),
    }
}

fn unreachable(error: &ProbeConnectError) -> HostFinding {
    let finding = HostFinding::problem("reachable", error.to_string()).costs("no job can run");
    match error {
        ProbeConnectError::Socket { server, .. } => {
            finding.mend(format!("ip route get {}", server.ip()))
        }
        ProbeConnectError::Refused { server, .. } => {
            let port = server.port();
            finding.mend(format!(
                "gradwire doctor --serve --port {port}  # on the other host"
            ))
        }
        ProbeConnectError::Silent { server } => {
            let port = server.port();
            finding.mend(format!(
                "gradwire doctor --serve --port {port}  # on the other host; and open its \
                 firewall: nft insert rule inet filter input udp dport 1024-65535 accept"
            ))
        }
    }
}

fn round_trips(trips: &RoundTrips) -> [HostFinding; 2] {
    let (least, median) = (micros(trips.least), micros(trips.median));
    let trip = format!("least {least:.0} us, median {median:.0} us");
    let ahead = trips.clock_ahead_ns as f64 / 1e3;
    let offset = format!(
        "the peer's wall clock is {ahead:+.0} us off, give or take {:.0}",
        least / 2.0
    );
    [
        HostFinding::ok("round_trip", trip),
        HostFinding::ok("clock_offset", offset),
    ]
}

fn path_mtu(path: &PathMtu, peer: IpAddr) -> Vec<HostFinding> {
    let there = direction("path_mtu_there", peer, (path.tried, path));
    let Some(reach) = path.there else {
        return vec![there];
    };
    let back = direction("path_mtu_back", peer, (reach.bytes, path));
    vec![there, back]
}

fn direction(name: &str, peer: IpAddr, (tried, path): (u32, &PathMtu)) -> HostFinding {
    let (way, reach) = match name {
        "path_mtu_there" => ("towards the peer", path.there),
        _ => ("back from the peer", path.back),
    };
    let Some(PathReach { bytes, told }) = reach else {
        return HostFinding::problem(name, format!("not even 576 bytes arrive {way}"))
            .costs("no job can run")
            .mend(format!(
                "ip route get {peer}  # does the path drop UDP packets by length?"
            ));
    };
    if bytes >= tried {
        return HostFinding::ok(name, format!("packets of {bytes} bytes arrive {way}"));
    }
    let mend = format!(
        "transport.mtu = {bytes} in job.toml  # or raise the MTU of the link between to {tried}"
    );
    let costs = match (told, path.cut_arrives) {
        (None, false) => "full packets never arrive: a job starts, and hangs",
        (None, true) => {
            "a job hangs as soon as a full packet leaves alone; those that may be cut arrive in two"
        }
        (Some(_), _) => {
            "packets are cut in two, and sent one by one once the kernel knows: up to an eighth \
             of the speed"
        }
    };
    let found = match told {
        None => format!(
            "black hole: packets above {bytes} bytes vanish {way} without an ICMP error, though \
            both ends allow {tried}"
        ),
        Some(told) => format!(
            "packets above {bytes} bytes do not fit {way}: ICMP reports {told}, though both ends \
            allow {tried}"
        ),
    };
    HostFinding::problem(name, found).costs(costs).mend(mend)
}

fn ports(open: &[bool; SOCKETS]) -> HostFinding {
    let check = "ports";
    let through = open.iter().filter(|open| **open).count();
    if through == SOCKETS {
        return HostFinding::ok(
            check,
            format!("{SOCKETS} of {SOCKETS} pairs of ports are open"),
        );
    }
    HostFinding::problem(
        check,
        format!("{through} of {SOCKETS} pairs of ports are open"),
    )
    .costs("a job uses ports that the kernel chooses: packets on closed pairs are lost")
    .mend(
        "nft insert rule inet filter input udp dport 1024-65535 accept  # on both hosts, \
             limited to their addresses",
    )
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn black_holes_differ_from_links_that_report_mtus() {
        let reach = |told| PathReach { bytes: 1_280, told };
        let path = |told| PathMtu {
            tried: 1_500,
            there: Some(reach(told)),
            back: Some(reach(None)),
            cut_arrives: told.is_some(),
        };
        let silent = path_mtu(&path(None), PEER);
        assert_eq!(silent[0].state, FindingState::Problem);
        assert!(
            silent[0]
                .found
                .starts_with("black hole: packets above 1280")
        );
        assert_eq!(silent[1].state, FindingState::Ok, "what is sent back fits");
        let told = path_mtu(&path(Some(1_280)), PEER);
        assert_eq!(told[0].state, FindingState::Problem);
        assert!(!told[0].found.contains("black hole"), "{told:?}");
        for findings in [silent, told] {
            let mend = findings[0].mend.as_deref().expect("it can be mended");
            assert!(mend.starts_with("transport.mtu = 1280"), "{mend}");
        }
    }

    #[test]
    fn a_closed_port_is_a_problem() {
        let mut open = [true; SOCKETS];
        assert_eq!(ports(&open).state, FindingState::Ok);
        open[3] = false;
        assert_eq!(ports(&open).state, FindingState::Problem);
        assert_eq!(ports(&open).found, "7 of 8 pairs of ports are open");
    }
}
