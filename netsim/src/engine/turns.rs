//! Which queue of a port has its turn, where the policy leaves others a share of each link.
//!
//! Strict queues go first. Below them, groups of queues share the link by weight, and within a
//! group the first queue goes first. Of the groups that have packets, the one is served that got
//! least for its weight: fair queueing by the time at which a packet begins (Goyal, Vin and Cheng,
//! SIGCOMM 1996). A group that had no packets does not save up what it did not use.

use gradwire_fabric::policy::{QosPolicy, QueueTurn};

use crate::engine::port::QUEUES;

/// Work per byte of a group whose weight is 1 percent.
const WORK: u64 = 1_000_000;

/// The groups of all ports.
#[derive(Clone, Copy, Debug)]
pub struct TurnRules {
    /// Bit q: queue q is strict.
    strict: u8,
    /// Of each group: its queues as bits, and the work of a byte.
    groups: [(u8, u64); QUEUES],
}

impl TurnRules {
    /// The rules of a policy; `None` where all queues are strict.
    pub fn of(policy: &QosPolicy) -> Option<Self> {
        policy.others?;
        let mut rules = Self {
            strict: 0,
            groups: [(0, 0); QUEUES],
        };
        for (queue, turn) in policy.turns().into_iter().enumerate() {
            match turn {
                QueueTurn::Strict => rules.strict |= 1 << queue,
                QueueTurn::Weighted { group, percent } => {
                    let (queues, work) = &mut rules.groups[usize::from(group)];
                    *queues |= 1 << queue;
                    *work = WORK / u64::from(percent.max(1));
                }
            }
        }
        Some(rules)
    }
}

/// What the groups of a port got.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortTurns {
    /// Work done for each group.
    done: [u64; QUEUES],
    /// The work at which the last packet began.
    began: u64,
    /// Bit g: group g had packets then.
    busy: u8,
}

impl PortTurns {
    /// The queue that is served, of those whose bits are set in `ready`; one at least is.
    pub fn choose(&mut self, rules: &TurnRules, ready: u8) -> usize {
        let strict = ready & rules.strict;
        if strict != 0 {
            return strict.trailing_zeros() as usize;
        }
        let mut busy = 0;
        let mut least = (u64::MAX, 0);
        for (group, (queues, _)) in rules.groups.iter().enumerate() {
            let waiting = ready & queues;
            if waiting == 0 {
                continue;
            }
            busy |= 1 << group;
            let done = &mut self.done[group];
            if self.busy >> group & 1 == 0 {
                *done = self.began.max(*done);
            }
            least = least.min((*done, waiting.trailing_zeros() as usize));
        }
        self.busy = busy;
        self.began = least.0;
        least.1
    }

    /// Counts the bytes of a packet that was served.
    pub fn count(&mut self, rules: &TurnRules, queue: usize, bytes: u16) {
        let mut groups = rules.groups.iter().zip(&mut self.done);
        if let Some(((_, work), done)) = groups.find(|pair| pair.0.0 >> queue & 1 == 1) {
            *done += work * u64::from(bytes);
        }
    }
}
