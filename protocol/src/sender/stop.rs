//! STOP, the last report of a message, which may take several packets.

use serde::{Deserialize, Serialize};

use super::message::SendMessage;
use crate::bitmap::Bitmap;
use crate::wire::SegmentReport;

/// How much of STOP was heard.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct StopHeard {
    /// The segments that the receiver accepted as lost, as far as it has named them.
    missing: Option<Bitmap>,
    /// STOP has named all of them before this segment.
    until: u32,
}

impl SendMessage {
    /// Processes a STOP; returns whether it has named all missing segments by now.
    pub(super) fn on_stop(&mut self, report: &SegmentReport, encoded: &[u8]) -> bool {
        let segments = self.segments();
        let StopHeard { missing, until } = &mut self.stop;
        let missing = missing.get_or_insert_with(|| Bitmap::new(segments));
        *until = report.cumulative.max(*until);
        // A window after a gap is taken when it arrives again.
        if report.first <= *until {
            for segment in report.missing(encoded, segments).iter_ones() {
                missing.insert(segment);
            }
            *until = report.first.saturating_add(report.bits).max(*until);
        }
        *until >= segments
    }

    /// The segments that STOP named as missing, if there were any.
    pub(super) fn take_missing(&mut self) -> Option<Bitmap> {
        let missing = self.stop.missing.take();
        missing.filter(|missing| missing.ones() > 0)
    }
}
