//! Which ranks are lost, which groups have ended, and whether the whole communicator was aborted.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_protocol::units::{MessageKey, Rank};

use crate::operation::{Operation, SubmitError};
use crate::plan::PARTS;

/// The failures of a communicator so far.
#[derive(Debug, Default)]
pub(crate) struct FailureRecord {
    /// Lost ranks, and why each was lost.
    pub(crate) lost: BTreeMap<Rank, String>,
    /// Groups with a member that takes part in no further collective.
    pub(crate) broken: BTreeSet<u16>,
    /// Groups in which this rank submits nothing more.
    pub(crate) ended: BTreeSet<u16>,
    /// Why every operation fails from now on, after an abort.
    pub(crate) aborted: Option<String>,
}

impl FailureRecord {
    /// Refuses an operation of rank `me` that can no longer complete.
    pub(crate) fn check(&self, operation: &Operation, me: Rank) -> Result<(), SubmitError> {
        if let Some(reason) = self.aborted.clone() {
            return Err(SubmitError::Aborted { reason });
        }
        if self.ended.contains(&operation.group.id) {
            return Err(SubmitError::GroupEnded {
                group: operation.group.id,
                label: operation.label(),
            });
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

    /// Whether an operation may still post a message that none has posted yet.
    pub(crate) fn may_take(&self, key: MessageKey) -> bool {
        let (group, _, part) = key.parts();
        let is_collective = part < PARTS;
        let is_broken = is_collective && self.broken.contains(&group);
        !is_broken && !self.ended.contains(&group)
    }
}
