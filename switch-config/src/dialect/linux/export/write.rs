//! Writes a state as tc would export it after the commands of a change.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::super::state::{FilterAct, HtbClass, Qdisc, ROOT, TcFilter, TcPort, TcState};

/// Writes an export. Ports that commands have changed are written as tc would show them, others as
/// they were read.
pub(crate) fn write(switch: &TcState) -> String {
    let mut text = String::new();
    for port in &switch.ports {
        match port.text.is_empty() {
            true => text.push_str(&port_text(port)),
            false => text.push_str(&port.text),
        }
    }
    for (path, value) in &switch.settings {
        let _ = writeln!(text, "{path}:{value}");
    }
    text
}

fn port_text(port: &TcPort) -> String {
    let qdiscs: Vec<Value> = port.qdiscs.values().map(qdisc_object).collect();
    let mut text = format!("port {}\n{}\n", port.name, json!(qdiscs));
    for (number, class) in &port.classes {
        let HtbClass {
            parent,
            turn,
            rate,
            ceil,
            bursts: [burst, cburst],
        } = class;
        let place = match (parent.as_str(), port.leaf(number)) {
            (ROOT, _) => "root".to_owned(),
            (_, Some(leaf)) => format!("parent {parent} leaf {} prio {turn}", leaf.handle),
            (_, None) => format!("parent {parent} prio {turn}"),
        };
        let _ = writeln!(
            text,
            "class htb {number} {place} rate {rate} ceil {ceil} burst {burst}b cburst {cburst}b"
        );
    }
    let filters: Vec<Value> = port.filters.iter().map(filter_object).collect();
    let _ = writeln!(text, "{}", json!(filters));
    text
}

fn qdisc_object(qdisc: &Qdisc) -> Value {
    let value = |name: &str, text: &str| match (name, text) {
        (_, "true") => json!(true),
        (_, "false") => json!(false),
        ("default", text) => json!(format!("0x{text}")),
        ("priomap", text) => {
            let bands: Vec<u64> = text
                .split(' ')
                .filter_map(|band| band.parse().ok())
                .collect();
            json!(bands)
        }
        (_, text) => text
            .parse::<u64>()
            .map_or_else(|_| json!(text), |number| json!(number)),
    };
    let options: BTreeMap<&String, Value> = qdisc
        .options
        .iter()
        .map(|(name, text)| (name, value(name, text)))
        .collect();
    match qdisc.parent.as_str() {
        ROOT => json!({
            "kind": qdisc.kind, "handle": qdisc.handle, "root": true, "options": options,
        }),
        parent => json!({
            "kind": qdisc.kind, "handle": qdisc.handle, "parent": parent, "options": options,
        }),
    }
}

fn filter_object(filter: &TcFilter) -> Value {
    let TcFilter {
        pref,
        parent,
        protocol,
        act,
    } = filter;
    let (kind, options) = match act {
        FilterAct::Bits {
            at,
            mask,
            value,
            class,
        } => {
            let [value, mask] = [value, mask].map(|bits| format!("{bits:x}"));
            (
                "u32",
                json!({"flowid": class, "match": {"value": value, "mask": mask, "off": at}}),
            )
        }
        FilterAct::Program { object, direct } => {
            let name = format!("{object}:[classifier]");
            ("bpf", json!({"bpf_name": name, "direct-action": direct}))
        }
        FilterAct::Other(text) => ("", json!({"what": text})),
    };
    json!({"parent": parent, "protocol": protocol, "pref": pref, "kind": kind, "options": options})
}
