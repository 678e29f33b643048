//! A process that exchanges messages with others without a job's world: connections are made and
//! ended while it runs.
//!
//! 1. A [`PartyListener`] gives out tickets. Whoever has one [dials](PartyDialer), and both ends
//!    have a connection: messages go from the dialer to the listener, in the order in which they
//!    are sent and received.
//! 2. Each connection is a job of its own with two ranks: the dialer is rank 0, the listener is
//!    rank 1. So it has an endpoint, keys and a window of its own, and its end frees all of them.
//!    `machine` has the endpoints, by job.
//! 3. All connections share the sockets and the driver of the process. A caller that asks whether a
//!    request is done drives one round, so that no message changes threads. The driver's own thread
//!    answers peers when no caller asks.
//! 4. A connection ends for good when its peer's process ends, closes or is silent.
//!
//! Not here: how two processes meet ([`gradwire_transport::pair`]), and who owns the memory.

mod connection;
mod machine;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{IdleMode, Job, SendWindow};
use gradwire_protocol::launch::{self, LaunchFacts};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::units::{ByteCount, Rank};
use gradwire_transport::driver::{self, DriverGuest, DriverLink, GuestName};
use gradwire_transport::pair::{PairDialer, PairListener, PairTerms, PairedProcess};
pub use gradwire_transport::pair::{PairError, PairTicket};

use crate::pairing;
pub use crate::pairing::PartyError;
use crate::start::JobName;
pub use connection::{PartyReceiver, PartySender, REQUESTS_MAX, RequestError, RequestNumber};
use machine::PartyMachine;

/// The rank of the side that dials and sends.
const DIALER: Rank = Rank(0);
/// The rank of the side that listens and receives.
const LISTENER: Rank = Rank(1);
/// Connections that are expected to share the receive buffers at one time.
const SHARERS: u64 = 2;

/// The arguments for opening a party.
#[derive(Clone, Debug)]
pub struct PartyOpening {
    /// The job, whose transport, security and faults apply to each connection.
    pub job: Job,
    /// A local address that others can send to.
    pub bind: IpAddr,
    /// The secret that all processes share; may be empty.
    pub token: String,
}

/// A process with sockets and a driver, and its connections.
#[derive(Debug)]
pub struct Party {
    job: Job,
    bind: IpAddr,
    terms: PairTerms,
    link: DriverLink<PartyMachine>,
    /// The peers of all connections.
    taken: Mutex<BTreeSet<GuestName>>,
}

impl Party {
    /// Opens the sockets, and starts the driver.
    ///
    /// # Errors
    /// [`PartyError`] when the system refuses, or when the job names a wire that does not serve
    /// connections.
    pub fn open(opening: PartyOpening) -> Result<Arc<Self>, PartyError> {
        let PartyOpening {
            mut job,
            bind,
            token,
        } = opening;
        let name = JobName::of(&job);
        // Restored segments would need the sums of groups, which only collectives keep.
        job.transport.parity = ParityRule::None;
        let (mut setup, terms) = pairing::open(&job, (bind, token), format!("job {name}"))?;
        setup.pace.idle = IdleMode::Block;
        let link = driver::spawn(PartyMachine::default(), setup, |_| {});
        Ok(Arc::new(Self {
            job,
            bind,
            terms,
            link: link.map_err(PartyError::Driver)?,
            taken: Mutex::default(),
        }))
    }

    /// The job, as it was given.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The address that others send to.
    pub fn address(&self) -> IpAddr {
        self.bind
    }

    /// Whether a token proves who may connect.
    pub fn has_token(&self) -> bool {
        !self.terms.token.is_empty()
    }

    /// Listens for processes that dial.
    ///
    /// # Errors
    /// [`PairError`] when the system refuses a port.
    pub fn listen(self: &Arc<Self>) -> Result<PartyListener, PairError> {
        let listener = PairListener::open(self.bind, self.terms.clone())?;
        Ok(PartyListener {
            listener,
            party: Arc::clone(self),
        })
    }

    /// Begins to connect to the process that has given out a ticket.
    ///
    /// # Errors
    /// [`PairError`] when the system refuses a socket.
    pub fn dial(self: &Arc<Self>, ticket: &PairTicket) -> Result<PartyDialer, PairError> {
        let dialer = PairDialer::new(ticket, &self.terms)?;
        Ok(PartyDialer {
            dialer,
            ticket: *ticket,
            party: Arc::clone(self),
        })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeSet<GuestName>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the peer of a new connection, and makes the endpoint that talks with it.
    fn connect(&self, paired: &PairedProcess, own: Rank) -> (GuestName, Endpoint, DriverGuest) {
        let theirs = &paired.offer;
        let facts = LaunchFacts {
            mtu: theirs.mtu.min(self.terms.offer.mtu),
            receive_buffer: ByteCount::new(
                (theirs.receive_buffer).min(self.terms.offer.receive_buffer),
            ),
            peers: SHARERS,
        };
        let mut job = launch::fitted(self.job.clone(), &facts);
        // There may be many connections, so none grows with its path.
        job.transport.window = SendWindow::Bytes(job.transport.window.short());
        let identity = pairing::identity(paired, own);
        let seed = u64::from(paired.job.0) << 16 | u64::from(own.0);
        let endpoint = Endpoint::new(identity, &job, seed);
        let (name, guest) = pairing::guest(&job, paired, own);
        (name, endpoint, guest)
    }
}

/// Waits for processes that dial.
#[derive(Debug)]
pub struct PartyListener {
    listener: PairListener,
    party: Arc<Party>,
}

impl PartyListener {
    /// The ticket to give to others; any number of them may use it.
    pub fn ticket(&self) -> PairTicket {
        self.listener.ticket()
    }

    /// The next connection, if there is one; never waits.
    ///
    /// # Errors
    /// [`PairError`] when the system refuses.
    pub fn accept(&mut self) -> Result<Option<PartyReceiver>, PairError> {
        let party = &self.party;
        let is_taken = |job| party.taken().contains(&GuestName { job, rank: DIALER });
        let paired = self.listener.poll(is_taken)?;
        Ok(paired.map(|paired| PartyReceiver::new(party, paired)))
    }
}

/// A connection that is being made.
#[derive(Debug)]
pub struct PartyDialer {
    dialer: PairDialer,
    ticket: PairTicket,
    party: Arc<Party>,
}

impl PartyDialer {
    /// The connection, once the other side has accepted it; never waits.
    ///
    /// # Errors
    /// [`PairError`] when the other side cannot be reached or refuses.
    pub fn poll(&mut self) -> Result<Option<PartySender>, PairError> {
        let party = &self.party;
        let is_taken = |job| {
            let rank = LISTENER;
            party.taken().contains(&GuestName { job, rank })
        };
        match self.dialer.poll(is_taken) {
            Err(PairError::Taken) => {
                self.dialer = PairDialer::new(&self.ticket, &party.terms)?;
                Ok(None)
            }
            paired => Ok(paired?.map(|paired| PartySender::new(party, paired))),
        }
    }
}

#[cfg(test)]
mod tests;
