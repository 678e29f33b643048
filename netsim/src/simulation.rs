//! A run: a fabric, a workload, a transport and a job in, an [`Outcome`] out.
//!
//! [`policy`] says what the switches do for a transport, [`run`] simulates. The same setup and seed
//! give the same outcome, on any number of threads.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gradwire_fabric::policy::{Buffer, Order, Pause, QosPolicy};
use gradwire_protocol::job::{Job, JobError, Mtu};
use gradwire_protocol::segment::segment_bytes;
use gradwire_protocol::units::{ByteCount, Instant, Span};

use crate::engine::flows::{Flows, Record, What};
use crate::engine::host::Host;
use crate::engine::parallel::{self, Clock, Glance};
use crate::engine::port::Port;
use crate::engine::region::Region;
use crate::engine::wiring::Wiring;
use crate::results::outcome::{FlowOutcome, LinkOutcome, Outcome, TransportCounts};
use crate::transports::reference::manifest::{Manifest, TooMany};
use crate::transports::reference::player::Player;
use crate::transports::reference::programmed::Programmed;
use crate::transports::settings::ReferenceSettings;
use crate::transports::{dctcp::Dctcp, gradwire::Gradwire, ndp::Ndp, pfabric::PFabric, roce::Roce};
use gradwire_fabric::check::FabricError;
use gradwire_fabric::fitting;
use gradwire_fabric::paths::{Packets, Paths};
use gradwire_fabric::topology::Fabric;
use gradwire_workloads::check::WorkloadError;
use gradwire_workloads::workload::{Over, Workload};

/// Bytes of the header of a reference transport, and of its control packets.
pub(crate) const REFERENCE_HEADER: u32 = 64;
/// Events between two glances at a run.
const GLANCE_EVENTS: u64 = 1 << 18;
/// A thread with fewer events in a window than this waits more than it works.
const EVENTS_PER_WINDOW_MIN: u64 = 500;

/// What carries the flows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// gradwire: the protocol that ships.
    Gradwire,
    /// DCTCP, one path per flow, with timeouts as data centres tune them.
    Dctcp,
    /// The same with the timeouts of DCTCP's paper, 10 ms at least.
    SlowDctcp,
    /// pFabric.
    PFabric,
    /// NDP with trimming switches.
    Ndp,
    /// RoCE with go-back-N, PFC and DCQCN.
    Roce,
}

/// The transports and their names.
pub const TRANSPORTS: [(&str, Transport); 6] = [
    ("gradwire", Transport::Gradwire),
    ("dctcp", Transport::Dctcp),
    ("dctcp-10ms", Transport::SlowDctcp),
    ("pfabric", Transport::PFabric),
    ("ndp", Transport::Ndp),
    ("roce", Transport::Roce),
];

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = TRANSPORTS.iter().find(|(_, transport)| transport == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl FromStr for Transport {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let named = TRANSPORTS.iter().find(|(name, _)| *name == text);
        named
            .map(|&(_, transport)| transport)
            .ok_or_else(|| SetupError::Transport {
                given: text.to_owned(),
            })
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The network.
    pub fabric: Fabric,
    /// What it carries.
    pub workload: Workload,
    /// What carries it.
    pub transport: Transport,
    /// The job, fitted to the fabric; references take from it how collectives are carried out:
    /// `collectives.algorithm`, `chunk`, `order` and `credit`.
    pub job: Job,
    /// Seed of all draws.
    pub seed: u64,
    /// Simulated time at which the run is stopped.
    pub limit: Instant,
    /// Threads; 1 unless asked for.
    pub threads: usize,
    /// How often queues are written down, if they are.
    pub sample_every: Option<Span>,
    /// Gives the CPU time of the calling thread.
    pub clock: Clock,
}

/// Why a run was refused. Nothing was simulated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// No such transport.
    #[error("transport `{given}`: known are gradwire, dctcp, dctcp-10ms, pfabric, ndp, roce")]
    Transport {
        /// What was written.
        given: String,
    },
    /// The fabric contradicts itself.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The workload does not fit the fabric.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The job contradicts itself on this fabric.
    #[error("the job on this fabric: {0}")]
    Job(#[from] JobError),
    /// More messages of programs than a reference numbers.
    #[error(
        "{transport} numbers at most 2^32 flows; `{workload}` has {messages} messages and its \
         flows: take a larger collectives.chunk, fewer steps, or gradwire"
    )]
    Messages {
        /// The transport.
        transport: Transport,
        /// The workload's name.
        workload: String,
        /// Messages of its programs.
        messages: u64,
    },
    /// More hosts than ranks can be numbered, on gradwire or under programs.
    #[error("{hosts} hosts: at most 65,535 ranks are numbered")]
    Hosts {
        /// Hosts of the fabric.
        hosts: u32,
    },
    /// Threads with triggers.
    #[error(
        "{threads} threads: flows that trigger others do so at once, anywhere in the fabric, so \
         such a workload runs on 1 thread"
    )]
    Triggers {
        /// Threads asked for.
        threads: usize,
    },
    /// Threads with a background that is cut off.
    #[error(
        "{threads} threads: the last training step ends the run, anywhere in the fabric, so \
         training beside a background runs on 1 thread"
    )]
    Over {
        /// Threads asked for.
        threads: usize,
    },
    /// Threads for a fabric that cannot be divided.
    #[error(
        "{threads} threads: this fabric has fewer parts that could be shared out; use 1 thread"
    )]
    OnePart {
        /// Threads asked for.
        threads: usize,
    },
    /// Threads that would wait more than they work.
    #[error(
        "{threads} threads: a window of {window} has about {events} events for each, less than \
         500, so they would wait more than work; use fewer threads"
    )]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// Least latency between regions.
        window: Span,
        /// Events per thread and window at full load.
        events: u64,
    },
}

/// What the switches of a fabric do for a transport.
pub fn policy(setup: &Setup) -> QosPolicy {
    let fabric = &setup.fabric;
    // References know the default job's classes only.
    let default = Job::default();
    let job = match setup.transport {
        Transport::Gradwire => &setup.job,
        _ => &default,
    };
    let mut policy = fitting::policy_of_job(job, fabric);
    let packet = u64::from(fabric.mtu + fabric.framing);
    match setup.transport {
        Transport::Gradwire | Transport::Dctcp | Transport::SlowDctcp => {}
        Transport::PFabric => {
            policy.order = Order::Urgency;
            policy.queues.truncate(2);
            policy.queues[1].marks_above = None;
        }
        Transport::Ndp => {
            policy.trims_to = Some(ByteCount::new(u64::from(REFERENCE_HEADER + fabric.framing)));
            policy.trims_above = ByteCount::new(8 * packet - 1);
            policy.queues[1].marks_above = None;
        }
        Transport::Roce => {
            policy.pause = Some(Pause {
                above: ByteCount::new(48 * packet),
                below: ByteCount::new(32 * packet),
            });
        }
    }
    policy
}

/// The fabric as a transport's switches divide its memory: references have one data queue that may
/// fill a port, as in their papers.
fn switched(setup: &Setup) -> Cow<'_, Fabric> {
    match (setup.transport, setup.fabric.buffer) {
        (Transport::Gradwire, _) | (_, Buffer::PerPort(_) | Buffer::Shared { .. }) => {
            Cow::Borrowed(&setup.fabric)
        }
        (_, Buffer::Divided { bytes, .. }) => Cow::Owned(Fabric {
            buffer: Buffer::PerPort(bytes),
            ..setup.fabric.clone()
        }),
    }
}

/// Runs a setup. `watch` is told now and then how far it is.
///
/// # Errors
/// [`SetupError`] when the setup makes no sense; nothing was simulated then.
pub fn run(setup: &Setup, watch: &mut dyn FnMut(Glance)) -> Result<Outcome, SetupError> {
    check(setup)?;
    match setup.transport {
        Transport::Gradwire => simulate(setup, watch, |host| Gradwire::new(host, setup)),
        Transport::Dctcp => simulate_reference(setup, watch, Dctcp::host),
        Transport::SlowDctcp => simulate_reference(setup, watch, Dctcp::host_of_paper),
        Transport::PFabric => simulate_reference(setup, watch, PFabric::host),
        Transport::Ndp => simulate_reference(setup, watch, Ndp::host),
        Transport::Roce => simulate_reference(setup, watch, Roce::host),
    }
}

/// Makes hosts of a reference, which carry flows; programs are played beside them.
fn simulate_reference<H: Host + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    carrier: fn(u32, &ReferenceSettings) -> H,
) -> Result<Outcome, SetupError> {
    let (fabric, workload) = (&setup.fabric, &setup.workload);
    let settings = ReferenceSettings {
        payload: fabric.mtu - REFERENCE_HEADER,
        header: REFERENCE_HEADER,
        control: REFERENCE_HEADER,
        framing: fabric.framing,
        base_rtt: fitting::round_trip(fabric),
        rate: fabric.host_rate(),
        seed: setup.seed,
    };
    // Numbers of messages begin behind those of the workload's own flows.
    let first = workload.flows.len() as u32;
    let manifest = Manifest::new(workload, &setup.job, first);
    let manifest = manifest.map_err(|TooMany(messages)| SetupError::Messages {
        transport: setup.transport,
        workload: workload.name.clone(),
        messages,
    })?;
    let manifest = Arc::new(manifest);
    let player = |host| {
        let mut programs = workload.programs.iter();
        let program = programs.find(|program| program.host == host)?;
        Some(Player::new(program, &manifest, &setup.job, &settings))
    };
    let host = |host| Programmed::new(carrier(host, &settings), player(host), first);
    simulate(setup, watch, host)
}

fn check(setup: &Setup) -> Result<(), SetupError> {
    let (fabric, workload, threads) = (&setup.fabric, &setup.workload, setup.threads);
    fabric.check()?;
    workload.check(fabric.hosts)?;
    let transport = setup.transport;
    if transport == Transport::Gradwire {
        setup.job.clone().checked()?;
    }
    let has_ranks = transport == Transport::Gradwire || !workload.programs.is_empty();
    if has_ranks && fabric.hosts > u32::from(u16::MAX) {
        return Err(SetupError::Hosts {
            hosts: fabric.hosts,
        });
    }
    if threads > 1 && workload.over != Over::WithEverything {
        return Err(SetupError::Over { threads });
    }
    if threads > 1 && !workload.triggers.is_empty() {
        return Err(SetupError::Triggers { threads });
    }
    Ok(())
}

/// Mean picoseconds between two events when all hosts send at full rate.
fn event_gap(fabric: &Fabric) -> u64 {
    let packet = ByteCount::new(u64::from(fabric.mtu + fabric.framing));
    let each = fabric.host_rate().transmit_time(packet).as_picos();
    let hops = 2
        * (1 + fabric
            .switches
            .iter()
            .map(|switch| u64::from(switch.tier))
            .max()
            .unwrap_or(0));
    each / (u64::from(fabric.hosts.max(1)) * hops * 2)
}

fn check_threads(setup: &Setup, wiring: &Wiring) -> Result<(), SetupError> {
    let (window, threads) = (wiring.lookahead, setup.threads);
    let parts: BTreeSet<u8> = wiring.host_region.iter().copied().collect();
    if parts.len() < threads {
        return Err(SetupError::OnePart { threads });
    }
    let events = window / event_gap(&setup.fabric).max(1) / threads as u64;
    if threads > 1 && events < EVENTS_PER_WINDOW_MIN {
        let window = Span::from_picos(window);
        return Err(SetupError::Threads {
            threads,
            window,
            events,
        });
    }
    Ok(())
}

fn simulate<H: Host + Send>(
    setup: &Setup,
    watch: &mut dyn FnMut(Glance),
    host: impl Fn(u32) -> H,
) -> Result<Outcome, SetupError> {
    let wiring = Wiring::new(&switched(setup), &policy(setup), setup.threads, setup.seed);
    check_threads(setup, &wiring)?;
    let gap = event_gap(&setup.fabric) * setup.threads as u64;
    let mut regions: Vec<Region<'_, H>> = (0..setup.threads)
        .map(|number| {
            let own = |id: u32| usize::from(wiring.host_region[id as usize]) == number;
            let hosts = (0..setup.fabric.hosts).map(|id| own(id).then(|| host(id)));
            let flows = Flows::new(&setup.workload);
            Region::new(&wiring, number as u8, hosts.collect(), flows, gap)
        })
        .collect();
    if let Some(span) = setup.sample_every {
        for region in &mut regions {
            region.sample_every(span.as_picos());
        }
    }
    let end = setup.limit.as_picos();
    let times = match regions.as_mut_slice() {
        [only] => {
            let began = (setup.clock)();
            while !only.run(end, GLANCE_EVENTS) {
                watch(Glance {
                    now: only.now,
                    done: only.done(),
                    events: only.events,
                });
            }
            vec![(setup.clock)().beyond(began)]
        }
        several => parallel::run(several, wiring.lookahead, end, setup.clock, watch),
    };
    let last = regions.iter().map(|region| region.now).max();
    for region in &mut regions {
        region.sample(last.unwrap_or(0));
    }
    Ok(gather(setup, &wiring, regions, times))
}

fn gather<H: Host>(
    setup: &Setup,
    wiring: &Wiring,
    regions: Vec<Region<'_, H>>,
    cpu_per_thread: Vec<Span>,
) -> Outcome {
    let mut outcome = Outcome {
        cpu_per_thread,
        flows: blank_flows(setup),
        ..Outcome::default()
    };
    let mut ports: Vec<Option<Port>> = vec![None; wiring.wires.len()];
    for (number, mut region) in regions.into_iter().enumerate() {
        outcome.events += region.events;
        outcome.events_per_thread.push(region.events);
        outcome.ended = outcome.ended.max(Instant::from_picos(region.now));
        outcome.timed_out |= region.next_event().is_some();
        outcome.samples.append(&mut region.samples);
        let (hosts, own, records) = region.into_parts();
        for host in hosts.into_iter().flatten() {
            outcome.transport.add(&host.counts());
            outcome.tasks.extend(host.tasks());
        }
        for (index, port) in own.into_iter().enumerate() {
            if usize::from(wiring.wires[index].home) == number {
                ports[index] = Some(port);
            }
        }
        for record in &records {
            write_down(&mut outcome.flows[record.flow as usize], record);
        }
    }
    outcome
        .samples
        .sort_by_key(|sample| (sample.at, sample.link));
    outcome.tasks.sort_by_key(|task| (task.host, task.task));
    let ports = ports.into_iter().flatten().enumerate();
    outcome.links = ports
        .map(|(index, port)| link_outcome(setup, wiring, index, port))
        .collect();
    outcome
}

fn blank_flows(setup: &Setup) -> Vec<FlowOutcome> {
    let flows = setup.workload.flows.iter().enumerate();
    let packets = packets(setup);
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

/// How a setup's transport cuts flows into packets.
fn packets(setup: &Setup) -> Packets {
    let (payload, header) = match (setup.transport, setup.job.transport.mtu) {
        (Transport::Gradwire, Mtu::Bytes(mtu)) => {
            let overhead = setup.job.packet_overhead();
            (segment_bytes(mtu, overhead), overhead)
        }
        _ => (setup.fabric.mtu - REFERENCE_HEADER, REFERENCE_HEADER),
    };
    Packets {
        payload,
        overhead: header + setup.fabric.framing,
    }
}

fn write_down(flow: &mut FlowOutcome, record: &Record) {
    match record.what {
        What::Started => flow.started = Some(record.at),
        What::Received(lost) => (flow.received, flow.lost_bytes) = (Some(record.at), lost),
        What::Acknowledged => flow.acknowledged = Some(record.at),
    }
}

fn link_outcome(setup: &Setup, wiring: &Wiring, index: usize, port: Port) -> LinkOutcome {
    let (wire, record) = (&wiring.wires[index], port.record);
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
        paused: Span::from_picos(record.paused),
        classes: record.classes[..setup.job.priority.dscps.len().min(record.classes.len())]
            .to_vec(),
    }
}

impl TransportCounts {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.repaired += other.repaired;
        self.duplicates += other.duplicates;
        self.lost_within_tolerance += other.lost_within_tolerance;
        self.marks += other.marks;
    }
}
