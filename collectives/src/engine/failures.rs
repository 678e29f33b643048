//! Which ranks are lost, and whether the whole communicator was aborted.

use std::collections::BTreeMap;

use gradwire_protocol::units::Rank;

use crate::operation::{Operation, SubmitError};

/// The failures of a communicator so far.
#[derive(Debug, Default)]
pub(crate) struct FailureRecord {
    /// Lost ranks, and why each was lost.
    pub(crate) lost: BTreeMap<Rank, String>,
    /// Why every operation fails from now on, after an abort.
    pub(crate) aborted: Option<String>,
}

impl FailureRecord {
    /// Refuses an operation of rank `me` that cannot complete any more.
    pub(crate) fn check(&self, operation: &Operation, me: Rank) -> Result<(), SubmitError> {
        if let Some(reason) = self.aborted.clone() {
            return Err(SubmitError::Aborted { reason });
        }
        if self.lost.is_empty() {
            return Ok(());
        }
        let stopped_by = operation.stopped_by(me, |rank| self.lost.contains_key(&rank));
        let Some((rank, reason)) = stopped_by.and_then(|rank| self.lost.get_key_value(&rank))
        else {
            return Ok(());
        };
        Err(SubmitError::PeerLost {
            rank: *rank,
            reason: reason.clone(),
            label: operation.label(),
        })
    }
}
