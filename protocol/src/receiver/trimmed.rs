//! DATA packets that a switch has cut to their header: their sender is told at once.
//!
//! 1. The packet has used up a grant, and its segment needs another one, whether or not it may be
//!    missing. The message waits for that in turn, and so does the repair ([`Flags::REGRANTED`]):
//!    many senders whose packets were cut in one queue would fill it again.
//! 2. It opens its message as a whole packet does: a switch may have cut all packets of a short
//!    one, which would have no grant until its sender asks.
//! 3. Nothing else follows from such a header. It may have overtaken whole packets of its class, so
//!    it says nothing about the order of its path. Until a whole packet arrives, reports of a
//!    message that it has opened echo it as a control packet, which proves no loss of data.

use super::message::ReceiveStage;
use super::{RankResources, Receiver};
use crate::priority::CONTROL;
use crate::wire::{Flags, Header, PacketKind};

/// Headers whose senders wait to be told, at most. Others are found lost by time.
const UNTOLD_MAX: usize = 4096;

impl Receiver {
    /// Processes the header of a DATA packet that has lost its payload.
    pub(crate) fn handle_trimmed(&mut self, header: &Header, lent: &mut RankResources<'_>) {
        let first = Header {
            class: CONTROL,
            ..*header
        };
        let Some(at) = self.message_of(&first, lent) else {
            return;
        };
        let receiving = &self.messages[at];
        let is_needed =
            receiving.stage != ReceiveStage::Complete && !receiving.received.has(header.segment);
        if !is_needed || self.answers.len() == UNTOLD_MAX {
            return;
        }
        self.counters.trimmed_segments += 1;
        let flags = match lent.grants.is_unlimited() {
            true => Flags::NONE,
            false => {
                self.regrant(at, lent);
                Flags::REGRANTED
            }
        };
        self.answers.push_back(Header {
            kind: PacketKind::Trimmed,
            flags,
            ..*header
        });
    }

    /// A packet of the message at `at` has used up a grant: its segment is granted again.
    fn regrant(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        let landed = receiving.on_trimmed();
        lent.grants.settle(lent.place, landed);
        receiving.wait_again(lent);
    }
}
