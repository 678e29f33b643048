//! Peers that come and go while a driver runs: each belongs to a job of its own.
//!
//! 1. A guest is known by its job and its rank in it. Its packets are sealed with keys of its own,
//!    and go to addresses of its own; the driver's own job has no part in them.
//! 2. A guest is taken before its machine may send to it, and forgotten after its machine has
//!    forgotten it: both are orders, and run in the order in which they were given.
//! 3. A packet of a guest that is not known counts as foreign, as any packet of another job.

use std::collections::BTreeMap;

use gradwire_protocol::machine::Transmit;
use gradwire_protocol::units::{JobId, Rank};
use gradwire_protocol::wire::Header;

use super::setup::MachineCommand;
use crate::address::Address;
use crate::seal::{PacketRejection, Seal};

/// A peer of a job other than the driver's own.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct GuestName {
    /// Its job.
    pub job: JobId,
    /// Its rank in that job.
    pub rank: Rank,
}

/// How a guest is reached.
#[derive(Debug)]
pub struct DriverGuest {
    /// Its data addresses, one per entropy.
    pub addresses: Vec<Address>,
    /// Protects the packets between this process and it.
    pub seal: Seal,
}

impl DriverGuest {
    /// Checks and opens a packet that names it, cheap checks first.
    pub(super) fn accept(
        &mut self,
        packet: &mut [u8],
        from: Option<Address>,
    ) -> Result<Header, PacketRejection> {
        let header = self.seal.read(packet)?;
        let path = usize::from(header.entropy.0) % self.addresses.len().max(1);
        let expected = self.addresses.get(path);
        let expected = expected.ok_or(PacketRejection::UnknownSender)?;
        if from.is_some_and(|from| !expected.is_source(&from)) {
            return Err(PacketRejection::UnknownSender);
        }
        self.seal.open(&header, packet)?;
        Ok(header)
    }
}

/// A change of the guests.
#[derive(Debug)]
pub(super) enum GuestChange {
    Take(GuestName, Box<DriverGuest>),
    Forget(GuestName),
}

/// What another thread asks of a driver.
pub(super) enum DriverOrder<M> {
    Command(MachineCommand<M>),
    Guest(GuestChange),
}

/// The guests of a driver.
#[derive(Debug, Default)]
pub(super) struct GuestTable(BTreeMap<GuestName, DriverGuest>);

impl GuestTable {
    pub(super) fn apply(&mut self, change: GuestChange) {
        match change {
            GuestChange::Take(name, guest) => {
                self.0.insert(name, *guest);
            }
            GuestChange::Forget(name) => {
                self.0.remove(&name);
            }
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The guest that a packet names as its source. A driver without guests does not look.
    pub(super) fn sender(&mut self, packet: &[u8]) -> Option<&mut DriverGuest> {
        if self.0.is_empty() {
            return None;
        }
        let (job, rank) = Header::origin(packet)?;
        self.0.get_mut(&GuestName { job, rank })
    }

    /// The guest that a run goes to.
    pub(super) fn receiver(&mut self, transmit: &Transmit<'_>) -> Option<&mut DriverGuest> {
        if self.0.is_empty() {
            return None;
        }
        let (job, rank) = (transmit.template.job, transmit.to);
        self.0.get_mut(&GuestName { job, rank })
    }
}
