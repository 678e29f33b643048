//! Reports that this host did not send.

use super::Receiver;
use crate::wire::Header;

impl Receiver {
    /// This host did not send a report: it is due again, and covers the whole message.
    pub(crate) fn report_again(&mut self, report: &Header) {
        // The next report has the number after it, and must not stand for it.
        self.reports.1 = None;
        // The sender asks again about a message that is closed here.
        let Some(at) = self.find(report.message) else {
            return;
        };
        self.messages[at].report.again(report.kind);
        self.note(at);
    }
}
