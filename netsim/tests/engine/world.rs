//! Setups of the tests, and hosts that send given packets only.

use std::collections::{BTreeSet, VecDeque};

use gradwire_fabric::fitting;
use gradwire_fabric::policy::QosPolicy;
use gradwire_fabric::routing::PortId;
use gradwire_fabric::topology::Fabric;
use gradwire_netsim::engine::calendar::END_OF_TIME;
use gradwire_netsim::engine::flows::Flows;
use gradwire_netsim::engine::host::{Begin, Envelope, Host, HostProgress, Load};
use gradwire_netsim::engine::partition::Partition;
use gradwire_netsim::engine::port::PortQueues;
use gradwire_netsim::engine::region::FabricRegion;
use gradwire_netsim::engine::wiring::Wiring;
use gradwire_netsim::results::outcome::{FlowOutcome, LinkOutcome, Outcome, TransportCounts};
use gradwire_netsim::setup::{Division, JournalMode, Setup, Transport};
use gradwire_netsim::simulation;
use gradwire_protocol::job::{GrantWindow, Job, SendWindow};
use gradwire_protocol::machine::Ecn;
use gradwire_protocol::units::{ByteCount, Dscp, Instant, Share, Span};
use gradwire_workloads::workload::{Flow, Hosts, Workload};

/// Seed of runs that need just one.
pub(crate) const SEED: u64 = 1;
/// Bytes of gradwire's header.
pub(crate) const HEADER: u64 = 64;

/// Makes a fabric from its description in one line.
pub(crate) fn fabric(shape: &str) -> Fabric {
    Fabric::from_shape(shape).unwrap_or_else(|error| panic!("{shape}: {error}"))
}

/// A workload from its one line, for all hosts of a fabric.
pub(crate) fn pattern(text: &str, fabric: &Fabric, seed: u64) -> Workload {
    let hosts = Hosts {
        count: fabric.hosts,
        rate: fabric.host_rate(),
    };
    let read = Workload::from_pattern(text, hosts, seed);
    read.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// These flows only.
pub(crate) fn flows(flows: Vec<Flow>) -> Workload {
    Workload {
        flows,
        ..Workload::default()
    }
}

/// A flow that begins at once.
pub(crate) fn flow(source: u32, destination: u32, bytes: u64) -> Flow {
    Flow::new(source, destination, ByteCount::new(bytes))
}

/// gradwire with a fitted job on one thread.
pub(crate) fn setup(fabric: Fabric, workload: Workload) -> Setup {
    Setup {
        job: fitting::fitted(
            &Job::default(),
            &BTreeSet::new(),
            &fabric,
            workload.send_pattern(),
        ),
        fabric,
        workload,
        transport: Transport::Gradwire,
        seed: SEED,
        limit: Instant::START + Span::from_millis(1_000),
        threads: 1,
        division: Division::default(),
        awake_peers: usize::MAX,
        sample_every: None,
        background: None,
        journal: JournalMode::Off,
        clock: || Span::ZERO,
    }
}

/// A setup from a line each for fabric and workload, whose draws come from `seed`.
pub(crate) fn lines(shape: &str, text: &str, seed: u64) -> Setup {
    let fabric = fabric(shape);
    let workload = pattern(text, &fabric, seed);
    Setup {
        seed,
        ..setup(fabric, workload)
    }
}

/// The same with everything sent at once, without grants.
pub(crate) fn ungranted(mut setup: Setup) -> Setup {
    let all = ByteCount::mib(64);
    let transport = &mut setup.job.transport;
    (transport.window, transport.initial_window) = (SendWindow::Bytes(all), all);
    transport.unscheduled = all;
    transport.grant_window = Some(GrantWindow::Unlimited);
    setup
}

/// Tolerates the loss of a tenth.
pub(crate) fn tolerant(mut setup: Setup) -> Setup {
    setup.job.tolerance = share(0.1);
    setup
}

/// A share between 0 and 1.
pub(crate) fn share(value: f64) -> Share {
    Share::new(value).expect("the tests name shares between 0 and 1")
}

/// Runs to the end.
pub(crate) fn run(setup: &Setup) -> Outcome {
    let outcome = simulation::run(setup, &mut |_| ());
    let outcome = outcome.unwrap_or_else(|error| panic!("seed {}: {error}", setup.seed));
    let (seed, transport, ended) = (setup.seed, setup.transport, outcome.ended);
    assert!(
        !outcome.timed_out,
        "seed {seed}: {transport} goes on at {ended:?}"
    );
    outcome
}

/// Measures a run of each seed.
pub(crate) fn over_seeds<T>(
    seeds: std::ops::RangeInclusive<u64>,
    measure: impl Fn(u64) -> T,
) -> Vec<T> {
    seeds.map(measure).collect()
}

/// Mean, and the standard error of it.
pub(crate) fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2));
    (mean, (squares.sum::<f64>() / (count - 1.0) / count).sqrt())
}

/// From a flow's beginning until its receiver has all that it needs.
pub(crate) fn took(flow: &FlowOutcome) -> Span {
    let ended = flow.received.expect("the flow has ended");
    ended.since(flow.started.expect("the flow has begun"))
}

/// The longest of them, in microseconds.
pub(crate) fn tail(outcome: &Outcome) -> f64 {
    micros(outcome.flows.iter().map(took).max().unwrap_or_default())
}

/// A length of time in microseconds.
pub(crate) fn micros(span: Span) -> f64 {
    span.as_secs_f64() * 1e6
}

/// Packets that switches and links dropped for any reason.
pub(crate) fn dropped(outcome: &Outcome) -> u64 {
    let of_link = |link: &LinkOutcome| {
        let classes = link.classes.iter();
        link.lost
            + classes
                .map(|class| class.dropped_early + class.dropped_full)
                .sum::<u64>()
    };
    outcome.links.iter().map(of_link).sum()
}

/// Whether runs that take long are asked for.
#[expect(clippy::disallowed_methods, reason = "long runs are asked for by hand")]
pub(crate) fn slow() -> bool {
    std::env::var_os("GRADWIRE_SLOW").is_some()
}

/// A data packet, to be changed where a test needs another.
pub(crate) fn packet(destination: u32, bytes: u32) -> Envelope {
    Envelope {
        source: 0,
        destination,
        bytes,
        dscp: Dscp(34),
        ecn: Ecn::Ect,
        entropy: 0,
        load: Load::Data,
        urgency: 0,
    }
}

/// A host that sends given packets at given times, as fast as its link allows, and records all
/// arrivals.
#[derive(Debug, Default)]
pub(crate) struct Talker {
    planned: VecDeque<(Instant, Envelope)>,
    ready: VecDeque<Envelope>,
    /// Packets that arrived, and when.
    pub(crate) heard: Vec<(Instant, Envelope)>,
}

impl Talker {
    fn get_ready(&mut self, now: Instant) {
        while let Some(&(at, envelope)) = self.planned.front()
            && at <= now
        {
            self.planned.pop_front();
            self.ready.push_back(envelope);
        }
    }
}

impl Host for Talker {
    type Cargo = ();

    fn begin(&mut self, _: Instant, _: Begin) {}

    fn receive(&mut self, now: Instant, envelope: &Envelope, (): &mut ()) {
        self.heard.push((now, *envelope));
    }

    fn wake(&mut self, now: Instant) {
        self.get_ready(now);
    }

    fn wakes_at(&self) -> Option<Instant> {
        self.planned.front().map(|&(at, _)| at)
    }

    fn transmit(&mut self, now: Instant, (): &mut ()) -> Option<Envelope> {
        self.get_ready(now);
        self.ready.pop_front()
    }

    fn progress(&mut self) -> Option<HostProgress> {
        None
    }

    fn counts(&self) -> TransportCounts {
        TransportCounts::default()
    }
}

/// Talkers and ports after a run.
pub(crate) struct Talked {
    pub(crate) hosts: Vec<Talker>,
    pub(crate) ports: Vec<PortQueues>,
    host_port: Vec<PortId>,
}

impl Talked {
    /// The port of the switch that leads to a host.
    pub(crate) fn port_to(&self, host: u32) -> &PortQueues {
        &self.ports[self.host_port[host as usize].opposite().index()]
    }
}

/// Lets the hosts of a fabric send their plans: (when, packet), in order of time.
pub(crate) fn talk(
    fabric: &Fabric,
    policy: &QosPolicy,
    plans: Vec<Vec<(Span, Envelope)>>,
) -> Talked {
    fabric.check().expect("the tests name sound fabrics");
    let wiring = Wiring::new(fabric, policy, Partition::whole(fabric), SEED);
    let hosts = (0..).zip(plans).map(|(source, plan)| {
        let mut talker = Talker::default();
        for (at, envelope) in plan {
            let envelope = Envelope { source, ..envelope };
            talker.planned.push_back((Instant::START + at, envelope));
        }
        talker
    });
    let workload = Workload::default();
    let mut region = FabricRegion::new(
        &wiring,
        0,
        hosts.collect(),
        Flows::new(&workload),
        Span::from_nanos(1),
    );
    assert!(region.run(END_OF_TIME, u64::MAX), "everything has happened");
    let (hosts, ports, _) = region.into_parts();
    Talked {
        hosts,
        ports,
        host_port: wiring.host_port.clone(),
    }
}
