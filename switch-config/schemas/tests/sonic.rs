//! What SONiC's models say of the configurations that we write for it, and of broken ones.

#[path = "../../tests/plans/mod.rs"]
mod plans;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rate, Span};
use gradwire_schemas::Models;
use gradwire_switch_config::dialect;
use gradwire_switch_config::lint;
use gradwire_switch_config::plan::{Plan, Port, Site};
use gradwire_switch_config::policy::{Buffer, QosPolicy};
use gradwire_switch_config::sonic::yang;
use gradwire_switch_config::target::{Platform, Target};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// A switch that runs something else, as it exports it.
const RUNNING: &str = include_str!("../../tests/exports/sonic.json");
/// Mistakes, one a line.
const BROKEN: &str = include_str!("sonic/broken.txt");

fn models() -> Models {
    Models::load("sonic", &yang::MODULES)
}

fn target() -> Target {
    Target::read("sonic").expect("it is known")
}

/// The default job on two ports that share memory, with trimming.
fn plan() -> Plan {
    let mut policy = QosPolicy::of_job(&Job::default(), Span::from_micros(14));
    policy.trims_to = Some(ByteCount::new(256));
    let dialect = dialect::of(Platform::Sonic);
    let port = |number| Port {
        name: dialect.port_name(number),
        rate: Rate::from_gbps(100),
    };
    let site = Site {
        origin: "a test".to_owned(),
        ports: vec![port(0), port(1)],
        buffer: Buffer::Shared {
            bytes: ByteCount::mib(16),
            alpha: 1.0,
        },
    };
    let limits = dialect.limits(target().version);
    Plan::new(target(), &limits, &policy, site).expect("the defaults fit")
}

/// Something that is done to a good configuration.
struct Broken {
    what: &'static str,
    /// Name of our rule.
    rule: &'static str,
    /// JSON pointer to what is set.
    path: &'static str,
    /// What it is set to; `-`: it is removed.
    value: &'static str,
    /// Whether the models refuse it, too.
    by_models: bool,
}

impl Broken {
    fn all() -> Vec<Self> {
        let mut by_models = true;
        let mut all = Vec::new();
        for line in BROKEN.lines() {
            if line.starts_with("== let through") {
                by_models = false;
            }
            if line.is_empty() || line.starts_with(['#', '=']) {
                continue;
            }
            let mut cells = line
                .split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty());
            let mut cell = || cells.next().expect("four cells");
            let [what, rule, path, value] = [cell(), cell(), cell(), cell()];
            all.push(Self {
                what,
                rule,
                path,
                value,
                by_models,
            });
        }
        all
    }

    fn text(&self, good: &Value) -> String {
        let mut value = good.clone();
        let (parent, key) = self.path.rsplit_once('/').expect("a pointer");
        let parent = value.pointer_mut(parent).expect("the parent is there");
        let parent = parent.as_object_mut().expect("an object");
        if self.value == "-" {
            parent.remove(key).expect("it is there");
        } else {
            let value = serde_json::from_str(self.value).expect("it is JSON");
            parent.insert(key.to_owned(), value);
        }
        value.to_string()
    }
}

#[test]
fn every_broken_configuration_is_refused_by_who_can_and_named() {
    let (models, plan, sonic) = (models(), plan(), dialect::of(Platform::Sonic));
    let rendered = sonic.render(&plan);
    let document = |text: &str| yang::document(text).expect("it is JSON");
    assert_eq!(models.judge_alike(&document(&rendered)), Ok(()));
    let good: Value = serde_json::from_str(&rendered).expect("it is JSON");
    for broken in Broken::all() {
        let text = broken.text(&good);
        let verdict = models.judge_alike(&document(&text));
        assert_eq!(
            verdict.is_err(),
            broken.by_models,
            "{}: {verdict:?}",
            broken.what
        );
        let reading = sonic.read(&plan, &text).expect("it is JSON");
        let findings = lint::findings(&plan, &reading);
        let named = findings.iter().any(|one| one.rule.name() == broken.rule);
        assert!(named, "{} is no {}: {findings:?}", broken.what, broken.rule);
    }
}

#[test]
fn the_models_accept_every_plan_alone_and_in_a_running_switch() {
    let (models, sonic) = (models(), dialect::of(Platform::Sonic));
    let judge = |text: &str| models.judge_alike(&yang::document(text).expect("it is JSON"));
    assert_eq!(judge(RUNNING), Ok(()));
    let mut runner = TestRunner::new(ProptestConfig {
        source_file: Some(file!()),
        ..ProptestConfig::with_cases(12)
    });
    let tried = runner.run(&plans::drawn(), |drawn| {
        let plan = drawn.plan(target());
        prop_assert_eq!(judge(&sonic.render(&plan)), Ok(()));
        let change = sonic.change(&plan, RUNNING).expect("it is CONFIG_DB");
        let after = sonic.apply(RUNNING, &change.forward).expect("made for it");
        prop_assert_eq!(judge(&after), Ok(()));
        Ok(())
    });
    tried.unwrap_or_else(|error| panic!("{error}"));
}
