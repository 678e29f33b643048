//! How the receiver takes and answers PROBE.
//!
//! 1. It answers a PROBE with a report of the whole message. It does not answer a mark
//!    ([`Flags::MARKER`]); a mark without ALL_SENT tells only how far its path has come.
//! 2. It answers a PROBE for a closed message with REFUSE, and one for a message that it has no
//!    room for with a report of another message.

use super::message::{ReceiveMessage, ReceiveStage};
use super::{RankResources, Receiver};
use crate::units::Span;
use crate::wire::{Flags, Header, ProbeBody};

/// A sender of more messages than the receiver takes is answered once in this time.
const TURN_AWAY_WAIT: Span = Span::from_millis(50);

impl Receiver {
    /// Processes a PROBE packet whose header is consistent, and the holes that its body names.
    pub fn handle_probe(&mut self, header: &Header, body: &[u8], lent: &mut RankResources<'_>) {
        let passage = self.note_order(header, lent);
        let Some(at) = self.message_of(header, lent) else {
            if self.is_forgotten(header) {
                self.refuse_to(header);
            } else {
                self.turn_away(header, lent);
            }
            self.tell_skips(header, passage, lent);
            return;
        };
        self.take_probe(at, header, body, lent);
        self.tell_passage(header);
        self.watches_paths = true;
        self.look_at_paths(lent);
        self.tell_skips(header, passage, lent);
        let receiving = &self.messages[at];
        let is_early = receiving.stage == ReceiveStage::Early;
        self.note(at);
        match is_early {
            true => self.tell_grants(lent.now),
            false => self.tell_overdue(lent),
        }
    }

    fn take_probe(
        &mut self,
        at: usize,
        header: &Header,
        body: &[u8],
        lent: &mut RankResources<'_>,
    ) {
        let receiving = &mut self.messages[at];
        let is_marker = header.flags.has(Flags::MARKER);
        if is_marker && !header.flags.has(Flags::ALL_SENT) {
            return;
        }
        let body = ProbeBody::decode(body);
        let (before, now) = receiving.on_lost(body.holes, header.sent_segments());
        let fewer = receiving.of_turn(before.saturating_sub(now));
        lent.grants.settle(lent.place, fewer);
        let more = receiving.of_turn(now.saturating_sub(before));
        lent.grants.expect(lent.now, lent.place, more);
        let had_gap = receiving.gap_ends().is_some();
        receiving.on_probe(lent.now, header, &body);
        receiving.hear_grant(lent.now, header.sent_segments());
        if receiving.stage != ReceiveStage::Complete {
            if !is_marker {
                receiving.answer_probe();
            }
            // A PROBE itself is no straggler: it starts a gap, and never prolongs one.
            if !had_gap {
                receiving.restart_gap(lent);
            }
        } else if !is_marker {
            // The sender would not ask if it had heard STOP.
            receiving.complete(lent.now, lent.gap);
        }
    }

    /// Answers a PROBE for a message that this rank has no room for, by a report of another one:
    /// otherwise its sender would keep asking for this message only, and take this rank for dead.
    /// It does so rarely, since the sender repairs the segments that were not taken.
    #[cold]
    fn turn_away(&mut self, header: &Header, lent: &RankResources<'_>) {
        let is_early = self
            .turned_away
            .is_some_and(|at| lent.now < at + TURN_AWAY_WAIT);
        let is_open = |message: &ReceiveMessage| message.stage != ReceiveStage::Complete;
        let open = self.messages.iter().position(is_open);
        if let Some(at) = open.filter(|_| !is_early) {
            self.turned_away = Some(lent.now);
            self.messages[at].report.on_probe(lent.now, header);
            self.messages[at].answer_probe();
            self.note(at);
            self.tell_grants(lent.now);
        }
    }
}
