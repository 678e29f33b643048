//! The least round trip of a path that has become longer.
//!
//! Delay is measured from the least round trip. After a reroute to a longer path that one is
//! wrong, and would shrink the window for ever. So once delay has exceeded its target for a while
//! ([`Rtt::doubts_least`]), the sender keeps no more than the least window in flight until a packet
//! that it has sent in this time is answered, and takes that sample. This is ProbeRTT of BBR (Cardwell
//! et al., ACM Queue 2016), but only when delay shrinks the window, for one round trip.

use super::Sender;
use crate::rtt::Rtt;
use crate::units::{Instant, Span, Stamp};

/// A search for the least round trip.
#[derive(Debug, Default)]
pub(super) struct LeastSearch {
    /// Since when no more than the least window is in flight.
    light_since: Option<Stamp>,
}

impl Sender {
    /// Bytes that may be in flight by now.
    pub(super) fn limit(&self) -> u64 {
        match self.search {
            None => self.window.bytes().get(),
            Some(_) => self.window.least(),
        }
    }

    /// A packet with this stamp was answered after this round trip.
    pub(super) fn search_least(
        &mut self,
        now: Instant,
        (echo, sample): (Stamp, Span),
        delay_target: Span,
        rtt: &mut Rtt,
    ) {
        if self.search.is_none() && rtt.doubts_least(now, delay_target) {
            self.search = Some(LeastSearch::default());
        }
        let Some(search) = &mut self.search else {
            return;
        };
        if search.light_since.is_some_and(|since| echo >= since) {
            self.search = None;
            rtt.renew_least(sample);
            self.window.on_new_path();
        } else if self.in_flight <= self.window.least() {
            search.light_since.get_or_insert_with(|| now.stamp());
        }
    }
}
