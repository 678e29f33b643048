//! Which packets their receiver acknowledges at once.
//!
//! A receiver acknowledges a part of the largest window at a time, or waits for more packets. A
//! window that signals have made smaller would be empty for the rest of that wait, in each round
//! trip. One that still doubles would ask for many: its runs are long.

use super::{Sender, full_packet};
use crate::settings::EndpointSettings;
use crate::wire::Flags;

impl Sender {
    /// The flags of a run that has left.
    pub(super) fn ack_flags(&self, settings: &EndpointSettings) -> Flags {
        match !self.window.is_exponential() && self.is_small(settings) && !self.has_room(settings) {
            true => Flags::IMMEDIATE_ACK,
            false => Flags::NONE,
        }
    }

    /// Whether half of the window is not acknowledged at once.
    fn is_small(&self, settings: &EndpointSettings) -> bool {
        let half = self.limit() / full_packet(settings) / 2;
        u32::try_from(half).is_ok_and(|half| !settings.is_worth_an_ack(half))
    }
}
