//! Patterns of collectives: all-reduce by an algorithm, parameter-server rounds.

use gradwire_protocol::units::ByteCount;

use super::{PatternError, PatternLine, notation};
use crate::workload::{CollectiveKind, Program, Task, Work, Workload};

impl PatternLine<'_> {
    pub(super) fn all_reduce(&self, name: &str, rest: &str) -> Result<Workload, PatternError> {
        let (bytes, times) = self.repeated_size(name, rest)?;
        self.needs_hosts(2)?;
        let everybody: Vec<u32> = (0..self.hosts.count).collect();
        let tasks: Vec<Task> = (0..times)
            .map(|round| {
                let work = collective(CollectiveKind::AllReduce, 0, bytes);
                Task::new(format!("{name} {round}"), work, before(round))
            })
            .collect();
        let programs = everybody.iter().map(|&host| Program {
            host,
            tasks: tasks.clone(),
        });
        Ok(Workload {
            programs: programs.collect(),
            groups: vec![everybody],
            // `all-reduce` names none.
            algorithm: name.parse().ok(),
            ..Workload::default()
        })
    }

    /// Each server is the root of its own group with all workers: they push their gradients to it
    /// (reduce) and pull the new weights from it (broadcast).
    pub(super) fn parameter_servers(&self, rest: &str) -> Result<Workload, PatternError> {
        let (servers, size) = rest
            .split_once('@')
            .ok_or_else(|| self.form("ps", "it needs servers@size"))?;
        let servers: u32 = servers
            .trim()
            .parse()
            .ok()
            .filter(|&servers| servers > 0)
            .ok_or_else(|| self.form("ps", format!("`{servers}` is not a number of servers")))?;
        let (bytes, times) = self.repeated_size("ps", size)?;
        self.needs_hosts(u64::from(servers) + 1)?;
        if bytes.get() < u64::from(servers) {
            let what = format!("{bytes} cannot be shared by {servers} servers");
            return Err(self.form("ps", what));
        }
        let workers = servers..self.hosts.count;
        let groups = (0..servers).map(|server| [server].into_iter().chain(workers.clone()));
        let programs = (0..self.hosts.count).map(|host| {
            let of_host = if host < servers {
                host..host + 1
            } else {
                0..servers
            };
            let mut tasks = Vec::new();
            for _ in 0..times {
                push_and_pull(&mut tasks, of_host.clone(), |server| {
                    part(bytes, server, servers)
                });
            }
            Program { host, tasks }
        });
        Ok(Workload {
            programs: programs.collect(),
            groups: groups.map(Iterator::collect).collect(),
            ..Workload::default()
        })
    }

    fn repeated_size(&self, name: &str, text: &str) -> Result<(ByteCount, u32), PatternError> {
        notation::repeated(text).ok_or_else(|| {
            let units = "bytes, KB, MB, GB, KiB, MiB or GiB, with x and a number behind it or not";
            self.form(name, notation::not_a_size(text, units))
        })
    }
}

/// Adds one round of push and pull with every server, which begins when the round before is over.
fn push_and_pull(
    tasks: &mut Vec<Task>,
    servers: std::ops::Range<u32>,
    bytes: impl Fn(u32) -> ByteCount,
) {
    let first = tasks.len() as u32;
    let previous: Vec<u32> = (0..first).rev().step_by(2).take(servers.len()).collect();
    for server in servers {
        let push = collective(CollectiveKind::Reduce { root: 0 }, server, bytes(server));
        let pull = collective(CollectiveKind::Broadcast { root: 0 }, server, bytes(server));
        let pushed = tasks.len() as u32;
        tasks.push(Task::new(format!("push {server}"), push, previous.clone()));
        tasks.push(Task::new(format!("pull {server}"), pull, vec![pushed]));
    }
}

/// Returns the share of a server; the first servers take the remainder.
fn part(bytes: ByteCount, server: u32, servers: u32) -> ByteCount {
    let (server, servers) = (u64::from(server), u64::from(servers));
    let rest = u64::from(server < bytes.get() % servers);
    ByteCount::new(bytes.get() / servers + rest)
}

fn collective(kind: CollectiveKind, group: u32, bytes: ByteCount) -> Work {
    Work::Collective {
        kind,
        group,
        bytes,
        layers: Vec::new(),
    }
}

fn before(round: u32) -> Vec<u32> {
    round.checked_sub(1).into_iter().collect()
}
