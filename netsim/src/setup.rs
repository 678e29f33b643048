//! A setup: everything that a run depends on, and the reasons to refuse it.

use std::collections::BTreeSet;

use gradwire_fabric::check::FabricError;
use gradwire_fabric::paths::Packets;
use gradwire_fabric::topology::Fabric;
use gradwire_protocol::job::{Job, JobError, Mtu};
use gradwire_protocol::segment::segment_bytes;
use gradwire_protocol::settings::EndpointLimits;
use gradwire_protocol::units::{ByteCount, Instant, Span};
use gradwire_workloads::check::WorkloadError;
use gradwire_workloads::workload::{Over, Start, TriggerId, Workload};

use crate::engine::parallel::Clock;
use crate::engine::partition::Partition;
use crate::transports::settings::REFERENCE_HEADER;

/// A thread with fewer events in a window than this waits more than it works.
const EVENTS_PER_WINDOW_MIN: u64 = 500;

/// With fewer events in a window than this, a region is not worth its turn.
const EVENTS_OF_REGION_MIN: u64 = 16;
/// The state of fewer hosts than these fits into caches undivided.
const DIVIDED_HOSTS_MIN: u32 = 64;

/// A transport that carries flows and programs.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, strum::Display, strum::EnumString, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[strum(parse_err_ty = SetupError, parse_err_fn = no_transport)]
pub enum Transport {
    /// gradwire: the protocol that ships.
    Gradwire,
    /// DCTCP, one path per flow, with timeouts as data centres tune them.
    Dctcp,
    /// The same with the timeouts of DCTCP's paper, at least 10 ms.
    #[strum(serialize = "dctcp-10ms")]
    SlowDctcp,
    /// DCTCP, with the training job's messages in a queue above all other traffic.
    #[strum(serialize = "dctcp-classes")]
    DctcpClasses,
    /// PIAS: DCTCP whose flows sink from queue to queue as they send.
    Pias,
    /// Swift: a window that keeps the round trip at a target.
    Swift,
    /// pFabric.
    PFabric,
    /// NDP with trimming switches.
    Ndp,
    /// EQDS: receivers hand out credits; trimming switches.
    Eqds,
    /// NSCC of Ultra Ethernet, with REPS and trimming switches.
    Nscc,
    /// RCCC of Ultra Ethernet, with REPS and trimming switches.
    Rccc,
    /// RoCE with go-back-N, PFC and DCQCN.
    Roce,
    /// The same without DCQCN.
    #[strum(serialize = "roce-pfc")]
    RocePfc,
    /// IRN: selective repeat and a window, no PFC.
    Irn,
    /// The same with DCQCN.
    #[strum(serialize = "irn-dcqcn")]
    IrnDcqcn,
    /// IRN with PFC.
    #[strum(serialize = "irn-pfc")]
    IrnPfc,
    /// IRN with PFC and DCQCN.
    #[strum(serialize = "irn-pfc-dcqcn")]
    IrnPfcDcqcn,
    /// The ablation of IRN with go-back-N.
    #[strum(serialize = "irn-go-back-n")]
    IrnGoBack,
    /// The ablation of IRN without its window.
    #[strum(serialize = "irn-no-window")]
    IrnNoWindow,
    /// SwitchML: switches sum all-reduces, in slots.
    SwitchMl,
    /// ATP: switches sum all-reduces in aggregators that jobs share, servers the rest.
    Atp,
    /// ATP where no switch has an aggregator.
    #[strum(serialize = "atp-servers")]
    AtpServers,
    /// NetReduce: switches sum all-reduces on RoCE's own connections.
    NetReduce,
}

fn no_transport(given: &str) -> SetupError {
    let given = given.to_owned();
    SetupError::Transport { given }
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub fabric: Fabric,
    /// The flows and programs on it.
    pub workload: Workload,
    /// The transport of every host.
    pub transport: Transport,
    /// The transport of untagged flows, which a background has; `None`: DCTCP beside gradwire, else
    /// the same as of all flows.
    pub background: Option<Transport>,
    /// The job, fitted to the fabric. References only read `collectives.algorithm`, `chunk`,
    /// `order` and `credit`, by which they carry out collectives.
    pub job: Job,
    /// Seed of all draws.
    pub seed: u64,
    /// Simulated time at which the run is stopped.
    pub limit: Instant,
    /// Threads; 1 unless asked for.
    pub threads: usize,
    /// How the fabric is divided, which changes nothing but the time that a run takes.
    pub division: Division,
    /// The largest number of peers that an endpoint of gradwire keeps unpacked. It changes nothing
    /// but the memory and the time that a run takes.
    pub awake_peers: usize,
    /// Time between samples of the queues; `None`: no samples.
    pub sample_every: Option<Span>,
    /// Whether hosts of gradwire keep the times of their programs' messages.
    pub journal: JournalMode,
    /// Returns the CPU time of the calling thread.
    pub clock: Clock,
}

/// The parts of a fabric that a thread works on one after the other.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Division {
    /// Each edge switch and its hosts, where that saves time.
    #[default]
    ByEdge,
    /// One for each thread.
    ByThread,
}

/// Whether a run keeps the times of messages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum JournalMode {
    /// It does not.
    #[default]
    Off,
    /// It keeps all.
    Messages,
}

/// The reason why a run was refused before anything was simulated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// No such transport.
    #[error(
        "transport `{given}`: known are gradwire, dctcp, dctcp-10ms, dctcp-classes, pias, swift, \
         pfabric, ndp, eqds, nscc, rccc, roce, roce-pfc, irn, irn-dcqcn, irn-pfc, \
         irn-pfc-dcqcn, irn-go-back-n, irn-no-window, switchml, atp, atp-servers, netreduce"
    )]
    Transport {
        /// The given name.
        given: String,
    },
    /// A transport that cannot run beside another one.
    #[error(
        "{given} runs alone: a background can ride any transport but gradwire, switchml, atp, \
         atp-servers and netreduce, and stand beside all but the last four"
    )]
    Alone {
        /// The transport.
        given: Transport,
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
    /// More messages of programs than a reference can number.
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
    #[error("{hosts} hosts: a job has at most 65,535 ranks; use a smaller fabric")]
    Hosts {
        /// Hosts of the fabric.
        hosts: u32,
    },
    /// Threads with triggers.
    #[error(
        "{threads} threads: flow {flow} triggers flow {started} at once, in a part of the fabric \
         that another thread works on; use 1 thread, or triggers whose flows begin where they are \
         told"
    )]
    Triggers {
        /// Threads asked for.
        threads: usize,
        /// A flow that tells a trigger.
        flow: usize,
        /// A flow that the trigger starts.
        started: usize,
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
    #[error("{threads} threads: this fabric cannot be divided among so many; use 1 thread")]
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

impl Setup {
    /// How much the endpoints of gradwire remember.
    pub(crate) fn limits(&self) -> EndpointLimits {
        EndpointLimits {
            awake_peers: self.awake_peers,
            ..EndpointLimits::USUAL
        }
    }

    /// Checks everything that can be checked before ports and regions exist.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.fabric.check()?;
        self.workload.check(self.fabric.hosts)?;
        if self.transport == Transport::Gradwire {
            self.job.clone().checked()?;
        }
        let has_programs = !self.workload.programs.is_empty();
        let has_ranks = self.transport == Transport::Gradwire || has_programs;
        let (hosts, threads) = (self.fabric.hosts, self.threads);
        if has_ranks && hosts > u32::from(u16::MAX) {
            return Err(SetupError::Hosts { hosts });
        }
        if threads > 1 && self.workload.over != Over::WithEverything {
            return Err(SetupError::Over { threads });
        }
        Ok(())
    }

    /// Divides the fabric: by edge switches if that saves time, else among the threads.
    pub(crate) fn partition(&self, fabric: &Fabric) -> Result<Partition, SetupError> {
        let among_threads = Partition::new(fabric, self.threads);
        self.check_threads(&among_threads)?;
        if self.division == Division::ByThread
            || fabric.hosts < DIVIDED_HOSTS_MIN
            || self.workload.over != Over::WithEverything
        {
            return Ok(among_threads);
        }
        let by_edge = Partition::by_edge(fabric, self.threads);
        let gains = by_edge.regions > among_threads.regions
            && self.events_of_window(by_edge.window(), by_edge.regions) >= EVENTS_OF_REGION_MIN
            && self.keeps_busy(&by_edge);
        match gains && self.crossing_trigger(&by_edge).is_none() {
            true => Ok(by_edge),
            false => Ok(among_threads),
        }
    }

    /// Events in a window at full load, of each of as many equal parts.
    fn events_of_window(&self, window: Span, parts: usize) -> u64 {
        window.as_picos() / self.event_gap(parts).as_picos().max(1)
    }

    /// Whether the threads have enough work between the moments at which they meet.
    fn keeps_busy(&self, partition: &Partition) -> bool {
        let events = self.events_of_window(partition.lookahead, self.threads);
        self.threads == 1 || events >= EVENTS_PER_WINDOW_MIN
    }

    fn check_threads(&self, partition: &Partition) -> Result<(), SetupError> {
        let threads = self.threads;
        if threads == 1 {
            return Ok(());
        }
        let parts: BTreeSet<u16> = partition.host_region.iter().copied().collect();
        if parts.len() < threads {
            return Err(SetupError::OnePart { threads });
        }
        if let Some((started, flow)) = self.crossing_trigger(partition) {
            return Err(SetupError::Triggers {
                threads,
                flow,
                started,
            });
        }
        if !self.keeps_busy(partition) {
            return Err(SetupError::Threads {
                threads,
                window: partition.lookahead,
                events: self.events_of_window(partition.lookahead, threads),
            });
        }
        Ok(())
    }

    /// A flow that a trigger starts in another region than that where it is told, and the flow
    /// that tells it: a trigger starts flows at once, but regions meet only now and then.
    fn crossing_trigger(&self, partition: &Partition) -> Option<(usize, usize)> {
        let region = |host: u32| partition.host_region[host as usize];
        let mut first_started = vec![None; self.workload.triggers.len()];
        let mut place = |trigger: TriggerId, flow: usize, host: u32| {
            let first =
                first_started[trigger.0 as usize].get_or_insert_with(|| (flow, region(host)));
            (first.1 != region(host)).then_some((first.0, flow))
        };
        let flows = || self.workload.flows.iter().enumerate();
        let mut crossing = None;
        for (number, flow) in flows() {
            if let Start::On(trigger) = flow.start {
                crossing = crossing.or_else(|| place(trigger, number, flow.source));
            }
        }
        for (number, flow) in flows() {
            let told = [
                flow.when_sent.map(|trigger| (trigger, flow.source)),
                flow.when_received
                    .map(|trigger| (trigger, flow.destination)),
            ];
            for (trigger, host) in told.into_iter().flatten() {
                crossing = crossing.or_else(|| place(trigger, number, host));
            }
        }
        crossing
    }

    /// Mean time between two events of one of so many equal parts, when all hosts send at full
    /// rate.
    pub(crate) fn event_gap(&self, parts: usize) -> Span {
        let fabric = &self.fabric;
        let packet = ByteCount::new(u64::from(fabric.mtu + fabric.framing));
        let each = fabric.host_rate().transmit_time(packet).as_picos();
        let tiers = fabric.switches.iter().map(|switch| u64::from(switch.tier));
        let hops = 2 * (1 + tiers.max().unwrap_or(0));
        Span::from_picos(each * parts as u64 / (u64::from(fabric.hosts.max(1)) * hops * 2))
    }

    /// How the transport cuts flows into packets.
    pub(crate) fn packets(&self) -> Packets {
        let framing = self.fabric.framing;
        let (payload, header) = match (self.transport, self.job.transport.mtu) {
            (Transport::Gradwire, Mtu::Bytes(mtu)) => {
                let overhead = self.job.packet_overhead();
                (segment_bytes(mtu, overhead), overhead)
            }
            _ => (self.fabric.mtu - REFERENCE_HEADER, REFERENCE_HEADER),
        };
        Packets {
            payload,
            overhead: header + framing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of a run on a fabric of this shape.
    fn regions(shape: &str, threads: usize, over: Over) -> usize {
        let fabric = Fabric::from_shape(shape).expect("the shape is right");
        let setup = Setup {
            fabric: fabric.clone(),
            workload: Workload {
                over,
                ..Workload::default()
            },
            transport: Transport::Gradwire,
            background: None,
            job: Job::default(),
            seed: 1,
            limit: Instant::START,
            threads,
            division: Division::default(),
            awake_peers: usize::MAX,
            sample_every: None,
            journal: JournalMode::default(),
            clock: || Span::ZERO,
        };
        let partition = setup.partition(&fabric);
        partition.expect("the fabric can be divided").regions
    }

    #[test]
    fn a_fabric_is_divided_by_edge_switches_where_that_saves_time() {
        let regions_of = |shape, threads| regions(shape, threads, Over::WithEverything);
        assert_eq!(regions_of("fat-tree:k=8@100G", 1), 64);
        assert_eq!(regions_of("fat-tree:k=8@100G", 3), 66);
        assert_eq!(regions_of("fat-tree:k=4@100G", 1), 1, "few hosts");
        assert_eq!(regions_of("single:100@100G", 1), 1, "one switch");
        let short = "leaf-spine:16x8x4@1G,latency=10ns";
        assert_eq!(regions_of(short, 1), 1, "hardly an event in a window");
        let cut_off = Over::WithForeground(0);
        assert_eq!(regions("fat-tree:k=8@100G", 1, cut_off), 1, "ends anywhere");
    }
}
