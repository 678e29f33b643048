//! DCTCP in several strict-priority queues, by one of two rules.
//!
//! - [`QueueRule::JobFirst`]: messages of the training job go before all other traffic, which is
//!   the cheapest way to prefer them.
//! - [`QueueRule::BytesSent`]: PIAS (Bai et al., NSDI 2015): every flow starts in the highest queue
//!   and sinks as it sends, so that short flows pass long ones whose lengths are not known.
//!   Its simulations with the web-search distribution gave the thresholds; six queues need five.
//!
//! Left out of PIAS: marks by the depth of the whole port, and the return to the highest queue
//! after timeouts. A packet that is sent again keeps its queue.

use std::collections::BTreeSet;

use gradwire_protocol::units::{Dscp, Instant, Layer};

use super::dctcp::{self, Dctcp};
use super::reference::cargo::ReferenceCargo;
use super::reference::flow_host::FlowHost;
use super::settings::ReferenceSettings;
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::results::outcome::TransportCounts;

/// DSCPs of the data queues, the highest first.
const QUEUES: [Dscp; 6] = [Dscp(34), Dscp(26), Dscp(18), Dscp(10), Dscp(8), Dscp(0)];
/// Bytes after which a flow sinks by a queue (HKUST-SING/PIAS-NS2, `run_pias_dctcp.py`).
const SINKS_AFTER: [u64; 5] = [
    46 * 1460,
    1084 * 1460,
    1717 * 1460,
    1943 * 1460,
    1989 * 1460,
];

/// A host whose DCTCP uses several queues.
#[derive(Debug)]
pub struct TaggedHost {
    carrier: FlowHost<Dctcp>,
    rule: QueueRule,
    payload: u64,
    /// Flows of other traffic.
    others: BTreeSet<u32>,
}

/// The rule by which data packets get their queue.
#[derive(Clone, Copy, Debug)]
pub enum QueueRule {
    /// Untagged flows travel in the lowest queue, all others in the highest.
    JobFirst,
    /// The more a flow has sent, the lower.
    BytesSent,
}

impl TaggedHost {
    /// A host that lets the job's messages go first.
    pub fn job_first(host: u32, settings: &ReferenceSettings) -> Self {
        Self::new(host, settings, QueueRule::JobFirst)
    }

    /// A host that speaks PIAS.
    pub fn pias(host: u32, settings: &ReferenceSettings) -> Self {
        Self::new(host, settings, QueueRule::BytesSent)
    }

    fn new(host: u32, settings: &ReferenceSettings, rule: QueueRule) -> Self {
        Self {
            carrier: dctcp::host(host, settings),
            rule,
            payload: u64::from(settings.payload),
            others: BTreeSet::new(),
        }
    }

    /// The next answer, which leaves before data.
    pub(crate) fn transmit_answer(
        &mut self,
        now: Instant,
        cargo: &mut ReferenceCargo,
    ) -> Option<Envelope> {
        self.carrier.transmit_answer(now, cargo)
    }

    fn queue(&self, cargo: &ReferenceCargo) -> usize {
        match self.rule {
            QueueRule::JobFirst if self.others.contains(&cargo.flow) => QUEUES.len() - 1,
            QueueRule::JobFirst => 0,
            QueueRule::BytesSent => {
                let sent = u64::from(cargo.packet) * self.payload;
                SINKS_AFTER.partition_point(|&after| after <= sent)
            }
        }
    }
}

impl Host for TaggedHost {
    type Cargo = ReferenceCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        if begin.layer == Layer::UNTAGGED {
            self.others.insert(begin.flow);
        }
        self.carrier.begin(now, begin);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut ReferenceCargo) {
        self.carrier.receive(now, envelope, cargo);
    }

    fn wake(&mut self, now: Instant) {
        self.carrier.wake(now);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.carrier.wakes_at()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        let envelope = self.carrier.transmit(now, cargo)?;
        let dscp = match envelope.load {
            Load::Data | Load::Trimmed => QUEUES[self.queue(cargo)],
            Load::Control => envelope.dscp,
        };
        Some(Envelope { dscp, ..envelope })
    }

    fn progress(&mut self) -> Option<HostProgress> {
        self.carrier.progress()
    }

    fn counts(&self) -> TransportCounts {
        self.carrier.counts()
    }
}
