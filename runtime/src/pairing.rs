//! Two processes that exchange packets over a pair: the terms of each side, and the peer as the
//! driver reaches it.

use std::net::IpAddr;
use std::time::Duration;

use gradwire_protocol::job::{Job, Mtu, WireChoice};
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{JobId, Rank};
use gradwire_transport::driver::{DrivePace, DriverGuest, DriverSetup, GuestName};
use gradwire_transport::faults::FaultInjector;
use gradwire_transport::interface::{self, AUTO_MTU_MAX};
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::pair::{PairOffer, PairTerms, PairedProcess};
use gradwire_transport::seal::Seal;
use gradwire_transport::wires::{Wires, WiresError};

/// A process cannot take pairs.
#[derive(Debug, thiserror::Error)]
pub enum PartyError {
    /// The sockets cannot be opened.
    #[error(transparent)]
    Wires(#[from] WiresError),
    /// The wire does not serve connections.
    #[error("transport.wire is {0:?}: connections take \"auto\" or \"udp\"")]
    Wire(WireChoice),
    /// The interface's MTU is not known.
    #[error("cannot read the MTU of the interface: {0}; set transport.mtu in the job")]
    Mtu(std::io::Error),
    /// The system refuses a thread.
    #[error("the system refuses the driver's thread: {0}")]
    Driver(std::io::Error),
}

/// Opens the sockets of a process whose peers are pairs only. `subject` must be equal on both sides
/// of a pair.
pub(crate) fn open(
    job: &Job,
    (bind, token): (IpAddr, String),
    subject: String,
) -> Result<(DriverSetup, PairTerms), PartyError> {
    match job.transport.wire {
        WireChoice::Auto | WireChoice::Udp => {}
        other => return Err(PartyError::Wire(other)),
    }
    let sockets = Wires::open(&job.transport, bind, Rank(0))?;
    let mtu = match job.transport.mtu {
        Mtu::Bytes(bytes) => bytes,
        Mtu::Auto => interface::mtu(bind).map_err(PartyError::Mtu)?,
    };
    let terms = PairTerms {
        offer: PairOffer {
            job: subject,
            addresses: sockets.addresses().to_vec(),
            mtu: mtu.min(AUTO_MTU_MAX),
            receive_buffer: sockets.receive_buffer(),
            lanes: AegisLanes::of_this_host(),
        },
        token,
        silence: Duration::from_nanos(job.transport.peer_timeout.as_nanos()),
    };
    let nobody = Identity {
        rank: Rank(0),
        world_size: 1,
        job: JobId(0),
        epoch: 0,
    };
    let setup = DriverSetup {
        sockets,
        peers: Vec::new(),
        seal: Seal::none(nobody, job.transport.checksum),
        faults: FaultInjector::new(&job.faults, Rank(0)),
        neighbours: None,
        pace: DrivePace::without_callers(job.transport.idle),
    };
    Ok((setup, terms))
}

/// This process's identity in a pair.
pub(crate) fn identity(paired: &PairedProcess, own: Rank) -> Identity {
    Identity {
        rank: own,
        world_size: 2,
        job: paired.job,
        epoch: 0,
    }
}

/// The other process of a pair, as a driver reaches it.
pub(crate) fn guest(job: &Job, paired: &PairedProcess, own: Rank) -> (GuestName, DriverGuest) {
    let identity = identity(paired, own);
    let lanes = AegisLanes::among([AegisLanes::of_this_host(), paired.offer.lanes]);
    let seal = Seal::of(job, identity, &paired.secrets, lanes);
    let name = GuestName {
        job: paired.job,
        rank: Rank(1 - own.0),
    };
    let guest = DriverGuest {
        addresses: paired.offer.addresses.clone(),
        seal,
    };
    (name, guest)
}
