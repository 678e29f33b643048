//! DATA packets that a switch has cut to their header: their sender is told at once.
//!
//! Nothing else follows from such a header. It may have overtaken whole packets, so it says nothing
//! about the order of its path, echoes no time, and opens no message.

use super::Receiver;
use super::message::ReceiveStage;
use crate::wire::{Header, PacketKind};

/// Headers whose senders wait to be told, at most. Others are found lost by time.
const UNTOLD_MAX: usize = 4096;

impl Receiver {
    /// Processes the header of a DATA packet that has lost its payload.
    pub(crate) fn handle_trimmed(&mut self, header: &Header) {
        let is_needed = match self.find(header.message).map(|at| &self.messages[at]) {
            Some(receiving) => {
                receiving.fits(header)
                    && receiving.stage != ReceiveStage::Complete
                    && !receiving.received.has(header.segment)
            }
            None => !self.closed.is_closed(self.closed.serial(header.message)),
        };
        if !is_needed || self.answers.len() == UNTOLD_MAX {
            return;
        }
        self.counters.trimmed_segments += 1;
        self.answers.push_back(Header {
            kind: PacketKind::Trimmed,
            ..*header
        });
    }
}
