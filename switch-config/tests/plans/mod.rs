//! Random policies on random ports, for the properties that every dialect must have.
//!
//! [`drawn`] is the proptest strategy; [`Drawn::plan`] fits what was drawn to a platform: what it
//! cannot do at all is left out, so that there is always a plan.

use gradwire_fabric::policy::{
    Balance, ClassQueue, DSCPS, QosPolicy, RESERVED, ServiceOrder, SwitchBuffer, TrimDepth,
};
use gradwire_protocol::priority::EarlyDrop;
use gradwire_protocol::units::{ByteCount, Class, Dscp, Rate, Share, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::limits::{NotEct, PlatformLimits};
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Speeds of ports, in Gb/s.
const GBPS: [u64; 7] = [10, 25, 40, 100, 200, 400, 800];

/// A policy, and the ports and the memory that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    policy: QosPolicy,
    /// Droppable DSCPs of data classes, for platforms that need them.
    seconds: Vec<Dscp>,
    rates: Vec<Rate>,
    buffer: SwitchBuffer,
}

impl Drawn {
    /// The plan of it for a platform.
    pub(crate) fn plan(&self, target: SwitchTarget) -> Plan {
        let dialect = dialect::of(target.platform);
        let limits = dialect.limits(target.version);
        let ports = self
            .rates
            .iter()
            .enumerate()
            .map(|(number, rate)| SwitchPort {
                name: dialect.port_name(number),
                rate: *rate,
            });
        let site = Site {
            origin: "a random job on a random fabric".to_owned(),
            ports: ports.collect(),
            buffer: self.buffer,
        };
        let plan = Plan::new(target, &limits, &self.policy_within(&limits), site);
        plan.expect("the policy was fitted to the platform")
    }

    fn policy_within(&self, limits: &PlatformLimits) -> QosPolicy {
        let mut policy = self.policy.clone();
        policy.queues.truncate(usize::from(limits.queues.value));
        policy.others = policy.others.filter(|_| policy.queues.len() >= 3);
        if matches!(
            limits.not_ect.value,
            NotEct::DropsWhenFull | NotEct::Unknown
        ) {
            let data = policy.queues.iter_mut().skip(1);
            for (queue, second) in data.zip(&self.seconds) {
                queue.droppable = Some(*second);
            }
        }
        if let (Some(_), Some(last)) = (policy.others, policy.queues.last_mut()) {
            last.droppable = None;
            last.early_drop = EarlyDrop::Off;
        }
        policy.trims_to = policy.trims_to.and_then(|bytes| {
            let range = limits.trims.value?;
            Some(ByteCount::new(bytes.get().clamp(range.least, range.most)))
        });
        policy
    }
}

/// Policies of 1 to 8 classes (control packets among them), with ports of 10G to 800G.
pub(crate) fn drawn() -> impl Strategy<Value = Drawn> {
    let rates = prop::collection::vec(select(&GBPS[..]).prop_map(Rate::from_gbps), 1..5);
    (policy(), rates, buffer()).prop_map(|((policy, seconds), rates, buffer)| Drawn {
        policy,
        seconds,
        rates,
        buffer,
    })
}

/// A policy, and droppable DSCPs that it does not use.
fn policy() -> impl Strategy<Value = (QosPolicy, Vec<Dscp>)> {
    let reserved = subsequence(RESERVED.to_vec(), 0..=RESERVED.len());
    let numbers: Vec<u8> = (0..DSCPS as u8).collect();
    let dscps = Just(numbers).prop_shuffle();
    let shares = prop::collection::vec(1_u8..=100, 7);
    let others = prop::option::of(1_u8..=90);
    let details = (
        1_u64..=40,
        any::<bool>(),
        prop::option::of(64_u64..=1500),
        others,
    );
    (1_usize..=8, reserved, dscps, shares, details).prop_map(
        |(classes, reserved, dscps, shares, (rtt_us, colours, trims_to, others))| {
            let free = dscps.into_iter().map(Dscp);
            let mut free = free.filter(|dscp| !reserved.contains(dscp));
            let firsts: Vec<Dscp> = free.by_ref().take(classes).collect();
            let seconds: Vec<Dscp> = free.take(classes - 1).collect();
            let queues = firsts.iter().enumerate().map(|(class, dscp)| ClassQueue {
                class: Class(class as u8),
                dscp: *dscp,
                droppable: (colours && class > 0).then(|| seconds[class - 1]),
                marks_above: (class > 0).then(|| share(shares[class - 1])),
                early_drop: EarlyDrop::On,
            });
            let policy = QosPolicy {
                queues: queues.collect(),
                others,
                reserved,
                rtt: Span::from_micros(rtt_us),
                balance: Balance::Ecmp,
                order: ServiceOrder::Arrival,
                ramp: None,
                pause: None,
                trims_to: trims_to.map(ByteCount::new),
                trims_above: TrimDepth::Memory,
            };
            (policy, seconds)
        },
    )
}

fn share(percent: u8) -> Share {
    Share::new(f64::from(percent) / 100.0).expect("1 to 100 percent")
}

/// Memory that can hold rate x RTT of the fastest port, 4 MB.
fn buffer() -> impl Strategy<Value = SwitchBuffer> {
    let alone = (8_u64..=64).prop_map(|mib| SwitchBuffer::PerPort(ByteCount::mib(mib)));
    let shared = (64_u64..=256, -3_i32..=3).prop_map(|(mib, exponent)| SwitchBuffer::Shared {
        bytes: ByteCount::mib(mib),
        alpha: 2_f64.powi(exponent),
    });
    prop_oneof![alone, shared]
}
