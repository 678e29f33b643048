//! Two processes that find each other by a ticket, agree on keys, and notice each other's end: for
//! connections that come and go without a job's control plane.
//!
//! 1. A [`PairListener`] gives out a [`PairTicket`]: its address and a secret of its own.
//! 2. Whoever has the ticket [dials](PairDialer). Both sides send an ephemeral X25519 key and what
//!    the other needs to know ([`PairOffer`]), authenticated by the ticket's secret and by the
//!    token that both may have. A third packet confirms the keys (`handshake`).
//! 3. The TCP connection that carried this remains as a [`PairLine`]. The kernel ends it with the
//!    process, so that each side hears of the other's death.
//!
//! Nothing here waits: each step is asked for again until it is done.
//!
//! Trust: a ticket travels in clear, so it proves little. With a token, only its owners can pair.
//! Without one, an attacker who reads tickets and alters packets can stand between the two; one who
//! only listens learns no key.

mod handshake;
mod line;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use aws_lc_rs::rand::fill;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use gradwire_protocol::units::JobId;

use crate::address::Address;
use crate::control::PairSecrets;
use crate::lanes::AegisLanes;

use handshake::{PairHandshake, PairSide};
pub use line::{LineState, PairLine};

/// Connections that have not proved themselves at one time; the oldest gives way to a further one.
const UNPROVEN_MAX: usize = 64;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 256;
/// The least MTU that a job may have, too.
const MTU_MIN: u32 = 576;
/// Keep-alives that may stay without an answer before the other host counts as gone.
const KEEP_ALIVES: u32 = 4;

/// What each side tells the other.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PairOffer {
    /// Its job in words; both must have the same.
    pub job: String,
    /// Its data addresses, one per entropy.
    pub addresses: Vec<Address>,
    /// The largest packet that its interface takes.
    pub mtu: u32,
    /// Bytes of packets that its sockets buffer.
    pub receive_buffer: u64,
    /// The lanes in which its processor computes AEGIS fastest.
    pub lanes: AegisLanes,
}

impl PairOffer {
    /// Whether packets between both sides arrive, as far as addresses and MTUs tell.
    fn reaches(&self, other: &Self) -> bool {
        let pairs = || self.addresses.iter().zip(&other.addresses);
        let is_path = |(own, other): (&Address, &Address)| match (own, other) {
            (Address::Socket(own), Address::Socket(to)) => own.is_ipv4() == to.is_ipv4(),
            (Address::QueuePair(_), Address::QueuePair(_)) => true,
            _ => false,
        };
        self.addresses.len() == other.addresses.len()
            && other.addresses.iter().all(Address::is_reachable)
            && pairs().all(is_path)
            && other.mtu >= MTU_MIN
    }

    /// Its first address, and its MTU.
    fn path(&self) -> String {
        let first = self.addresses.first();
        let first = first.map_or_else(|| "no address".to_owned(), Address::to_string);
        format!("{first} (MTU {})", self.mtu)
    }
}

/// The means of one side: its offer, its token, and how long a silent host may be alive.
#[derive(Clone, Debug)]
pub struct PairTerms {
    /// What it tells the other side.
    pub offer: PairOffer,
    /// The secret that both sides must know; may be empty.
    pub token: String,
    /// A host that is silent for this long counts as gone.
    pub silence: Duration,
}

/// Two sides have found each other.
#[derive(Debug)]
pub struct PairedProcess {
    /// The number of the job of the two, drawn by the listener.
    pub job: JobId,
    /// The secret of the two.
    pub secrets: PairSecrets,
    /// What the other side told.
    pub offer: PairOffer,
    /// Tells when the other side ends.
    pub line: PairLine,
}

/// Two processes could not be paired.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The system refused.
    #[error("{doing} failed: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The other side refused, and said why; this is not authenticated.
    #[error("the other side refused: {0}")]
    Refused(String),
    /// The other side has ended the connection.
    #[error("the other side ended the connection before it was paired: look at its log")]
    Ended,
    /// Nothing came back.
    #[error(
        "{0} does not answer: start it, and let TCP to this port and UDP pass between the hosts"
    )]
    Silent(SocketAddr),
    /// The proof is of another token or ticket.
    #[error(
        "the other side has another token: give both the same by GRADWIRE_TOKEN_FILE or \
         GRADWIRE_TOKEN, or none of them"
    )]
    Token,
    /// The listener has drawn the number of a job that the dialer has already: dial again.
    #[error("the number of the connection is taken: dial again")]
    Taken,
    /// The bytes are of another version, or of another program.
    #[error("the other side speaks another version of gradwire: install the same on both hosts")]
    Foreign,
    /// No packet would arrive.
    #[error(
        "packets from {ours} do not reach {theirs}: name interfaces with addresses of one family, \
         and an MTU of {MTU_MIN} bytes or more, by GRADWIRE_IFNAME on both hosts"
    )]
    Path {
        /// An address of ours, and the MTU.
        ours: String,
        /// The same of theirs.
        theirs: String,
    },
    /// The jobs differ.
    #[error(
        "this side has {ours}, the other {theirs}: give both the same file by GRADWIRE_JOB, or \
         none of them"
    )]
    Job {
        /// Ours.
        ours: String,
        /// Theirs.
        theirs: String,
    },
}

impl PairError {
    fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

/// Where a listener is found, and the secret that shows who was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PairTicket {
    address: SocketAddr,
    secret: [u8; 32],
}

impl PairTicket {
    /// Length of a ticket.
    pub const BYTES: usize = 50;

    /// The ticket of a listener whose address is known: only the token proves who pairs with it.
    pub const fn known(address: SocketAddr) -> Self {
        Self {
            address,
            secret: [0; 32],
        }
    }

    /// Where the listener is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ticket as bytes: an IPv6 address or a mapped IPv4 address, the port, the secret.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let address = match self.address.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&address.octets());
        bytes[16..18].copy_from_slice(&self.address.port().to_be_bytes());
        bytes[18..].copy_from_slice(&self.secret);
        bytes
    }

    /// Reads a ticket. Any bytes are one; only true ones lead anywhere.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (address, rest) = bytes.split_at(16);
        let (port, secret) = rest.split_at(2);
        let address: [u8; 16] = address.try_into().expect("16 bytes");
        let port = u16::from_be_bytes(port.try_into().expect("2 bytes"));
        Self {
            address: SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port),
            secret: secret.try_into().expect("32 bytes"),
        }
    }
}

/// Waits for processes that have its ticket.
#[derive(Debug)]
pub struct PairListener {
    listener: TcpListener,
    ticket: PairTicket,
    terms: PairTerms,
    unproven: VecDeque<PairHandshake>,
}

impl PairListener {
    /// Listens on `address`, at a port that the kernel chooses.
    ///
    /// # Errors
    /// [`PairError::System`] when the system refuses a port.
    pub fn open(address: IpAddr, terms: PairTerms) -> Result<Self, PairError> {
        let mut secret = [0; 32];
        fill(&mut secret).expect("the system has randomness");
        let address = SocketAddr::new(address, 0);
        Self::with_ticket(PairTicket { address, secret }, terms)
    }

    /// Listens on an address that dialers know; port 0 is any free one.
    ///
    /// # Errors
    /// As [`PairListener::open`].
    pub fn at(address: SocketAddr, terms: PairTerms) -> Result<Self, PairError> {
        Self::with_ticket(PairTicket::known(address), terms)
    }

    fn with_ticket(mut ticket: PairTicket, terms: PairTerms) -> Result<Self, PairError> {
        let listener = listen(ticket.address).map_err(PairError::system("listening"))?;
        let address = listener.local_addr();
        ticket.address = address.map_err(PairError::system("listening"))?;
        Ok(Self {
            listener,
            ticket,
            terms,
            unproven: VecDeque::new(),
        })
    }

    /// The ticket to give to others.
    pub fn ticket(&self) -> PairTicket {
        self.ticket
    }

    /// The next process that has paired, if any has. Those that fail are told why, and forgotten:
    /// they may be anyone. `is_taken` tells which jobs this process listens for already.
    ///
    /// # Errors
    /// [`PairError::System`] when the system refuses to accept connections.
    pub fn poll(
        &mut self,
        is_taken: impl Fn(JobId) -> bool,
    ) -> Result<Option<PairedProcess>, PairError> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let side = PairSide::Listener;
                    if self.unproven.len() == UNPROVEN_MAX {
                        self.unproven.pop_front();
                    }
                    let line = PairLine::over(stream, keep_alive(self.terms.silence));
                    let line = line.map_err(PairError::system("accepting"))?;
                    let secret = &self.ticket.secret;
                    let begun = PairHandshake::new(line, side, secret, &self.terms);
                    self.unproven.push_back(begun);
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(PairError::system("accepting")(error)),
            }
        }
        let mut at = 0;
        while let Some(handshake) = self.unproven.get_mut(at) {
            match handshake.poll(&is_taken) {
                Ok(None) => at += 1,
                Ok(Some(paired)) => {
                    self.unproven.remove(at);
                    return Ok(Some(paired));
                }
                Err(error) => {
                    log::warn!("a process that wanted to connect was refused: {error}");
                    self.unproven.remove(at);
                }
            }
        }
        Ok(None)
    }
}

/// Connects to the listener that has given out a ticket.
#[derive(Debug)]
pub struct PairDialer(PairHandshake);

impl PairDialer {
    /// Begins to connect.
    ///
    /// # Errors
    /// [`PairError::System`] when the system refuses.
    pub fn new(ticket: &PairTicket, terms: &PairTerms) -> Result<Self, PairError> {
        let stream = dial(ticket.address).map_err(PairError::system("connecting"))?;
        let line = PairLine::over(stream, keep_alive(terms.silence));
        let line = line.map_err(PairError::system("connecting"))?;
        let side = PairSide::Dialer;
        let handshake = PairHandshake::new(line, side, &ticket.secret, terms);
        Ok(Self(handshake))
    }

    /// The listener's process, once both have paired; `None`: ask again. `is_taken` tells which
    /// jobs this process has dialed already.
    ///
    /// # Errors
    /// [`PairError`] when the listener cannot be reached or refuses.
    pub fn poll(
        &mut self,
        is_taken: impl Fn(JobId) -> bool,
    ) -> Result<Option<PairedProcess>, PairError> {
        self.0.poll(&is_taken)
    }
}

fn keep_alive(silence: Duration) -> TcpKeepalive {
    let each = (silence / (KEEP_ALIVES + 1)).max(Duration::from_secs(1));
    TcpKeepalive::new()
        .with_time(each)
        .with_interval(each)
        .with_retries(KEEP_ALIVES)
}

fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "pairing is one of transport's control planes"
)]
fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    // A process that starts again takes its port although connections of the one before linger.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Begins to connect; the kernel tells the outcome by the first write.
fn dial(address: SocketAddr) -> io::Result<std::net::TcpStream> {
    let socket = socket(address)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    SockRef::from(&socket).set_tcp_nodelay(true)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests;
