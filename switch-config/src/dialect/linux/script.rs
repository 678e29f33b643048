//! Runs a script of tc commands on a state, one command after the other, as tc would.
//!
//! This is not a shell: it understands the commands that gradwire writes, and values that people
//! change in them. A command that tc would refuse, or that refers to a missing object, is a
//! finding.

mod filters;
mod queues;

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::export::shortened;
use super::object;
use super::state::{FilterAct, ROOT, TcPort, TcState};
use crate::lint::{Finding, Rule};

use filters::{check_filter, filter};
use queues::{add_class, add_qdisc};

/// A mistake in one command: the rule that it breaks, and an explanation.
type Mistake = (Rule, String);

/// Starts the lines of an inverse that quote a port's export; see [`super::change`].
pub(super) const HAD: &str = "#| ";

/// Runs a script on a state. Returns the mistakes in it.
pub(super) fn run(switch: &mut TcState, script: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut last: Option<String> = None;
    let mut lines = (1..).zip(script.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(had) = line.strip_prefix(HAD) {
            if let Some(name) = &last {
                let port: &mut TcPort = switch.port_mut(name);
                port.text.push_str(had);
                port.text.push('\n');
            }
            continue;
        }
        if let Some(name) = object_name(line) {
            let body = lines.by_ref().map(|(_, line)| line);
            let body: String = body.take_while(|line| *line != "END").collect();
            let bytes = BASE64_STANDARD.decode(body).unwrap_or_default();
            let whole = object::name_of(&bytes) == name;
            switch.objects.insert(name.to_owned(), whole);
            continue;
        }
        match run_line(switch, line) {
            Ok(port) => last = port.or(last),
            Err((rule, text)) => findings.push(Finding::new(rule, format!("line {number}"), text)),
        }
    }
    findings
}

/// NAME of `base64 -d >"$objects"/NAME <<'END'`.
fn object_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("base64 -d >\"$objects\"/")?;
    rest.strip_suffix(" <<'END'")
}

/// How lines start that are for the shell and change no port.
const OTHERS: [&str; 7] = ["set ", ": ", "grep ", "objects=", "trap ", "mkdir ", "rm "];

/// Runs a line. Returns the port that it changes.
fn run_line(switch: &mut TcState, line: &str) -> Result<Option<String>, Mistake> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') || OTHERS.iter().any(|one| line.starts_with(one)) {
        return Ok(None);
    }
    if let Some((value, path)) = setting(line) {
        if let Some(known) = switch.settings.get_mut(path) {
            value.clone_into(known);
        } else {
            switch.settings.insert(path.to_owned(), value.to_owned());
        }
        return Ok(None);
    }
    let words = shlex::split(line).unwrap_or_default();
    let mut words = words.iter().map(String::as_str).peekable();
    while words
        .next_if(|word| word.starts_with("TC_BPF_MNT="))
        .is_some()
    {}
    if words.next() != Some("tc") {
        let text = format!("not understood: `{}`", shortened(line));
        return Err((Rule::Schema, text));
    }
    let words: Vec<&str> = words.take_while(|word| !word.starts_with("2>")).collect();
    let (verb, dev) = match words.as_slice() {
        [_, verb, "dev", dev, ..] => (*verb, *dev),
        _ => return Err(schema("a command of tc says `OBJECT VERB dev PORT …`")),
    };
    let objects = switch.objects.clone();
    let port = switch.port_mut(dev);
    let rest = &words[4..];
    match (words[0], verb) {
        ("qdisc", "del" | "delete") if rest.first() == Some(&ROOT) => port.clear(),
        ("qdisc", "add" | "replace") => add_qdisc(port, rest)?,
        ("class", "add" | "replace") => add_class(port, rest)?,
        ("filter", "add" | "replace") => {
            let filter = filter(rest)?;
            check_filter(port, &filter)?;
            if let FilterAct::Program { object, .. } = &filter.act
                && !objects.contains_key(object)
            {
                let text = format!("{object} is not in the script");
                return Err((Rule::Dangling, text));
            }
            port.filters.insert(filter);
        }
        (object, verb) => return Err(schema(&format!("`tc {object} {verb}` is none of ours"))),
    }
    port.text.clear();
    Ok(Some(dev.to_owned()))
}

/// Value and path of `[ ! -e PATH ] || echo 1 >PATH`.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (_, echo) = line.strip_prefix("[ ! -e ")?.split_once("|| echo ")?;
    let (value, path) = echo.split_once('>')?;
    Some((value.trim(), path.trim()))
}

fn schema(text: &str) -> Mistake {
    (Rule::Schema, text.to_owned())
}

/// A class that a command refers to must be there.
fn check_class(port: &TcPort, class: &str) -> Result<(), Mistake> {
    let (handle, number) = class.split_once(':').unwrap_or((class, ""));
    let handle = format!("{handle}:");
    let Some(above) = port.qdiscs.get(&handle) else {
        return Err((Rule::Dangling, format!("{class}: there is no {handle}")));
    };
    if above.kind == "htb" {
        return match port.classes.contains_key(class) {
            true => Ok(()),
            false => Err((Rule::Dangling, format!("there is no class {class}"))),
        };
    }
    let bands = above.number("bands").unwrap_or(0);
    let band = u64::from_str_radix(number, 16).unwrap_or(0);
    match (1..=bands).contains(&band) {
        true => Ok(()),
        false => Err((
            Rule::QueueRange,
            format!("{class}: {handle} has the bands 1 to {bands:x}"),
        )),
    }
}

/// Reads options: pairs of names and whole numbers.
fn options(
    kind: &str,
    words: &[&str],
    known: &[&str],
) -> Result<BTreeMap<String, String>, Mistake> {
    let mut options = BTreeMap::new();
    let mut words = words.iter();
    while let Some(name) = words.next() {
        if !known.contains(name) {
            return Err(schema(&format!("{kind} has no option `{name}`")));
        }
        let value = words.next().copied().unwrap_or_default();
        if value.is_empty() || !value.chars().all(|c| c.is_ascii_digit()) {
            return Err(schema(&format!(
                "{kind} {name} `{value}`: write a whole number"
            )));
        }
        options.insert((*name).to_owned(), value.to_owned());
    }
    Ok(options)
}
