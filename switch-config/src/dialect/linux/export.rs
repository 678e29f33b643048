//! Exports of a Linux switch: a line `port NAME`, and after it the output of tc and the kernel.
//!
//! [`command`] is the shell command that prints an export. Disciplines and filters are in JSON.
//! Classes are text, since tc has no JSON for them before iproute2 6.2. The numbers of a program
//! are as bpffs shows them. [`write()`] makes an export from a state.

mod write;

use std::fmt::Write;

use serde_json::{Map, Value};

use super::form::LinuxForm;
use super::object::STATE_PATH;
use super::render::{HASHING, quoted};
use super::state::{FilterAct, HtbClass, Qdisc, ROOT, TcFilter, TcPort, TcState, read_size};
use crate::plan::Plan;
use crate::reading::ReadError;

pub(super) use write::write;

/// The discipline whose filters the export command asks for by parent: tc then omits the parent.
const ASKED: &str = "2:";
/// The name of this format in errors.
pub(super) const EXPORT_FORMAT: &str = "export of tc";

/// Whether an export has counters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ExportCounters {
    /// Configuration only.
    Without,
    /// Configuration and counters.
    With,
}

/// The command that exports the ports of a plan, for people to run on the switch.
pub(super) fn command(plan: &Plan, counters: ExportCounters) -> String {
    let ports: Vec<String> = plan
        .site
        .ports
        .iter()
        .map(|port| quoted(&port.name))
        .collect();
    let statistics = match counters {
        ExportCounters::Without => "",
        ExportCounters::With => "-s ",
    };
    let more = match (LinuxForm::of(plan), counters) {
        (LinuxForm::Lab, _) => format!(" tc -j filter show dev \"$p\" parent {ASKED};"),
        (LinuxForm::Bpf, ExportCounters::With) => {
            format!(" cat \"${{BPFFS:-/sys/fs/bpf}}/gradwire/$p/{STATE_PATH}\";")
        }
        _ => String::new(),
    };
    let [ipv4, ipv6] = HASHING;
    format!(
        "for p in {}; do echo \"port $p\"; tc {statistics}-d -j qdisc show dev \"$p\"; \
         tc {statistics}class show dev \"$p\"; tc -j filter show dev \"$p\";{more} done; \
         grep -sH . {ipv4} {ipv6}",
        ports.join(" ")
    )
}

/// Reads an export.
///
/// # Errors
/// [`ReadError`] names the first line that tc would not print.
pub(super) fn read(text: &str) -> Result<TcState, ReadError> {
    let mut switch = TcState::default();
    let mut current: Option<TcPort> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |message: &str| ReadError::at(EXPORT_FORMAT, number, message);
        if let Some(name) = line.strip_prefix("port ") {
            finish(&mut switch, current.take())
                .map_err(|name| wrong(&format!("port {name} is there twice")))?;
            current = Some(TcPort {
                name: name.trim().to_owned(),
                ..TcPort::default()
            });
        } else if let Some((path, value)) = setting(line) {
            switch.settings.insert(path.to_owned(), value.to_owned());
            continue;
        }
        let Some(port) = &mut current else {
            if line.trim().is_empty() || add_of_devices(&mut switch, line) {
                continue;
            }
            return Err(wrong(
                "should be `port NAME`; `gradwire switch verify` tells the command that exports",
            ));
        };
        if setting(line).is_none() {
            let _ = writeln!(port.text, "{line}");
            add_line(port, line).map_err(|message| wrong(&message))?;
        }
    }
    let lines = text.lines().count();
    let twice = |name| format!("port {name} is there twice");
    finish(&mut switch, current)
        .map_err(|name| ReadError::at(EXPORT_FORMAT, lines, twice(name)))?;
    if switch.ports.is_empty() {
        let text =
            "it says nothing of any port; `gradwire switch verify` tells the command that exports";
        return Err(ReadError::new(EXPORT_FORMAT, text));
    }
    Ok(switch)
}

/// Reads a line of `tc -j qdisc show` without device: all devices in one list, each with its name.
/// It is enough for reading counters. Returns whether the line is one.
fn add_of_devices(switch: &mut TcState, line: &str) -> bool {
    let Ok(objects) = serde_json::from_str::<Vec<Map<String, Value>>>(line) else {
        return false;
    };
    for object in &objects {
        let added = text_of(object, "dev").map(|dev| add_qdisc(switch.port_mut(dev), object));
        if !matches!(added, Some(Ok(()))) {
            return false;
        }
    }
    true
}

fn finish(switch: &mut TcState, port: Option<TcPort>) -> Result<(), String> {
    let Some(port) = port else {
        return Ok(());
    };
    match switch.port(&port.name) {
        Some(_) => Err(port.name),
        None => {
            switch.ports.push(port);
            Ok(())
        }
    }
}

/// `/proc/sys/…:1`, as grep prints it.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (path, value) = line.split_once(':')?;
    path.starts_with("/proc/sys/").then(|| (path, value.trim()))
}

fn add_line(port: &mut TcPort, line: &str) -> Result<(), String> {
    let start = line.trim_start();
    let is_detail = start.len() < line.len() || start.is_empty();
    if is_detail || line.starts_with('#') || line.starts_with("port ") {
        return Ok(());
    }
    if line.starts_with('[') {
        return add_objects(port, line);
    }
    if let Some(numbers) = line.strip_prefix("0: ") {
        port.numbers = numbers_of(numbers)?;
        return Ok(());
    }
    if let Some(class) = line.strip_prefix("class ") {
        return add_class(port, class);
    }
    Err(format!("tc does not write `{}`", shortened(line)))
}

/// The first words of a line, for an error.
pub(super) fn shortened(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(60).collect()
}

fn numbers_of(text: &str) -> Result<Vec<u64>, String> {
    let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
    let parts = inner
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let numbers: Result<Vec<u64>, _> = parts.map(str::parse).collect();
    numbers.map_err(|_| "the program's numbers are not numbers".to_owned())
}

fn add_objects(port: &mut TcPort, line: &str) -> Result<(), String> {
    let values = serde_json::Deserializer::from_str(line).into_iter::<Vec<Map<String, Value>>>();
    for objects in values {
        let objects = objects.map_err(|error| format!("is no list of JSON objects: {error}"))?;
        for object in objects {
            match object.contains_key("protocol") {
                true => port.filters.extend(filter(&object)),
                false => add_qdisc(port, &object)?,
            }
        }
    }
    Ok(())
}

fn text_of<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

fn add_qdisc(port: &mut TcPort, object: &Map<String, Value>) -> Result<(), String> {
    let (Some(kind), Some(handle)) = (text_of(object, "kind"), text_of(object, "handle")) else {
        return Err("a queueing discipline has no kind or no handle".to_owned());
    };
    let parent = text_of(object, "parent").unwrap_or(ROOT);
    let options = object.get("options").and_then(Value::as_object);
    let options = options.into_iter().flatten();
    let counts = object.iter();
    let counts = counts.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)));
    let qdisc = Qdisc {
        kind: kind.to_owned(),
        handle: handle.to_owned(),
        parent: parent.to_owned(),
        options: options
            .map(|(name, value)| (name.clone(), plain(value)))
            .collect(),
        counts: counts.collect(),
    };
    let key = match qdisc.is_default() {
        true => format!("0:{parent}"),
        false => handle.to_owned(),
    };
    port.qdiscs.insert(key, qdisc);
    Ok(())
}

/// A value of JSON as words: `7 7 7`, `true`, and `0x12` as `12`.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_start_matches("0x").to_owned(),
        Value::Array(values) => {
            let words: Vec<String> = values.iter().map(plain).collect();
            words.join(" ")
        }
        other => other.to_string(),
    }
}

/// A filter; `None` for objects that only head the filters after them.
fn filter(object: &Map<String, Value>) -> Option<TcFilter> {
    let options = object.get("options")?.as_object()?;
    if options.contains_key("ht_divisor") {
        return None;
    }
    let number = |value: &Value, name: &str| {
        let text = value.get(name)?.as_str()?;
        u32::from_str_radix(text, 16).ok()
    };
    let bits = || {
        let found = options.get("match")?;
        Some(FilterAct::Bits {
            at: found.get("off")?.as_i64()?,
            mask: number(found, "mask")?,
            value: number(found, "value")?,
            class: text_of(options, "flowid")?.to_owned(),
        })
    };
    let program = || {
        let object = text_of(options, "bpf_name")?.split(':').next()?;
        Some(FilterAct::Program {
            object: object.to_owned(),
            direct: options.get("direct-action") == Some(&Value::Bool(true)),
        })
    };
    let kind = text_of(object, "kind").unwrap_or_default();
    let act = match kind {
        "u32" => bits(),
        "bpf" => program(),
        _ => None,
    };
    Some(TcFilter {
        pref: object.get("pref")?.as_u64()? as u32,
        parent: text_of(object, "parent").unwrap_or(ASKED).to_owned(),
        protocol: text_of(object, "protocol").unwrap_or_default().to_owned(),
        act: act.unwrap_or_else(|| {
            FilterAct::Other(format!("{kind} {}", Value::from(options.clone())))
        }),
    })
}

/// `htb 1:11 parent 1:1 leaf 11: prio 0 rate 8Kbit ceil 10Gbit burst 1600b cburst 1600b`.
fn add_class(port: &mut TcPort, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (Some(kind), Some(number)) = (words.first(), words.get(1)) else {
        return Err("a class has no number".to_owned());
    };
    if *kind != "htb" {
        return Ok(());
    }
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).map(|word| (*word).to_owned())
    };
    let class = HtbClass {
        parent: after("parent").unwrap_or_else(|| ROOT.to_owned()),
        turn: after("prio")
            .and_then(|turn| turn.parse().ok())
            .unwrap_or(0),
        rate: after("rate").ok_or("a class of htb has no rate")?,
        ceil: after("ceil").ok_or("a class of htb has no ceil")?,
        bursts: ["burst", "cburst"].map(|name| {
            let size = after(name);
            size.as_deref().and_then(read_size).unwrap_or(0)
        }),
    };
    port.classes.insert((*number).to_owned(), class);
    Ok(())
}
