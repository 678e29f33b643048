//! `gradwire rank`: one rank in the foreground, for trying a job on several hosts.

pub mod options;

use std::path::Path;
use std::time::Duration;

use gradwire_lab::crew::ELEMENT_BYTES;
use gradwire_lab::crew::bench::RankBench;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::messages::Round;
use gradwire_lab::crew::rounds::median;
use gradwire_lab::error::LabError;
use gradwire_protocol::units;
use gradwire_runtime::{CertificateFiles, OpenRank, Opening};
use serde_json::json;

use crate::environment::Environment;
use crate::exit::CommandError;
use crate::job::say_if_unprotected;
use crate::job::with_options;
use options::Rank;

/// How long to wait at the end for operations; all have ended by then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// Runs one rank: prints a line when its sockets are open, one when all ranks have joined, and one
/// at the end. All are JSON objects.
///
/// # Errors
/// [`CommandError`] when an option is wrong, the ranks do not join, or one is lost.
pub fn run(options: &Rank) -> Result<(), CommandError> {
    let open = open(options)?;
    println!(
        "{}",
        json!({
            "rank": options.rank,
            "rendezvous": open.rendezvous().map(|address| address.to_string()),
            "data_addresses": open.data_addresses(),
        })
    );
    let world = open.world_size();
    let rank = open.join(
        &options.rendezvous,
        Duration::from_nanos(options.join_timeout.as_nanos()),
    )?;
    println!("{}", json!({ "rank": options.rank, "joined": world }));
    let mut bench = RankBench::new(rank, world);
    let measured = work(options, &mut bench)?;
    let counters = bench.rank().counters();
    let traffic = bench.rank().metrics().unwrap_or_default();
    bench.rank().close(CLOSE_PATIENCE);
    let classes = traffic.peers.iter().flat_map(|peer| &peer.classes);
    println!(
        "{}",
        json!({
            "rank": options.rank,
            "size_bytes": measured.bytes,
            "all_reduces": measured.times_us.len(),
            "longest_us": measured.times_us.iter().copied().fold(0.0, f64::max),
            "time_us": median(measured.times_us),
            "wrong": measured.wrong_elements,
            "sent_segments": counters.sent_segments,
            "lost_segments": counters.lost_segments,
            "repaired_segments": counters.repaired_segments,
            "marked_segments": classes.map(|class| class.marks).sum::<u64>(),
            "probes": traffic.peers.iter().map(|peer| peer.probes).sum::<u64>(),
            "malformed_packets": counters.malformed_packets,
            "foreign_packets": counters.foreign_packets,
            "old_epoch_packets": counters.old_epoch_packets,
            "unknown_senders": counters.unknown_senders,
            "forged_packets": counters.forged_packets,
            "replayed_packets": counters.replayed_packets,
            "faults_dropped": counters.faults_dropped,
            "kernel_drops": counters.kernel_drops,
            "network_sums": counters.network_sums,
            "sums_without_aggregator": counters.sums_without_aggregator,
            "failed_network_sums": counters.failed_network_sums,
        })
    );
    match measured.wrong_elements {
        0 => Ok(()),
        count => {
            Err(LabError::Check(format!("{count} elements are not a sum of contributions")).into())
        }
    }
}

/// The outcome of this rank.
struct Work {
    bytes: u64,
    times_us: Vec<f64>,
    wrong_elements: u64,
}

fn work(options: &Rank, bench: &mut RankBench) -> Result<Work, CommandError> {
    if let (Some(tensor), Some(result)) = (&options.tensor, &options.result) {
        return sum(bench, tensor, result);
    }
    let bytes = options.bytes.get() / ELEMENT_BYTES * ELEMENT_BYTES;
    let measured = bench.round(&Round {
        kind: PerfCollective::AllReduce,
        bytes,
        iterations: options.iterations,
    })?;
    Ok(Work {
        bytes,
        times_us: measured.times_us,
        wrong_elements: measured.wrong_elements,
    })
}

/// Adds a file's tensor to those of the others.
fn sum(bench: &mut RankBench, tensor: &Path, result: &Path) -> Result<Work, CommandError> {
    let failed = |path: &Path| LabError::system(path.display().to_string());
    let contributed = std::fs::read(tensor).map_err(failed(tensor))?;
    let bytes = contributed.len() as u64;
    if bytes == 0 || !bytes.is_multiple_of(ELEMENT_BYTES) {
        return Err(CommandError::Usage(format!(
            "--tensor {}: {bytes} bytes are not whole 32-bit floats; give a multiple of 4",
            tensor.display()
        )));
    }
    let (summed, took) = bench.sum(contributed)?;
    std::fs::write(result, summed).map_err(failed(result))?;
    Ok(Work {
        bytes,
        times_us: vec![took],
        wrong_elements: 0,
    })
}

fn open(options: &Rank) -> Result<OpenRank, CommandError> {
    let environment = Environment::read();
    let told = environment.token().map_err(CommandError::Usage)?;
    let certificates = CertificateFiles::all_or_none(
        options.cert.clone().or(environment.certificate),
        options.key.clone().or(environment.key),
        options.ca.clone().or(environment.authority),
    );
    let certificates = certificates.map_err(|error| CommandError::Usage(error.to_string()))?;
    let token = options.token.clone().or(told);
    // Certificates alone prove who a rank is.
    let token = token.or_else(|| certificates.is_some().then(String::new));
    let token = token.ok_or_else(|| {
        let missing = "a job needs a token or certificates: give --token or set GRADWIRE_TOKEN or \
                       GRADWIRE_TOKEN_FILE, or give --cert, --key and --ca";
        CommandError::Usage(missing.to_owned())
    })?;
    if options.world < 2 {
        let world = options.world;
        return Err(CommandError::Usage(format!(
            "--world {world}: a job needs at least 2 ranks"
        )));
    }
    let job = with_options(&options.job)?;
    if options.rank == 0 {
        say_if_unprotected(&job);
    }
    Ok(OpenRank::open(Opening {
        job,
        rank: units::Rank(options.rank),
        world_size: options.world,
        bind: options.bind,
        port: port_of(&options.rendezvous)?,
        token,
        certificates,
    })?
    .with_local_rank(environment.local_rank)
    .with_trace_folder(environment.trace))
}

/// Rank 0 opens this port on its own address.
fn port_of(rendezvous: &str) -> Result<u16, CommandError> {
    let port = rendezvous
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    port.ok_or_else(|| {
        CommandError::Usage(format!(
            "--rendezvous {rendezvous}: give host:port, \
    such as 10.0.0.1:29400"
        ))
    })
}
