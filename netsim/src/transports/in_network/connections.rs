//! A host of NetReduce: a host of RoCE whose packets switches replace by sums.
//!
//! The members are a ring of connections, each to the next. A switch holds a packet back until
//! those with the same number of all other connections have come, and lets them all go on with the
//! sum. Acknowledgements, go-back-N and DCQCN stay those of RoCE ([`Roce`]).
//!
//! A sender has at most two messages of 170 packets more in flight than it has received in sums, so
//! switches never need more slots than they have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gradwire_collectives::aggregation::{Contributors, PartialSum, SumKind, SumPacket};
use gradwire_protocol::units::Instant;

use super::SumCargo;
use super::turns::SumTurns;
use crate::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use crate::results::outcome::TransportCounts;
use crate::transports::reference::cargo::ReferenceCargo;
use crate::transports::reference::flow_host::{DataDeparture, FlowDesk, FlowHost, FlowRules};
use crate::transports::reference::manifest::Manifest;
use crate::transports::roce::{Roce, RoceFlow, RoceTerms};
use crate::transports::settings::ReferenceSettings;

/// Packets of a message.
const MESSAGE: u32 = 170;
/// How many packets a sender may be ahead of the sums that it has received.
pub(super) const WINDOW: u32 = 2 * MESSAGE;

/// A host of NetReduce.
#[derive(Debug)]
pub struct ConnectionHost {
    carrier: FlowHost<ConnectionRules>,
    manifest: Arc<Manifest>,
    turns: SumTurns,
    /// Own all-reduces of which an end has not been reported: of the message out, or in.
    open: BTreeMap<u32, BTreeSet<u32>>,
}

/// The rules of RoCE with a window of sums.
#[derive(Debug)]
pub struct ConnectionRules {
    roce: Roce,
    manifest: Arc<Manifest>,
    /// A flow that may go on, as more sums have come.
    released: Option<u32>,
}

/// A flow at its sender.
#[derive(Debug)]
pub struct ConnectionFlow {
    roce: RoceFlow,
    /// The flow that brings its sums, if switches add them up.
    sums: Option<u32>,
}

impl ConnectionHost {
    /// A host without flows.
    pub(crate) fn new(host: u32, settings: &ReferenceSettings, manifest: &Arc<Manifest>) -> Self {
        let rules = ConnectionRules {
            roce: Roce::rules(settings, RoceTerms::DCQCN),
            manifest: Arc::clone(manifest),
            released: None,
        };
        Self {
            carrier: FlowHost::new(host, settings, rules),
            manifest: Arc::clone(manifest),
            turns: SumTurns::default(),
            open: BTreeMap::new(),
        }
    }

    fn start(&mut self, now: Instant, job: u32) {
        if let Some(begin) = self.turns.start(job)
            && let Some(flow) = self.manifest.sum_flow(begin.flow)
        {
            let incoming = flow.first + flow.before(flow.seat) as u32;
            self.open.insert(job, [begin.flow, incoming].into());
            self.carrier.begin(now, begin);
        }
    }

    /// One end of an all-reduce has been reached; after the other, the next one starts.
    fn end(&mut self, now: Instant, progress: HostProgress) {
        let (HostProgress::Received { flow: number, .. }
        | HostProgress::Acknowledged { flow: number }) = progress
        else {
            return;
        };
        let manifest = Arc::clone(&self.manifest);
        let Some(flow) = manifest.sum_flow(number) else {
            return;
        };
        let Some(open) = self.open.get_mut(&flow.job) else {
            return;
        };
        open.remove(&number);
        if open.is_empty() {
            self.open.remove(&flow.job);
            self.turns.end(&flow);
            self.start(now, flow.job);
        }
    }
}

impl Host for ConnectionHost {
    type Cargo = SumCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        let manifest = Arc::clone(&self.manifest);
        match manifest.sum_flow(begin.flow) {
            None => self.carrier.begin(now, begin),
            Some(flow) => {
                self.turns.wait(&flow, begin);
                self.start(now, flow.job);
            }
        }
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut SumCargo) {
        if let (Some(packet), Some(flow)) = (cargo.sum, self.manifest.sum_flow(cargo.flow.flow)) {
            let exact = PartialSum {
                who: Contributors::all(flow.hosts.len()),
                twice: false,
            };
            assert_eq!(packet.sum, exact, "a sum has every contribution once");
        }
        self.carrier.receive(now, envelope, &mut cargo.flow);
    }

    fn wake(&mut self, now: Instant) {
        self.carrier.wake(now);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.carrier.wakes_at()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut SumCargo) -> Option<Envelope> {
        *cargo = SumCargo::default();
        let envelope = self.carrier.transmit(now, &mut cargo.flow)?;
        let flow = self.manifest.sum_flow(cargo.flow.flow);
        cargo.sum = flow
            .filter(|_| envelope.load == Load::Data)
            .map(|flow| SumPacket {
                job: flow.job,
                number: flow.numbers.start + cargo.flow.packet,
                kind: SumKind::Contribution,
                sum: PartialSum::of(flow.seat),
            });
        Some(envelope)
    }

    fn progress(&mut self) -> Option<HostProgress> {
        let progress = self.carrier.progress()?;
        self.end(self.carrier.now(), progress);
        Some(progress)
    }

    fn counts(&self) -> TransportCounts {
        self.carrier.counts()
    }
}

impl FlowRules for ConnectionRules {
    type Flow = ConnectionFlow;

    fn begin(&mut self, desk: &mut FlowDesk, begin: &Begin) -> ConnectionFlow {
        let flow = self.manifest.sum_flow(begin.flow);
        let sums = flow.map(|flow| flow.first + flow.before(flow.seat) as u32);
        ConnectionFlow {
            roce: self.roce.begin(desk, begin),
            sums,
        }
    }

    fn at_receiver(&mut self, desk: &mut FlowDesk, envelope: &Envelope, cargo: &ReferenceCargo) {
        self.roce.at_receiver(desk, envelope, cargo);
        if let Some(flow) = self.manifest.sum_flow(cargo.flow) {
            let seat = flow.seat as u32 + 1;
            self.released = Some(flow.first + seat % flow.hosts.len() as u32);
        }
    }

    fn released(&mut self) -> Option<u32> {
        self.released.take()
    }

    fn at_sender(
        &mut self,
        desk: &mut FlowDesk,
        flow: &mut ConnectionFlow,
        cargo: &ReferenceCargo,
    ) {
        self.roce.at_sender(desk, &mut flow.roce, cargo);
    }

    fn is_acknowledged(flow: &ConnectionFlow) -> bool {
        Roce::is_acknowledged(&flow.roce)
    }

    fn line_up(&mut self, now: Instant, number: u32, flow: &mut ConnectionFlow) {
        let received = flow.sums.map(|sums| self.roce.received(sums));
        let limit = received.map_or(u32::MAX, |sums| sums / MESSAGE * MESSAGE + WINDOW);
        if flow.roce.next_packet() < limit {
            self.roce.line_up(now, number, &mut flow.roce);
        }
    }

    fn next_in_line(&mut self, now: Instant) -> Option<u32> {
        self.roce.next_in_line(now)
    }

    fn send(&mut self, desk: &mut FlowDesk, flow: &mut ConnectionFlow) -> Option<DataDeparture> {
        self.roce.send(desk, &mut flow.roce)
    }

    fn time_out(
        &mut self,
        now: Instant,
        number: u32,
        flow: &mut ConnectionFlow,
    ) -> Option<Instant> {
        self.roce.time_out(now, number, &mut flow.roce)
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.roce.wakes_at()
    }
}
