//! What an export says of its switch's ports, and what a change does to them.

use gradwire_fabric::policy::{QosPolicy, SwitchBuffer};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Share, Span};
use gradwire_switch_config::dialect;
use gradwire_switch_config::effect::{self, Effect};
use gradwire_switch_config::plan::{NoteKind, Plan, Site, SwitchPort};
use gradwire_switch_config::ports::PortListing;
use gradwire_switch_config::target::SwitchTarget;
use serde_json::Value;

const SONIC: &str = include_str!("exports/sonic.json");
const EOS: &str = include_str!("exports/eos.cfg");

/// The default job's plan for ports of this many Gb/s; droppable packets have their own DSCPs where
/// the platform needs that.
fn plan(target: &str, ports: &[(&str, u64)]) -> Plan {
    let target = SwitchTarget::read(target).expect("a target");
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    for (queue, droppable) in policy.queues.iter_mut().zip(1..).skip(1) {
        let colours = matches!(target.to_string().as_str(), "eos:trident");
        queue.droppable = colours.then_some(gradwire_protocol::units::Dscp(droppable));
        queue.marks_above = Some(Share::ALL);
    }
    let port = |(name, gbps): &(&str, u64)| SwitchPort {
        name: (*name).to_owned(),
        rate: Rate::from_gbps(*gbps),
    };
    let site = Site {
        origin: "here".to_owned(),
        ports: ports.iter().map(port).collect(),
        buffer: SwitchBuffer::PerPort(ByteCount::mib(16)),
    };
    let limits = dialect::of(target.platform).limits(target.version);
    Plan::new(target, &limits, &policy, site).expect("the plan of the test is possible")
}

fn mistakes(plan: &Plan, running: &str) -> Vec<String> {
    let seen = dialect::of(plan.target.platform).ports(running);
    let mistakes = seen.expect("it is an export").mistakes(plan);
    mistakes.iter().map(ToString::to_string).collect()
}

/// The effects of a plan's change on these ports.
fn effects(plan: &Plan, running: &str, ports: &Plan) -> Vec<Effect> {
    let dialect = dialect::of(plan.target.platform);
    let change = dialect.change(plan, running).expect("it is an export");
    let after = dialect
        .apply(running, &change.forward)
        .expect("made for it");
    let read = |text| dialect.read(ports, text).expect("it is an export");
    let names = ports.site.ports.iter().map(|port| port.name.as_str());
    effect::effects(names, &read(running), &read(&after))
}

fn told(effect: &Effect) -> Vec<String> {
    let settings = effect.settings.iter();
    let settings = settings.map(|one| format!("{}: {} -> {}", one.setting, one.before, one.after));
    settings.collect()
}

#[test]
fn a_port_that_the_switch_lacks_is_answered_with_those_it_has() {
    assert_eq!(
        mistakes(
            &plan("sonic", &[("Ethernet0", 100), ("Ethernet20", 100)]),
            SONIC
        ),
        [
            "port-absent: Ethernet20: the export has no such port; name those of the plan with \
             --ports: it has Ethernet0, Ethernet4, \
             Ethernet8, Ethernet12, Ethernet16"
        ]
    );
    let eos = mistakes(&plan("eos:trident", &[("Ethernet9", 100)]), EOS);
    assert!(eos[0].ends_with("it has Ethernet1, Ethernet2, Ethernet3, Ethernet4, Ethernet5"));
}

#[test]
fn a_port_of_another_speed_than_the_fabrics_is_named() {
    let found = mistakes(
        &plan("sonic", &[("Ethernet4", 25), ("Ethernet8", 100)]),
        SONIC,
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("port-speed: Ethernet4: runs at 100G in the export, and at 25G"),
        "{found:?}"
    );
}

#[test]
fn speeds_are_found_in_the_export_of_every_platform() {
    for (target, text, port) in [
        (
            "sonic",
            "{\"PORT\": {\"Ethernet0\": {\"speed\": \"40000\"}}}",
            "Ethernet0",
        ),
        (
            "eos:sand",
            "interface Ethernet1\n   speed forced 40gfull\n",
            "Ethernet1",
        ),
        (
            "nxos",
            "interface Ethernet1/1\n  speed 40000\n",
            "Ethernet1/1",
        ),
        (
            "nvue",
            "- set:\n    interface:\n      swp1-4:\n        link:\n          speed: 40G\n",
            "swp3",
        ),
        (
            "junos:qfx5100",
            "set interfaces et-0/0/0 ether-options speed 40g\n",
            "et-0/0/0",
        ),
        (
            "openconfig",
            "{\"openconfig-interfaces:interfaces\": {\"interface\": [{\"name\": \"Ethernet0\", \
             \"openconfig-if-ethernet:ethernet\": {\"config\": {\"port-speed\": \
             \"openconfig-if-ethernet:SPEED_40GB\"}}}]}, \"openconfig-qos:qos\": {}}",
            "Ethernet0",
        ),
    ] {
        let target = SwitchTarget::read(target).expect("a target");
        let seen = dialect::of(target.platform).ports(text);
        let seen = seen.expect("it is an export");
        assert_eq!(
            seen.rates.get(port),
            Some(&Some(Rate::from_gbps(40))),
            "{target}"
        );
    }
}

#[test]
fn an_export_without_ports_accuses_none() {
    let nothing = plan("sonic", &[("Ethernet99", 100)]);
    assert_eq!(mistakes(&nothing, "{}"), [""; 0]);
    let seen = dialect::of(nothing.target.platform).ports("{}");
    assert_eq!(seen.expect("CONFIG_DB").listing, PortListing::Partial);
}

#[test]
fn the_watchdog_of_pauses_ends_with_them() {
    let plan = plan("sonic", &[("Ethernet0", 100)]);
    let dialect = dialect::of(plan.target.platform);
    let found = dialect.read(&plan, SONIC).expect("CONFIG_DB").findings;
    let watched = found.iter().any(|one| one.place == "PFC_WD|Ethernet0");
    assert!(watched, "{found:?}");
    let change = dialect.change(&plan, SONIC).expect("CONFIG_DB");
    let after = dialect.apply(SONIC, &change.forward).expect("made for it");
    let after: Value = serde_json::from_str(&after).expect("JSON");
    assert_eq!(after.pointer("/PFC_WD/Ethernet0"), None);
    let bindings = &after["PORT_QOS_MAP"];
    assert_eq!(bindings["Ethernet0"].get("pfcwd_sw_enable"), None);
    assert_eq!(bindings["Ethernet4"]["pfcwd_sw_enable"], "3,4");
}

#[test]
fn a_plan_for_some_ports_leaves_the_hash_of_the_switch() {
    let whole = plan("sonic", &[("Ethernet0", 100)]);
    let change = |plan: &Plan| {
        let change = dialect::of(plan.target.platform).change(plan, SONIC);
        change.expect("CONFIG_DB").forward
    };
    assert!(change(&whole).contains("SWITCH_HASH"));
    let some = whole.for_these_ports_only();
    assert!(!change(&some).contains("SWITCH_HASH"));
    let left = |note: &gradwire_switch_config::plan::Note| note.text.contains("are left out");
    assert!(some.notes.iter().any(left));
    let nvue = plan("nvue", &[("swp1", 100)]);
    let render = |plan: &Plan| dialect::of(plan.target.platform).render(plan);
    assert!(render(&nvue).contains("ecmp-hash"));
    assert!(!render(&nvue.for_these_ports_only()).contains("ecmp-hash"));
}

#[test]
fn effects_tell_each_setting_before_and_after() {
    let plan = plan("sonic", &[("Ethernet0", 100), ("Ethernet4", 100)]);
    let effects = effects(&plan, SONIC, &plan);
    let ports: Vec<_> = effects
        .iter()
        .map(|effect| effect.ports.join(" "))
        .collect();
    assert_eq!(ports, ["Ethernet0 Ethernet4"], "both are alike");
    let told = told(&effects[0]);
    assert!(
        told.contains(&"PFC: on for 3-4 -> off".to_owned()),
        "{told:#?}"
    );
    let first = "DSCP 34: queue 1 -> queue 5".to_owned();
    assert!(told.contains(&first), "{told:#?}");
    let queue = "strict, marks ECT and drops the rest above 175000 bytes";
    let queue = told
        .iter()
        .find(|text| text.starts_with("queue 5: ") && text.contains(queue));
    assert!(queue.is_some(), "{told:#?}");
}

#[test]
fn effects_of_a_map_of_the_whole_switch_show_on_other_ports() {
    let asked = plan("eos:trident", &[("Ethernet1", 100)]);
    let seen = dialect::of(asked.target.platform).ports(EOS).expect("EOS");
    let mut others = asked.clone();
    others.site.ports = seen.others(&asked);
    assert_eq!(others.site.ports.len(), 4);
    let found = effects(&asked, EOS, &others);
    let told: Vec<String> = found.iter().flat_map(told).collect();
    assert!(
        told.iter().any(|text| text.starts_with("DSCP ")),
        "{told:#?}"
    );
    assert!(
        told.iter().all(|text| !text.starts_with("PFC")),
        "{told:#?}"
    );
}

#[test]
fn dscps_that_others_use_by_default_are_warned_of() {
    let plan = plan("sonic", &[("Ethernet0", 100)]);
    let warned = |word: &str| {
        let mut notes = plan
            .notes
            .iter()
            .filter(|note| note.kind == NoteKind::Warning);
        notes.any(|note| note.text.contains(word))
    };
    assert!(warned("26 is RoCE's on many fabrics"), "{:#?}", plan.notes);
    assert!(warned("18 is SSH's for terminals"), "{:#?}", plan.notes);
    let last = "share queue 0 with gradients: they wait behind 7 strict queues, and those without \
                ECN are dropped above 175000 bytes at 100G";
    assert!(warned(last), "{:#?}", plan.notes);
}
