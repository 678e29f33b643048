//! Commands for people: every platform has some, filled in for any plan.

use gradwire_fabric::policy::{Balance, QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Dscp, Rate, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;

/// A plan that shares memory, trims and adapts where the platform can.
fn fullest(target: SwitchTarget) -> Plan {
    let dialect = dialect::of(target.platform);
    let limits = dialect.limits(target.version);
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    policy.queues.truncate(3);
    for (queue, second) in policy.queues.iter_mut().zip([0, 36, 28]).skip(1) {
        queue.droppable = Some(Dscp(second));
    }
    policy.trims_to = limits.trims.value.map(|_| ByteCount::new(256));
    if limits.balances.value.iter().any(|name| name == "adaptive") {
        policy.balance = Balance::Adaptive;
    }
    let ports = (0..2).map(|number| SwitchPort {
        name: dialect.port_name(number),
        rate: Rate::from_gbps(100),
    });
    let site = Site {
        origin: "a test".to_owned(),
        ports: ports.collect(),
        buffer: SwitchBuffer::Shared {
            bytes: ByteCount::mib(64),
            alpha: 1.0,
        },
    };
    Plan::new(target, &limits, &policy, site).expect("a plan within the limits")
}

#[test]
fn every_platform_has_commands_without_a_word_left_in_braces() {
    for target in SwitchTarget::all() {
        let plan = fullest(target);
        let dialect = dialect::of(target.platform);
        for looks in [dialect.procedure(&plan), dialect.looks(&plan)] {
            assert!(!looks.is_empty(), "{target}");
            for look in looks {
                let text = format!("{}\n{}", look.command, look.expect);
                assert!(!look.expect.is_empty(), "{target}: {text}");
                // A brace of the shell has a blank or `$` beside it.
                let mut after = text.split('{').skip(1);
                let is_word = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
                assert!(!after.any(is_word), "{target}: {text}");
            }
        }
    }
}

#[test]
fn every_heading_is_of_loading_or_looking() {
    for target in SwitchTarget::all() {
        let commands = dialect::of(target.platform).texts().commands;
        for heading in commands.lines().filter_map(|line| line.strip_prefix("== ")) {
            let task = heading.split(", ").next();
            assert!(matches!(task, Some("load" | "look")), "{target}: {heading}");
        }
    }
}
