//! The lines of a plan.

use gradwire_protocol::units::{Dscp, Rate};

use super::chip::Chip;
use super::maps;
use crate::notation::indented;
use crate::notation::words::power_of_two;
use crate::plan::{OURS, Plan, PlanQueue, Selection, SwitchPort, ThresholdProfile};
use crate::tree::ConfigEntry;
use gradwire_fabric::policy::{Balance, DSCPS};

/// The command that switches dynamic load balancing on.
const DYNAMIC: &str = "ip hardware fib load-balance distribution dynamic";
/// The words that begin a profile of dynamic thresholds, and the command that uses one.
pub(super) const MMU: &str = "platform trident mmu queue profile";
/// First words of commands by which a port overrides its profile.
const OVERRIDES: [&str; 6] = [
    "qos trust",
    "qos cos",
    "qos dscp",
    "tx-queue",
    "uc-tx-queue",
    "priority-flow-control priority",
];

/// Name of the QoS profile of ports of a rate.
pub(super) fn profile_name(rate: Rate) -> String {
    format!("{OURS}-{rate}")
}

/// The plan as a whole configuration.
pub(super) fn whole(plan: &Plan) -> Vec<ConfigEntry> {
    let mut sections = vec![vec![ConfigEntry::remark(format!(
        "! gradwire {} from {}",
        plan.target, plan.site.origin
    ))]];
    if let Some(exponent) = plan.alpha {
        sections.push(vec![memory(plan, exponent)]);
    }
    let rates = plan.port_of_each_rate().into_iter();
    sections.extend(rates.map(|port| vec![profile(plan, port)]));
    sections.extend(plan.site.ports.iter().map(|port| {
        let name = profile_name(port.rate);
        let lines = vec![
            ConfigEntry::leaf(format!("service-profile {name}")),
            ConfigEntry::leaf("no priority-flow-control"),
        ];
        vec![ConfigEntry::new(format!("interface {}", port.name), lines)]
    }));
    if plan.balance_to_set() == Some(Balance::Adaptive) {
        sections.push(vec![ConfigEntry::leaf(DYNAMIC)]);
    }
    sections.push(maps(plan));
    if plan.alpha.is_some() {
        sections.push(vec![ConfigEntry::leaf(format!("{MMU} {OURS} apply"))]);
    }
    let fenced = sections.into_iter().flat_map(|mut section| {
        section.push(ConfigEntry::remark("!"));
        section
    });
    fenced.collect()
}

fn memory(plan: &Plan, exponent: i8) -> ConfigEntry {
    let threshold = power_of_two(exponent, "1/");
    let mut numbers: Vec<u8> = plan.queues.iter().map(|queue| queue.number).collect();
    numbers.sort_unstable();
    let lines = numbers.into_iter().map(|number| {
        ConfigEntry::leaf(format!(
            "egress unicast queue {number} threshold {threshold}"
        ))
    });
    ConfigEntry::new(format!("{MMU} {OURS}"), lines.collect())
}

fn profile(plan: &Plan, port: &SwitchPort) -> ConfigEntry {
    let mut lines = vec![
        ConfigEntry::leaf("qos trust dscp"),
        ConfigEntry::leaf("no priority-flow-control"),
    ];
    let word = Chip::of(plan.target.version).queue();
    for queue in plan.queues.iter().rev() {
        let mut settings = match queue.percent() {
            None => vec![ConfigEntry::leaf("priority strict")],
            Some(percent) => vec![
                ConfigEntry::leaf("no priority"),
                ConfigEntry::leaf(format!("bandwidth percent {percent}")),
            ],
        };
        settings.extend(plan.profile(queue, port).map(drops));
        lines.push(ConfigEntry::remark("!"));
        lines.push(ConfigEntry::new(
            format!("{word} {}", queue.number),
            settings,
        ));
    }
    ConfigEntry::new(format!("qos profile {}", profile_name(port.rate)), lines)
}

/// Above its threshold a queue drops all packets of the drop precedence that goes first.
fn drops(profile: &ThresholdProfile) -> ConfigEntry {
    let threshold = profile.threshold;
    ConfigEntry::leaf(format!(
        "random-detect drop drop-precedence {} minimum-threshold {} bytes maximum-threshold {} \
         bytes drop-probability 100 weight 0",
        maps::FIRST_TO_DROP,
        threshold.low_bytes(),
        threshold.high_bytes()
    ))
}

/// Where every DSCP goes, and every traffic class.
fn maps(plan: &Plan) -> Vec<ConfigEntry> {
    let by_precedence = plan.selection != Selection::Ecn;
    let target = |dscp: Dscp| {
        let queue: &PlanQueue = plan.queue_of_dscp(dscp);
        maps::DscpTarget {
            class: queue.number,
            drops_first: by_precedence && queue.droppable.contains(&dscp),
        }
    };
    let rows = (0..DSCPS as u8).map(|dscp| (dscp, target(Dscp(dscp)).to_string()));
    let mut lines = maps::lines(rows);
    let word = Chip::of(plan.target.version).queue();
    let mut numbers: Vec<u8> = plan.queues.iter().map(|queue| queue.number).collect();
    numbers.sort_unstable();
    lines.extend(numbers.into_iter().map(|number| {
        ConfigEntry::leaf(format!("qos map traffic-class {number} to {word} {number}"))
    }));
    lines
}

/// Adds to the ports of `wanted` the commands that clear overrides of their profile in `running`.
pub(super) fn clear_overrides(wanted: &mut [ConfigEntry], running: &[ConfigEntry]) {
    for port in wanted {
        let Some(found) = indented::section(running, port.text()) else {
            continue;
        };
        if port.after("interface").is_none() {
            continue;
        }
        let bare = found.facts().map(|line| {
            line.text()
                .strip_prefix("no ")
                .unwrap_or_else(|| line.text())
        });
        let overrides = bare.filter(|bare| {
            let line = ConfigEntry::leaf(*bare);
            OVERRIDES.iter().any(|words| line.after(words).is_some())
        });
        let cleared = overrides.map(|bare| ConfigEntry::leaf(format!("default {bare}")));
        let cleared: Vec<ConfigEntry> = cleared.collect();
        port.below.extend(cleared);
    }
}
