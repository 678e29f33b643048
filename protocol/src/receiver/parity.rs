//! The groups of one message: parity restores the last missing segment of each.
//!
//! The receiver knows of a group how many of its segments it has and the XOR of their indices.
//! PARITY says the same of all of them, so a group that lacks just one segment tells its index.
//! The owner of the payload keeps the XOR of the bytes: [`Placement`](super::Placement) and
//! [`Restoration`](super::Restoration) tell it when.
//!
//! A host reads its sockets in turn, so the last segment of a group often waits in one of them.
//! Each restored segment counts as lost. So on a long path parity waits for late segments.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::parity::{CoveredRun, PARITY_WINDOW, ParityGroup, ParityLayout};
use crate::units::Instant;
use crate::wire::Header;

/// The segments of one group, as far as they are known.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
struct GroupState {
    /// How many of its segments are there, and the XOR of their indices.
    there: (u8, u16),
    /// The same of all its segments, once PARITY has come.
    all: Option<(u8, u16)>,
}

/// The groups of one message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ParityState {
    layout: ParityLayout,
    segments: u32,
    groups: Vec<GroupState>,
    /// Groups that lack one segment.
    ready: VecDeque<ParityGroup>,
    /// Groups whose last segment may be late, and the end of the wait for it.
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

    /// Covered segments are there; returns them as a run if its groups take them. Groups that lack
    /// one segment then wait for it until `late`.
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

    /// PARITY has come; returns the group whose sum needs its payload. If that lacks one segment,
    /// it waits for it until `late`.
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
        if self.lacking(group).is_some() {
            match late {
                Some(until) => self.late.push_back((until, group)),
                None => self.ready.push_back(group),
            }
        }
    }

    /// The low bits of the index of the one segment that a group lacks; `None` if it lacks none or
    /// several.
    fn lacking(&self, group: ParityGroup) -> Option<u16> {
        let GroupState { there, all } = self.groups[group.0 as usize];
        let (count, indices) = all?;
        (count == there.0.saturating_add(1)).then_some(indices ^ there.1)
    }

    /// Makes groups ready whose wait is over. Returns the last PARITY if any group is ready.
    pub(super) fn end_waits(&mut self, now: Instant) -> Option<Header> {
        while let Some(&(until, group)) = self.late.front() {
            let is_missing = self.lacking(group).is_some();
            if until > now && is_missing {
                break;
            }
            self.late.pop_front();
            if is_missing {
                self.ready.push_back(group);
            }
        }
        self.last.filter(|_| !self.ready.is_empty())
    }

    /// The end of the first wait.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.late.front().map(|&(until, _)| until)
    }

    /// The next segment that can be restored, and the group that does it.
    pub(super) fn next(&mut self) -> Option<(u32, ParityGroup)> {
        while let Some(group) = self.ready.pop_front() {
            let Some(low) = self.lacking(group) else {
                continue; // the segment has arrived since, or another group has restored it
            };
            let segment = self.segment_of(low);
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
