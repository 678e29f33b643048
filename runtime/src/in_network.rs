//! A rank's connection with the aggregator that its job names: a thread that dials it, and dials it
//! again when it has ended.
//!
//! [`NetworkSums`] uses the aggregator while the connection stands. There the ranks also agree
//! whether a tensor is summed by it, so nothing here waits for other ranks.
//!
//! [`NetworkSums`]: gradwire_collectives::aggregation::network_sums::NetworkSums

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_collectives::aggregation::network_sums::AggregatorPair;
use gradwire_collectives::aggregation::packets::MEMBER;
use gradwire_protocol::job::{Job, ReduceAlgorithm};
use gradwire_protocol::units::JobId;
use gradwire_transport::address::Address;
use gradwire_transport::driver::GuestName;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::pair::{
    LineState, PairDialer, PairError, PairLine, PairOffer, PairTerms, PairTicket, PairedProcess,
};

use crate::aggregator;
use crate::inbox::DriverInbox;
use crate::pairing;

/// Time between two looks while it dials, and while the connection stands.
const DIAL_EVERY: Duration = Duration::from_millis(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Looks of a dial until it is given up: about two seconds.
const DIAL_LOOKS: u32 = 1_000;
/// Time between two dials.
const REDIAL: Duration = Duration::from_millis(1_000);
/// How long a rank that starts waits for the aggregator.
const START_PATIENCE: Duration = Duration::from_millis(500);

/// A rank's offer to an aggregator, and how it protects packets.
#[derive(Debug)]
pub(crate) struct AggregatorTerms {
    pub(crate) job: Job,
    pub(crate) training: JobId,
    pub(crate) token: String,
    pub(crate) addresses: Vec<Address>,
    pub(crate) mtu: u32,
    pub(crate) receive_buffer: u64,
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AggregatorLine {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AggregatorLine {
    /// Dials the aggregator of the job, if it names one. Returns when the rank has it, or when that
    /// takes too long: then the ranks sum alone until it is there.
    pub(crate) fn of(terms: AggregatorTerms, inbox: &Arc<DriverInbox>) -> Option<Self> {
        let collectives = &terms.job.collectives;
        let address = (collectives.aggregator)
            .filter(|_| collectives.algorithm == ReduceAlgorithm::InNetwork)?;
        let (stop, stopped) = channel();
        let (tell, told) = channel();
        let dial = Dialing {
            ticket: PairTicket::known(address),
            terms: PairTerms {
                offer: PairOffer {
                    job: aggregator::subject(&terms.job),
                    addresses: terms.addresses.clone(),
                    mtu: terms.mtu,
                    receive_buffer: terms.receive_buffer,
                    lanes: AegisLanes::of_this_host(),
                },
                token: terms.token.clone(),
                silence: Duration::from_nanos(terms.job.transport.peer_timeout.as_nanos()),
            },
            rank: terms,
            inbox: Arc::clone(inbox),
            stopped,
            said: None,
        };
        let thread = std::thread::Builder::new().name("gradwire-aggregator".to_owned());
        let thread = thread.spawn(move || dial.run(&tell)).ok();
        let _ = told.recv_timeout(START_PATIENCE);
        Some(Self {
            stop: Some(stop),
            thread,
        })
    }
}

impl Drop for AggregatorLine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct Dialing {
    ticket: PairTicket,
    terms: PairTerms,
    rank: AggregatorTerms,
    inbox: Arc<DriverInbox>,
    stopped: Receiver<()>,
    /// The last failure that was told: each is told once.
    said: Option<String>,
}

impl Dialing {
    /// Dials until it is stopped; `tell` hears of the first end.
    fn run(mut self, tell: &Sender<()>) {
        loop {
            let dialed = self.dial();
            match dialed {
                Ok(None) => return,
                Ok(Some(paired)) => {
                    let (name, line) = self.connect(paired);
                    let _ = tell.send(());
                    if !self.watch(line) {
                        return;
                    }
                    self.disconnect(name);
                    self.say("its connection has ended".to_owned());
                }
                Err(error) => {
                    self.say(error.to_string());
                    let _ = tell.send(());
                }
            }
            if self.is_stopped(REDIAL) {
                return;
            }
        }
    }

    fn is_stopped(&self, within: Duration) -> bool {
        self.stopped.recv_timeout(within) != Err(RecvTimeoutError::Timeout)
    }

    /// The aggregator; `None` when this is stopped.
    fn dial(&self) -> Result<Option<PairedProcess>, PairError> {
        let mut dialer = PairDialer::new(&self.ticket, &self.terms)?;
        for _ in 0..DIAL_LOOKS {
            if let Some(paired) = dialer.poll(|job| job == self.rank.training)? {
                return Ok(Some(paired));
            }
            if self.is_stopped(DIAL_EVERY) {
                return Ok(None);
            }
        }
        Err(PairError::Silent(self.ticket.address()))
    }

    fn connect(&mut self, paired: PairedProcess) -> (GuestName, PairLine) {
        let (name, guest) = pairing::guest(&self.rank.job, &paired, MEMBER);
        let pair = AggregatorPair {
            pair: paired.job,
            receive_buffer: paired.offer.receive_buffer,
        };
        let theirs = paired.offer.mtu;
        if theirs < self.rank.mtu {
            self.say(format!(
                "it takes packets of {theirs} bytes, and the ranks send {}: set transport.mtu to \
                 the smaller one",
                self.rank.mtu
            ));
            return (name, paired.line);
        }
        self.inbox.with(|link| {
            let _ = link.take_guest(name, guest);
            let _ = link.submit(Box::new(move |seat, _| seat.aggregator_is_there(pair)));
        });
        if self.said.take().is_some() {
            log::info!("the aggregator at {} is there", self.ticket.address());
        }
        (name, paired.line)
    }

    /// Returns when the connection has ended; false when this is stopped.
    fn watch(&self, mut line: PairLine) -> bool {
        while line.poll() == LineState::Open {
            if self.is_stopped(LOOK_EVERY) {
                return false;
            }
        }
        true
    }

    fn disconnect(&self, name: GuestName) {
        self.inbox.with(|link| {
            let _ = link.submit(Box::new(|seat, now| seat.aggregator_is_gone(now)));
            let _ = link.forget_guest(name);
        });
    }

    fn say(&mut self, text: String) {
        if self.said.as_ref() != Some(&text) {
            let address = self.ticket.address();
            log::warn!("the aggregator at {address}: {text}; the ranks sum alone meanwhile");
            self.said = Some(text);
        }
    }
}
