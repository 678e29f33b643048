//! DATA packets that a switch has cut to their header: their sender is told at once.
//!
//! 1. The packet has used up a grant, and its segment needs another one. If all of its message must
//!    arrive, the message waits for that in turn, and so does the repair ([`Flags::REGRANTED`]):
//!    many senders whose packets were cut in one queue would fill it again.
//! 2. Nothing else follows from such a header. It may have overtaken whole packets, so it says
//!    nothing about the order of its path, echoes no time, and opens no message: the grant that it
//!    has used up is noted until a packet opens the message ([`super::unopened`]).

use super::message::ReceiveStage;
use super::{RankResources, Receiver};
use crate::wire::{Flags, Header, PacketKind};

/// Headers whose senders wait to be told, at most. Others are found lost by time.
const UNTOLD_MAX: usize = 4096;

impl Receiver {
    /// Processes the header of a DATA packet that has lost its payload.
    pub(crate) fn handle_trimmed(&mut self, header: &Header, lent: &mut RankResources<'_>) {
        let found = self.find(header.message);
        let is_needed = match found.map(|at| &self.messages[at]) {
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
        let regrants = !lent.grants.is_unlimited()
            && match found {
                Some(at) => self.regrant(at, lent),
                None => self.trimmed.add(self.closed.serial(header.message)),
            };
        let flags = match regrants {
            true => Flags::REGRANTED,
            false => Flags::NONE,
        };
        self.answers.push_back(Header {
            kind: PacketKind::Trimmed,
            flags,
            ..*header
        });
    }

    /// A packet of the message at `at` has used up a grant; returns whether its segment is granted
    /// again.
    fn regrant(&mut self, at: usize, lent: &mut RankResources<'_>) -> bool {
        let receiving = &mut self.messages[at];
        let regrants = receiving.regrants();
        if regrants {
            let landed = receiving.on_trimmed(1);
            lent.grants.settle(lent.place, landed);
            receiving.wait_again(lent);
        }
        regrants
    }
}
