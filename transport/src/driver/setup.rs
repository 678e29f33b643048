//! The parts that a driver is started with.

use gradwire_protocol::job::IdleMode;
use gradwire_protocol::units::{Instant, Span};

use crate::address::Address;
use crate::faults::FaultInjector;
use crate::seal::Seal;
use crate::shm::HostNeighbours;
use crate::wires::Wires;

/// A closure that the driver runs on its machine between two rounds.
pub type MachineCommand<M> = Box<dyn FnOnce(&mut M, Instant) + Send>;

/// Runs after every round that changed something.
pub type ProgressHook<M> = Box<dyn FnMut(&mut M) + Send>;

/// How the thread that drives waits for packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DrivePace {
    /// What it does without work: spin, sleep, or spin first and then sleep.
    pub idle: IdleMode,
    /// The minimum time that a waiting caller looks for work before it sleeps, if it may sleep at
    /// all: waking up takes longer than a small message. Zero where ranks share cores.
    pub caller_spin: Span,
    /// The ranks of this host, this one included. The kernel may put several on one core.
    pub ranks_here: usize,
}

impl DrivePace {
    /// The pace of a process whose callers spin no longer than its own thread, and that does not
    /// watch its cores.
    pub fn without_callers(idle: IdleMode) -> Self {
        Self {
            idle,
            caller_spin: Span::ZERO,
            ranks_here: 1,
        }
    }
}

/// Everything that a driver needs besides its machine.
pub struct DriverSetup {
    /// The rank's sockets.
    pub sockets: Wires,
    /// Data addresses of every rank, one per entropy. This rank's own are not used.
    pub peers: Vec<Vec<Address>>,
    /// Protects packets.
    pub seal: Seal,
    /// Injects faults, if the job asks for some.
    pub faults: Option<FaultInjector>,
    /// The ranks that are reached through shared memory, if any.
    pub neighbours: Option<HostNeighbours>,
    /// How the thread that drives waits.
    pub pace: DrivePace,
}
