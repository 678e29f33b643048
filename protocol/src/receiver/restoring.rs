//! Processes PARITY packets and restores the segments that they make known (`receiver/parity.rs`).

use std::ops::Range;

use super::message::{ReceiveMessage, ReceiveStage};
use super::parity::ParityState;
use super::{DataEffect, RankResources, Receiver, Restoration};
use crate::machine::Ecn;
use crate::parity::{CoveredRun, ParityGroup, ParityLayout};
use crate::units::Instant;
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
        if let Some(group) = receiving.on_parity(header, lent.late()) {
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

    /// Restores late segments of a message when the wait for them is over.
    pub(super) fn restore_late(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let ends = self.messages[at].restores_at();
        if ends.is_some_and(|ends| ends <= lent.now)
            && let Some(header) = self.messages[at].end_waits(lent.now)
        {
            self.restore(at, &header, lent);
        }
    }

    /// Restores the segments of a message that can be restored after this packet. Reports echo the
    /// packet that came last, not these segments.
    pub(super) fn restore(&mut self, at: usize, header: &Header, lent: &mut RankResources<'_>) {
        // Groups that a restored segment leaves with one missing do not wait again.
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
            (receiving.report).on_segments(lent.now, &header, 1, lent.settings);
            let placement = self.take_segments(at, &header, 1, lent);
            self.counters.restored_segments += 1;
            self.restorations
                .push_back(Restoration::Segment { placement, group });
        }
        lent.hold = hold;
        self.complete_if_done(at, lent);
    }
}

impl ReceiveMessage {
    /// Whether parity covers some of its segments.
    pub(super) fn has_parity(&self) -> bool {
        self.parity.is_some()
    }

    /// Notes this many new segments for their groups, and returns them if parity covers them.
    #[inline]
    pub(super) fn cover(
        &mut self,
        header: &Header,
        segments: u32,
        late: Option<Instant>,
    ) -> Option<CoveredRun> {
        self.cover_some(
            header.parity?,
            header.segment..header.segment + segments,
            late,
        )
    }

    #[inline(never)]
    fn cover_some(
        &mut self,
        layout: ParityLayout,
        segments: Range<u32>,
        late: Option<Instant>,
    ) -> Option<CoveredRun> {
        (self.parity_state(layout)).on_segments(layout, segments, late)
    }

    /// Its groups, of this layout if a packet names one for the first time.
    fn parity_state(&mut self, layout: ParityLayout) -> &mut ParityState {
        let segments = self.cut.segments();
        let new = || Box::new(ParityState::new(layout, segments));
        self.parity.get_or_insert_with(new)
    }

    /// Takes PARITY; returns the group whose sum needs its payload. If all segments that it covers
    /// are lost, it is the first to say that they are covered.
    pub(super) fn on_parity(
        &mut self,
        header: &Header,
        late: Option<Instant>,
    ) -> Option<ParityGroup> {
        self.parity_state(header.parity?).on_parity(header, late)
    }

    /// The end of the first wait for a late segment, while the message is open.
    pub(super) fn restores_at(&self) -> Option<Instant> {
        let is_open = self.stage != ReceiveStage::Complete;
        self.parity.as_ref().filter(|_| is_open)?.waits_until()
    }

    /// Ends waits for late segments. Returns the last PARITY if any of these can be restored.
    pub(super) fn end_waits(&mut self, now: Instant) -> Option<Header> {
        self.parity.as_mut()?.end_waits(now)
    }

    /// The next missing segment that parity restores, and the group that does it.
    pub(super) fn next_restored(&mut self) -> Option<(u32, ParityGroup)> {
        let parity = self.parity.as_mut()?;
        let mut next = std::iter::from_fn(|| parity.next());
        let missing = next.find(|&(segment, _)| !self.received.has(segment));
        self.restored += u32::from(missing.is_some());
        missing
    }
}
