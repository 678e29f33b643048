//! Commands that lead from an exported state to a plan, and back.
//!
//! - A port is changed only if it can be restored: either the kernel's own discipline is at its
//!   root, or commands can rebuild exactly the configuration that it has.
//! - The inverse also quotes the export of each port, line by line after `#|`, for people to
//!   compare.

use std::fmt::Write;

use super::export::EXPORT_FORMAT;
use super::render;
use super::script::{self, HAD};
use super::state::{FilterAct, HtbClass, Qdisc, ROOT, TcFilter, TcPort, TcState, read_rate};
use crate::change::ConfigChange;
use crate::plan::{Plan, SwitchPort};
use crate::reading::ReadError;

/// The scripts that lead from an exported state to the plan, and back.
///
/// # Errors
/// [`ReadError`] names a port that the export lacks, or whose configuration could not be restored.
pub(super) fn change(plan: &Plan, running: &TcState) -> Result<ConfigChange, ReadError> {
    let mut forward = String::new();
    let mut inverse = String::new();
    let mut wanted = TcState::default();
    script::run(&mut wanted, &render::script(plan));
    for (path, value) in &wanted.settings {
        let Some(now) = running.settings.get(path).filter(|now| *now != value) else {
            continue;
        };
        let _ = writeln!(forward, "[ ! -e {path} ] || echo {value} >{path}");
        let _ = writeln!(inverse, "[ ! -e {path} ] || echo {now} >{path}");
    }
    let mut changed = Vec::new();
    for port in &plan.site.ports {
        let found = running.port(&port.name);
        let found = found.ok_or_else(|| refused(port, "is not in the export".to_owned()))?;
        if wanted
            .port(&port.name)
            .is_some_and(|wanted| wanted.is_like(found))
        {
            continue;
        }
        inverse.push_str(&back(port, found)?);
        changed.push(port);
    }
    forward.push_str(&render::objects(plan, &changed));
    for port in changed {
        forward.push_str(&render::port(plan, port));
    }
    let whole = |text: String, way: &str| match text.is_empty() {
        true => text,
        false => format!(
            "#!/bin/sh\n# gradwire, {}: {way}\nset -eu\n{text}",
            plan.target
        ),
    };
    Ok(ConfigChange {
        forward: whole(forward, "what is to be changed"),
        inverse: whole(inverse, "back to what was there"),
    })
}

fn refused(port: &SwitchPort, message: String) -> ReadError {
    ReadError::new(EXPORT_FORMAT, format!("port {} {message}", port.name))
}

/// The commands that restore a port.
fn back(port: &SwitchPort, found: &TcPort) -> Result<String, ReadError> {
    let name = render::quoted(&port.name);
    let mut text = format!("\ntc qdisc del dev {name} root 2>/dev/null || true\n");
    if let Some(root) = found.root() {
        let lines = commands(&name, found);
        let mut again = TcState::default();
        script::run(&mut again, &lines);
        if !again
            .port(&port.name)
            .is_some_and(|again| again.is_like(found))
        {
            return Err(refused(
                port,
                format!(
                    "has {} {} at its root, which could not be put back afterwards: take it away \
                     yourself (tc qdisc del dev {name} root), or leave the port out of --ports",
                    root.kind, root.handle
                ),
            ));
        }
        text.push_str(&lines);
    }
    text.push_str("# What it had:\n");
    for line in found.text.lines() {
        let _ = writeln!(text, "{HAD}{line}");
    }
    Ok(text)
}

/// Commands that rebuild a port's configuration. What they cannot express is missing: the caller
/// compares.
fn commands(name: &str, port: &TcPort) -> String {
    let mut lines = Vec::new();
    let mut qdiscs: Vec<&Qdisc> = port.qdiscs.values().collect();
    qdiscs.retain(|qdisc| !qdisc.is_default() && !qdisc.is_ingress());
    let depth = |parent: &str| usize::from(parent != ROOT);
    qdiscs.sort_by_key(|qdisc| (depth(&qdisc.parent), qdisc.kind != "prio"));
    let mut classes: Vec<(&String, &HtbClass)> = port.classes.iter().collect();
    classes.sort_by_key(|(_, class)| depth(&class.parent));
    for qdisc in qdiscs {
        let place = match qdisc.parent.as_str() {
            ROOT => ROOT.to_owned(),
            parent => format!("parent {parent}"),
        };
        let Qdisc { kind, handle, .. } = qdisc;
        let options = options(qdisc);
        lines.push(format!(
            "tc qdisc add dev {name} {place} handle {handle} {kind}{options}"
        ));
        if qdisc.parent == ROOT {
            let rows = classes.iter();
            lines.extend(rows.filter_map(|(number, class)| class_line(name, number, class)));
        }
    }
    let filters = port.filters.iter();
    lines.extend(filters.filter_map(|filter| filter_line(name, filter)));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn options(qdisc: &Qdisc) -> String {
    let number = |name: &str| qdisc.number(name).map(|value| format!(" {name} {value}"));
    let mut text: String = match qdisc.kind.as_str() {
        "prio" => {
            let map = qdisc
                .options
                .get("priomap")
                .map(|map| format!(" priomap {map}"));
            [number("bands"), map].into_iter().flatten().collect()
        }
        "htb" => {
            let default = qdisc.options.get("default");
            default.map_or_else(String::new, |class| format!(" default {class}"))
        }
        _ => ["limit", "min", "max"]
            .into_iter()
            .filter_map(number)
            .collect(),
    };
    if qdisc.kind == "red" {
        let low = qdisc.number("min").unwrap_or(0);
        let _ = write!(
            text,
            " probability 1 avpkt 1 burst {low} bandwidth 1000000000bit"
        );
        for flag in ["ecn", "harddrop", "nodrop", "adaptive"] {
            if qdisc.is_on(flag) {
                let _ = write!(text, " {flag}");
            }
        }
    }
    text
}

fn class_line(name: &str, number: &str, class: &HtbClass) -> Option<String> {
    let HtbClass {
        parent,
        turn,
        rate,
        ceil,
        bursts,
    } = class;
    let parent = match parent.as_str() {
        ROOT => number
            .split_once(':')
            .map(|(handle, _)| format!("{handle}:"))?,
        parent => parent.to_owned(),
    };
    let [rate, ceil] = [read_rate(rate)?, read_rate(ceil)?];
    let bursts = ["burst", "cburst"].into_iter().zip(bursts);
    let bursts: String = bursts
        .filter(|(_, bytes)| **bytes > 0)
        .map(|(name, bytes)| format!(" {name} {bytes}"))
        .collect();
    Some(format!(
        "tc class add dev {name} parent {parent} classid {number} htb prio {turn} quantum 1514 \
         rate {rate}bit ceil {ceil}bit{bursts}"
    ))
}

fn filter_line(name: &str, filter: &TcFilter) -> Option<String> {
    let TcFilter {
        pref,
        parent,
        protocol,
        act,
    } = filter;
    let FilterAct::Bits {
        at,
        mask,
        value,
        class,
    } = act
    else {
        return None;
    };
    // Only the matches of our own filters can be written again: one field of a header.
    let selector = match (protocol.as_str(), at, mask) {
        ("arp", 0, 0) => "u32 0 0".to_owned(),
        ("ip", 0, 0xfc_0000) => format!("ip dsfield {:#04x} 0xfc", value >> 16),
        ("ipv6", 0, 0xfc0_0000) => format!("ip6 priority {:#04x} 0xfc", value >> 20),
        ("ipv6", 4, 0xffff) => format!(
            "u8 {} 0xff at 6 match u8 {} 0xff at 7",
            value >> 8,
            value & 0xff
        ),
        _ => return None,
    };
    Some(format!(
        "tc filter add dev {name} parent {parent} protocol {protocol} pref {pref} u32 \
         match {selector} flowid {class}"
    ))
}
