//! Messages that are given up before their first packet arrives (rule 10 of [`super`]).
//!
//! 1. When patience with a posted message ends of which no packet has arrived, all of it is given
//!    up, if the budgets bear it, and the caller hears so.
//! 2. Its first packet then opens it as complete: STOP names all segments as missing.

use super::{RankResources, Receiver};
use crate::bitmap::Bitmap;
use crate::budget::BudgetVerdict;
use crate::event::EndpointEvent;
use crate::message::ReceiveRequest;
use crate::outlook::earlier;
use crate::segment::Segmentation;
use crate::units::{Instant, MessageKey};

/// The messages of one peer that are given up and have not begun to arrive.
#[derive(Debug, Default)]
pub(super) struct AbsentMessages {
    given_up: Vec<MessageKey>,
    /// No later than the end of patience with any posted message of which no packet has arrived.
    patience_ends: Option<Instant>,
}

impl AbsentMessages {
    /// How many are given up.
    pub(super) fn len(&self) -> usize {
        self.given_up.len()
    }

    /// Whether this message is given up.
    pub(super) fn has(&self, key: MessageKey) -> bool {
        self.given_up.contains(&key)
    }

    /// The message arrives or is cancelled; tells whether it was given up.
    pub(super) fn take(&mut self, key: MessageKey) -> bool {
        let at = self.given_up.iter().position(|given_up| *given_up == key);
        at.map(|at| self.given_up.swap_remove(at)).is_some()
    }

    /// A message is posted, and patience with it ends then.
    pub(super) fn await_patience(&mut self, ends: Option<Instant>) {
        self.patience_ends = earlier(self.patience_ends, ends);
    }

    /// When a message may have to be given up.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        self.patience_ends
    }
}

impl Receiver {
    /// Gives up the messages whose patience is over and of which no packet has arrived, as far as
    /// the budgets bear it.
    pub(super) fn give_up_absent(&mut self, lent: &mut RankResources<'_>) {
        let now = lent.now;
        if self.absent.patience_ends.is_none_or(|ends| ends > now) {
            return;
        }
        let is_over = |request: &ReceiveRequest| request.patience_ends.is_some_and(|at| at <= now);
        // The network is not late with what this host's own kernel may have dropped.
        if !lent.ledger.blames_host(now) {
            let due: Vec<ReceiveRequest> = self
                .expected
                .iter()
                .filter(|one| is_over(one))
                .copied()
                .collect();
            for request in due {
                self.give_up_whole(&request, lent);
            }
        }
        let later = self.expected.iter().filter(|request| !is_over(request));
        self.absent.patience_ends = later.filter_map(|request| request.patience_ends).min();
    }

    fn give_up_whole(&mut self, request: &ReceiveRequest, lent: &mut RankResources<'_>) {
        let (step, key, bytes) = (request.step, request.key, u64::from(request.bytes));
        if lent.ledger.give_up(step, key, bytes) == BudgetVerdict::Refused {
            return;
        }
        let segments = Segmentation::new(request.bytes, lent.settings.segment_bytes).segments();
        lent.ledger.lose(step, segments, bytes);
        self.counters.lost_segments += u64::from(segments);
        self.counters.given_up_segments += u64::from(segments);
        self.expected.retain(|expected| expected.key != key);
        self.absent.given_up.push(key);
        let mut holes = Bitmap::new(segments);
        for segment in 0..segments {
            holes.insert(segment);
        }
        self.events.push_back(EndpointEvent::Received {
            from: self.peer,
            key,
            holes: Some(holes),
        });
    }

    /// The first packet of a message has arrived that was given up before.
    pub(super) fn end_given_up(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        self.early_segments -= u64::from(receiving.cut.segments());
        receiving.complete(lent.now, lent.gap);
        lent.grants.settle(lent.place, receiving.settle());
    }
}
