//! The groups of one message: parity restores the last missing segment of each.
//!
//! The receiver knows of a group how many of its segments it has and the XOR of their indices.
//! PARITY says the same of all of them, so a group that lacks just one segment tells its index.
//! The owner of the payload keeps the XOR of the bytes: [`Placement`](super::Placement) and
//! [`Restoration`](super::Restoration) tell it when.
//!
//! A host reads its sockets in turn, so the last segment of a group often waits in one of them. On
//! a long path nothing is restored before it has had time to come: what is restored counts as lost.

use std::collections::VecDeque;
use std::ops::Range;

use crate::parity::{CoveredRun, PARITY_WINDOW, ParityGroup, ParityLayout};
use crate::units::Instant;
use crate::wire::Header;

/// The segments of one group, as far as they are known.
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
    /// Groups whose last segment may still come, until then.
    late: VecDeque<(Instant, ParityGroup)>,
    /// The last PARITY.
    last: Option<Header>,
}

impl ParityState {
    /// Of a message with `segments` segments, before the first one arrives.
    pub(super) fn new(layout: ParityLayout, segments: u32) -> Self {
        let groups = layout.group_count(segments) as usize;
        Self {
            layout,
            segments,
            groups: vec![GroupState::default(); groups],
            ready: VecDeque::new(),
            late: VecDeque::new(),
            last: None,
        }
    }

    /// Covered segments are there; returns them as a run if its groups take them. What these lack
    /// then may be `late` until some time.
    pub(super) fn on_segments(
        &mut self,
        layout: ParityLayout,
        segments: Range<u32>,
        late: Option<Instant>,
    ) -> Option<CoveredRun> {
        if layout != self.layout {
            return None;
        }
        for segment in segments.clone() {
            let groups = layout.groups(self.segments, segment);
            for group in groups.iter().flat_map(|groups| groups.iter()) {
                let (count, indices) = &mut self.groups[group.0 as usize].there;
                *count = count.saturating_add(1);
                *indices ^= segment as u16;
                self.look(group, late);
            }
        }
        Some(CoveredRun::new(layout, self.segments, segments.start))
    }

    /// PARITY has come; returns the group whose sum needs its payload. What that lacks may be
    /// `late` until some time.
    pub(super) fn on_parity(
        &mut self,
        header: &Header,
        late: Option<Instant>,
    ) -> Option<ParityGroup> {
        let group = ParityGroup(header.segment);
        let is_same = header.parity == Some(self.layout);
        let state = self.groups.get_mut(header.segment as usize);
        let state = state.filter(|state| is_same && state.all.is_none())?;
        state.all = Some((header.magnitude.0, header.layer.0));
        self.last = Some(*header);
        self.look(group, late);
        Some(group)
    }

    fn look(&mut self, group: ParityGroup, late: Option<Instant>) {
        if self.lacks_one(group) {
            match late {
                Some(until) => self.late.push_back((until, group)),
                None => self.ready.push_back(group),
            }
        }
    }

    fn lacks_one(&self, group: ParityGroup) -> bool {
        let GroupState { there, all } = self.groups[group.0 as usize];
        all.is_some_and(|(count, _)| count == there.0.saturating_add(1))
    }

    /// Makes groups ready whose last segment has had its time. Returns the last PARITY if there are
    /// any.
    pub(super) fn end_waits(&mut self, now: Instant) -> Option<Header> {
        while let Some(&(until, group)) = self.late.front() {
            let has_come = !self.lacks_one(group);
            if until > now && !has_come {
                break;
            }
            self.late.pop_front();
            if !has_come {
                self.ready.push_back(group);
            }
        }
        self.last.filter(|_| !self.ready.is_empty())
    }

    /// When the first wait for a last segment ends.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.late.front().map(|&(until, _)| until)
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
