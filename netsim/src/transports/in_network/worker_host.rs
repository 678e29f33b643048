//! A host of SwitchML or ATP: contributions leave at the rate of the link, sums clock them.
//!
//! The machine is `gradwire_collectives::aggregation::worker`. In ATP every member is also a
//! server, for one packet in so many as there are members, so no link carries more than its share.
//!
//! Left out: SwitchML's numbers (block floats) and ATP's window by ECN; timeouts are those of IRN
//! instead of 10 ms and 0.2 ms, which suit the timers of an operating system.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gradwire_collectives::aggregation::hashed::SumServer;
use gradwire_collectives::aggregation::worker::{SumWorker, WorkerTerms};
use gradwire_collectives::aggregation::{
    Aggregator, Contributors, PartialSum, SumKind, SumOutcome, SumPacket, TreePlace,
};
use gradwire_protocol::units::{ByteCount, Instant};

use super::SumCargo;
use super::turns::SumTurns;
use crate::engine::host::{Begin, Envelope, Host, HostProgress};
use crate::results::outcome::TransportCounts;
use crate::transports::irn::timeouts::Timeouts;
use crate::transports::irn::{Irn, IrnTerms};
use crate::transports::reference::flow_host::FlowHost;
use crate::transports::reference::manifest::{Manifest, SumFlow};
use crate::transports::reference::outbox::{ReferenceOutbox, Route};
use crate::transports::reference::scoreboard::Attempt;
use crate::transports::settings::ReferenceSettings;

/// A host of SwitchML or ATP.
#[derive(Debug)]
pub struct WorkerHost {
    host: u32,
    now: Instant,
    terms: WorkerTerms,
    /// Carries all flows that are no contributions.
    carrier: FlowHost<Irn>,
    manifest: Arc<Manifest>,
    turns: SumTurns,
    working: BTreeMap<u32, Working>,
    server: SumServer,
    /// Packets of the server.
    served: VecDeque<(Envelope, SumCargo)>,
    outbox: ReferenceOutbox,
}

/// An all-reduce that is being summed.
#[derive(Debug)]
struct Working {
    flow: u32,
    bytes: ByteCount,
    worker: SumWorker,
}

/// Packets of a member that may wait for their sums: twice those of a round trip.
pub(super) fn window(settings: &ReferenceSettings) -> u32 {
    2 * settings.bandwidth_delay()
}

impl WorkerHost {
    /// A host without flows.
    pub(crate) fn new(host: u32, settings: &ReferenceSettings, manifest: &Arc<Manifest>) -> Self {
        Self {
            host,
            now: Instant::START,
            terms: WorkerTerms {
                window: window(settings),
                timeout: Timeouts::lossy(settings).high,
            },
            carrier: Irn::host(host, settings, IrnTerms::PLAIN),
            manifest: Arc::clone(manifest),
            turns: SumTurns::default(),
            working: BTreeMap::new(),
            server: SumServer::default(),
            served: VecDeque::new(),
            outbox: ReferenceOutbox::new(host, *settings),
        }
    }

    fn start(&mut self, job: u32) {
        let Some(begin) = self.turns.start(job) else {
            return;
        };
        let Some(flow) = self.manifest.sum_flow(begin.flow) else {
            return;
        };
        let worker = SumWorker::new(job, flow.seat, flow.numbers, self.terms);
        let working = Working {
            flow: begin.flow,
            bytes: begin.bytes,
            worker,
        };
        self.working.insert(job, working);
    }

    /// A sum of all has come.
    fn take(&mut self, flow: &SumFlow<'_>, packet: &SumPacket) {
        let all = Contributors::all(flow.hosts.len());
        let exact = PartialSum {
            who: all,
            twice: false,
        };
        assert_eq!(packet.sum, exact, "a sum has every contribution once");
        let Some(working) = self.working.get_mut(&flow.job) else {
            self.outbox.counts.duplicates += 1;
            return;
        };
        if !working.worker.take(packet.job, packet.number) {
            self.outbox.counts.duplicates += 1;
            return;
        }
        if working.worker.is_done() {
            let seat = (working.flow - flow.first) as usize;
            let incoming = flow.first + flow.before(seat) as u32;
            self.outbox.report(HostProgress::Received {
                flow: incoming,
                lost_bytes: 0,
            });
            let flow_out = working.flow;
            self.outbox
                .report(HostProgress::Acknowledged { flow: flow_out });
            self.working.remove(&flow.job);
            self.turns.end(flow);
            self.start(flow.job);
        }
    }

    /// A contribution has come to this host as the server.
    fn serve(&mut self, flow: &SumFlow<'_>, envelope: &Envelope, cargo: &SumCargo) {
        let Some(mut packet) = cargo.sum else {
            return;
        };
        let place = TreePlace {
            below: Contributors::all(flow.hosts.len()),
            ..TreePlace::default()
        };
        let own = (cargo.flow.flow, cargo.flow.flow_bytes);
        match self.server.arrive(&place, &mut packet) {
            SumOutcome::Multicast => {
                let sum = self.envelope(self.host, packet, own);
                self.served.push_back(sum);
                self.take(flow, &packet);
            }
            SumOutcome::Reply if envelope.source == self.host => self.take(flow, &packet),
            SumOutcome::Reply => {
                let answer = self.envelope(envelope.source, packet, own);
                self.served.push_back(answer);
            }
            _ => {}
        }
    }

    /// The next contribution of any all-reduce, jobs in turn by their numbers.
    fn contribution(&mut self) -> Option<(Envelope, SumCargo)> {
        let now = self.now;
        let (packet, flow) = self.working.values_mut().find_map(|working| {
            let packet = working.worker.send(now)?;
            Some((packet, (working.flow, working.bytes)))
        })?;
        self.outbox.count(match packet.kind {
            SumKind::Again => Attempt::Again,
            _ => Attempt::First,
        });
        let hosts = self.manifest.sum_flow(flow.0)?.hosts;
        let server = hosts[packet.number as usize % hosts.len()];
        Some(self.envelope(server, packet, flow))
    }

    /// The envelope of a packet of a sum, and its cargo.
    fn envelope(
        &self,
        destination: u32,
        packet: SumPacket,
        flow: (u32, ByteCount),
    ) -> (Envelope, SumCargo) {
        let (number, flow_bytes) = flow;
        let first = self.manifest.sum_flow(number);
        let first = first.map_or(packet.number, |flow| flow.numbers.start);
        let route = Route {
            destination,
            entropy: packet.number as u16,
            urgency: 0,
        };
        let mut cargo = SumCargo {
            sum: Some(packet),
            ..SumCargo::default()
        };
        (cargo.flow.flow, cargo.flow.flow_bytes) = (number, flow_bytes);
        (
            self.outbox.data(route, flow_bytes, packet.number - first),
            cargo,
        )
    }
}

impl Host for WorkerHost {
    type Cargo = SumCargo;

    fn begin(&mut self, now: Instant, begin: Begin) {
        self.now = now;
        let manifest = Arc::clone(&self.manifest);
        match manifest.sum_flow(begin.flow) {
            None => self.carrier.begin(now, begin),
            Some(flow) => {
                self.turns.wait(&flow, begin);
                self.start(flow.job);
            }
        }
    }

    fn receive(&mut self, now: Instant, envelope: &Envelope, cargo: &mut SumCargo) {
        self.now = now;
        let manifest = Arc::clone(&self.manifest);
        match (cargo.sum, manifest.sum_flow(cargo.flow.flow)) {
            (Some(packet), Some(flow)) => match packet.kind {
                SumKind::Result | SumKind::Answer => self.take(&flow, &packet),
                _ => self.serve(&flow, envelope, cargo),
            },
            _ => self.carrier.receive(now, envelope, &mut cargo.flow),
        }
    }

    fn wake(&mut self, now: Instant) {
        self.now = now;
        if self.carrier.wakes_at().is_some_and(|at| at <= now) {
            self.carrier.wake(now);
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let workers = self.working.values();
        let workers = workers.filter_map(|working| working.worker.wakes_at());
        // A contribution that is already due waits for the link, not for the time.
        let workers = workers.filter(|&at| at > self.now);
        self.carrier.wakes_at().into_iter().chain(workers).min()
    }

    fn transmit(&mut self, now: Instant, cargo: &mut SumCargo) -> Option<Envelope> {
        self.now = now;
        *cargo = SumCargo::default();
        if let Some(envelope) = self.carrier.transmit(now, &mut cargo.flow) {
            return Some(envelope);
        }
        let sum = self.served.pop_front().or_else(|| self.contribution());
        let (envelope, own) = sum?;
        *cargo = own;
        Some(envelope)
    }

    fn progress(&mut self) -> Option<HostProgress> {
        self.carrier.progress().or_else(|| self.outbox.progress())
    }

    fn counts(&self) -> TransportCounts {
        let mut counts = self.carrier.counts();
        counts += self.outbox.counts;
        counts
    }
}
