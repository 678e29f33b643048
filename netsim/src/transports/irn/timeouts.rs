//! The two timeouts of IRN: a short one when so few packets are in flight that no NACK may come.

use gradwire_protocol::units::Span;

use crate::transports::roce::TIMEOUT;
use crate::transports::settings::ReferenceSettings;

/// With at most this many packets in flight the short timeout counts (N of the paper).
const FEW: u32 = 3;
/// Full queues on the longest path, which the long timeout covers: 24 + 6 x 48 us are about the
/// 320 us of the paper.
const QUEUES: u64 = 6;
/// The short timeout is the long one divided by this: 100 of 320 us in the paper.
const SHORTER: u64 = 3;

/// How long a sender waits for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Timeouts {
    pub(crate) low: Span,
    pub(crate) high: Span,
}

impl Timeouts {
    /// Where switches drop: as long as a packet can be on its way through full queues.
    pub(crate) fn lossy(settings: &ReferenceSettings) -> Self {
        let high = settings.base_rtt + settings.full_queue * QUEUES;
        Self {
            low: Span::from_picos(high.as_picos() / SHORTER),
            high,
        }
    }

    /// Where switches pause: those of RoCE, since a pause can take any time.
    pub(crate) const fn paused() -> Self {
        Self {
            low: TIMEOUT,
            high: TIMEOUT,
        }
    }

    /// With this many packets in flight.
    pub(crate) const fn with(self, in_flight: u32) -> Span {
        match in_flight <= FEW {
            true => self.low,
            false => self.high,
        }
    }
}
