//! Messages that are given up before their first packet arrives (rule 10 of [`super`]).
//!
//! 1. If no packet of a posted message has arrived when patience with it ends, the receiver gives
//!    all of it up, as far as the budgets bear it, and tells the caller.
//! 2. Its first packet then opens it as complete: STOP names all segments as missing, and late.

use super::{RankResources, Receiver};
use crate::bitmap::Bitmap;
use crate::budget::BudgetVerdict;
use crate::event::EndpointEvent;
use crate::message::ReceiveRequest;
use crate::segment::Segmentation;

impl Receiver {
    /// Gives up the posted messages without a packet whose patience is over, as far as the budgets
    /// bear it.
    pub(super) fn give_up_absent(&mut self, lent: &mut RankResources<'_>) {
        let now = lent.now;
        if self.absent.patience_ends().is_none_or(|ends| ends > now) {
            return;
        }
        let is_over = |request: &ReceiveRequest| request.patience_ends.is_some_and(|at| at <= now);
        // The network is not late with packets that this host's own kernel may have dropped.
        if !lent.ledger.blames_host(now) {
            let due: Vec<ReceiveRequest> = self.posted.iter().filter(is_over).collect();
            for request in due {
                self.give_up_whole(&request, lent);
            }
        }
        let later = self.posted.iter().filter(|request| !is_over(request));
        let ends = later.filter_map(|request| request.patience_ends).min();
        self.absent.renew_patience(ends);
    }

    fn give_up_whole(&mut self, request: &ReceiveRequest, lent: &mut RankResources<'_>) {
        let (step, key, bytes) = (request.step, request.key, u64::from(request.bytes));
        if lent.ledger.give_up(request.sum(), bytes) == BudgetVerdict::Refused {
            return;
        }
        let segments = Segmentation::new(request.bytes, lent.settings.segment_bytes).segments();
        lent.ledger.lose(step, segments, bytes);
        self.counters.lost_segments += u64::from(segments);
        self.counters.given_up_segments += u64::from(segments);
        self.posted.take(key);
        self.absent.give_up(key);
        let mut holes = Bitmap::new(segments);
        holes.insert_range(0..segments);
        self.events.push_back(EndpointEvent::Received {
            from: self.peer,
            key,
            bytes: request.bytes,
            holes: Some(holes),
            arrived: None,
        });
    }

    /// The first packet of a message has arrived that was given up before.
    pub(super) fn end_given_up(&mut self, at: usize, lent: &mut RankResources<'_>) {
        let receiving = &mut self.messages[at];
        self.early_segments -= u64::from(receiving.cut.segments());
        receiving.on_given_up();
        receiving.complete(lent.now, lent.gap);
        lent.grants.settle(lent.place, receiving.settle());
    }
}
