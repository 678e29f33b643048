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

/// Something to be done with hosts of any reference transport.
pub trait HostWork {
    /// What comes of it.
    type Done;

    /// Does it with the hosts that `make` makes.
    fn with<H: ReferenceHost + 'static>(
        self,
        make: impl Fn(u32, &ReferenceSettings) -> H,
    ) -> Self::Done;
}

/// Does something with the hosts of a reference transport; `None` for gradwire, and where switches
/// sum.
pub fn with_hosts<W: HostWork>(transport: Transport, work: W) -> Option<W::Done> {
    let (roce, irn) = (Roce::host, Irn::host);
    Some(match transport {
        Transport::Gradwire
        | Transport::SwitchMl
        | Transport::Atp
        | Transport::AtpServers
        | Transport::NetReduce => return None,
        Transport::Dctcp => work.with(dctcp::host),
        Transport::SlowDctcp => work.with(dctcp::host_of_paper),
        Transport::DctcpClasses => work.with(TaggedHost::job_first),
        Transport::Pias => work.with(TaggedHost::pias),
        Transport::Swift => work.with(swift::host),
        Transport::PFabric => work.with(PFabric::host),
        Transport::Ndp => work.with(ndp::host),
        Transport::Eqds => work.with(eqds::host),
        Transport::Nscc => work.with(Nscc::host),
        Transport::Rccc => work.with(rccc::host),
        Transport::Roce => work.with(|host, own| roce(host, own, RoceTerms::DCQCN)),
        Transport::RocePfc => work.with(|host, own| roce(host, own, RoceTerms::PFC)),
        Transport::IrnGoBack => work.with(|host, own| roce(host, own, RoceTerms::IRN_GO_BACK)),
        Transport::Irn => work.with(|host, own| irn(host, own, IrnTerms::PLAIN)),
        Transport::IrnDcqcn => work.with(|host, own| irn(host, own, IrnTerms::DCQCN)),
        Transport::IrnPfc => work.with(|host, own| irn(host, own, IrnTerms::PFC)),
        Transport::IrnPfcDcqcn => work.with(|host, own| irn(host, own, IrnTerms::PFC_DCQCN)),
        Transport::IrnNoWindow => work.with(|host, own| irn(host, own, IrnTerms::NO_WINDOW)),
    })
}

/// Makes one host, whichever transport it speaks.
struct BoxedHost<'a> {
    host: u32,
    own: &'a ReferenceSettings,
}

impl HostWork for BoxedHost<'_> {
    type Done = Box<dyn ReferenceHost>;

    fn with<H: ReferenceHost + 'static>(
        self,
        make: impl Fn(u32, &ReferenceSettings) -> H,
    ) -> Self::Done {
        Box::new(make(self.host, self.own))
    }
}

/// A host of a reference transport; `None` for gradwire, and where switches sum.
pub fn reference_host(
    transport: Transport,
    host: u32,
    own: &ReferenceSettings,
) -> Option<Box<dyn ReferenceHost>> {
    with_hosts(transport, BoxedHost { host, own })
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
