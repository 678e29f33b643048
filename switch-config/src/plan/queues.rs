//! Which queue has which number and which DSCPs, and how droppable packets are told apart.

use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::{Class, Dscp, Share};

use super::error::{self, PlanError};
use crate::limits::{NotEct, PlatformLimits};
use crate::target::SwitchTarget;
use gradwire_fabric::policy::{QosPolicy, QueueTurn};

/// The purpose of a queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Routing protocols and others that the policy reserves; gradwire never sends there.
    Reserved,
    /// Gradwire's control packets.
    Control,
    /// Packets of a class of gradients.
    Data(Class),
    /// Packets of all classes of gradients.
    Gradients,
    /// Only other applications' packets, which have a share of the link.
    Others,
}

/// One queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanQueue {
    /// Its purpose.
    pub purpose: Purpose,
    /// Its number: 0 is the last to be served, and takes the packets of all other DSCPs.
    pub number: u8,
    /// DSCPs that lead to it and are kept, ascending.
    pub dscps: Vec<Dscp>,
    /// DSCPs that lead to it and are dropped first, where the job has such.
    pub droppable: Vec<Dscp>,
    /// Depth at which it marks and drops, as a share of rate x RTT; `None`: only when full.
    pub marks_above: Option<Share>,
    /// When it has its turn.
    pub turn: QueueTurn,
}

impl PlanQueue {
    /// A name for it, of lower-case letters, digits and a dash: `reserved`, `control`, `class-3`.
    pub fn name(&self) -> String {
        match self.purpose {
            Purpose::Reserved => "reserved".to_owned(),
            Purpose::Control => "control".to_owned(),
            Purpose::Data(class) => format!("class-{class}"),
            Purpose::Gradients => "gradients".to_owned(),
            Purpose::Others => "others".to_owned(),
        }
    }

    /// Whether it carries gradients: then it drops droppable packets where it marks others.
    pub fn has_gradients(&self) -> bool {
        matches!(self.purpose, Purpose::Data(_) | Purpose::Gradients)
    }

    /// Its weight in percent, or that of the queues with which it shares one; `None`: it is strict.
    pub fn percent(&self) -> Option<u8> {
        match self.turn {
            QueueTurn::Strict => None,
            QueueTurn::Weighted { percent, .. } => Some(percent),
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

/// Whether all classes of gradients share a queue: the platform keeps no order beside a share.
/// Weights in place of an order would give others more than their share whenever few classes have
/// packets.
pub(super) fn merges(limits: &PlatformLimits, policy: &QosPolicy) -> bool {
    policy.others.is_some() && !limits.order_beside_share.value
}

/// Queues from the first to be served, numbered so that the last is 0. Reserved DSCPs have a queue
/// of their own where there is one to spare, the highest of the platform, else the control queue.
pub(super) fn queues(limits: &PlatformLimits, policy: &QosPolicy) -> Vec<PlanQueue> {
    let mut own = own_queues(limits, policy);
    if merges(limits, policy) {
        merge(&mut own);
    }
    let count = own.len() as u8;
    for (number, queue) in (0..count).rev().zip(&mut own) {
        queue.number = number;
    }
    let mut reserved = policy.reserved.clone();
    reserved.sort_unstable();
    if limits.queues.value > count && !reserved.is_empty() {
        own.insert(
            0,
            PlanQueue {
                purpose: Purpose::Reserved,
                number: limits.queues.value - 1,
                dscps: reserved,
                droppable: Vec::new(),
                marks_above: None,
                turn: QueueTurn::Strict,
            },
        );
    } else if let Some(control) = own.first_mut() {
        control.dscps.append(&mut reserved);
        control.dscps.sort_unstable();
    }
    own
}

/// The queues of the policy, without numbers.
fn own_queues(limits: &PlatformLimits, policy: &QosPolicy) -> Vec<PlanQueue> {
    let marks = limits.not_ect.value != NotEct::Kept;
    let rows = policy.queues.iter().zip(policy.turns());
    let queues = rows.map(|(queue, turn)| {
        let purpose = match (queue.class.0, queue.early_drop) {
            (0, _) => Purpose::Control,
            (_, EarlyDrop::On) => Purpose::Data(queue.class),
            (_, EarlyDrop::Off) => Purpose::Others,
        };
        let marks = marks && (purpose != Purpose::Others || limits.marks_without_drops.value);
        PlanQueue {
            purpose,
            number: 0,
            dscps: vec![queue.dscp],
            droppable: queue.droppable.into_iter().collect(),
            marks_above: queue.marks_above.filter(|_| marks),
            turn,
        }
    });
    queues.collect()
}

/// Puts all classes of gradients into the queue of the first.
fn merge(queues: &mut Vec<PlanQueue>) {
    let mut merged: Option<PlanQueue> = None;
    let gradients = queues.extract_if(.., |queue| queue.has_gradients());
    for queue in gradients {
        match &mut merged {
            None => merged = Some(queue),
            Some(first) => {
                first.dscps.extend(queue.dscps);
                first.droppable.extend(queue.droppable);
            }
        }
    }
    if let Some(mut first) = merged {
        first.purpose = Purpose::Gradients;
        first.dscps.sort_unstable();
        first.droppable.sort_unstable();
        queues.insert(1, first);
    }
}
