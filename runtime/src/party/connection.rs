//! The two ends of a connection: requests, and how they end.
//!
//! 1. Up to [`REQUESTS_MAX`] requests are open at a time. One more is not taken: the caller tests
//!    an open one first.
//! 2. A request is open until a test has told its end. The memory of a request belongs to the
//!    connection until then.
//! 3. The end of the peer's process fails all requests that have not ended. A receiver that closes
//!    tells how many messages it has taken: the sender's requests of those have ended well, even if
//!    the packet that says so is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use gradwire_collectives::buffer::LentMemory;
use gradwire_protocol::units::{Instant, MessageKey, Rank, Span};
use gradwire_transport::driver::GuestName;
use gradwire_transport::pair::{LineState, PairLine, PairedProcess};

use super::machine::{PartyMachine, PendingMessage};
use super::{DIALER, LISTENER, Party};

/// Requests of a connection that may be open at a time.
pub const REQUESTS_MAX: usize = 32;
/// Tests of open requests between two looks at the peer's process.
const LINE_EVERY: u32 = 64;

/// Why a request failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The message is longer than the memory of its receive.
    #[error(
        "a message of {came} bytes came for a receive with room for {room}: the sender may send \
         {room} bytes at most"
    )]
    TooLong {
        /// Bytes that the receive has room for.
        room: u32,
        /// Bytes of the message.
        came: u32,
    },
    /// The receiver has no room for the message.
    #[error(
        "the receiver refused a message of {bytes} bytes, for which its receive has no room: its \
         log tells how much it has"
    )]
    Refused {
        /// Bytes of the message.
        bytes: u32,
    },
    /// The peer's process has closed the connection or has ended.
    #[error("the peer has closed the connection, or its process has ended")]
    Ended,
    /// The peer does not answer.
    #[error("the peer has sent no packet for {0}")]
    Silent(Span),
    /// The path loses what it must carry.
    #[error("{0}")]
    Path(String),
    /// The driver has failed.
    #[error("{0}")]
    Driver(String),
    /// A message is longer than the wire can carry.
    #[error("a message of {0} bytes: at most 4,294,967,295 bytes can be sent at once")]
    Size(usize),
}

/// The number of an open request of its connection, below [`REQUESTS_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestNumber(pub usize);

/// How a request stands, as the driver writes and its caller reads it.
#[derive(Debug, Default)]
pub(super) struct RequestState(OnceLock<Result<u32, RequestError>>);

impl RequestState {
    /// The request has ended. Only its first end counts.
    pub(super) fn end(&self, result: Result<u32, RequestError>) {
        let _ = self.0.set(result);
    }

    /// Its end, if it has ended.
    pub(super) fn ended(&self) -> Option<&Result<u32, RequestError>> {
        self.0.get()
    }
}

/// A request that a test has not told the end of.
#[derive(Debug)]
struct OpenRequest {
    message: u64,
    bytes: u32,
    state: Arc<RequestState>,
}

/// Gives a message to the machine.
type RequestStart = fn(&mut PartyMachine, Instant, GuestName, (MessageKey, PendingMessage));

/// Both ends of a connection have this in common.
struct ConnectionCore {
    party: Arc<Party>,
    name: GuestName,
    line: Option<PairLine>,
    requests: [Option<OpenRequest>; REQUESTS_MAX],
    next: u64,
    tests: u32,
    ended: LineState,
}

impl fmt::Debug for ConnectionCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionCore({:?})", self.name)
    }
}

impl ConnectionCore {
    fn new(party: &Arc<Party>, paired: PairedProcess, own: Rank) -> Self {
        let (name, endpoint, guest) = party.connect(&paired, own);
        party.taken().insert(name);
        // A driver that has stopped fails the first request.
        let _ = party.link.take_guest(name, guest);
        let _ = party
            .link
            .submit(Box::new(move |machine, _| machine.begin(name, endpoint)));
        Self {
            party: Arc::clone(party),
            name,
            line: Some(paired.line),
            requests: Default::default(),
            next: 0,
            tests: 0,
            ended: LineState::Open,
        }
    }

    /// Opens a request; `None` when as many are open as may be.
    fn request(
        &mut self,
        memory: Box<dyn LentMemory>,
        start: RequestStart,
    ) -> Result<Option<RequestNumber>, RequestError> {
        let Some(number) = self.requests.iter().position(Option::is_none) else {
            return Ok(None);
        };
        if self.ended != LineState::Open {
            return Err(RequestError::Ended);
        }
        let (message, name) = (self.next, self.name);
        let bytes = u32::try_from(memory.length()).unwrap_or(u32::MAX);
        let state = Arc::new(RequestState::default());
        let pending = PendingMessage {
            memory,
            request: Arc::clone(&state),
        };
        let key = MessageKey(message);
        let command = move |machine: &mut PartyMachine, now| {
            start(machine, now, name, (key, pending));
        };
        let driven = self.party.link.drive(Box::new(command), || true);
        driven.map_err(|stopped| RequestError::Driver(stopped.reason))?;
        self.next += 1;
        self.requests[number] = Some(OpenRequest {
            message,
            bytes,
            state,
        });
        Ok(Some(RequestNumber(number)))
    }

    /// Returns the length of a request's message in bytes once the request has ended. Until then,
    /// drives one round.
    fn test(&mut self, RequestNumber(number): RequestNumber) -> Result<Option<u32>, RequestError> {
        let open = self.requests.get(number).and_then(Option::as_ref);
        let open = open.ok_or(RequestError::Ended)?;
        let (state, message) = (Arc::clone(&open.state), (open.message, open.bytes));
        if state.ended().is_none() {
            let driven = self.party.link.poll();
            driven.map_err(|stopped| RequestError::Driver(stopped.reason))?;
        }
        if state.ended().is_none() {
            self.look_at_line(message, &state);
        }
        match state.ended() {
            None => Ok(None),
            Some(result) => {
                self.requests[number] = None;
                result.clone().map(Some)
            }
        }
    }

    /// Ends a request whose peer has ended. Looks at the peer now and then.
    fn look_at_line(&mut self, (message, bytes): (u64, u32), state: &RequestState) {
        self.tests = self.tests.wrapping_add(1);
        if self.ended == LineState::Open && self.tests.is_multiple_of(LINE_EVERY) {
            self.ended = self.line.as_mut().map_or(LineState::Lost, PairLine::poll);
        }
        let result = match self.ended {
            LineState::Open => return,
            LineState::Closed(arrived) if self.name.rank == LISTENER && message < arrived => {
                Ok(bytes)
            }
            LineState::Closed(_) | LineState::Lost => Err(RequestError::Ended),
        };
        // The peer's last packets may have come before its end. They are read before the machine
        // forgets the message, and with it the caller's memory.
        let _ = self.party.link.poll();
        let (name, key) = (self.name, MessageKey(message));
        self.command(move |machine| machine.forget(name, key));
        state.end(result);
    }

    /// Runs a command on the machine, and returns when it has run, or never will.
    fn command(&self, command: impl FnOnce(&mut PartyMachine) + Send + 'static) {
        let has_run = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&has_run);
        let command = move |machine: &mut PartyMachine, _| {
            command(machine);
            tell.store(true, Ordering::Release);
        };
        let link = &self.party.link;
        let mut driven = link.drive(Box::new(command), || true);
        while driven.is_ok() && !has_run.load(Ordering::Acquire) {
            std::thread::yield_now();
            driven = link.poll();
        }
    }

    /// Ends the connection. Afterwards no memory of a request is used. Waits for this process's own
    /// driver, and never for the peer.
    fn close(&mut self) {
        let Some(line) = self.line.take() else {
            return;
        };
        let open = self.requests.iter().flatten().map(|open| open.message);
        let arrived = open.min().unwrap_or(self.next);
        let name = self.name;
        self.command(move |machine| machine.end(name));
        let _ = self.party.link.forget_guest(name);
        self.party.taken().remove(&name);
        line.close(arrived);
    }
}

impl Drop for ConnectionCore {
    fn drop(&mut self) {
        self.close();
    }
}

/// The end of a connection that sends. Dropping it closes the connection and frees its requests.
#[derive(Debug)]
pub struct PartySender(ConnectionCore);

impl PartySender {
    pub(super) fn new(party: &Arc<Party>, paired: PairedProcess) -> Self {
        Self(ConnectionCore::new(party, paired, DIALER))
    }

    /// Sends a message; `None` when as many requests are open as may be: ask again.
    ///
    /// # Errors
    /// [`RequestError`] when the connection has ended, or the message is too long for the wire.
    pub fn send(
        &mut self,
        memory: Box<dyn LentMemory>,
    ) -> Result<Option<RequestNumber>, RequestError> {
        let bytes = memory.length();
        if u32::try_from(bytes).is_err() {
            return Err(RequestError::Size(bytes));
        }
        self.0.request(memory, PartyMachine::send)
    }

    /// The length of a message that is sent: then its memory may be reused, and the request is no
    /// longer open. Drives one round if it is not.
    ///
    /// # Errors
    /// [`RequestError`] when the message has not arrived and will not.
    pub fn test(&mut self, number: RequestNumber) -> Result<Option<u32>, RequestError> {
        self.0.test(number)
    }
}

/// The end of a connection that receives. Dropping it closes the connection and frees its requests.
#[derive(Debug)]
pub struct PartyReceiver(ConnectionCore);

impl PartyReceiver {
    pub(super) fn new(party: &Arc<Party>, paired: PairedProcess) -> Self {
        Self(ConnectionCore::new(party, paired, LISTENER))
    }

    /// Posts a receive of a message that is no longer than the memory; `None` when as many requests
    /// are open as may be: ask again.
    ///
    /// # Errors
    /// [`RequestError`] when the connection has ended.
    pub fn receive(
        &mut self,
        memory: Box<dyn LentMemory>,
    ) -> Result<Option<RequestNumber>, RequestError> {
        self.0.request(memory, PartyMachine::receive)
    }

    /// The length of a message that has arrived; then the request is no longer open. Drives one
    /// round if it has not.
    ///
    /// # Errors
    /// [`RequestError`] when the message is too long for its memory or will not arrive.
    pub fn test(&mut self, number: RequestNumber) -> Result<Option<u32>, RequestError> {
        self.0.test(number)
    }
}
