//! The lifeline: a TCP connection of each rank with rank 0 that carries nothing after its key. The
//! kernel ends it when the process ends, however it ends, and keeps it while the process is only
//! stopped. So a dead process is known at once, and the ranks wait for a stopped one.
//!
//! - Rank 0 tells each rank its port and a key over QUIC. The rank shows the key over TCP, once.
//! - An end of the lifeline is no proof: something between may have cut it. The process counts as
//!   dead only if it also leaves a packet on QUIC unanswered for [`ANSWER_TIME`].
//! - A rank without a lifeline, because a firewall stops it or descriptors run out, is lost after
//!   `peer_timeout` of silence, as one whose host is gone.
//! - Forked children let go of their copies, so that they do not keep a dead rank's lifeline.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::fill;
use nix::sys::resource::{Resource, getrlimit};
use quinn::{Connection, VarInt};
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::process::ReleasedInChildren;

/// The time for a connection to be made and to show its key.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// Connections that have not shown their keys at one time; further ones wait.
const GREETINGS: usize = 64;
/// The pause after the system refused to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Packets that were on their way when the lifeline ended arrive within this time.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a process may take to answer a packet after its lifeline has ended.
const ANSWER_TIME: Duration = Duration::from_millis(400);
/// The kernel's keep-alives: often enough that no firewall forgets the connection, and so many that
/// a host that stands still for an hour does not lose it.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVES: u32 = 120;
/// Lifelines may take this part of the descriptors that the process may open.
const DESCRIPTOR_SHARE: u64 = 4;

/// Proves which rank a lifeline belongs to.
type LifelineKey = [u8; 32];

/// Where and how a rank connects its lifeline.
#[derive(Deserialize, Serialize)]
pub(super) struct LifelineOffer {
    port: u16,
    key: LifelineKey,
}

/// The ranks whose lifelines are not connected yet.
type ExpectedLifelines = Arc<Mutex<BTreeMap<LifelineKey, Connection>>>;

/// Rank 0's end of all lifelines.
pub(super) struct LifelineDesk {
    port: u16,
    expected: ExpectedLifelines,
    offers_left: u64,
}

impl LifelineDesk {
    /// Listens on the address of the control plane, at the same port if it is free. `None` if the
    /// system refuses.
    pub(super) fn open(control: SocketAddr) -> Option<Self> {
        let any = SocketAddr::new(control.ip(), 0);
        let listener = listen(control).or_else(|_| listen(any)).ok()?;
        let port = listener.local_addr().ok()?.port();
        let expected = ExpectedLifelines::default();
        tokio::spawn(accept_all(listener, Arc::clone(&expected)));
        let (descriptors, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        Some(Self {
            port,
            expected,
            offers_left: descriptors / DESCRIPTOR_SHARE,
        })
    }

    /// Expects the lifeline of the rank at the other end of `connection`; `None` if there are too
    /// many already.
    pub(super) fn expect(&mut self, connection: &Connection) -> Option<LifelineOffer> {
        self.offers_left = self.offers_left.checked_sub(1)?;
        let (mut key, port) = (LifelineKey::default(), self.port);
        fill(&mut key).expect("the system's randomness already served the handshakes");
        let expected = self.expected.lock();
        let mut expected = expected.unwrap_or_else(PoisonError::into_inner);
        expected.insert(key, connection.clone());
        Some(LifelineOffer { port, key })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the control plane's own socket, in the crate that may open sockets"
)]
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = StdTcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn accept_all(listener: TcpListener, expected: ExpectedLifelines) {
    let mut greetings = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if greetings.len() < GREETINGS => match accepted {
                Ok((line, _)) => {
                    let greeting = greet(line, Arc::clone(&expected));
                    greetings.spawn(timeout(GREETING_TIME, greeting));
                }
                Err(_) => sleep(PAUSE).await,
            },
            Some(_) = greetings.join_next() => {}
        }
    }
}

/// Reads the key, and watches the line if a rank has it.
async fn greet(line: TcpStream, expected: ExpectedLifelines) {
    let (mut key, mut read) = (LifelineKey::default(), 0);
    while read < key.len() {
        if line.readable().await.is_err() {
            return;
        }
        match line.try_read(&mut key[read..]) {
            Ok(0) => return,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
    let take = || {
        let expected = expected.lock();
        expected
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&key)
    };
    if let Some(connection) = take() {
        tokio::spawn(watch(line, connection));
    }
}

/// Connects the lifeline that rank 0 offers over `connection`, and closes the connection when rank
/// 0's process has ended.
pub(super) async fn hold(offer: LifelineOffer, connection: Connection) {
    let mut address = connection.remote_address();
    address.set_port(offer.port);
    let connecting = timeout(GREETING_TIME, TcpStream::connect(address));
    if let Ok(Ok(line)) = connecting.await
        && line.writable().await.is_ok()
        && line.try_write(&offer.key).ok() == Some(offer.key.len())
    {
        watch(line, connection).await;
    }
}

/// Waits until the process at the other end has ended, and closes the connection with it.
async fn watch(line: TcpStream, connection: Connection) {
    let kept = TcpKeepalive::new().with_time(KEEP_ALIVE);
    let kept = kept.with_interval(KEEP_ALIVE).with_retries(KEEP_ALIVES);
    // Without keep-alives a firewall may cut the line, which is then no proof of a death.
    let _ = SockRef::from(&line).set_tcp_keepalive(&kept);
    let _released = ReleasedInChildren::new(line.as_raw_fd());
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            ready = line.readable() => if ready.is_err() { return },
        }
        match line.try_read(&mut [0; 1]) {
            Ok(0) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            // It speaks another protocol, or its host is unreachable: its silence will show that.
            Ok(_) | Err(_) => return,
        }
    }
    if !answers(&connection).await {
        connection.close(0_u32.into(), b"");
    }
}

/// Whether the process at the other end answers a packet.
async fn answers(connection: &Connection) -> bool {
    let heard = || connection.stats().udp_rx.datagrams;
    sleep(LAST_WORDS).await;
    let before = heard();
    // Sends a packet: raises a limit that no rank uses, which the other end acknowledges.
    connection.set_max_concurrent_uni_streams(VarInt::from_u32(1));
    sleep(ANSWER_TIME).await;
    heard() > before
}
