//! Which queue has which number and which DSCPs, and how droppable packets are told apart.

use gradwire_protocol::units::{Class, Dscp, Share};

use super::error::{self, PlanError};
use crate::limits::{NotEct, PlatformLimits};
use crate::target::SwitchTarget;
use gradwire_fabric::policy::QosPolicy;

/// The purpose of a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Routing protocols and others that the policy reserves; gradwire never sends there.
    Reserved,
    /// Gradwire's control packets.
    Control,
    /// Packets of a class of gradients.
    Data(Class),
}

/// One strict-priority queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanQueue {
    /// Its purpose.
    pub purpose: Purpose,
    /// Its number: 0 is the last to be served, and takes the packets of all other DSCPs.
    pub number: u8,
    /// DSCPs that lead to it and are kept, ascending.
    pub dscps: Vec<Dscp>,
    /// DSCP that leads to it and is dropped first, where the job has such.
    pub droppable: Option<Dscp>,
    /// Depth at which it marks and drops, as a share of rate x RTT; `None`: only when full.
    pub marks_above: Option<Share>,
}

impl PlanQueue {
    /// A name for it, of lower-case letters, digits and a dash: `reserved`, `control`, `class-3`.
    pub fn name(&self) -> String {
        match self.purpose {
            Purpose::Reserved => "reserved".to_owned(),
            Purpose::Control => "control".to_owned(),
            Purpose::Data(class) => format!("class-{class}"),
        }
    }
}

/// How droppable packets are told apart from protected ones in the same queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Selection {
    /// By ECN: not-ECT is dropped where ECT is marked.
    Ecn,
    /// By a second DSCP with the drop precedence that goes first; no packet is marked.
    Precedence,
}

/// How a platform tells droppable packets apart. Where no queue drops early, it does not.
pub(super) fn selection(
    target: SwitchTarget,
    limits: &PlatformLimits,
    policy: &QosPolicy,
) -> Result<Selection, PlanError> {
    let by_ecn = [NotEct::DropsEarly, NotEct::ProbablyDropsEarly, NotEct::Kept];
    if by_ecn.contains(&limits.not_ect.value) {
        return Ok(Selection::Ecn);
    }
    let mut queues = policy.queues.iter();
    let second = queues.clone().any(|queue| queue.droppable.is_some())
        || queues.all(|queue| queue.marks_above.is_none());
    match (second, limits.drop_precedence.value) {
        (true, true) => Ok(Selection::Precedence),
        (false, true) => Err(PlanError::NeedsSecondDscps {
            target,
            basis: limits.not_ect.source.clone(),
            line: error::droppable_line(policy),
        }),
        (_, false) => Err(PlanError::NoSelection {
            target,
            basis: limits.not_ect.source.clone(),
        }),
    }
}

/// Queues from the first to be served, numbered so that the last is 0. Reserved DSCPs have a queue
/// of their own where there is one to spare, the highest of the platform, else the control queue.
pub(super) fn queues(limits: &PlatformLimits, policy: &QosPolicy) -> Vec<PlanQueue> {
    let count = policy.queues.len() as u8;
    let spare = limits.queues.value > count && !policy.reserved.is_empty();
    let mut queues = Vec::new();
    let mut reserved = policy.reserved.clone();
    reserved.sort_unstable();
    if spare {
        queues.push(PlanQueue {
            purpose: Purpose::Reserved,
            number: limits.queues.value - 1,
            dscps: std::mem::take(&mut reserved),
            droppable: None,
            marks_above: None,
        });
    }
    for (number, queue) in (0..count).rev().zip(&policy.queues) {
        let is_control = queue.class.0 == 0;
        let mut dscps = vec![queue.dscp];
        if is_control {
            dscps.append(&mut reserved);
            dscps.sort_unstable();
        }
        queues.push(PlanQueue {
            purpose: if is_control {
                Purpose::Control
            } else {
                Purpose::Data(queue.class)
            },
            number,
            dscps,
            droppable: queue.droppable,
            marks_above: (limits.not_ect.value != NotEct::Kept)
                .then_some(queue.marks_above)
                .flatten(),
        });
    }
    queues
}
