//! Whether a workload fits a fabric and can come to its end.
//!
//! Flows are checked here, programs in [`programs`].

mod programs;

use std::collections::{BTreeSet, VecDeque};

use crate::workload::{Flow, Start, Trigger, TriggerId, Workload};

/// Why a workload cannot run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// A host that the fabric does not have.
    #[error("{what} uses host {host}; the fabric has hosts 0 to {}", hosts.saturating_sub(1))]
    NoSuchHost {
        /// The flow, task or group.
        what: String,
        /// The host.
        host: u32,
        /// How many hosts there are.
        hosts: u32,
    },
    /// Sender and receiver are one host.
    #[error("{what} goes from host {host} to itself; it must go to another host")]
    ToItself {
        /// The flow or task.
        what: String,
        /// The host.
        host: u32,
    },
    /// Nothing is to be carried.
    #[error("{what} carries 0 bytes; at least 1 is needed")]
    Nothing {
        /// The flow or task.
        what: String,
    },
    /// A trigger that is not in the list.
    #[error("flow {flow} names trigger {trigger}; the workload has {triggers} triggers")]
    NoSuchTrigger {
        /// Index of the flow.
        flow: usize,
        /// Index of the trigger.
        trigger: u32,
        /// How many there are.
        triggers: usize,
    },
    /// A flow whose trigger never fires for it.
    #[error(
        "flow {flow} waits for trigger {trigger} ({kind}), which is told {told} times before \
         everything stands still; let flows that begin by themselves tell it often enough"
    )]
    NeverStarts {
        /// Index of the flow.
        flow: u32,
        /// Index of the trigger.
        trigger: u32,
        /// What the trigger is.
        kind: String,
        /// How often it is told.
        told: u32,
    },
    /// Two programs for one host.
    #[error("host {host} has two programs; put their tasks into one")]
    TwoPrograms {
        /// The host.
        host: u32,
    },
    /// A task that waits for itself or a later one.
    #[error("{what} waits for task {before}; a task can wait for earlier tasks only")]
    Order {
        /// The task.
        what: String,
        /// Index of the other.
        before: u32,
    },
    /// A group that is not in the list.
    #[error("{what} names group {group}; the workload has {groups} groups")]
    NoSuchGroup {
        /// The task.
        what: String,
        /// Index of the group.
        group: u32,
        /// How many there are.
        groups: usize,
    },
    /// A collective of a group that its host is not in, or a root that the group does not have.
    #[error("{what} needs member {member} in group {group}, whose {size} members do not have it")]
    NotInGroup {
        /// The task.
        what: String,
        /// `host 3` or `number 7`.
        member: String,
        /// Index of the group.
        group: u32,
        /// How many members it has.
        size: usize,
    },
    /// A host twice in a group.
    #[error("group {group} has host {host} twice; list every host once")]
    TwiceInGroup {
        /// Index of the group.
        group: usize,
        /// The host.
        host: u32,
    },
    /// Members of a group that do not do the same.
    #[error(
        "{what} is collective {number} of group {group} there and is {given}; on host {other} it \
         is {expected}: all members must do the same in the same order"
    )]
    Differ {
        /// The task.
        what: String,
        /// Index of the group.
        group: u32,
        /// Which collective of the group, from 0.
        number: usize,
        /// Kind and bytes.
        given: String,
        /// The host that it is compared with.
        other: u32,
        /// Kind and bytes there.
        expected: String,
    },
    /// Sends and receives that do not meet.
    #[error(
        "{what} meets no {wanted} with tag {tag} on host {peer} of the same size; every send needs \
         its receive, in the same order"
    )]
    Unmatched {
        /// The task.
        what: String,
        /// `send` or `receive`.
        wanted: &'static str,
        /// The tag.
        tag: u32,
        /// The host that it is missing on.
        peer: u32,
    },
    /// Tasks that wait for each other in a circle over several hosts.
    #[error("{what} can never be complete: what it waits for waits for it ({stuck} tasks do so)")]
    Stuck {
        /// The first such task.
        what: String,
        /// How many there are.
        stuck: usize,
    },
}

impl Workload {
    /// Whether all of it can be carried by a fabric of `hosts` hosts, and comes to its end when
    /// every flow and task does.
    ///
    /// # Errors
    /// [`WorkloadError`] names the first flow, task or group that is wrong.
    pub fn check(&self, hosts: u32) -> Result<(), WorkloadError> {
        for (number, flow) in self.flows.iter().enumerate() {
            self.check_flow(number, flow, hosts)?;
        }
        self.check_that_all_flows_start()?;
        for (number, members) in self.groups.iter().enumerate() {
            check_group(number, members, hosts)?;
        }
        programs::check(self, hosts)
    }

    fn check_flow(&self, number: usize, flow: &Flow, hosts: u32) -> Result<(), WorkloadError> {
        let what = || format!("flow {number}");
        check_host(what, flow.source, hosts)?;
        check_host(what, flow.destination, hosts)?;
        if flow.source == flow.destination {
            let (what, host) = (what(), flow.source);
            return Err(WorkloadError::ToItself { what, host });
        }
        if flow.bytes.get() == 0 {
            return Err(WorkloadError::Nothing { what: what() });
        }
        let triggers = self.triggers.len();
        let named = [flow.waits_for(), flow.when_sent, flow.when_received];
        let unknown = named
            .into_iter()
            .flatten()
            .find(|trigger| trigger.0 as usize >= triggers);
        unknown.map_or(Ok(()), |TriggerId(trigger)| {
            Err(WorkloadError::NoSuchTrigger {
                flow: number,
                trigger,
                triggers,
            })
        })
    }

    /// Lets every flow begin, in no time, that can.
    fn check_that_all_flows_start(&self) -> Result<(), WorkloadError> {
        let mut waiting: Vec<VecDeque<u32>> = vec![VecDeque::new(); self.triggers.len()];
        let mut told = vec![0_u32; self.triggers.len()];
        let mut begun: Vec<u32> = Vec::new();
        for (number, flow) in (0..).zip(&self.flows) {
            match flow.waits_for() {
                Some(TriggerId(trigger)) => waiting[trigger as usize].push_back(number),
                None => begun.push(number),
            }
        }
        while let Some(number) = begun.pop() {
            let flow = &self.flows[number as usize];
            for TriggerId(trigger) in [flow.when_sent, flow.when_received].into_iter().flatten() {
                let trigger = trigger as usize;
                told[trigger] += 1;
                match self.triggers[trigger] {
                    Trigger::Each => begun.extend(waiting[trigger].pop_front()),
                    Trigger::Barrier(often) if told[trigger] < often => {}
                    Trigger::Once | Trigger::Barrier(_) => begun.extend(waiting[trigger].drain(..)),
                }
            }
        }
        let left = waiting.iter().zip(0..).zip(self.triggers.iter().zip(told));
        let mut left = left.filter_map(|((flows, trigger), (kind, told))| {
            flows.front().map(|&flow| WorkloadError::NeverStarts {
                flow,
                trigger,
                kind: kind.to_string(),
                told,
            })
        });
        left.next().map_or(Ok(()), Err)
    }
}

impl Flow {
    fn waits_for(&self) -> Option<TriggerId> {
        match self.start {
            Start::At(_) => None,
            Start::On(trigger) => Some(trigger),
        }
    }
}

fn check_group(number: usize, members: &[u32], hosts: u32) -> Result<(), WorkloadError> {
    let mut known = BTreeSet::new();
    for &host in members {
        check_host(|| format!("group {number}"), host, hosts)?;
        if !known.insert(host) {
            let group = number;
            return Err(WorkloadError::TwiceInGroup { group, host });
        }
    }
    Ok(())
}

fn check_host(what: impl Fn() -> String, host: u32, hosts: u32) -> Result<(), WorkloadError> {
    if host < hosts {
        return Ok(());
    }
    let what = what();
    Err(WorkloadError::NoSuchHost { what, host, hosts })
}
