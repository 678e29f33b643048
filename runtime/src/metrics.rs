//! The metrics of a rank: its [`Snapshot`], also as JSON and as text for Prometheus, and the HTTP
//! port that serves them.
//!
//! Start here:
//! - [`snapshot`]: everything that a rank counts, as plain data.
//! - [`prometheus`]: the same as text.
//! - `operations`: how long operations took.
//!
//! `protocol::metrics` counts packets; the command's `top` shows snapshots. Metrics are not written
//! to disk: an observer asks the port.

pub(crate) mod operations;
pub mod prometheus;
pub mod snapshot;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use gradwire_protocol::job::{MetricsAccess, MetricsKeys};
use gradwire_transport::http::{self, HttpPage, HttpServer};

pub use gradwire_transport::http::GetError;
pub use snapshot::Snapshot;

use crate::inbox::{ANSWER_PATIENCE, DriverInbox};
use crate::rank_driver::RankDriver;
use snapshot::RankSubject;

/// How many ports are tried, or asked, from the job's own on: one for each rank of a host.
pub const PORTS: u16 = 64;
/// A snapshot is served again for this long, so that many observers cost the rank no more than one.
const SNAPSHOT_KEPT: Duration = Duration::from_millis(100);

/// Takes snapshots of one rank.
#[derive(Debug)]
pub(crate) struct SnapshotSource {
    subject: RankSubject,
    since: Instant,
    inbox: Arc<DriverInbox>,
}

impl SnapshotSource {
    #[expect(clippy::disallowed_methods, reason = "a rank tells its uptime")]
    pub(crate) fn new(subject: RankSubject, inbox: &Arc<DriverInbox>) -> Arc<Self> {
        Arc::new(Self {
            subject,
            since: Instant::now(),
            inbox: Arc::clone(inbox),
        })
    }

    /// The counts of the rank between two rounds of the driver; `None` if the driver has stopped.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let (tell, told) = sync_channel(1);
        let ask = move |seat: &mut RankDriver, _| {
            // This only copies, since it runs on the driving thread; the other work happens below.
            let communicator = seat.communicator();
            let counted = communicator.endpoint().metrics();
            let held = communicator.held_messages();
            let dropped = communicator.residuals().dropped_elements();
            let _ = tell.send((counted, [held, dropped], seat.operations().clone()));
        };
        let asked = self.inbox.with(|link| link.submit(Box::new(ask)));
        asked?.ok()?;
        let (counted, [held, dropped], operations) = told.recv_timeout(ANSWER_PATIENCE).ok()?;
        let driver = self.inbox.with(|link| link.counters())?;
        let mut snapshot = Snapshot::new(&self.subject, &counted);
        snapshot.held_messages = held;
        snapshot.dropped_residual_elements = dropped;
        snapshot.uptime_s = self.since.elapsed().as_secs_f64();
        snapshot.operations = operations.collected();
        snapshot.add_driver(&driver.named());
        Some(snapshot)
    }
}

/// Opens the port that the job asks for, if it asks for one. A port that cannot be opened causes a
/// warning, and does not stop training.
///
/// `local_rank` is the rank's number on its host, where a launcher has told it; without it the
/// first free port is taken.
pub(crate) fn open(
    keys: &MetricsKeys,
    local_rank: Option<u16>,
    watch: &Arc<SnapshotSource>,
) -> Option<HttpServer> {
    if keys.port == 0 {
        return None;
    }
    let (first, last) = match local_rank {
        Some(local) => (keys.port.checked_add(local), keys.port.checked_add(local)),
        None => (Some(keys.port), Some(keys.port.saturating_add(PORTS - 1))),
    };
    let bind = match keys.bind {
        MetricsAccess::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
        MetricsAccess::Any => any_address(),
    };
    let (Some(first), Some(last)) = (first, last) else {
        let port = keys.port;
        log::warn!(
            "no metrics: metrics.port = {port} leaves no port for this rank; set a lower \
        one"
        );
        return None;
    };
    let pages = pages(Arc::clone(watch));
    match HttpServer::start(bind, first..=last, pages) {
        Ok(server) => Some(server),
        Err(error) => {
            log::warn!("no metrics: port {first} on {bind}: {error}; set another metrics.port");
            None
        }
    }
}

/// IPv6 with IPv4 if the host has it.
fn any_address() -> IpAddr {
    match std::fs::exists("/proc/net/if_inet6") {
        Ok(true) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

#[expect(clippy::disallowed_methods, reason = "a snapshot has an age")]
fn pages(watch: Arc<SnapshotSource>) -> impl FnMut(&str) -> Option<HttpPage> + Send + 'static {
    let mut kept: Option<(Instant, Snapshot)> = None;
    move |path| {
        let render: fn(&Snapshot) -> HttpPage = match path {
            "/metrics" => |snapshot| HttpPage {
                media: prometheus::MEDIA,
                text: prometheus::text(snapshot),
            },
            "/snapshot" => |snapshot| HttpPage {
                media: "application/json",
                text: snapshot.to_json(),
            },
            _ => return None,
        };
        let fresh = kept.take().filter(|(at, _)| at.elapsed() < SNAPSHOT_KEPT);
        let (at, snapshot) = match fresh {
            Some(fresh) => fresh,
            None => (Instant::now(), watch.snapshot()?),
        };
        let page = render(&snapshot);
        kept = Some((at, snapshot));
        Some(page)
    }
}

/// Why there is no snapshot of a rank.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No process answers there, or it is not a rank.
    #[error(transparent)]
    Get(#[from] GetError),
    /// The answer is not a snapshot of this release.
    #[error("its answer is not a snapshot: {0}")]
    NoSnapshot(#[from] serde_json::Error),
}

/// The snapshot of the rank whose metrics are at `address`.
///
/// # Errors
/// [`FetchError`] when no rank answers within `patience`.
pub fn fetch(address: SocketAddr, patience: Duration) -> Result<Snapshot, FetchError> {
    let bytes = http::get(address, "/snapshot", patience)?;
    Ok(serde_json::from_slice(&bytes)?)
}
