//! What parity has restored, and what it still can: the groups of one message.
//!
//! The receiver knows of a group how many of its segments it has and the XOR of their indices.
//! PARITY says the same of all of them, so that a group which lacks just one segment tells which one
//! that is. The owner of the payload keeps the XOR of the bytes, of which it hears by [`Placement`]
//! and [`Restoration`].

use std::collections::VecDeque;

use super::message::ReceiveStage;
use super::{DataEffect, Placement, RankResources, Receiver};
use crate::machine::Ecn;
use crate::parity::{PARITY_WINDOW, ParityGroup, ParityGroups, ParityLayout};
use crate::units::{MessageKey, Rank};
use crate::wire::{Flags, Header, PacketKind};

/// Messages of one peer that may have parity at a time; further ones do without it.
const PARITY_MESSAGES_MAX: usize = 64;

/// What the owner of the payload does after a packet, apart from placing its segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restoration {
    /// The packet is parity: its payload goes into the sum of a group.
    Parity {
        /// Its sender.
        from: Rank,
        /// Its message.
        key: MessageKey,
        /// The group.
        group: ParityGroup,
    },
    /// A segment is restored: its bytes are the sum of a group so far, up to its length. They are
    /// placed like any others, and go into the sums of its groups.
    Segment {
        /// Where it belongs.
        placement: Placement,
        /// The group.
        group: ParityGroup,
    },
}

/// What is known of one group.
#[derive(Clone, Copy, Debug, Default)]
struct GroupState {
    /// How many of its segments are there, and the XOR of their indices.
    there: (u8, u16),
    /// The same of all its segments, once PARITY has come.
    all: Option<(u8, u16)>,
}

/// The groups of one message.
#[derive(Debug)]
pub(super) struct ParityState {
    layout: ParityLayout,
    segments: u32,
    groups: Vec<GroupState>,
    /// Groups that lack one segment.
    ready: VecDeque<ParityGroup>,
}

impl ParityState {
    /// Of a message with `segments` segments, of which none has arrived.
    pub(super) fn new(layout: ParityLayout, segments: u32) -> Self {
        let groups = layout.group_count(segments) as usize;
        Self {
            layout,
            segments,
            groups: vec![GroupState::default(); groups],
            ready: VecDeque::new(),
        }
    }

    /// A covered segment is there; returns its groups.
    pub(super) fn on_segment(
        &mut self,
        layout: ParityLayout,
        segment: u32,
    ) -> Option<ParityGroups> {
        if layout != self.layout {
            return None;
        }
        let groups = layout.groups(self.segments, segment)?;
        for group in groups.iter() {
            let (count, indices) = &mut self.groups[group.0 as usize].there;
            *count = count.saturating_add(1);
            *indices ^= segment as u16;
            self.look(group);
        }
        Some(groups)
    }

    /// PARITY has come; returns the group whose sum needs its payload.
    pub(super) fn on_parity(&mut self, header: &Header) -> Option<ParityGroup> {
        let group = ParityGroup(header.segment);
        let is_same = header.parity == Some(self.layout);
        let state = self.groups.get_mut(header.segment as usize);
        let state = state.filter(|state| is_same && state.all.is_none())?;
        state.all = Some((header.magnitude.0, header.layer.0));
        self.look(group);
        Some(group)
    }

    fn look(&mut self, group: ParityGroup) {
        let state = self.groups[group.0 as usize];
        if state
            .all
            .is_some_and(|(count, _)| count == state.there.0.saturating_add(1))
        {
            self.ready.push_back(group);
        }
    }

    /// The next segment that can be restored, and the group that does it.
    pub(super) fn next(&mut self) -> Option<(u32, ParityGroup)> {
        while let Some(group) = self.ready.pop_front() {
            let GroupState { there, all } = self.groups[group.0 as usize];
            let Some(all) = all.filter(|all| all.0 == there.0.saturating_add(1)) else {
                continue; // the segment has arrived since, or another group has restored it
            };
            let segment = self.segment_of(all.1 ^ there.1);
            let groups = segment.and_then(|segment| self.layout.groups(self.segments, segment));
            if groups.is_some_and(|groups| groups.iter().any(|of| of == group)) {
                return segment.map(|segment| (segment, group));
            }
        }
        None
    }

    /// The segment of the window whose index ends with these bits.
    fn segment_of(&self, low: u16) -> Option<u32> {
        let last = self.segments - 1;
        let same = last & !0xFFFF | u32::from(low);
        let segment = match same > last {
            true => same.checked_sub(1 << 16)?,
            false => same,
        };
        (segment + PARITY_WINDOW >= self.segments).then_some(segment)
    }
}

impl Receiver {
    /// Processes a PARITY packet whose header is consistent.
    pub fn handle_parity(&mut self, header: &Header, ecn: Ecn, lent: &mut RankResources<'_>) {
        self.effect = DataEffect::Changed;
        let passage = self.note_order(header, lent);
        if let Some(at) = self.message_of(header, lent) {
            self.on_parity(at, header, ecn, lent);
            self.note(at);
        }
        self.tell_skips(header, passage, lent.now);
        if self.watches_paths {
            self.look_at_paths(lent);
        }
    }

    fn on_parity(&mut self, at: usize, header: &Header, ecn: Ecn, lent: &mut RankResources<'_>) {
        self.note_mark(at, header, ecn);
        let is_open = self.messages[at].has_parity() || self.takes_parity();
        let receiving = &mut self.messages[at];
        if receiving.stage == ReceiveStage::Complete || !is_open {
            return;
        }
        receiving.report.on_probe(lent.now, header);
        if let Some(group) = receiving.on_parity(header) {
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

    /// Restores the segments of a message that can be restored after this packet.
    pub(super) fn restore(&mut self, at: usize, header: &Header, lent: &mut RankResources<'_>) {
        while let Some((segment, group)) = self.messages[at].next_restored() {
            let receiving = &mut self.messages[at];
            let header = Header {
                kind: PacketKind::Data,
                flags: Flags::PROTECTED,
                segment,
                length: receiving.cut.length(segment) as u16,
                ..*header
            };
            receiving.report.on_data(lent.now, &header, lent.settings);
            let placement = self.take_segment(at, &header, lent);
            self.counters.restored_segments += 1;
            self.restorations
                .push_back(Restoration::Segment { placement, group });
        }
        self.complete_if_done(at, lent);
    }
}
