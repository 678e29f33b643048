//! The line that rank 0 logs when its job starts: job, ranks, hosts, wire and metrics.

use std::collections::BTreeSet;
use std::fmt;

use gradwire_collectives::ignores_tolerance;
use gradwire_protocol::job::{Job, MetricsAccess, ReduceAlgorithm};
use gradwire_protocol::units::Rank;
use gradwire_transport::control::RosterPeer;

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

/// Logs one line per job, and at level debug one per rank.
pub(crate) fn tell(name: &JobName, job: &Job, roster: &[RosterPeer], own: (Rank, &str)) {
    let (rank, wire) = own;
    if rank == Rank(0) {
        log::info!("{}", line(name, job, roster, wire));
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

/// A warning if the job tolerates losses but its all-reduces are lossless.
fn idle_tolerance(job: &Job, roster: &[RosterPeer]) -> Option<String> {
    let hosts = hosts(roster).len();
    (!job.tolerance.is_none() && ignores_tolerance(job, hosts)).then(|| {
        format!(
            "all-reduces of {hosts} hosts are lossless despite the tolerance, since a ring is \
            faster there: if the network can carry traffic from all hosts to all at once, set \
             collectives.core = \"100%\"; otherwise collectives.algorithm = \"direct\" makes them \
             tolerant anyway"
        )
    })
}

fn hosts(roster: &[RosterPeer]) -> BTreeSet<&str> {
    roster.iter().map(|peer| peer.host.as_str()).collect()
}

fn line(name: &JobName, job: &Job, roster: &[RosterPeer], wire: &str) -> String {
    let hosts = hosts(roster);
    let values = job.flat();
    let value = |key: &str| values[key].replace('"', "");
    let algorithm = match (job.collectives.algorithm, job.collectives.table.len()) {
        (ReduceAlgorithm::Auto, 0) => "auto".to_owned(),
        (ReduceAlgorithm::Auto, entries) => format!("auto by a table of {entries}"),
        _ => value("collectives.algorithm"),
    };
    let metrics = match (job.metrics.port, job.metrics.bind) {
        (0, _) => "no metrics".to_owned(),
        (port, MetricsAccess::Loopback) => format!("metrics at port {port} of loopback"),
        (port, MetricsAccess::Any) => format!("metrics at port {port}"),
    };
    let JobName(job) = name;
    format!(
        "gradwire {}: job {job}, {}, {}, wire {wire}, security {}, tolerance {}, algorithm \
         {algorithm}, {metrics}",
        env!("CARGO_PKG_VERSION"),
        count(roster.len(), "rank"),
        count(hosts.len(), "host"),
        value("security"),
        value("tolerance"),
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
            memory: None,
        };
        hosts.iter().enumerate().map(peer).collect()
    }

    #[test]
    fn the_line_tells_what_is_used() {
        let mut job = Job::default();
        job.metrics.port = 9400;
        let line = line(
            &JobName("job (12345678)".to_owned()),
            &job,
            &roster(&["a", "b", "b"]),
            "udp",
        );
        let told = line.split_once(": ").map(|(_, told)| told);
        let wanted = "job job (12345678), 3 ranks, 2 hosts, wire udp, security aead, tolerance 0%, \
                      algorithm auto, metrics at port 9400 of loopback";
        assert_eq!(told, Some(wanted));
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
            told.starts_with("all-reduces of 9 hosts are lossless"),
            "{told}"
        );
        assert_eq!(idle_tolerance(&job, &roster(&names[1..])), None);
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
