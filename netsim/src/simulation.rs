//! A run: a [`Setup`] in, an [`Outcome`] out. The same setup gives the same outcome on any number
//! of threads.

use std::sync::Arc;

use gradwire_fabric::paths::Paths;
use gradwire_protocol::units::Span;

use crate::engine::element::OptionalElement;
use crate::engine::flows::{FlowChange, FlowRecord, Flows, due_at_times, triggered};
use crate::engine::host::Host;
use crate::engine::parallel::{self, Glance, Horizon};
use crate::engine::partition::Partition;
use crate::engine::port::PortQueues;
use crate::engine::region::FabricRegion;
use crate::engine::wiring::{PortWire, Wiring};
use crate::results::outcome::{FlowOutcome, LinkOutcome, MessageOutcome, Outcome};
use crate::setup::{Setup, SetupError, Transport};
use crate::switches;
use crate::transports::beside::{
    HostWork, ReferenceHost, TwoTransports, reference_host, untagged_flows, with_hosts,
};
use crate::transports::gradwire::Gradwire;
use crate::transports::in_network::connections::ConnectionHost;
use crate::transports::in_network::worker_host::WorkerHost;
use crate::transports::in_network::{SumCargo, SumPolicy, element};
use crate::transports::reference::manifest::{Manifest, Summing, TooMany};
use crate::transports::reference::player::MessagePlayer;
use crate::transports::reference::programmed::Programmed;
use crate::transports::settings::ReferenceSettings;
use crate::transports::shared_host::{SharedHost, has_untagged_flows};

/// Runs a setup, and calls `watch` now and then with its progress.
///
/// # Errors
/// [`SetupError`] when the setup is invalid; then nothing was simulated.
pub fn run(setup: &Setup, watch: &mut dyn FnMut(Glance)) -> Result<Outcome, SetupError> {
    setup.check()?;
    let has_others = has_untagged_flows(&setup.workload);
    match (setup.transport, setup.background) {
        (Transport::Gradwire, background) if has_others => {
            let others = Carrier::of(setup, background.unwrap_or(Transport::Dctcp))?;
            simulate(setup, watch, |host| {
                SharedHost::new(host, setup, others.host(host))
            })
        }
        (transport, Some(background)) if has_others && transport != background => {
            let own = Carrier::of(setup, transport)?;
            let others = Carrier::of(setup, background)?;
            let flows = untagged_flows(&setup.workload);
            simulate_reference(setup, watch, |host, _| {
                TwoTransports::new(own.host(host), others.host(host), flows.clone())
            })
        }
        _ => run_alone(setup, watch),
    }
}

/// Runs a setup with one transport for all flows.
fn run_alone(setup: &Setup, watch: &mut dyn FnMut(Glance)) -> Result<Outcome, SetupError> {
    match setup.transport {
        Transport::Gradwire => simulate(setup, watch, |host| Gradwire::new(host, setup)),
        Transport::SwitchMl => simulate_workers(setup, watch, SumPolicy::SwitchMl),
        Transport::Atp => simulate_workers(setup, watch, SumPolicy::Atp),
        Transport::AtpServers => simulate_workers(setup, watch, SumPolicy::AtpServers),
        Transport::NetReduce => {
            simulate_summing(setup, watch, SumPolicy::NetReduce, ConnectionHost::new)
        }
        reference => with_hosts(reference, ReferenceRun { setup, watch })
            .expect("all but those above are references"),
    }
}

/// A run of a reference.
struct ReferenceRun<'a> {
    setup: &'a Setup,
    watch: &'a mut dyn FnMut(Glance),
}

impl HostWork for ReferenceRun<'_> {
    type Done = Result<Outcome, SetupError>;

    fn with<H: ReferenceHost + 'static>(
        self,
        make: impl Fn(u32, &ReferenceSettings) -> H,
    ) -> Self::Done {
        simulate_reference(self.setup, self.watch, make)
    }
}

/// A reference transport that makes hosts.
struct Carrier {
    transport: Transport,
    settings: ReferenceSettings,
}

impl Carrier {
    fn of(setup: &Setup, transport: Transport) -> Result<Self, SetupError> {
        let settings = ReferenceSettings::of(&setup.fabric, setup.seed);
        match reference_host(transport, 0, &settings) {
            Some(_) => Ok(Self {
                transport,
                settings,
            }),
            None => Err(SetupError::Alone { given: transport }),
        }
    }

    fn host(&self, host: u32) -> Box<dyn ReferenceHost> {
        let host = reference_host(self.transport, host, &self.settings);
        host.expect("it made the first one")
    }
}

fn simulate_workers(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    policy: SumPolicy,
) -> Result<Outcome, SetupError> {
    simulate_summing(setup, watch, policy, WorkerHost::new)
}

/// Runs a reference whose switches sum all-reduces.
fn simulate_summing<H: Host<Cargo = SumCargo> + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    policy: SumPolicy,
    carrier: impl Fn(u32, &ReferenceSettings, &Arc<Manifest>) -> H,
) -> Result<Outcome, SetupError> {
    let players = Players::of(setup, |settings| Summing::Switches {
        payload: settings.payload,
    })?;
    let Players {
        settings, manifest, ..
    } = &players;
    let host = |host| players.host(host, carrier(host, settings, manifest));
    let elements = || element::elements(&setup.fabric, manifest, policy, settings);
    simulate_with(setup, watch, host, elements)
}

/// Runs a reference, whose hosts carry flows; players turn programs into flows.
fn simulate_reference<H: Host + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    carrier: impl Fn(u32, &ReferenceSettings) -> H,
) -> Result<Outcome, SetupError> {
    let players = Players::of(setup, |_| Summing::Hosts)?;
    let host = |host| players.host(host, carrier(host, &players.settings));
    simulate(setup, watch, host)
}

/// The programs of a reference's hosts.
struct Players<'s> {
    setup: &'s Setup,
    settings: ReferenceSettings,
    manifest: Arc<Manifest>,
    /// Number of the first message.
    first: u32,
}

impl<'s> Players<'s> {
    fn of(
        setup: &'s Setup,
        summing: impl Fn(&ReferenceSettings) -> Summing,
    ) -> Result<Self, SetupError> {
        let workload = &setup.workload;
        let settings = ReferenceSettings::of(&setup.fabric, setup.seed);
        // Numbers of messages begin after those of the workload's own flows.
        let first = workload.flows.len() as u32;
        let manifest = Manifest::new(workload, &setup.job, first, summing(&settings));
        let manifest = manifest.map_err(|TooMany(messages)| SetupError::Messages {
            transport: setup.transport,
            workload: workload.name.clone(),
            messages,
        })?;
        Ok(Self {
            setup,
            settings,
            manifest: Arc::new(manifest),
            first,
        })
    }

    /// A host with its program.
    fn host<H: Host>(&self, host: u32, carrier: H) -> Programmed<H> {
        let mut programs = self.setup.workload.programs.iter();
        let program = programs.find(|program| program.host == host);
        let player = program.map(|program| {
            MessagePlayer::new(program, &self.manifest, &self.setup.job, &self.settings)
        });
        Programmed::new(carrier, player, self.first)
    }
}

fn simulate<H: Host + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    host: impl Fn(u32) -> H,
) -> Result<Outcome, SetupError> {
    simulate_with(setup, watch, host, Vec::new)
}

/// Runs hosts, with elements in switches: one place for each switch, or none at all.
fn simulate_with<H: Host + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    host: impl Fn(u32) -> H,
    elements: impl Fn() -> Vec<OptionalElement<H::Cargo>>,
) -> Result<Outcome, SetupError> {
    let fabric = switches::with_memory_of(setup);
    let policy = switches::policy(setup);
    let partition = setup.partition(&fabric)?;
    let wiring = Wiring::new(&fabric, &policy, partition, setup.seed);
    let mut regions = regions(setup, &wiring, host);
    place(&mut regions, &wiring.partition, elements());
    let horizon = Horizon {
        turns: wiring.partition.turns,
        lookahead: wiring.partition.lookahead,
        end: setup.limit,
    };
    let times = parallel::run(&mut regions, setup.threads, horizon, setup.clock, watch);
    let last = regions.iter().map(|region| region.now).max();
    for region in &mut regions {
        region.sample(last.unwrap_or_default());
    }
    Ok(gather(setup, &wiring, regions, times))
}

/// The regions of a wiring, in which nothing has happened yet.
fn regions<'w, H: Host>(
    setup: &'w Setup,
    wiring: &'w Wiring,
    host: impl Fn(u32) -> H,
) -> Vec<FabricRegion<'w, H>> {
    let (workload, count) = (&setup.workload, wiring.partition.regions);
    let region_of = |host: u32| usize::from(wiring.partition.host_region[host as usize]);
    let mut flows = vec![Flows::without_triggers(workload); count];
    for (flow, trigger) in triggered(workload) {
        let source = workload.flows[flow as usize].source;
        flows[region_of(source)].await_trigger(trigger, flow);
    }
    let gap = setup.event_gap(count);
    let mut regions: Vec<_> = (0..)
        .zip(flows)
        .map(|(number, flows)| {
            let hosts = wiring.hosts.of(number).iter().map(|&id| host(id));
            FabricRegion::new(wiring, number, hosts.collect(), flows, gap)
        })
        .collect();
    for (at, host, flow) in due_at_times(workload) {
        regions[region_of(host)].begin_at(at, host, flow);
    }
    if let Some(interval) = setup.sample_every {
        for region in &mut regions {
            region.sample_every(interval);
        }
    }
    regions
}

/// Puts elements, one place for each switch or none at all, into the regions of their switches.
fn place<H: Host>(
    regions: &mut [FabricRegion<'_, H>],
    partition: &Partition,
    elements: Vec<OptionalElement<H::Cargo>>,
) {
    let mut shares: Vec<Vec<_>> = regions.iter().map(|_| Vec::new()).collect();
    for (element, &region) in elements.into_iter().zip(&partition.switch_region) {
        shares[usize::from(region)].push(element);
    }
    for (region, share) in regions.iter_mut().zip(shares) {
        region.place(share);
    }
}

fn gather<H: Host>(
    setup: &Setup,
    wiring: &Wiring,
    regions: Vec<FabricRegion<'_, H>>,
    cpu_per_thread: Vec<Span>,
) -> Outcome {
    let mut outcome = Outcome {
        events_per_thread: vec![0; cpu_per_thread.len()],
        cpu_per_thread,
        flows: blank_flows(setup),
        ..Outcome::default()
    };
    let mut ports = Vec::with_capacity(regions.len());
    let share = parallel::regions_per_thread(regions.len(), setup.threads);
    for (number, mut region) in regions.into_iter().enumerate() {
        outcome.events += region.events;
        outcome.events_per_thread[number / share] += region.events;
        outcome.ended = outcome.ended.max(region.now);
        outcome.timed_out |= region.next_event().is_some();
        outcome.samples.append(&mut region.samples);
        let (hosts, own, records) = region.into_parts();
        for mut host in hosts {
            outcome.transport += host.counts();
            outcome.tasks.extend(host.tasks());
            outcome.messages.extend(host.messages());
        }
        ports.push(own);
        for record in &records {
            write_down(&mut outcome.flows[record.flow as usize], record);
        }
    }
    outcome
        .samples
        .sort_by_key(|sample| (sample.at, sample.link));
    outcome.tasks.sort_by_key(|task| (task.host, task.task));
    let end = |message: &MessageOutcome| (message.host, message.record.last);
    outcome.messages.sort_by_key(end);
    let wires = wiring.wires.iter().enumerate();
    outcome.links = wires
        .map(|(index, wire)| {
            let port = &ports[usize::from(wire.home)][wire.place as usize];
            link_outcome(setup, wire, index, port)
        })
        .collect();
    outcome
}

fn blank_flows(setup: &Setup) -> Vec<FlowOutcome> {
    let flows = setup.workload.flows.iter().enumerate();
    let packets = setup.packets();
    let mut paths = Paths::of(&setup.fabric);
    flows
        .map(|(index, flow)| FlowOutcome {
            flow: index as u32,
            source: flow.source,
            destination: flow.destination,
            bytes: flow.bytes,
            started: None,
            received: None,
            acknowledged: None,
            lost_bytes: 0,
            ideal: paths.ideal_fct(flow.source, flow.destination, flow.bytes, packets),
        })
        .collect()
}

fn write_down(flow: &mut FlowOutcome, record: &FlowRecord) {
    match record.change {
        FlowChange::Started => flow.started = Some(record.at),
        FlowChange::Received(lost) => (flow.received, flow.lost_bytes) = (Some(record.at), lost),
        FlowChange::Acknowledged => flow.acknowledged = Some(record.at),
    }
}

fn link_outcome(setup: &Setup, wire: &PortWire, index: usize, port: &PortQueues) -> LinkOutcome {
    let record = &port.record;
    LinkOutcome {
        from: wire.from,
        to: wire.to,
        rate: setup.fabric.links[index / 2].rate,
        bytes: record.bytes,
        packets: record.packets,
        data_packets: record.data_packets,
        peak_queue: record.peak,
        queue_integral: record.integral.max(0) as u128,
        lost: record.lost,
        paused: record.paused,
        classes: record.classes[..setup.job.priority.dscps.len().min(record.classes.len())]
            .to_vec(),
    }
}
