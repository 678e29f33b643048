//! The aggregator that a crew starts for itself, when its job sums in the network and names none.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use gradwire_protocol::job::{Job, ReduceAlgorithm};
use serde::Deserialize;

use super::leash;
use super::place::CrewPlace;
use crate::error::LabError;

/// The process. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct CrewAggregator {
    process: Child,
    address: SocketAddr,
}

/// Its first line.
#[derive(Deserialize)]
struct ReadyAggregator {
    aggregator: SocketAddr,
}

/// A file that is removed in the end.
struct JobFile(PathBuf);

impl Drop for JobFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl CrewAggregator {
    /// Starts it beside this many ranks, in the place behind theirs.
    pub(super) fn start(
        job: &Job,
        token: &str,
        (place, ranks): (&CrewPlace, u16),
    ) -> Result<Self, LabError> {
        let mut job = job.clone();
        // Alone, this algorithm is a contradiction.
        job.collectives.algorithm = ReduceAlgorithm::Auto;
        let name = format!("gradwire-aggregator-{}.toml", std::process::id());
        let file = JobFile(std::env::temp_dir().join(name));
        std::fs::write(&file.0, job.to_toml()).map_err(LabError::system("writing a job"))?;
        let listen = SocketAddr::new(place.aggregator(ranks), 0).to_string();
        let path = file.0.to_string_lossy();
        let words = [
            "aggregate",
            "--until-input-ends",
            "--listen",
            &listen,
            "--job",
            &path,
        ];
        let starting = || LabError::system("starting an aggregator");
        let mut command = leash::own(&words).map_err(starting())?;
        command.env("GRADWIRE_TOKEN", token).stdout(Stdio::piped());
        let spawned = place.spawn(usize::from(ranks), &mut command);
        let mut process = spawned.map_err(starting())?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        match serde_json::from_str::<ReadyAggregator>(&line) {
            Ok(ReadyAggregator { aggregator }) => Ok(Self {
                process,
                address: aggregator,
            }),
            Err(_) => {
                let status = process.wait().ok();
                Err(LabError::Process {
                    who: "the aggregator".to_owned(),
                    message: status.map_or_else(String::new, leash::how_it_ended),
                    code: None,
                })
            }
        }
    }

    /// Where ranks reach it.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for CrewAggregator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and needs not.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
