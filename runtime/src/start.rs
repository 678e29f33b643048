//! The line that rank 0 logs when its job starts: job, ranks, hosts, and what is in effect.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use gradwire_collectives::ignores_tolerance;
use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::units::Rank;
use gradwire_transport::control::RosterPeer;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::seal;

use crate::vicinity;

/// The job as its file says it, before anything was fitted to hosts: its name, and a short hash
/// that is equal for equal jobs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct JobName(String);

impl JobName {
    pub(crate) fn of(job: &Job) -> Self {
        Self(format!("{} ({:08x})", job.name, hash(job)))
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// FNV-1a of all keys and values, folded to 32 bits.
fn hash(job: &Job) -> u32 {
    let text = job.flat().into_iter();
    let text = text.map(|(key, value)| format!("{key}={value}\n"));
    let bytes = text.flat_map(String::into_bytes);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

/// What a rank uses, which its job may leave open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankInUse {
    pub(crate) rank: Rank,
    /// The wire that carries its packets.
    pub(crate) wire: &'static str,
    /// Where its metrics are, if they are anywhere.
    pub(crate) metrics: Option<SocketAddr>,
}

impl RankInUse {
    pub(crate) fn of(rank: Rank, wire: &'static str, metrics: Option<SocketAddr>) -> Self {
        Self {
            rank,
            wire,
            metrics,
        }
    }
}

/// Logs one line per job, and at level debug one per rank.
pub(crate) fn tell(name: &JobName, job: &Job, roster: &[RosterPeer], own: RankInUse) {
    let RankInUse { rank, wire, .. } = own;
    if rank == Rank(0) {
        log::info!("{}", line(name, job, roster, own));
        if let Some(text) = idle_tolerance(job, roster) {
            log::warn!("{text}");
        }
        if wire == "rdma"
            && let Some(text) = unequal_ports(roster)
        {
            log::warn!("{text}");
        }
    }
    let peer = &roster[usize::from(rank.0)];
    let (addresses, mtu) = (&peer.data_addresses, job.transport.mtu);
    log::debug!("joined over {wire}, data at {addresses:?}, mtu {mtu:?}");
}

/// A warning if some ranks' ports take larger packets than others. An RDMA device silently drops
/// packets that are too large.
fn unequal_ports(roster: &[RosterPeer]) -> Option<String> {
    let smallest = roster.iter().min_by_key(|peer| peer.mtu)?;
    let largest = roster.iter().max_by_key(|peer| peer.mtu)?;
    let told = |peer: &RosterPeer| format!("rank {} on {} {}", peer.rank, peer.host, peer.mtu);
    (smallest.mtu < largest.mtu).then(|| {
        format!(
            "the ranks' RDMA ports take packets of different sizes ({}, {}), so all use the \
             smallest: set the MTU of their network interfaces alike",
            told(largest),
            told(smallest)
        )
    })
}

/// A warning if the job tolerates losses but its long all-reduces are lossless.
fn idle_tolerance(job: &Job, roster: &[RosterPeer]) -> Option<String> {
    let places: BTreeSet<u16> = vicinity::hosts(roster).into_iter().collect();
    let hosts = places.len();
    (!job.tolerance.is_none() && ignores_tolerance(job, hosts)).then(|| {
        format!(
            "long all-reduces between {hosts} hosts are lossless despite the tolerance, since a \
             ring is at least as fast there: if the network can carry traffic from all hosts to \
             all at once, collectives.core = \"100%\" makes those of one chunk tolerant; \
             collectives.algorithm = \"direct\" makes all of them tolerant"
        )
    })
}

fn hosts(roster: &[RosterPeer]) -> BTreeSet<&str> {
    roster.iter().map(|peer| peer.host.as_str()).collect()
}

/// How packets are protected. Memory that only the ranks of a host can map needs no protection.
fn security(job: &Job, lanes: AegisLanes, wire: &str) -> String {
    match (seal::protection(job, lanes), wire) {
        ("none", _) => "none".to_owned(),
        (_, "shm") => "none in memory".to_owned(),
        (cipher, "shm+udp") => format!("{cipher}, none in memory"),
        (cipher, _) => cipher.to_owned(),
    }
}

/// Where rank 0 serves its metrics; the other ranks of its host use the ports after that.
fn metrics(job: &Job, address: Option<SocketAddr>) -> String {
    match (job.metrics.port, address) {
        (0, _) => "no metrics".to_owned(),
        (port, None) => format!("no metrics of rank 0: port {port} cannot be opened"),
        (_, Some(address)) if address.ip().is_loopback() => {
            format!("metrics at port {} of loopback", address.port())
        }
        (_, Some(address)) => format!("metrics at port {}", address.port()),
    }
}

fn line(name: &JobName, job: &Job, roster: &[RosterPeer], own: RankInUse) -> String {
    let wire = own.wire;
    let hosts = hosts(roster);
    let values = job.flat();
    let value = |key: &str| values[key].replace('"', "");
    let algorithm = match (job.collectives.algorithm, job.collectives.table.len()) {
        (ReduceAlgorithm::Auto, 0) => "auto".to_owned(),
        (ReduceAlgorithm::Auto, entries) => format!("auto by a table of {entries}"),
        _ => value("collectives.algorithm"),
    };
    let JobName(told) = name;
    format!(
        "gradwire {}: job {told}, {}, {}, wire {wire}, security {}, the job's tolerance {}, \
         algorithm {algorithm}, {}",
        env!("CARGO_PKG_VERSION"),
        count(roster.len(), "rank"),
        count(hosts.len(), "host"),
        security(job, vicinity::lanes(roster), wire),
        value("tolerance"),
        metrics(job, own.metrics),
    )
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::Share;

    use super::*;

    fn roster(hosts: &[&str]) -> Vec<RosterPeer> {
        let peer = |(rank, host): (usize, &&str)| RosterPeer {
            rank: Rank(rank as u16),
            host: (*host).to_owned(),
            data_addresses: Vec::new(),
            mtu: 1500,
            receive_buffer: 1 << 20,
            lanes: AegisLanes::Two,
            memory: None,
            round_trip_us: 0,
        };
        hosts.iter().enumerate().map(peer).collect()
    }

    #[test]
    fn the_line_tells_what_is_used() {
        let mut job = Job::default();
        job.metrics.port = 9400;
        let told = |wire, metrics: Option<&str>| {
            let own = RankInUse {
                rank: Rank(0),
                wire,
                metrics: metrics.map(|address| address.parse().expect("an address")),
            };
            let name = JobName("job (12345678)".to_owned());
            let line = line(&name, &job, &roster(&["a", "b", "b"]), own);
            line.split_once(", wire ").expect("a wire").1.to_owned()
        };
        let wanted = "udp, security aegis-128x2, the job's tolerance 0%, algorithm auto, metrics \
                      at port 9401 of loopback";
        assert_eq!(told("udp", Some("127.0.0.1:9401")), wanted);
        let wanted = "shm, security none in memory, the job's tolerance 0%, algorithm auto, no \
                      metrics of rank 0: port 9400 cannot be opened";
        assert_eq!(told("shm", None), wanted);
    }

    #[test]
    fn a_tolerance_without_effect_is_told() {
        let names: Vec<String> = (0..9).map(|host| format!("host{host}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut job = Job::default();
        assert_eq!(idle_tolerance(&job, &roster(&names)), None);
        job.tolerance = Share::new(0.1).expect("a share");
        let told = idle_tolerance(&job, &roster(&names)).expect("nine hosts take a ring");
        assert!(
            told.starts_with("long all-reduces between 9 hosts are lossless"),
            "{told}"
        );
        assert_eq!(idle_tolerance(&job, &roster(&names[..2])), None);
    }

    #[test]
    fn ports_of_different_mtus_are_told() {
        let mut roster = roster(&["a", "b"]);
        assert_eq!(unequal_ports(&roster), None);
        roster[1].mtu = 1072;
        let told = unequal_ports(&roster).expect("they differ");
        assert!(
            told.contains("(rank 0 on a 1500, rank 1 on b 1072)"),
            "{told}"
        );
    }

    #[test]
    fn only_equal_jobs_have_equal_hashes() {
        let mut other = Job::default();
        other.transport.spray_burst += 1;
        assert_eq!(JobName::of(&Job::default()), JobName::of(&Job::default()));
        assert_ne!(JobName::of(&Job::default()), JobName::of(&other));
    }
}
