//! A host that gradwire shares with other traffic: flows of no training job ride another
//! transport, DCTCP unless the setup says which.
//!
//! - An untagged flow ([`Layer::UNTAGGED`]) belongs to that side, all others to gradwire. Each side
//!   has packets and counters of its own; they meet on the host's link and in its queues.
//! - The others' data has no class, so it travels in the last one, behind the job's. Their ACKs
//!   travel in the class of control packets, as the ACKs of all references do.

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Dscp, Instant, Layer};
use gradwire_workloads::workload::Workload;

use super::beside::ReferenceHost;
use super::gradwire::{Gradwire, GradwireCargo};
use super::reference::cargo::ReferenceCargo;
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::results::outcome::{MessageOutcome, TaskOutcome, TransportCounts};
use crate::setup::Setup;

/// DSCP of traffic without a class.
const UNTAGGED: Dscp = Dscp(0);

/// A host that speaks gradwire, and a reference for flows of others.
#[derive(Debug)]
pub struct SharedHost {
    job: Gradwire,
    others: Box<dyn ReferenceHost>,
    /// DSCP of the others' ACKs.
    control: Dscp,
}

/// The content of a packet.
#[derive(Debug)]
pub enum SharedCargo {
    /// Of gradwire.
    Job(GradwireCargo),
    /// Of the others' transport.
    Others(ReferenceCargo),
}

impl Default for SharedCargo {
    fn default() -> Self {
        Self::Job(GradwireCargo::default())
    }
}

impl SharedCargo {
    fn job(&mut self) -> &mut GradwireCargo {
        if let Self::Others(_) = self {
            *self = Self::default();
        }
        match self {
            Self::Job(cargo) => cargo,
            Self::Others(_) => unreachable!("it was just replaced"),
        }
    }
}

/// Whether a workload has flows of others.
pub fn has_untagged_flows(workload: &Workload) -> bool {
    let mut flows = workload.flows.iter();
    flows.any(|flow| flow.layer == Layer::UNTAGGED)
}

impl SharedHost {
    /// Host `host` of a setup.
    pub fn new(host: u32, setup: &Setup, others: Box<dyn ReferenceHost>) -> Self {
        let job: &Job = &setup.job;
        Self {
            job: Gradwire::new(host, setup),
            others,
            control: job.priority.dscps.first().copied().unwrap_or(UNTAGGED),
        }
    }

    fn tagged(&self, envelope: Envelope) -> Envelope {
        let dscp = match envelope.load {
            Load::Control => self.control,
            Load::Data | Load::Trimmed => UNTAGGED,
        };
        Envelope { dscp, ..envelope }
    }
}

impl Host for SharedHost {
    type Cargo = SharedCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        match begin.layer {
            Layer::UNTAGGED => self.others.begin(now, begin),
            _ => self.job.begin(now, begin),
        }
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut SharedCargo) {
        match cargo {
            SharedCargo::Job(cargo) => self.job.receive(now, envelope, cargo),
            SharedCargo::Others(cargo) => self.others.receive(now, envelope, cargo),
        }
    }

    fn wake(&mut self, now: Instant) {
        self.job.wake(now);
        self.others.wake(now);
    }

    fn wakes_at(&self) -> Option<Instant> {
        let both = [self.job.wakes_at(), self.others.wakes_at()];
        both.into_iter().flatten().min()
    }

    /// The host's own queues know classes, too: ACKs of others first, then the job, then the data
    /// of others.
    fn transmit(&mut self, now: Instant, cargo: &mut SharedCargo) -> Option<Envelope> {
        let mut other = ReferenceCargo::default();
        let ahead = self.others.answer(now, &mut other);
        if ahead.is_none() {
            let own = self.job.transmit(now, cargo.job());
            if own.is_some() {
                return own;
            }
        }
        let envelope = ahead.or_else(|| self.others.transmit(now, &mut other))?;
        *cargo = SharedCargo::Others(other);
        Some(self.tagged(envelope))
    }

    fn progress(&mut self) -> Option<HostProgress> {
        self.job.progress().or_else(|| self.others.progress())
    }

    fn tasks(&self) -> Vec<TaskOutcome> {
        self.job.tasks()
    }

    fn messages(&mut self) -> Vec<MessageOutcome> {
        self.job.messages()
    }

    fn counts(&self) -> TransportCounts {
        let mut sum = self.job.counts();
        sum += self.others.counts();
        sum
    }
}
