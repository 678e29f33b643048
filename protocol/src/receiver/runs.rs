//! Runs of DATA: how many packets have the effect of the first one, and are processed with it.

use super::Receiver;
use crate::machine::Ecn;
use crate::settings::EndpointSettings;
use crate::wire::{Header, PathMark};

impl Receiver {
    /// How many packets of a run of DATA that begins with this header are processed as one, because
    /// each does the same as the first: they continue their path, and all their segments are new,
    /// or none is. A packet that opens a message is processed alone.
    pub(crate) fn alike(&self, header: &Header, packets: u32, settings: &EndpointSettings) -> u32 {
        let continues = || self.order.expects(PathMark::of(header), settings);
        if packets == 1 || !continues() {
            return 1;
        }
        let at = self.find(header.message);
        at.map_or(1, |at| self.messages[at].alike(header, packets))
    }

    /// Packets of a message have arrived, with CE or without.
    #[inline]
    pub(super) fn note_mark(&mut self, at: usize, header: &Header, packets: u32, ecn: Ecn) {
        if ecn == Ecn::Ce {
            self.counters.marks += u64::from(packets);
            self.messages[at].report.on_marks(header, packets);
        }
    }
}
