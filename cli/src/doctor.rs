//! `gradwire doctor`: faults of this host and of the paths to others that harm a job, the cost of
//! each, and the command that mends it.
//!
//! Start here: [`mod@host`] with [`machine`] and [`rdma`], and [`pair`] with [`traffic`], judge the
//! measurements of `gradwire_transport::probe`, as findings of [`finding`]; [`mod@nccl`] has the
//! plugin of NCCL checked; [`mod@job`] lets all ranks of a job check each other; [`mod@print`]
//! shows the findings.

pub mod finding;
pub mod host;
pub mod job;
pub mod machine;
pub mod nccl;
pub mod options;
pub mod pair;
pub mod print;
pub mod rdma;
pub mod traffic;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use gradwire_lab::error::LabError;
use gradwire_protocol::job::Job;
use gradwire_report::printing::OutputForm;
use gradwire_transport::interface;
use gradwire_transport::probe::{ProbeServer, ProbeServerError, system};
use serde_json::json;

use crate::environment::Environment;
use crate::exit::CommandError;
use crate::job as job_file;
use finding::FindingState;
use host::HostPlan;
use options::Doctor;
use print::{DoctorReport, HostReport};

/// How long the server answers per call; it serves until the process ends.
const TURN: Duration = Duration::from_secs(1);

/// Runs the doctor.
///
/// # Errors
/// [`CommandError::Problems`] when there is a finding of that state; others when the doctor could
/// not do its work.
pub fn run(options: &Doctor) -> Result<(), CommandError> {
    let job = job_file::given_or_default(options.job.as_ref())?;
    if options.serve {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let address = SocketAddr::new(options.bind.unwrap_or(any), options.port);
        return serve(address, options.json.into(), "gradwire doctor");
    }
    let report = match options.rank {
        Some(rank) => job::check(options, &job, rank)?,
        None => {
            let servers: Result<Vec<SocketAddr>, CommandError> =
                options.peer.iter().map(|peer| address(peer)).collect();
            let servers = servers?;
            let host = host(options, &job, &servers)?;
            let pairs = servers
                .iter()
                .map(|server| pair::check(*server, options.bind, &job));
            DoctorReport {
                host,
                hosts: Vec::new(),
                pairs: pairs.collect(),
            }
        }
    };
    print!("{}", report.text(options.json.into()));
    match report.count(FindingState::Problem) {
        0 => Ok(()),
        1 => Err(CommandError::Problems("1 problem".to_owned())),
        count => Err(CommandError::Problems(format!("{count} problems"))),
    }
}

/// The checks of this host, as far as they matter on the way to `servers`, if there are any.
///
/// # Errors
/// [`CommandError::Usage`] when `--bind` is no address of this host.
pub fn host(
    options: &Doctor,
    job: &Job,
    servers: &[SocketAddr],
) -> Result<HostReport, CommandError> {
    let addresses = addresses(options.bind, servers)?;
    let world = options.world.map_or(options.ranks, u32::from);
    let wanted = HostPlan {
        job,
        addresses: &addresses,
        ranks: options.ranks.min(world),
        world,
    };
    let mut checks = host::check(&wanted);
    if options.nccl {
        let python = Environment::read().python(None);
        checks.push(nccl::check(&python));
    }
    Ok(HostReport {
        name: host_name(),
        rank: options.rank,
        addresses: addresses.iter().map(IpAddr::to_string).collect(),
        checks,
    })
}

/// The name of this host, as it calls itself.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// The address that was typed as "host:port".
///
/// # Errors
/// [`CommandError::Usage`] when the text is no address.
pub fn address(text: &str) -> Result<SocketAddr, CommandError> {
    let wrong = |why: String| {
        CommandError::Usage(format!(
            "{text}: {why}; give host:port, such as 10.0.0.2:29410"
        ))
    };
    let address = system::resolve(text).map_err(|error| wrong(error.to_string()))?;
    match address.port() {
        0 => Err(wrong("port 0 cannot receive packets".to_owned())),
        _ => Ok(address),
    }
}

/// Answers probes on `address` until the process ends; `command` is the command to type on other
/// hosts.
///
/// # Errors
/// [`LabError::System`] when the address or the port cannot be had.
pub fn serve(address: SocketAddr, form: OutputForm, command: &str) -> Result<(), CommandError> {
    let mut server = ProbeServer::bind(address).map_err(refused)?;
    let listening = server.addresses()[0];
    let host = shown(listening.ip());
    let port = listening.port();
    let told = format!(
        "answering probes on {listening}; on the other host:
  {command} --peer {host}:{port}"
    );
    form.print(|| told, || json!({ "serving": listening.to_string() }));
    loop {
        server.answer_for(TURN);
    }
}

/// As a failure of this command: an address or a port that cannot be had.
pub fn refused(error: ProbeServerError) -> LabError {
    LabError::system("gradwire doctor")(std::io::Error::other(error))
}

/// Addresses that packets leave by: towards `servers`; or else the first one of every interface
/// that is up, or loopback where there is no other.
fn addresses(bind: Option<IpAddr>, servers: &[SocketAddr]) -> Result<Vec<IpAddr>, CommandError> {
    if let Some(bind) = bind {
        let wrong = |error| CommandError::Usage(format!("--bind {bind}: {error}"));
        return interface::name(bind).map(|_| vec![bind]).map_err(wrong);
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for server in servers {
        // Where no route leads, the check of the path says so.
        let towards = system::address_towards(*server).ok();
        addresses.extend(towards.filter(|one| !addresses.contains(one)));
    }
    let mut names = Vec::new();
    for one in interface::all().unwrap_or_default() {
        let counts =
            servers.is_empty() && one.is_up && !one.is_loopback && !is_link_local(one.address);
        if counts && !names.contains(&one.name) {
            addresses.push(one.address);
            names.push(one.name);
        }
    }
    if addresses.is_empty() {
        addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Ok(addresses)
}

/// Such addresses mean something together with an interface only.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// An address to type; this host's name stands for all of its addresses.
fn shown(address: IpAddr) -> String {
    match address {
        any if any.is_unspecified() => host_name(),
        IpAddr::V6(address) => format!("[{address}]"),
        IpAddr::V4(address) => address.to_string(),
    }
}
