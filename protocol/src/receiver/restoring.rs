//! Processes PARITY packets and restores the segments that they make known (`receiver/parity.rs`).

use super::message::ReceiveStage;
use super::{DataEffect, RankResources, Receiver, Restoration};
use crate::machine::Ecn;
use crate::wire::{Flags, Header, PacketKind};

/// Messages of one peer that may have parity at a time; further ones do without it.
const PARITY_MESSAGES_MAX: usize = 64;

impl Receiver {
    /// Processes a PARITY packet whose header is consistent.
    pub fn handle_parity(&mut self, header: &Header, ecn: Ecn, lent: &mut RankResources<'_>) {
        self.effect = DataEffect::Changed;
        let passage = self.note_order(header, lent);
        if let Some(at) = self.message_of(header, lent) {
            self.on_parity(at, header, ecn, lent);
            self.note(at);
        }
        self.tell_skips(header, passage, lent);
        if self.watches_paths {
            self.look_at_paths(lent);
        }
    }

    fn on_parity(&mut self, at: usize, header: &Header, ecn: Ecn, lent: &mut RankResources<'_>) {
        self.note_mark(at, header, 1, ecn);
        let is_open = self.messages[at].has_parity() || self.takes_parity();
        let receiving = &mut self.messages[at];
        if receiving.stage == ReceiveStage::Complete || !is_open {
            return;
        }
        receiving.report.on_probe(lent.now, header);
        if let Some(group) = receiving.on_parity(lent.now, header, lent.late()) {
            let (from, key) = (self.peer, receiving.key());
            self.restorations
                .push_back(Restoration::Parity { from, key, group });
            self.restore(at, header, lent);
        }
    }

    /// Whether one message more may have parity.
    pub(super) fn takes_parity(&self) -> bool {
        let with_parity = self.messages.iter().filter(|of| of.has_parity());
        with_parity.count() < PARITY_MESSAGES_MAX
    }

    /// Restores what has had its time to come, if there is any.
    pub(super) fn restore_late(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let ends = self.messages[at].restores_at();
        if ends.is_some_and(|ends| ends <= lent.now)
            && let Some((header, arrived)) = self.messages[at].end_waits(lent.now)
        {
            // Reports echo that packet as it came.
            let now = std::mem::replace(&mut lent.now, arrived);
            self.restore(at, &header, lent);
            lent.now = now;
        }
    }

    /// Restores the segments of a message that can be restored after this packet.
    pub(super) fn restore(&mut self, at: usize, header: &Header, lent: &mut RankResources<'_>) {
        // What a restored segment makes known is not late.
        let hold = std::mem::take(&mut lent.hold);
        while let Some((segment, group)) = self.messages[at].next_restored() {
            let receiving = &mut self.messages[at];
            let header = Header {
                kind: PacketKind::Data,
                flags: Flags::PROTECTED,
                segment,
                length: receiving.cut.length(segment) as u16,
                ..*header
            };
            (receiving.report).on_data(lent.now, &header, 1, lent.settings);
            let placement = self.take_segments(at, &header, 1, lent);
            self.counters.restored_segments += 1;
            self.restorations
                .push_back(Restoration::Segment { placement, group });
        }
        lent.hold = hold;
        self.complete_if_done(at, lent);
    }
}
