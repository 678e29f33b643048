//! The keys of a `fabric.toml` and of its tables: names, sentences, forms.

use gradwire_protocol::job::form::{FormKey, KeyNeed, ValueForm};

use crate::settings::{self, LATENCY_ALLOWED, LOSS_ALLOWED, RATE_ALLOWED, SETTINGS};

/// The kinds of faults.
pub(super) const KINDS: &str = "failed, degraded, gray, flap";

/// The keys of a file, some of which are [`SETTINGS`].
pub(super) fn keys() -> Vec<FormKey> {
    let settings = SETTINGS.iter().map(|setting| {
        let meaning = format!("{} Allowed: {}.", setting.doc, setting.allowed);
        optional(setting.name, &meaning, (setting.form)())
    });
    let mut keys = vec![
        optional(
            "name",
            "Name of the fabric, for people; the shape by default.",
            ValueForm::Text(""),
        ),
        optional(
            "shape",
            "The fabric in one line, such as \"fat-tree:k=8@100G\"; without it, [[switch]] and \
             [[link]] describe the fabric.",
            ValueForm::Text(""),
        ),
        optional(
            "oversubscription",
            "How many times the hosts' rate exceeds the uplinks' in a fat-tree; 1 by default.",
            ValueForm::AnyOf(vec![
                ValueForm::Whole(1..=u64::MAX),
                ValueForm::Text("^[0-9]+$"),
            ]),
        ),
    ];
    keys.extend(settings);
    let table = |name, meaning: &str, form| optional(name, meaning, form);
    let list = |keys| ValueForm::List(Box::new(ValueForm::Table(keys)), 0..=usize::MAX);
    let ends = "by the first words of the switches' names, or by their tiers, the lower one first; \
                `host` has those of hosts.";
    keys.extend([
        table(
            "rates",
            &format!("With a shape: rates of some links, {ends} Allowed: {RATE_ALLOWED}."),
            ValueForm::Named(Box::new(settings::rate_form())),
        ),
        table(
            "latencies",
            &format!("With a shape: latencies of some links, {ends} Allowed: {LATENCY_ALLOWED}."),
            ValueForm::Named(Box::new(ValueForm::span())),
        ),
        table("switch", "A switch, without a shape.", list(switch_keys())),
        table(
            "link",
            "A link, without a shape; hosts are numbered from 0.",
            list(link_keys()),
        ),
        table(
            "fault",
            "A link that is missing, slow or lossy, or that comes and goes.",
            list(fault_keys()),
        ),
    ]);
    keys
}

/// The keys of a `[[switch]]`.
pub(super) fn switch_keys() -> Vec<FormKey> {
    vec![
        required(
            "name",
            "A name of its own, such as \"leaf 0\".",
            ValueForm::Text(""),
        ),
        optional(
            "tier",
            "Its tier, 0 to 255; by default its distance from the hosts.",
            ValueForm::AnyOf(vec![ValueForm::Whole(0..=255), ValueForm::Text("^[0-9]+$")]),
        ),
    ]
}

/// The keys of a `[[link]]`.
pub(super) fn link_keys() -> Vec<FormKey> {
    vec![
        required(
            "ends",
            "The two devices, such as [\"host 0\", \"leaf 0\"].",
            ValueForm::List(Box::new(ValueForm::Text("")), 2..=2),
        ),
        required(
            "rate",
            &format!("Its rate: {RATE_ALLOWED}."),
            settings::rate_form(),
        ),
        optional(
            "latency",
            &format!("Its time on the wire: {LATENCY_ALLOWED}; that of the file by default."),
            ValueForm::span(),
        ),
        optional(
            "loss",
            &format!("Its share of lost packets: {LOSS_ALLOWED}; that of the file by default."),
            ValueForm::share(),
        ),
    ]
}

/// The keys of a `[[fault]]`; which of them it has depends on its kind.
fn fault_keys() -> Vec<FormKey> {
    let times = || {
        let one = ValueForm::span;
        let list = ValueForm::List(Box::new(one()), 1..=usize::MAX);
        ValueForm::AnyOf(vec![one(), list])
    };
    vec![
        required(
            "link",
            "All links between two devices, such as \"edge 0.0 - agg 0.1\", or that of \"host 5\"; \
             \"edge 0.0 -> agg 0.1\" is one direction.",
            ValueForm::Text(""),
        ),
        required(
            "kind",
            "Not there, of another rate, lossy, or coming and going.",
            ValueForm::Words(KINDS.split(", ").collect()),
        ),
        optional(
            "rate",
            "Of a degraded link: the rate that is left.",
            settings::rate_form(),
        ),
        optional(
            "loss",
            "Of a gray link: the share of packets that it loses.",
            ValueForm::share(),
        ),
        optional("down_at", "Of a flap: when the link goes down.", times()),
        optional("up_at", "Of a flap: when it comes up again.", times()),
    ]
}

/// The names of keys.
pub(super) fn names(keys: &[FormKey]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

fn optional(name: &'static str, meaning: &str, form: ValueForm) -> FormKey {
    FormKey {
        name,
        meaning: meaning.to_owned(),
        default: None,
        need: KeyNeed::Optional,
        form,
    }
}

fn required(name: &'static str, meaning: &str, form: ValueForm) -> FormKey {
    FormKey {
        need: KeyNeed::Required,
        ..optional(name, meaning, form)
    }
}
