//! Packets that come in order on their paths tell of losses, and of ends that have passed
//! ([`crate::order`]).

use smallvec::SmallVec;

use super::{DataEffect, RankResources, Receiver};
use crate::order::PathPassage;
use crate::wire::{Flags, Header, PASSED_MAX, PathMark};

impl Receiver {
    /// A packet of a path has arrived.
    #[inline]
    pub(super) fn note_order(&mut self, header: &Header, lent: &RankResources<'_>) -> PathPassage {
        let packet = PathMark::of(header);
        let passage = self.order.on_packet(packet, header.sent_at, lent.settings);
        if passage != PathPassage::InOrder {
            self.on_passage(packet, passage);
        }
        passage
    }

    /// Packets before this one are missing, or a later one has overtaken it.
    #[inline(never)]
    fn on_passage(&mut self, packet: PathMark, passage: PathPassage) {
        match passage {
            PathPassage::InOrder => {}
            PathPassage::Overtaken => {
                self.counters.overtaken += 1;
                self.skipped.clear();
                self.named.clear();
            }
            PathPassage::Skips => {
                let is_known = self.skipped.iter().any(|path| path.shares_path(packet));
                if self.order.may_be_kept() && !is_known {
                    self.skipped.push(packet);
                    self.granted.on_loss();
                }
            }
        }
    }

    /// A PROBE asks how far its path has come: the next report tells it, since the one that told of
    /// a loss may be lost.
    pub(super) fn tell_passage(&mut self, header: &Header) {
        let packet = PathMark::of(header);
        let is_known = self.skipped.iter().any(|path| path.shares_path(packet));
        if !header.flags.has(Flags::MARKER) && self.order.may_be_kept() && !is_known {
            self.skipped.insert(0, packet);
        }
    }

    /// The paths that the next report names, at most `most`: those that have skipped numbers, and
    /// as far as there is room those that the last report has named, since it may be lost.
    pub(super) fn paths_to_name(&mut self, most: usize) -> SmallVec<[PathMark; PASSED_MAX]> {
        let named = self.skipped.len().min(most);
        let mut paths: SmallVec<[PathMark; PASSED_MAX]> = self.skipped.drain(..named).collect();
        let again = std::mem::take(&mut self.named);
        self.named.extend_from_slice(&paths);
        for path in again {
            let is_new = !paths.iter().any(|named| named.shares_path(path));
            if is_new && paths.len() < most {
                paths.push(path);
            }
        }
        paths
    }

    /// Has a report sent if a packet of this message, or of one that is closed, has shown that
    /// others are lost: now, unless so much of the message is still to come that the next report
    /// is about to leave anyway. A report for each loss costs both hosts as much as a long run.
    /// Behind a marker nothing comes, whatever is granted: what is lost may be speculative.
    pub(super) fn tell_skips(
        &mut self,
        header: &Header,
        passage: PathPassage,
        lent: &RankResources<'_>,
    ) {
        if passage != PathPassage::Skips || self.skipped.is_empty() {
            return;
        }
        let at = self.find(header.message).unwrap_or(0);
        if let Some(receiving) = self.messages.get_mut(at) {
            let is_at_end = header.flags.has(Flags::MARKER);
            if is_at_end || !receiving.is_in_midstream(lent.settings) {
                receiving.report.ack_now(lent.now);
            }
            self.note(at);
        }
    }

    /// Ends the gaps of messages whose ends all paths have passed by now.
    pub(super) fn look_at_paths(&mut self, lent: &RankResources<'_>) {
        self.watches_paths = false;
        for at in 0..self.messages.len() {
            let receiving = &mut self.messages[at];
            if !receiving.watches_paths() {
                continue;
            }
            self.watches_paths = true;
            let before = receiving.gap_ends();
            receiving.end_gap_if_settled(lent, &self.order);
            if receiving.gap_ends() != before {
                self.note(at);
                self.effect = DataEffect::Changed;
            }
        }
    }
}
