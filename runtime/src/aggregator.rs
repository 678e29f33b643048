//! `gradwire aggregate`: an aggregator as a process, for the sums of ranks of many jobs.
//!
//! 1. Ranks dial its address and pair with it by the token that both have; each pair has keys of
//!    its own. Both compare words that name the settings of a pair: security, cipher and checksum.
//! 2. A driver moves packets; [`AggregatorMachine`] decides about them.
//! 3. A rank is forgotten when its process ends: the connection that paired it remains for that.
//!
//! An owner of the token can take part in any job of this aggregator: jobs of people who do not
//! trust each other need an aggregator each. A rank is trusted with its contributions, as ranks
//! trust each other. The aggregator sees them in clear: AEAD protects packets on their way only.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;

use gradwire_collectives::aggregation::aggregator::{AggregatorCounts, AggregatorMachine};
use gradwire_collectives::aggregation::packets::{AGGREGATOR, SumPath};
use gradwire_protocol::job::{Checksum, Job};
use gradwire_protocol::units::JobId;
use gradwire_transport::driver::{self, DriverLink, GuestName};
use gradwire_transport::pair::{LineState, PairError, PairLine, PairListener};

use crate::inbox::ANSWER_PATIENCE;
use crate::pairing::{self, PartyError};

/// The arguments for opening an aggregator.
#[derive(Clone, Debug)]
pub struct AggregatorOpening {
    /// The job, whose transport, security and faults apply; those of the ranks must agree.
    pub job: Job,
    /// Where ranks reach it; port 0 is any free one.
    pub listen: SocketAddr,
    /// The secret that it shares with all ranks; not empty.
    pub token: String,
}

/// An aggregator cannot be opened, or fails.
#[derive(Debug, thiserror::Error)]
pub enum AggregatorError {
    /// Without a token, anyone could add to the sums.
    #[error(
        "an aggregator needs the token of the ranks: give both the same file by \
         GRADWIRE_TOKEN_FILE, or the same text by GRADWIRE_TOKEN"
    )]
    NoToken,
    /// Sockets or threads are refused.
    #[error(transparent)]
    Open(#[from] PartyError),
    /// The port is refused.
    #[error("{listen}: {source}; give --listen an address of this host, and a free port")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The system's error.
        source: PairError,
    },
    /// The driver has stopped.
    #[error("the aggregator's driver has stopped: {0}")]
    Stopped(String),
}

/// A running aggregator. Dropping it ends it.
#[derive(Debug)]
pub struct NetworkAggregator {
    job: Job,
    listener: PairListener,
    link: DriverLink<AggregatorMachine>,
    members: BTreeMap<JobId, (GuestName, PairLine)>,
}

/// The settings that a rank and its aggregator share, in words that both compare.
pub(crate) fn subject(job: &Job) -> String {
    let protection = job.protection();
    let checksum = job.transport.checksum == Checksum::On;
    format!("sums in the network, protection {protection}, transport.checksum = {checksum}")
}

impl NetworkAggregator {
    /// Opens sockets and port.
    ///
    /// # Errors
    /// [`AggregatorError`] when the token is empty, or the system refuses.
    pub fn open(opening: AggregatorOpening) -> Result<Self, AggregatorError> {
        let AggregatorOpening { job, listen, token } = opening;
        if token.is_empty() {
            return Err(AggregatorError::NoToken);
        }
        let (setup, terms) = pairing::open(&job, (listen.ip(), token), subject(&job))?;
        let listener = PairListener::at(listen, terms);
        let listener = listener.map_err(|source| AggregatorError::Listen { listen, source })?;
        let machine = AggregatorMachine::new(SumPath::of(&job));
        let link = driver::spawn(machine, setup, |_| {}).map_err(PartyError::Driver)?;
        Ok(Self {
            job,
            listener,
            link,
            members: BTreeMap::new(),
        })
    }

    /// Where ranks reach it.
    pub fn address(&self) -> SocketAddr {
        self.listener.ticket().address()
    }

    /// Takes ranks that have dialed, and forgets those that have ended; logs how many there are.
    /// Never waits; call it every few milliseconds.
    ///
    /// # Errors
    /// [`AggregatorError`] when the driver has stopped. A rank that cannot pair is told why.
    pub fn poll(&mut self) -> Result<(), AggregatorError> {
        let before = self.members.len();
        self.forget_ended()?;
        self.take_dialers()?;
        let members = self.members.len();
        if members != before {
            log::info!("{members} ranks are connected");
        }
        Ok(())
    }

    fn forget_ended(&mut self) -> Result<(), AggregatorError> {
        let ended = |line: &mut PairLine| line.poll() != LineState::Open;
        let gone: Vec<_> = self
            .members
            .extract_if(.., |_, (_, line)| ended(line))
            .collect();
        for (pair, (name, _)) in gone {
            self.command(move |machine| machine.forget(pair))?;
            let _ = self.link.forget_guest(name);
        }
        Ok(())
    }

    fn take_dialers(&mut self) -> Result<(), AggregatorError> {
        loop {
            let members = &self.members;
            match self.listener.poll(|job| members.contains_key(&job)) {
                Ok(Some(paired)) => {
                    let (name, guest) = pairing::guest(&self.job, &paired, AGGREGATOR);
                    let pair = paired.job;
                    let taken = self.link.take_guest(name, guest);
                    taken.map_err(|stopped| AggregatorError::Stopped(stopped.reason))?;
                    self.command(move |machine| machine.admit(pair))?;
                    self.members.insert(pair, (name, paired.line));
                }
                Ok(None) => return Ok(()),
                // The system may have room for a further connection later.
                Err(error) => {
                    log::warn!("{error}");
                    return Ok(());
                }
            }
        }
    }

    /// Its counts; zeros when it does not answer.
    pub fn counts(&self) -> AggregatorCounts {
        let (tell, told) = sync_channel(1);
        let asked = self.command(move |machine| {
            let _ = tell.send(machine.counts());
        });
        let counts = asked
            .ok()
            .and_then(|()| told.recv_timeout(ANSWER_PATIENCE).ok());
        counts.unwrap_or_default()
    }

    fn command(
        &self,
        command: impl FnOnce(&mut AggregatorMachine) + Send + 'static,
    ) -> Result<(), AggregatorError> {
        let submitted = self
            .link
            .submit(Box::new(move |machine, _| command(machine)));
        submitted.map_err(|stopped| AggregatorError::Stopped(stopped.reason))
    }
}
