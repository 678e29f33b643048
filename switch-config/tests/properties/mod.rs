//! Properties that every dialect must have with any plan.

use gradwire_fabric::policy::{ClassQueue, QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Class, Dscp, Rate, Share, Span};
use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::lint;
use gradwire_switch_config::plan::{Plan, Site, SwitchPort};
use gradwire_switch_config::target::SwitchTarget;

/// The target of a name.
pub(crate) fn target(name: &str) -> SwitchTarget {
    SwitchTarget::read(name).expect("the test names a known target")
}

/// A plan of so many classes, control packets among them, on two ports of 100G and one of 400G.
pub(crate) fn plan_of(target: SwitchTarget, classes: usize) -> Plan {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    let seconds = [0, 36, 28, 20, 12, 9, 1, 4].map(Dscp);
    while policy.queues.len() < classes {
        let class = Class(policy.queues.len() as u8);
        policy.queues.push(ClassQueue {
            class,
            dscp: Dscp(2),
            droppable: None,
            marks_above: Some(Share::ALL),
        });
    }
    policy.queues.truncate(classes);
    for (queue, second) in policy.queues.iter_mut().zip(seconds).skip(1) {
        queue.droppable = Some(second);
    }
    let dialect = dialect::of(target.platform);
    let port = |number, gbps| SwitchPort {
        name: dialect.port_name(number),
        rate: Rate::from_gbps(gbps),
    };
    let site = Site {
        origin: "job.toml on fabric.toml, leaf-3".to_owned(),
        ports: vec![port(0, 100), port(1, 100), port(2, 400)],
        buffer: SwitchBuffer::PerPort(ByteCount::mib(16)),
    };
    let limits = dialect.limits(target.version);
    Plan::new(target, &limits, &policy, site).expect("the plan of the test is possible")
}

/// Reads back without findings, the same twice, no change after it; a running
/// configuration gets the plan, and by the inverse is as it was, byte for byte.
pub(crate) fn hold(plan: &Plan, running: &str) {
    let dialect = dialect::of(plan.target.platform);
    let text = dialect.render(plan);
    assert_eq!(text, dialect.render(plan), "rendered twice");
    assert_eq!(findings(dialect, plan, &text), [""; 0], "of\n{text}");
    let none = dialect.change(plan, &text).expect("it can be read");
    assert_eq!((none.forward.as_str(), none.inverse.as_str()), ("", ""));

    let change = dialect.change(plan, running).expect("it can be read");
    let after = dialect.apply(running, &change.forward);
    let after = after.expect("the change fits");
    assert_eq!(findings(dialect, plan, &after), [""; 0], "of\n{after}");
    let again = dialect.change(plan, &after).expect("it can be read");
    assert_eq!(again.forward, "", "applied twice");
    let undone = dialect.apply(&after, &change.inverse);
    assert_eq!(
        undone.as_deref(),
        Ok(running),
        "undone by\n{}",
        change.inverse
    );
}

/// A plan in place of another, and back.
pub(crate) fn hold_over(first: &Plan, second: &Plan, running: &str) {
    let dialect = dialect::of(first.target.platform);
    let change = dialect.change(first, running).expect("it can be read");
    let between = dialect.apply(running, &change.forward);
    hold(second, &between.expect("the change fits"));
}

/// Findings in the words of a person.
pub(crate) fn findings(dialect: &dyn Dialect, plan: &Plan, text: &str) -> Vec<String> {
    let reading = dialect
        .read(plan, text)
        .expect("it has the platform's form");
    let findings = lint::findings(plan, &reading);
    findings.iter().map(ToString::to_string).collect()
}
