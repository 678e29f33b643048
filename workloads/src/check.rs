//! Checks that a workload fits a fabric and can end.
//!
//! Flows are checked here, programs in `programs`.

mod programs;

use std::collections::{BTreeSet, VecDeque};

use crate::workload::{Flow, Start, Trigger, TriggerId, Workload};

/// Reasons why a workload cannot run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// The fabric does not have this host.
    #[error("{what} uses host {host}; the fabric has hosts 0 to {}", hosts.saturating_sub(1))]
    NoSuchHost {
        /// The flow, task or group.
        what: String,
        /// The host.
        host: u32,
        /// Number of hosts of the fabric.
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
    /// A flow or task carries no bytes.
    #[error("{what} carries 0 bytes; at least 1 is needed")]
    Nothing {
        /// The flow or task.
        what: String,
    },
    /// The trigger is not in the list.
    #[error("flow {flow} names trigger {trigger}; the workload has {triggers} triggers")]
    NoSuchTrigger {
        /// Index of the flow.
        flow: usize,
        /// Index of the trigger.
        trigger: u32,
        /// Their number.
        triggers: usize,
    },
    /// The trigger of a flow never fires for it.
    #[error(
        "flow {flow} waits for trigger {trigger} ({kind}), which is told only {told} times; let \
        flows that begin by themselves tell it often enough"
    )]
    NeverStarts {
        /// Index of the flow.
        flow: u32,
        /// Index of the trigger.
        trigger: u32,
        /// The kind of the trigger.
        kind: String,
        /// The number of flows that tell it.
        told: u32,
    },
    /// A host has two programs.
    #[error("host {host} has two programs; put their tasks into one")]
    TwoPrograms {
        /// The host.
        host: u32,
    },
    /// A task waits for itself or for a later one.
    #[error("{what} waits for task {before}; a task can wait for earlier tasks only")]
    Order {
        /// The task.
        what: String,
        /// Index of the other.
        before: u32,
    },
    /// The group is not in the list.
    #[error("{what} names group {group}; the workload has {groups} groups")]
    NoSuchGroup {
        /// The task.
        what: String,
        /// Index of the group.
        group: u32,
        /// Their number.
        groups: usize,
    },
    /// The host of a collective is not in its group, or the group does not have the root.
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
    /// A group lists a host twice.
    #[error("group {group} has host {host} twice; list every host once")]
    TwiceInGroup {
        /// Index of the group.
        group: usize,
        /// The host.
        host: u32,
    },
    /// The members of a group do not call the same collective.
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
    /// A send has no receive, or a receive no send.
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
    /// Tasks of several hosts wait for each other in a circle.
    #[error(
        "{what} can never be complete: its dependencies wait for it ({stuck} tasks are in such \
    a circle)"
    )]
    Stuck {
        /// The first such task.
        what: String,
        /// Their number.
        stuck: usize,
    },
}

impl Workload {
    /// Checks that a fabric of `hosts` hosts can carry the workload, and that it ends when every
    /// flow and task does.
    ///
    /// # Errors
    /// [`WorkloadError`] names the first faulty flow, task or group.
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

    /// Starts every flow that can start, in zero time.
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
