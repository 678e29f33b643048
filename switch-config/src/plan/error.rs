//! Reasons why there is no plan: contradictions in the policy, and limits of the target.

use gradwire_protocol::units::{ByteCount, Dscp};

use super::queues;
use super::site::Site;
use crate::limits::PlatformLimits;
use crate::target::SwitchTarget;
use gradwire_fabric::policy::{Balance, DSCPS, QosPolicy, ServiceOrder};

/// Why there is no plan.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// More classes than queues.
    #[error(
        "the job has {given} classes, {target} has {most} strict queues a port: shorten \
         priority.dscps to {most} entries"
    )]
    Classes {
        /// The platform.
        target: SwitchTarget,
        /// Classes of the job.
        given: usize,
        /// Queues of a port.
        most: u8,
    },
    /// A DSCP that two classes have.
    #[error("DSCP {dscp} is used twice, by {first} and {second}: each class needs its own")]
    TwiceUsed {
        /// The DSCP.
        dscp: Dscp,
        /// One class.
        first: String,
        /// The other.
        second: String,
    },
    /// A DSCP that is reserved.
    #[error(
        "DSCP {dscp} of {class} is reserved for others (routing protocols have 48, voice 46): \
         choose another in priority.dscps, or leave it out of --reserve"
    )]
    Reserved {
        /// The DSCP.
        dscp: Dscp,
        /// The class.
        class: String,
    },
    /// A threshold above the memory that a port can hold.
    #[error(
        "the threshold, {exact} bytes, is above the buffer of a port, {port_bytes} bytes: give a \
         smaller --rtt, or a larger buffer in the fabric",
        exact = exact.get(), port_bytes = port_bytes.get()
    )]
    AboveBuffer {
        /// Share x rate x RTT.
        exact: ByteCount,
        /// The memory that a port can hold.
        port_bytes: ByteCount,
    },
    /// A threshold that cannot be written.
    #[error("the threshold, {} bytes, is more than {target} can write: at most {most} units",
        exact.get())]
    Threshold {
        /// The platform.
        target: SwitchTarget,
        /// Share x rate x RTT.
        exact: ByteCount,
        /// The most, in the platform's units.
        most: u64,
    },
    /// A dynamic threshold that cannot be written.
    #[error("alpha {given} of the buffer: {target} can write 2^{least} to 2^{most}")]
    Alpha {
        /// The platform.
        target: SwitchTarget,
        /// The factor in the fabric file.
        given: String,
        /// Least exponent.
        least: i8,
        /// Most exponent.
        most: i8,
    },
    /// Droppable packets need a DSCP of their own.
    #[error(
        "{target} does not drop not-ECT packets early ({basis}); give droppable packets DSCPs \
         of their own in job.toml, under [priority]: {line}"
    )]
    NeedsSecondDscps {
        /// The platform.
        target: SwitchTarget,
        /// Who says so.
        basis: String,
        /// The line to write instead.
        line: String,
    },
    /// Droppable packets cannot be told apart.
    #[error("{target} can tell droppable packets apart neither by ECN nor by DSCP ({basis})")]
    NoSelection {
        /// The platform.
        target: SwitchTarget,
        /// Who says so.
        basis: String,
    },
    /// A way to choose paths that the platform does not have.
    #[error("{target} cannot spread packets by `{given}` ({basis}); it can by {known}")]
    Balance {
        /// The platform.
        target: SwitchTarget,
        /// The balancing that was asked for.
        given: &'static str,
        /// Who says so.
        basis: String,
        /// The balancing that it has.
        known: String,
    },
    /// Trimming that the platform does not have.
    #[error("{target} cannot trim packets to {given} bytes: {allowed}")]
    Trims {
        /// The platform.
        target: SwitchTarget,
        /// To how many bytes.
        given: u64,
        /// Its range.
        allowed: String,
    },
    /// An order that no switch serves.
    #[error("no switch serves queues by urgency: that order is for simulated switches only")]
    Order,
    /// Nothing to configure.
    #[error("the switch has no ports; name at least one")]
    NoPorts,
    /// A port that is named twice.
    #[error("port {0} is named twice")]
    PortTwice(String),
}

/// The droppable DSCPs that go with those of a policy, as a line of a job file: of assured
/// forwarding (RFC 2597) the third drop precedence, of others the number above.
pub(super) fn droppable_line(policy: &QosPolicy) -> String {
    let mut taken: Vec<Dscp> = policy.queues.iter().map(|queue| queue.dscp).collect();
    taken.extend(&policy.reserved);
    let mut seconds = Vec::new();
    for queue in policy.queues.iter().filter(|queue| queue.class.0 > 0) {
        let wanted = match queue.dscp.0 {
            assured @ (10 | 18 | 26 | 34) => assured + 4,
            other => other + 1,
        };
        let free = (wanted..DSCPS as u8)
            .chain(1..wanted)
            .map(Dscp)
            .find(|dscp| !taken.contains(dscp));
        let dscp = free.expect("at most 8 + 8 of 64 DSCPs are taken");
        taken.push(dscp);
        seconds.push(dscp.to_string());
    }
    format!("droppable_dscps = [{}]", seconds.join(", "))
}

/// Refuses contradictions, and requests beyond the target's limits.
pub(super) fn check(
    target: SwitchTarget,
    limits: &PlatformLimits,
    policy: &QosPolicy,
    site: &Site,
) -> Result<(), PlanError> {
    check_ports(site)?;
    let (given, most) = (policy.queues.len(), limits.queues.value);
    if given > usize::from(most) && !queues::merges(limits, policy) {
        return Err(PlanError::Classes {
            target,
            given,
            most,
        });
    }
    check_dscps(policy)?;
    if policy.order == ServiceOrder::Urgency {
        return Err(PlanError::Order);
    }
    check_balance(target, limits, policy.balance)?;
    check_trims(target, limits, policy)
}

fn check_ports(site: &Site) -> Result<(), PlanError> {
    if site.ports.is_empty() {
        return Err(PlanError::NoPorts);
    }
    let mut names: Vec<&str> = site.ports.iter().map(|port| port.name.as_str()).collect();
    names.sort_unstable();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(PlanError::PortTwice(pair[0].to_owned())))
}

fn check_dscps(policy: &QosPolicy) -> Result<(), PlanError> {
    let mut owners: [Option<String>; DSCPS] = [const { None }; DSCPS];
    for queue in &policy.queues {
        let class = format!("class {}", queue.class);
        for dscp in [Some(queue.dscp), queue.droppable].into_iter().flatten() {
            if policy.reserved.contains(&dscp) {
                return Err(PlanError::Reserved { dscp, class });
            }
            let owner = &mut owners[usize::from(dscp.0) % DSCPS];
            if let Some(first) = owner.replace(class.clone()) {
                let second = class;
                return Err(PlanError::TwiceUsed {
                    dscp,
                    first,
                    second,
                });
            }
        }
    }
    Ok(())
}

fn check_balance(
    target: SwitchTarget,
    limits: &PlatformLimits,
    balance: Balance,
) -> Result<(), PlanError> {
    let known = &limits.balances.value;
    if known.iter().any(|known| known == balance.name()) {
        return Ok(());
    }
    Err(PlanError::Balance {
        target,
        given: balance.name(),
        basis: limits.balances.source.clone(),
        known: known.join(", "),
    })
}

fn check_trims(
    target: SwitchTarget,
    limits: &PlatformLimits,
    policy: &QosPolicy,
) -> Result<(), PlanError> {
    let Some(bytes) = policy.trims_to.map(ByteCount::get) else {
        return Ok(());
    };
    let allowed = match limits.trims.value {
        Some(range) if (range.least..=range.most).contains(&bytes) => return Ok(()),
        Some(range) => format!("allowed are {} to {} bytes", range.least, range.most),
        None => format!("it does not trim ({})", limits.trims.source),
    };
    Err(PlanError::Trims {
        target,
        given: bytes,
        allowed,
    })
}
