//! All ranks of a job check each other: they meet through the job's own control plane, test the
//! paths in turns, and tell rank 0.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_lab::error::LabError;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::Rank;
use gradwire_report::printing::OutputForm;
use gradwire_runtime::{OpenError, RankJoinError};
use gradwire_transport::address::Address;
use gradwire_transport::control::{self, ControlPlane, JoinRole, Listener, Membership, RosterPeer};
use gradwire_transport::interface;
use gradwire_transport::lanes::AegisLanes;
use gradwire_transport::probe::{ProbeClient, ProbeServer, system};

use super::finding::HostFinding;
use super::options::Doctor;
use super::pair::{self, Pair};
use super::print::DoctorReport;
use crate::environment::Environment;
use crate::exit::CommandError;

/// How long the server of probes answers before it looks for something to publish.
const TURN: Duration = Duration::from_millis(50);
/// The longest a rank needs for one path: 3 s for one that is silent, and a second of load.
const PAIR_PATIENCE: Duration = Duration::from_secs(120);
/// How often a rank is asked for its findings.
const REPORT_TRIES: u32 = 20;
const LEAVE_PATIENCE: Duration = Duration::from_secs(60);

/// The findings of this rank; on rank 0, of all ranks.
///
/// # Errors
/// [`LabError::Join`] when the ranks do not meet, and the like.
pub fn check(options: &Doctor, job: &Job, rank: u16) -> Result<DoctorReport, CommandError> {
    let world = options.world.unwrap_or(0);
    if world < 2 || rank >= world {
        let text =
            format!("--rank {rank} of --world {world}: ranks are 0 to world - 1, at least 2");
        return Err(CommandError::Usage(text));
    }
    let rendezvous = options.rendezvous.as_deref().unwrap_or_default();
    let rendezvous = super::address(rendezvous)?;
    let bind = match options.bind {
        Some(bind) => bind,
        None if rank == 0 => rendezvous.ip(),
        None => towards(rendezvous)?,
    };
    let answering = Answering::start(bind)?;
    let bound = Doctor {
        bind: Some(bind),
        ..options.clone()
    };
    let host = super::host(&bound, job, &[])?;
    let control = join(&bound, job, (rank, rendezvous, &answering.addresses))?;
    let mut report = DoctorReport {
        host,
        hosts: Vec::new(),
        pairs: paths(&control, (rank, bind), job)?,
    };
    answering.publish(report.text(OutputForm::Json));
    control
        .barrier(PAIR_PATIENCE)
        .map_err(RankJoinError::from)?;
    if rank == 0 {
        for peer in control.roster().iter().filter(|peer| peer.rank != Rank(0)) {
            match told_by(peer, bind) {
                Some(told) => {
                    report.hosts.push(told.host);
                    report.pairs.extend(told.pairs);
                }
                None => report.host.checks.push(untold(peer.rank)),
            }
        }
    }
    // Other ranks may still ask this one, so it waits for them. A rank that has gone by now has
    // told its findings.
    let _ = control.leave(LEAVE_PATIENCE);
    Ok(report)
}

fn towards(rendezvous: SocketAddr) -> Result<IpAddr, LabError> {
    system::address_towards(rendezvous).map_err(LabError::system(format!(
        "no address of this host leads to {rendezvous}"
    )))
}

/// Each rank looks at one other at a time, and is looked at by one.
fn paths(
    control: &ControlPlane,
    (rank, bind): (u16, IpAddr),
    job: &Job,
) -> Result<Vec<Pair>, CommandError> {
    let roster = control.roster();
    let mut pairs = Vec::new();
    for distance in 1..roster.len() {
        let peer = &roster[(usize::from(rank) + distance) % roster.len()];
        if let Some(server) = server_of(peer) {
            let mut pair = pair::check(server, Some(bind), job);
            pair.from = format!("rank {rank}");
            pair.to = format!("rank {}", peer.rank);
            pairs.push(pair);
        }
        control
            .barrier(PAIR_PATIENCE)
            .map_err(RankJoinError::from)?;
    }
    Ok(pairs)
}

fn untold(rank: Rank) -> HostFinding {
    HostFinding::warning(
        "reports",
        format!("rank {rank} did not report its findings"),
    )
    .costs("its host and the paths from it are not in this list")
    .mend(format!(
        "gradwire doctor --rank {rank}  # its own output has them"
    ))
}

/// Where a rank answers probes.
fn server_of(peer: &RosterPeer) -> Option<SocketAddr> {
    peer.data_addresses
        .first()
        .and_then(|address| address.socket())
}

/// The findings that a rank has published, which it does within a turn of its server.
fn told_by(peer: &RosterPeer, bind: IpAddr) -> Option<DoctorReport> {
    let mut client = ProbeClient::connect(server_of(peer)?, Some(bind)).ok()?;
    let report = (0..REPORT_TRIES).find_map(|_| {
        let report = client.report();
        if report.is_none() {
            std::thread::sleep(TURN);
        }
        report
    });
    serde_json::from_str(&report?).ok()
}

fn join(
    options: &Doctor,
    job: &Job,
    (rank, rendezvous, addresses): (u16, SocketAddr, &[SocketAddr]),
) -> Result<ControlPlane, CommandError> {
    let told = Environment::read().token().map_err(CommandError::Usage)?;
    let token = options.token.clone().or(told);
    let token = token.ok_or_else(|| {
        CommandError::Usage("a job needs a token: give --token or set GRADWIRE_TOKEN".to_owned())
    })?;
    let bind = addresses[0].ip();
    let role = match rank {
        0 => {
            let address = SocketAddr::new(bind, rendezvous.port());
            JoinRole::Leader(Listener::bind(address).map_err(OpenError::from)?)
        }
        _ => JoinRole::Member(rendezvous),
    };
    let membership = Membership {
        rank: Rank(rank),
        world_size: u32::from(options.world.unwrap_or(0)),
        token,
        job: job.flat(),
        data_addresses: addresses.iter().copied().map(Address::from).collect(),
        host: super::host_name(),
        mtu: interface::mtu(bind).unwrap_or(0),
        receive_buffer: 0,
        lanes: AegisLanes::of_this_host(),
        memory: None,
        peer_timeout: Duration::from_nanos(job.transport.peer_timeout.as_nanos()),
        certificates: None,
    };
    let patience = Duration::from_nanos(options.join_timeout.as_nanos());
    // Who is lost fails the next barrier.
    let joined = control::join(role, membership, patience, Box::new(|_| ()));
    Ok(joined.map_err(RankJoinError::from)?)
}

/// The server of probes on a thread of its own, until it is dropped.
struct Answering {
    addresses: Vec<SocketAddr>,
    reports: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    fn start(bind: IpAddr) -> Result<Self, CommandError> {
        let server = ProbeServer::bind(SocketAddr::new(bind, 0)).map_err(super::refused)?;
        let addresses = server.addresses();
        let (reports, published) = mpsc::channel();
        let thread = std::thread::Builder::new().name("gradwire-probes".into());
        let thread = thread.spawn(move || answer(server, &published));
        let thread = thread.map_err(LabError::system("the thread that answers probes"))?;
        Ok(Self {
            addresses,
            reports: Some(reports),
            thread: Some(thread),
        })
    }

    fn publish(&self, report: String) {
        if let Some(reports) = &self.reports {
            // The thread ends only after this is dropped.
            let _ = reports.send(report);
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.reports.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed there.
            let _ = thread.join();
        }
    }
}

fn answer(mut server: ProbeServer, published: &Receiver<String>) {
    loop {
        server.answer_for(TURN);
        match published.try_recv() {
            Ok(report) => server.publish(&report),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
    }
}
