//! Messages of which only the headers of trimmed packets have arrived.

use serde::{Deserialize, Serialize};

use crate::units::MessageSerial;

/// Messages of which only headers have come that are remembered, at most.
const UNOPENED_MAX: usize = 4096;

/// Messages of which only headers have arrived, and how many.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct TrimmedMessages(Vec<(MessageSerial, u32)>);

impl TrimmedMessages {
    /// Another header has arrived; returns whether it is remembered.
    pub(super) fn add(&mut self, serial: MessageSerial) -> bool {
        if let Some((_, packets)) = self.0.iter_mut().find(|(known, _)| *known == serial) {
            *packets += 1;
        } else if self.0.len() < UNOPENED_MAX {
            self.0.push((serial, 1));
        } else {
            return false;
        }
        true
    }

    /// The message opens: how many of its headers have arrived before.
    pub(super) fn take(&mut self, serial: MessageSerial) -> u32 {
        let at = self.0.iter().position(|&(known, _)| known == serial);
        at.map_or(0, |at| self.0.swap_remove(at).1)
    }
}
