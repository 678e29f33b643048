//! SONiC: facts about every plan, and about a switch that runs something else already.

mod broken;
mod plans;

use gradwire_switch_config::dialect::{self, Dialect};
use gradwire_switch_config::lint;
use gradwire_switch_config::plan::Plan;
use gradwire_switch_config::target::{Platform, SwitchTarget};
use proptest::prelude::*;
use serde_json::Value;

/// The export of a switch with four queues of somebody else's: PFC, other maps, shared buffers.
const RUNNING: &str = include_str!("exports/sonic.json");
/// Tables that a plan may touch.
const TOUCHED: [&str; 13] = [
    "BUFFER_POOL",
    "BUFFER_PROFILE",
    "BUFFER_QUEUE",
    "DSCP_TO_TC_MAP",
    "PFC_WD",
    "PORT_QOS_MAP",
    "QUEUE",
    "SCHEDULER",
    "SWITCH_HASH",
    "SWITCH_TRIMMING",
    "TC_TO_PRIORITY_GROUP_MAP",
    "TC_TO_QUEUE_MAP",
    "WRED_PROFILE",
];

fn sonic() -> &'static dyn Dialect {
    dialect::of(Platform::Sonic)
}

fn target() -> SwitchTarget {
    SwitchTarget::read("sonic").expect("it is known")
}

fn plan(drawn: &plans::Drawn) -> Plan {
    drawn.plan(target())
}

fn findings(plan: &Plan, text: &str) -> Vec<String> {
    let reading = sonic().read(plan, text).expect("it is CONFIG_DB");
    let findings = lint::findings(plan, &reading);
    findings.iter().map(ToString::to_string).collect()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_rendered_is_what_the_plan_says(drawn in plans::drawn()) {
        let plan = plan(&drawn);
        let rendered = sonic().render(&plan);
        prop_assert_eq!(findings(&plan, &rendered), Vec::<String>::new());
        prop_assert_eq!(&rendered, &sonic().render(&plan));
        let nothing = sonic().change(&plan, &rendered).expect("it is CONFIG_DB");
        prop_assert_eq!((nothing.forward.as_str(), nothing.inverse.as_str()), ("", ""));
    }

    #[test]
    fn a_switch_that_runs_something_else_gets_the_plan_and_gives_it_back(drawn in plans::drawn()) {
        let plan = plan(&drawn);
        let change = sonic().change(&plan, RUNNING).expect("it is CONFIG_DB");
        let after = sonic().apply(RUNNING, &change.forward).expect("made for it");
        let pool = "pool-size: BUFFER_POOL|egress_lossy_pool";
        let other = findings(&plan, &after).into_iter().filter(|text| !text.starts_with(pool));
        prop_assert_eq!(other.collect::<Vec<_>>(), Vec::<String>::new());
        let again = sonic().change(&plan, &after).expect("it is CONFIG_DB");
        prop_assert_eq!(again.forward, "");
        let before = sonic().apply(&after, &change.inverse).expect("made for it");
        prop_assert_eq!(before, RUNNING);
    }

    #[test]
    fn only_the_ports_of_the_plan_and_what_is_named_after_us_are_touched(
        drawn in plans::drawn(),
    ) {
        let plan = plan(&drawn);
        let change = sonic().change(&plan, RUNNING).expect("it is CONFIG_DB");
        let after = parsed(&sonic().apply(RUNNING, &change.forward).expect("made for it"));
        let own = |port: &str| plan.site.ports.iter().any(|own| own.name == port);
        let before = parsed(RUNNING);
        for (table, rows) in before.as_object().expect("tables") {
            if !TOUCHED.contains(&table.as_str()) {
                prop_assert_eq!(&after[table], rows);
                continue;
            }
            for (key, row) in rows.as_object().expect("rows") {
                let port = key.split('|').next().unwrap_or_default();
                if table != "SWITCH_HASH" && !own(port) {
                    prop_assert_eq!(&after[table][key], row, "{}|{}", table, key);
                }
            }
        }
        let hash = &after["SWITCH_HASH"]["GLOBAL"];
        prop_assert_eq!(&hash["lag_hash"], &before["SWITCH_HASH"]["GLOBAL"]["lag_hash"]);
    }

    #[test]
    fn a_plan_after_another_leaves_nothing_of_the_first(
        first in plans::drawn(), second in plans::drawn(),
    ) {
        let (first, second) = (plan(&first), plan(&second));
        let change = |plan: &Plan, text: &str| {
            let change = sonic().change(plan, text).expect("it is CONFIG_DB");
            sonic().apply(text, &change.forward).expect("made for it")
        };
        let with_first = change(&first, RUNNING);
        let with_both = change(&second, &with_first);
        let pool = "pool-size: BUFFER_POOL|egress_lossy_pool";
        let found = findings(&second, &with_both);
        let other = found.into_iter().filter(|text| !text.starts_with(pool));
        prop_assert_eq!(other.collect::<Vec<_>>(), Vec::<String>::new());
        let covers = first.site.ports.len() <= second.site.ports.len();
        let text = with_both.replace(",\n", "\n");
        for profile in first.profiles.iter().filter(|_| covers) {
            // The queue of other programs has a profile of its own.
            let has = |end| text.contains(&format!("\"GRADWIRE_{}{end}\"", profile.name));
            let kept = second.profiles.iter().any(|one| one.name == profile.name);
            prop_assert_eq!(has("") || has("_OTHERS"), kept, "{}", &profile.name);
        }
    }

    #[test]
    fn arbitrary_json_is_read_or_refused_and_never_panics(
        keys in prop::collection::vec(".{0,12}", 0..4),
        table in prop::sample::select(&TOUCHED[..]),
        drawn in plans::drawn(),
    ) {
        let plan = plan(&drawn);
        let mut value = Value::from("x");
        for key in keys.iter().rev() {
            value = serde_json::json!({key: value, "": [value]});
        }
        let text = serde_json::json!({table: value}).to_string();
        let read = sonic().read(&plan, &text);
        prop_assert!(read.is_ok());
        if let Ok(change) = sonic().change(&plan, &text) {
            prop_assert!(sonic().apply(&text, &change.forward).is_ok());
        }
        prop_assert!(sonic().read(&plan, &text[1..]).is_err());
    }
}

#[test]
fn the_export_is_canonical() {
    assert_eq!(sonic().apply(RUNNING, "").as_deref(), Ok(RUNNING));
}

#[test]
fn every_mistake_is_named_by_its_rule() {
    let plan = broken::plan(target());
    let good = sonic().render(&plan);
    assert_eq!(findings(&plan, &good), Vec::<String>::new());
    for broken in broken::all(broken::SONIC) {
        let found = findings(&plan, &broken.text(&parsed(&good)));
        let rule = format!("{}: ", broken.rule);
        let named = found.iter().any(|text| text.starts_with(&rule));
        let who = if broken.by_models {
            "models, lint"
        } else {
            "lint"
        };
        println!("{}: {}, refused by {who}", broken.what, broken.rule);
        assert!(named, "{} is no {rule}{found:?}", broken.what);
    }
}
