//! The hosts that are asked, the ranks that have answered, and their last two answers.

use std::io::ErrorKind;
use std::net::ToSocketAddrs;
use std::time::Duration;

use gradwire_runtime::Snapshot;
use gradwire_runtime::metrics::{self, FetchError, GetError, PORTS};

/// How long a rank may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where ranks may be.
#[derive(Clone, Debug)]
pub struct Places {
    /// The hosts.
    pub hosts: Vec<String>,
    /// The port of each host's first rank.
    pub port: u16,
}

/// The answer of a rank, and where it came from.
#[derive(Clone, Debug)]
pub struct RankAnswer {
    /// The host, as it was asked for.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The answer.
    pub snapshot: Snapshot,
}

impl Places {
    /// Asks all hosts at the same time, each port by port.
    pub fn ask(&self) -> Vec<RankAnswer> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = (self.hosts.iter())
                .map(|host| scope.spawn(|| self.ask_host(host)))
                .collect();
            let answers = asked.into_iter().map(|host| host.join());
            answers.flat_map(Result::unwrap_or_default).collect()
        })
    }

    /// A closed port refuses at once, and ranks behind it may answer; a silent host would cost a
    /// wait per port, so its other ports are not asked.
    fn ask_host(&self, host: &str) -> Vec<RankAnswer> {
        let mut answers = Vec::new();
        for port in self.port..=self.port.saturating_add(PORTS - 1) {
            let address = (host, port).to_socket_addrs();
            let Some(address) = address.ok().and_then(|mut found| found.next()) else {
                break;
            };
            match metrics::fetch(address, PATIENCE) {
                Ok(snapshot) => answers.push(RankAnswer {
                    host: host.to_owned(),
                    port,
                    snapshot,
                }),
                Err(error) if is_silence(&error) => break,
                Err(_) => {}
            }
        }
        answers
    }
}

fn is_silence(error: &FetchError) -> bool {
    let FetchError::Get(error) = error else {
        return false;
    };
    match error {
        GetError::Unreachable(error) => error.kind() != ErrorKind::ConnectionRefused,
        GetError::Refused { .. } => false,
    }
}

/// Whether a rank still answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// It answered the last time.
    Here,
    /// It did not.
    Gone,
}

/// A rank that has answered.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// The host, as it was asked for.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether it still answers.
    pub presence: Presence,
    /// The last answer.
    pub now: Snapshot,
    /// The answer before, or an empty snapshot.
    pub before: Snapshot,
}

/// All ranks that have answered.
#[derive(Clone, Debug, Default)]
pub struct Board {
    sightings: Vec<Sighting>,
}

impl Board {
    /// Takes the answers of one refresh. Who is not among them is gone.
    pub fn update(&mut self, answers: Vec<RankAnswer>) {
        for sighting in &mut self.sightings {
            sighting.presence = Presence::Gone;
        }
        for answer in answers {
            let rank = |one: &Snapshot| (one.job_id, one.rank);
            let known = self.sightings.iter_mut();
            let mut known = known.filter(|seen| rank(&seen.now) == rank(&answer.snapshot));
            match known.next() {
                Some(seen) => seen.update(answer.snapshot),
                None => self.sightings.push(Sighting {
                    host: answer.host,
                    port: answer.port,
                    presence: Presence::Here,
                    now: answer.snapshot,
                    before: Snapshot::default(),
                }),
            }
        }
        // A new run of a job takes the place of the one that has gone.
        let here: Vec<(String, u16)> = (self.sightings.iter())
            .filter(|seen| seen.presence == Presence::Here)
            .map(|seen| (seen.host.clone(), seen.port))
            .collect();
        self.sightings.retain(|seen| {
            let replaced = here.contains(&(seen.host.clone(), seen.port));
            seen.presence == Presence::Here || !replaced
        });
        let order = |seen: &Sighting| (seen.now.job.clone(), seen.now.job_id, seen.now.rank);
        self.sightings.sort_by_key(order);
    }

    /// The ranks, by job and number.
    pub fn sightings(&self) -> &[Sighting] {
        &self.sightings
    }
}

impl Sighting {
    /// A rank may send the same snapshot twice; then there is no measurement in between.
    fn update(&mut self, snapshot: Snapshot) {
        self.presence = Presence::Here;
        if snapshot.uptime_s > self.now.uptime_s {
            self.before = std::mem::replace(&mut self.now, snapshot);
        }
    }
}
