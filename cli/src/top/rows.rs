//! Rates, computed from two answers of a rank.

use gradwire_runtime::metrics::snapshot::{ClassTraffic, PeerSnapshot, Snapshot};
use serde::Serialize;

use super::board::{Board, Presence, Sighting};

/// A rank of the job, and its peers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankRow {
    /// Name of the job.
    pub job: String,
    /// Number of this run of the job.
    pub job_id: u32,
    /// How many ranks the job has.
    pub world_size: u16,
    /// The host as the rank calls it.
    pub host: String,
    /// The wire that carries its packets.
    pub wire: String,
    /// Where it answers.
    pub address: String,
    /// The time that the rates are of, in seconds.
    pub interval_s: f64,
    /// The rank's own numbers.
    #[serde(flatten)]
    pub row: TopRow,
    /// Its peers', by rank.
    pub peers: Vec<TopRow>,
}

/// The numbers of a rank or of one of its peers. `None` where a number is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopRow {
    /// The rank, or the peer.
    pub rank: u16,
    /// "up", "gone", or how a peer stands.
    pub state: String,
    /// Bytes sent a second.
    pub out_bytes_per_s: f64,
    /// Bytes received a second.
    pub in_bytes_per_s: f64,
    /// Share lost within the tolerance.
    pub lost_share: Option<f64>,
    /// Share that the tolerance allows.
    pub tolerance: Option<f64>,
    /// Segments sent again, a second.
    pub repairs_per_s: f64,
    /// Packets that came with CE, a second.
    pub marks_per_s: f64,
    /// Median round trip since the start.
    pub rtt_p50_us: Option<u64>,
    /// The round trip that 99 in 100 do not exceed.
    pub rtt_p99_us: Option<u64>,
    /// Packets that the kernel dropped since the start.
    pub kernel_drops: Option<u64>,
    /// Operations that ended, a second.
    pub operations_per_s: Option<f64>,
    /// Bytes on their way to the peer.
    pub in_flight_bytes: Option<u64>,
    /// Bytes that may be.
    pub window_bytes: Option<u64>,
    /// Whether the peer's packets keep their order: "kept", "unproven" or "broken".
    pub order: Option<String>,
}

impl RankRow {
    /// Whether it does not answer any more.
    pub fn is_gone(&self) -> bool {
        self.row.state == "gone"
    }
}

/// The rows of all ranks.
pub fn of(board: &Board) -> Vec<RankRow> {
    board.sightings().iter().map(rank_row).collect()
}

fn rank_row(seen: &Sighting) -> RankRow {
    let (now, before) = (&seen.now, &seen.before);
    let interval_s = match seen.presence {
        Presence::Here => now.uptime_s - before.uptime_s,
        Presence::Gone => 0.0,
    };
    RankRow {
        job: now.job.clone(),
        job_id: now.job_id,
        world_size: now.world_size,
        host: now.host.clone(),
        wire: now.wire.clone(),
        address: format!("{}:{}", seen.host, seen.port),
        interval_s,
        row: total(now, before, interval_s),
        peers: now
            .peers
            .iter()
            .map(|peer| {
                let mut earlier = before.peers.iter();
                let earlier = earlier.find(|earlier| earlier.rank == peer.rank);
                peer_row(peer, earlier, interval_s)
            })
            .collect(),
    }
}

/// Growth of a count per second; 0 for a rank that has gone, since no time has passed.
fn per_second(now: u64, before: u64, interval_s: f64) -> f64 {
    match interval_s > 0.0 {
        true => now.saturating_sub(before) as f64 / interval_s,
        false => 0.0,
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn total(now: &Snapshot, before: &Snapshot, interval_s: f64) -> TopRow {
    let rate = |now, before| per_second(now, before, interval_s);
    let owed = now.loss.owed_bytes.saturating_sub(before.loss.owed_bytes);
    let lost = now.loss.lost_bytes.saturating_sub(before.loss.lost_bytes);
    let allowed = now.loss.allowed_bytes;
    let allowed = allowed.saturating_sub(before.loss.allowed_bytes);
    let heard = || now.peers.iter().filter(|peer| peer.round_trips.count > 0);
    let done = rate(now.operations_done(), before.operations_done());
    TopRow {
        rank: now.rank,
        state: match interval_s > 0.0 {
            true => "up",
            false => "gone",
        }
        .to_owned(),
        lost_share: share(lost, owed).filter(|_| interval_s > 0.0),
        tolerance: share(allowed, owed).or(Some(now.tolerance)),
        rtt_p50_us: heard().map(|peer| peer.round_trips.p50_us).max(),
        rtt_p99_us: heard().map(|peer| peer.round_trips.p99_us).max(),
        kernel_drops: now.driver.get("kernel_drops").copied(),
        operations_per_s: Some(done),
        ..traffic(now.traffic(), before.traffic(), interval_s)
    }
}

fn peer_row(now: &PeerSnapshot, before: Option<&PeerSnapshot>, interval_s: f64) -> TopRow {
    let none = PeerSnapshot::default();
    let before = before.unwrap_or(&none);
    let lost = now.lost_segments.saturating_sub(before.lost_segments);
    let came = now.received_segments;
    let came = came.saturating_sub(before.received_segments);
    let heard = now.round_trips.count > 0;
    TopRow {
        rank: now.rank,
        state: match interval_s > 0.0 {
            true => now.standing.clone(),
            false => "gone".to_owned(),
        },
        lost_share: share(lost, lost + came).filter(|_| interval_s > 0.0),
        rtt_p50_us: heard.then_some(now.round_trips.p50_us),
        rtt_p99_us: heard.then_some(now.round_trips.p99_us),
        in_flight_bytes: Some(now.in_flight_bytes),
        window_bytes: Some(now.window_bytes),
        order: Some(now.order.clone()),
        ..traffic(now.traffic(), before.traffic(), interval_s)
    }
}

fn traffic(now: ClassTraffic, before: ClassTraffic, interval_s: f64) -> TopRow {
    let rate = |now, before| per_second(now, before, interval_s);
    TopRow {
        out_bytes_per_s: rate(now.sent_bytes, before.sent_bytes),
        in_bytes_per_s: rate(now.received_bytes, before.received_bytes),
        repairs_per_s: rate(now.repaired_segments, before.repaired_segments),
        marks_per_s: rate(now.marks, before.marks),
        ..TopRow::default()
    }
}
