//! The ranks of this host: who they are, and the memory shared with them.

use std::time::Duration;

use gradwire_protocol::job::{Job, Wire};
use gradwire_protocol::units::{Rank, Span};
use gradwire_transport::control::{Control, Peer};
use gradwire_transport::shm::{Neighbours, Offer, Terms};

use crate::error::JoinError;

/// Twice what waking a thread takes on a virtual machine.
const CALLER_SPIN: Span = Span::from_micros(200);

/// Lets the ranks of each host share memory, if any do. `None` where this rank shares with nobody.
///
/// # Errors
/// [`JoinError`] when the system refuses, or when the job wants memory for ranks that have none in
/// common.
pub(crate) fn enter(
    job: &Job,
    control: &Control,
    timeout: Duration,
) -> Result<Option<(Terms, Neighbours)>, JoinError> {
    let offers = offers(control.roster());
    let terms = Terms::of(&offers, control.rank());
    if job.transport.wire == Wire::SharedMemory {
        let shared = terms.iter().flat_map(Terms::others).count() + 1;
        if shared < offers.len() {
            return Err(JoinError::NoMemory {
                shared,
                world_size: offers.len(),
            });
        }
    }
    let made = terms.map(|terms| {
        let neighbours = Neighbours::new(&terms)?;
        Ok::<_, JoinError>((terms, neighbours))
    });
    let mut made = made.transpose()?;
    // Every rank counts barriers alike, also those that share with nobody.
    if offers.iter().any(|(_, offer)| offer.is_some()) {
        control.barrier(timeout)?;
    }
    if let Some((terms, neighbours)) = &mut made {
        neighbours.attach(terms)?;
    }
    Ok(made)
}

/// How long a caller may look for work before it sleeps: where every rank of this host has a core,
/// for longer than it takes to be woken.
pub(crate) fn caller_spin(terms: Option<&Terms>) -> Span {
    let ranks = terms.into_iter().flat_map(Terms::others).count() + 1;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= cores {
        CALLER_SPIN
    } else {
        Span::ZERO
    }
}

fn offers(roster: &[Peer]) -> Vec<(Rank, Option<Offer>)> {
    let offers = roster.iter().map(|peer| (peer.rank, peer.memory.clone()));
    offers.collect()
}

/// The host of each rank: a number that ranks have in common if they share memory.
pub(crate) fn hosts(roster: &[Peer]) -> Vec<u16> {
    let place = |peer: &Peer| peer.memory.as_ref().map(|offer| offer.place.clone());
    let first = |at: usize| {
        let mine = place(&roster[at]);
        let same = roster
            .iter()
            .position(|other| mine.is_some() && place(other) == mine);
        u16::try_from(same.unwrap_or(at)).expect("ranks are numbers of 16 bits")
    };
    (0..roster.len()).map(first).collect()
}
