//! Outgoing answers, and progress that the simulator takes.
//!
//! Answers leave before data, in the queue of control packets, and with the entropy of the packets
//! that they answer. All packets of reference transports are ECT, so no threshold drops one.

use std::collections::VecDeque;

use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp};

use super::cargo::ReferenceCargo;
use super::incoming::Arrival;
use super::scoreboard::Attempt;
use crate::engine::host::{Envelope, HostProgress, Load};
use crate::results::outcome::TransportCounts;
use crate::transports::settings::ReferenceSettings;

/// DSCP of control packets: leads to the highest queue.
pub(crate) const CONTROL: Dscp = Dscp(40);
/// DSCP of data packets: leads to the queue below it.
pub(crate) const DATA: Dscp = Dscp(34);

/// Answers that wait to leave a host, its progress and its counters.
#[derive(Debug)]
pub(crate) struct ReferenceOutbox {
    host: u32,
    settings: ReferenceSettings,
    answers: VecDeque<(u32, u16, ReferenceCargo)>,
    progress: VecDeque<HostProgress>,
    /// The host's counters.
    pub(crate) counts: TransportCounts,
}

/// The destination of a data packet, and its tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The host that receives.
    pub(crate) destination: u32,
    /// Its path.
    pub(crate) entropy: u16,
    /// Its place in queues that serve the smallest first.
    pub(crate) urgency: u32,
}

impl ReferenceOutbox {
    pub(crate) fn new(host: u32, settings: ReferenceSettings) -> Self {
        Self {
            host,
            settings,
            answers: VecDeque::new(),
            progress: VecDeque::new(),
            counts: TransportCounts::default(),
        }
    }

    /// Sends an answer to the sender of `to`, along the path that `to` took.
    pub(crate) fn answer(&mut self, to: &Envelope, cargo: ReferenceCargo) {
        self.answers.push_back((to.source, to.entropy, cargo));
    }

    /// The next answer.
    pub(crate) fn transmit(&mut self, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        let (destination, entropy, answer) = self.answers.pop_front()?;
        *cargo = answer;
        Some(self.control(Route {
            destination,
            entropy,
            urgency: 0,
        }))
    }

    /// A packet without data.
    pub(crate) fn control(&self, route: Route) -> Envelope {
        Envelope {
            source: self.host,
            destination: route.destination,
            bytes: self.settings.control + self.settings.framing,
            dscp: CONTROL,
            ecn: Ecn::Ect,
            entropy: route.entropy,
            load: Load::Control,
            urgency: route.urgency,
        }
    }

    /// A data packet of a flow of `flow_bytes` bytes.
    pub(crate) fn data(&self, route: Route, flow_bytes: ByteCount, packet: u32) -> Envelope {
        Envelope {
            bytes: self.settings.packet_bytes(flow_bytes, packet),
            dscp: DATA,
            load: Load::Data,
            ..self.control(route)
        }
    }

    /// Counts a data packet that leaves.
    pub(crate) fn count(&mut self, attempt: Attempt) {
        match attempt {
            Attempt::First => self.counts.sent += 1,
            Attempt::Again => self.counts.repaired += 1,
        }
    }

    /// Counts a data packet that has arrived, and reports the flow when it was the last one.
    pub(crate) fn arrived(&mut self, flow: u32, arrival: Arrival) {
        match arrival {
            Arrival::New => {}
            Arrival::Last => self.report(HostProgress::Received {
                flow,
                lost_bytes: 0,
            }),
            Arrival::Again => self.counts.duplicates += 1,
        }
    }

    /// Reports progress of a flow.
    pub(crate) fn report(&mut self, progress: HostProgress) {
        self.progress.push_back(progress);
    }

    /// The oldest progress that was not taken yet.
    pub(crate) fn progress(&mut self) -> Option<HostProgress> {
        self.progress.pop_front()
    }
}
