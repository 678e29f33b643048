//! A host that speaks two reference transports: one for the workload, one for the background.
//!
//! An untagged flow ([`Layer::UNTAGGED`]) belongs to the background. The two sides take turns on
//! the host's link, packet by packet, answers before data. Switches serve the workload's transport:
//! a background of another one gets that one's queues, marks and trimmed packets.

use std::fmt::Debug;
use std::ops::Range;

use gradwire_protocol::units::{Instant, Layer};
use gradwire_workloads::workload::Workload;

use super::irn::{Irn, IrnTerms};
use super::nscc::Nscc;
use super::pfabric::PFabric;
use super::reference::cargo::ReferenceCargo;
use super::reference::flow_host::{FlowHost, FlowRules};
use super::roce::{Roce, RoceTerms};
use super::settings::ReferenceSettings;
use super::tagged::TaggedHost;
use super::{dctcp, eqds, ndp, rccc, swift};
use crate::engine::host::{Begin, Envelope, Host, HostProgress};
use crate::results::outcome::TransportCounts;
use crate::setup::Transport;

/// A host of any reference transport.
pub trait ReferenceHost: Host<Cargo = ReferenceCargo> + Debug + Send {
    /// The next answer, which leaves before data.
    fn answer(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope>;
}

impl<R: FlowRules + Debug + Send> ReferenceHost for FlowHost<R>
where
    R::Flow: Send,
{
    fn answer(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        self.transmit_answer(now, cargo)
    }
}

impl ReferenceHost for TaggedHost {
    fn answer(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        self.transmit_answer(now, cargo)
    }
}

/// A host of a reference transport; `None` of gradwire, and where switches sum.
pub fn reference_host(
    transport: Transport,
    host: u32,
    own: &ReferenceSettings,
) -> Option<Box<dyn ReferenceHost>> {
    let roce = |terms| Roce::host(host, own, terms);
    let irn = |terms| Irn::host(host, own, terms);
    Some(match transport {
        Transport::Gradwire
        | Transport::SwitchMl
        | Transport::Atp
        | Transport::AtpServers
        | Transport::NetReduce => return None,
        Transport::Dctcp => Box::new(dctcp::host(host, own)),
        Transport::SlowDctcp => Box::new(dctcp::host_of_paper(host, own)),
        Transport::DctcpClasses => Box::new(TaggedHost::job_first(host, own)),
        Transport::Pias => Box::new(TaggedHost::pias(host, own)),
        Transport::Swift => Box::new(swift::host(host, own)),
        Transport::PFabric => Box::new(PFabric::host(host, own)),
        Transport::Ndp => Box::new(ndp::host(host, own)),
        Transport::Eqds => Box::new(eqds::host(host, own)),
        Transport::Nscc => Box::new(Nscc::host(host, own)),
        Transport::Rccc => Box::new(rccc::host(host, own)),
        Transport::Roce => Box::new(roce(RoceTerms::DCQCN)),
        Transport::RocePfc => Box::new(roce(RoceTerms::PFC)),
        Transport::IrnGoBack => Box::new(roce(RoceTerms::IRN_GO_BACK)),
        Transport::Irn => Box::new(irn(IrnTerms::PLAIN)),
        Transport::IrnDcqcn => Box::new(irn(IrnTerms::DCQCN)),
        Transport::IrnPfc => Box::new(irn(IrnTerms::PFC)),
        Transport::IrnPfcDcqcn => Box::new(irn(IrnTerms::PFC_DCQCN)),
        Transport::IrnNoWindow => Box::new(irn(IrnTerms::NO_WINDOW)),
    })
}

/// The numbers of a workload's untagged flows, which are its last ones.
pub fn untagged_flows(workload: &Workload) -> Range<u32> {
    let flows = &workload.flows;
    let first = flows.iter().position(|flow| flow.layer == Layer::UNTAGGED);
    first.unwrap_or(flows.len()) as u32..flows.len() as u32
}

/// A host that speaks one transport for untagged flows and another one for all else.
#[derive(Debug)]
pub struct TwoTransports {
    sides: [Box<dyn ReferenceHost>; 2],
    /// Numbers of the flows of the second side.
    background: Range<u32>,
    /// The side that sends data next, if it has some.
    next: usize,
}

impl TwoTransports {
    /// A host that speaks `own`, and for flows of these numbers `others`.
    pub fn new(
        own: Box<dyn ReferenceHost>,
        others: Box<dyn ReferenceHost>,
        background: Range<u32>,
    ) -> Self {
        Self {
            sides: [own, others],
            background,
            next: 0,
        }
    }

    fn side(&mut self, flow: u32) -> &mut dyn ReferenceHost {
        &mut *self.sides[usize::from(self.background.contains(&flow))]
    }
}

impl Host for TwoTransports {
    type Cargo = ReferenceCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.side(begin.flow).begin(now, begin);
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut ReferenceCargo) {
        self.side(cargo.flow).receive(now, envelope, cargo);
    }

    fn wake(&mut self, now: Instant) {
        self.sides.iter_mut().for_each(|side| side.wake(now));
    }

    fn wakes_at(&self) -> Option<Instant> {
        let both = self.sides.iter().map(|side| side.wakes_at());
        both.flatten().min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut ReferenceCargo) -> Option<Envelope> {
        for side in &mut self.sides {
            let answer = side.answer(now, cargo);
            if answer.is_some() {
                return answer;
            }
        }
        for side in [self.next, 1 - self.next] {
            let envelope = self.sides[side].transmit(now, cargo);
            if envelope.is_some() {
                self.next = 1 - side;
                return envelope;
            }
        }
        None
    }

    fn progress(&mut self) -> Option<HostProgress> {
        self.sides.iter_mut().find_map(|side| side.progress())
    }

    fn counts(&self) -> TransportCounts {
        let mut sum = self.sides[0].counts();
        sum += self.sides[1].counts();
        sum
    }
}
