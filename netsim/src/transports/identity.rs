//! A host as a rank: one job for its flows and one for its program.

use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{JobId, Rank};

use crate::setup::Setup;

/// The job of flows.
pub(super) const FLOWS: JobId = JobId(1);
/// The job of programs.
pub(super) const PROGRAMS: JobId = JobId(2);

/// The identity of a host in one of its jobs.
pub(super) fn identity(host: u32, setup: &Setup, job: JobId) -> Identity {
    Identity {
        rank: Rank(host as u16),
        world_size: setup.fabric.hosts as u16,
        job,
        epoch: 0,
    }
}
