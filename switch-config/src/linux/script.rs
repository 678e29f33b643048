//! What tc would make of a script: its commands, one after the other, on ports as they are.
//!
//! Not a shell: what gradwire writes is understood, and what people change in it. What tc would
//! refuse, or what leads nowhere, is a finding.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::export::shortened;
use super::object;
use super::state::{FilterAct, HtbClass, Qdisc, ROOT, TcFilter, TcPort, TcState, shown_rate};
use crate::lint::{Finding, Rule};

/// A mistake in one command, without its place.
type Mistake = (Rule, String);

/// Marks lines of an inverse that say what a port had; see [`super::change`].
pub(super) const HAD: &str = "#| ";

/// Runs a script on what is there.
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

/// `base64 -d >"$objects"/NAME <<'END'`.
fn object_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("base64 -d >\"$objects\"/")?;
    rest.strip_suffix(" <<'END'")
}

/// Shell commands that a script has besides those of tc.
const OTHERS: [&str; 7] = ["set ", ": ", "grep ", "objects=", "trap ", "mkdir ", "rm "];

/// Runs a line; returns the port that it is about.
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
    let words = words(line);
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

/// `[ ! -e PATH ] || echo 1 >PATH`.
fn setting(line: &str) -> Option<(&str, &str)> {
    let (_, echo) = line.strip_prefix("[ ! -e ")?.split_once("|| echo ")?;
    let (value, path) = echo.split_once('>')?;
    Some((value.trim(), path.trim()))
}

fn schema(text: &str) -> Mistake {
    (Rule::Schema, text.to_owned())
}

/// Words of a command, without their quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut open = None;
    let mut quoted = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, open) {
            (quote, Some(mark)) if quote == mark => open = None,
            (letter, Some(_)) => word.push(letter),
            ('\'' | '"', None) => (open, quoted) = (Some(letter), true),
            ('\\', None) => word.extend(letters.next()),
            (blank, None) if blank.is_whitespace() => {
                if quoted || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                quoted = false;
            }
            (letter, None) => word.push(letter),
        }
    }
    if quoted || !word.is_empty() {
        words.push(word);
    }
    words
}

/// Where something is put: `root handle 1: REST` or `parent 1:1 handle 11: REST`.
fn placed<'a>(words: &'a [&'a str]) -> Result<(String, String, &'a [&'a str]), Mistake> {
    match words {
        [ROOT, "handle", handle, rest @ ..] => Ok((ROOT.to_owned(), (*handle).to_owned(), rest)),
        ["parent", parent, "handle", handle, rest @ ..] => {
            Ok(((*parent).to_owned(), (*handle).to_owned(), rest))
        }
        _ => Err(schema(
            "a queueing discipline stands at `root handle H` or `parent P handle H`",
        )),
    }
}

fn add_qdisc(port: &mut TcPort, words: &[&str]) -> Result<(), Mistake> {
    let (parent, handle, rest) = placed(words)?;
    let Some((kind, rest)) = rest.split_first() else {
        return Err(schema("the kind of a queueing discipline is missing"));
    };
    if port.qdiscs.contains_key(&handle) {
        return Err(schema(&format!("handle {handle} is there already")));
    }
    if parent == ROOT {
        port.qdiscs.retain(|_, qdisc| !qdisc.is_default());
    } else {
        check_class(port, &parent)?;
        if let Some(other) = port.leaf(&parent) {
            let text = format!("class {parent} has {} {} already", other.kind, other.handle);
            return Err((Rule::Schema, text));
        }
    }
    let options = match *kind {
        "prio" => bands(rest)?,
        "red" => red(rest)?,
        "bfifo" | "pfifo" => options(kind, rest, &["limit"])?,
        "htb" => options(kind, rest, &["default"])?,
        other => {
            return Err(schema(&format!(
                "queueing discipline {other} is none of ours"
            )));
        }
    };
    let qdisc = Qdisc {
        kind: (*kind).to_owned(),
        handle: handle.clone(),
        parent,
        options,
        counts: BTreeMap::new(),
    };
    port.qdiscs.insert(handle, qdisc);
    Ok(())
}

/// A class that something is put below, or that packets are sent to, must be there.
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

/// Pairs of names and whole numbers.
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

/// The most bands that there are (linux/pkt_sched.h, `TCQ_PRIO_BANDS`).
const BANDS_MOST: u64 = 16;

fn bands(words: &[&str]) -> Result<BTreeMap<String, String>, Mistake> {
    let at = words.iter().position(|word| *word == "priomap");
    let (front, map) = words.split_at(at.unwrap_or(words.len()));
    let mut found = options("prio", front, &["bands"])?;
    let bands: u64 = match found.get("bands") {
        Some(bands) => bands.parse().unwrap_or(u64::MAX),
        None => return Err(schema("prio needs `bands`")),
    };
    if !(2..=BANDS_MOST).contains(&bands) {
        return Err(schema(&format!(
            "prio bands {bands}: allowed are 2 to {BANDS_MOST}"
        )));
    }
    let map = map.get(1..).unwrap_or_default();
    let inside = |word: &&str| word.parse::<u64>().is_ok_and(|band| band < bands);
    if map.len() != 16 || !map.iter().all(inside) {
        let text = format!("prio priomap: write 16 bands from 0 to {}", bands - 1);
        return Err((Rule::Schema, text));
    }
    found.insert("priomap".to_owned(), map.join(" "));
    Ok(found)
}

/// Options of red, and `ewma`, which tc computes from them.
fn red(words: &[&str]) -> Result<BTreeMap<String, String>, Mistake> {
    const FLAGS: [&str; 4] = ["ecn", "harddrop", "nodrop", "adaptive"];
    let (flags, pairs): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| FLAGS.contains(word));
    let known = [
        "limit",
        "min",
        "max",
        "probability",
        "avpkt",
        "burst",
        "bandwidth",
    ];
    let bare = |word: &&str| word.strip_suffix("bit").unwrap_or(word).to_owned();
    let pairs: Vec<String> = pairs.iter().map(bare).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    let mut found = options("red", &pairs, &known)?;
    let number = |name: &str| -> Result<f64, Mistake> {
        let text = found
            .get(name)
            .ok_or_else(|| schema(&format!("red needs `{name}`")))?;
        text.parse()
            .map_err(|_| schema(&format!("red {name} {text}: too large")))
    };
    let [limit, low, high] = [number("limit")?, number("min")?, number("max")?];
    let [packet, burst] = [number("avpkt")?, number("burst")?];
    if low > high {
        let text = format!("red min {low} is above max {high}: swap them");
        return Err((Rule::ThresholdOrder, text));
    }
    if high > limit {
        let text = format!("red max {high} is above limit {limit}: the queue is full before");
        return Err((Rule::PoolSize, text));
    }
    let Some(weight) = average(low, burst, packet) else {
        let text = format!("red burst {burst} is less than min / avpkt: tc refuses it");
        return Err((Rule::Schema, text));
    };
    for name in ["probability", "avpkt", "burst", "bandwidth"] {
        found.remove(name);
    }
    found.insert("ewma".to_owned(), weight.to_string());
    found.extend(
        flags
            .iter()
            .map(|flag| ((*flag).to_owned(), "true".to_owned())),
    );
    Ok(found)
}

/// The exponent n of W = 2^-n that makes an average of `burst` packets, as tc finds it; `None`
/// where it finds none (Floyd and Jacobson, IEEE/ACM ToN 1993, section 6).
fn average(low: f64, burst: f64, packet: f64) -> Option<u32> {
    let excess = burst + 1.0 - low / packet;
    if excess < 1.0 {
        return None;
    }
    (1..32).find(|exponent| {
        let weight = 0.5_f64.powi(*exponent as i32);
        excess <= (1.0 - (1.0 - weight).powf(burst)) / weight
    })
}

/// `parent 1:1 classid 1:11 htb prio 0 … rate 8000bit ceil 10000000000bit …`.
fn add_class(port: &mut TcPort, words: &[&str]) -> Result<(), Mistake> {
    let ["parent", parent, "classid", class, "htb", rest @ ..] = words else {
        return Err(schema("a class is `parent P classid C htb …`"));
    };
    let parent = match parent.strip_suffix(':') {
        Some(_) => {
            let there = port
                .qdiscs
                .get(*parent)
                .is_some_and(|above| above.kind == "htb");
            if !there {
                return Err((Rule::Dangling, format!("there is no htb {parent}")));
            }
            ROOT.to_owned()
        }
        None => {
            check_class(port, parent)?;
            (*parent).to_owned()
        }
    };
    let known = ["prio", "quantum", "rate", "ceil", "burst", "cburst"];
    let bare = |word: &&str| word.strip_suffix("bit").unwrap_or(word).to_owned();
    let rest: Vec<String> = rest.iter().map(bare).collect();
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let found = options("htb", &rest, &known)?;
    let number = |name: &str| found.get(name).and_then(|text| text.parse::<u64>().ok());
    let rate = number("rate").ok_or_else(|| schema("a class of htb needs `rate`"))?;
    let turn = number("prio").unwrap_or(0);
    if turn > 7 {
        return Err(schema(&format!("htb prio {turn}: allowed are 0 to 7")));
    }
    let made = HtbClass {
        parent,
        turn: turn as u8,
        rate: shown_rate(rate),
        ceil: shown_rate(number("ceil").unwrap_or(rate)),
        bursts: ["burst", "cburst"].map(|name| number(name).unwrap_or(0)),
    };
    match port.classes.insert((*class).to_owned(), made) {
        Some(_) => Err(schema(&format!("class {class} is there already"))),
        None => Ok(()),
    }
}

/// `parent 1: protocol ip pref 20 u32 match ip dsfield 0xb8 0xfc flowid 1:1`.
fn filter(words: &[&str]) -> Result<TcFilter, Mistake> {
    let [
        "parent",
        parent,
        "protocol",
        protocol,
        "pref",
        pref,
        kind,
        rest @ ..,
    ] = words
    else {
        return Err(schema(
            "a filter is `parent P protocol N pref N u32 …` or `… bpf …`",
        ));
    };
    let act = match *kind {
        "u32" => bits(rest)?,
        "bpf" => program(rest)?,
        other => return Err(schema(&format!("filter {other} is none of ours"))),
    };
    Ok(TcFilter {
        pref: pref
            .parse()
            .map_err(|_| schema(&format!("pref `{pref}`: write a number")))?,
        parent: (*parent).to_owned(),
        protocol: (*protocol).to_owned(),
        act,
    })
}

fn bits(words: &[&str]) -> Result<FilterAct, Mistake> {
    let (mut at, mut mask, mut value, mut class) = (0, 0, 0, None);
    let mut rest = words;
    while !rest.is_empty() {
        let (offset, shift, [found, which], more) = match rest {
            ["match", "ip", "dsfield", found, which, more @ ..] => (0, 16, [found, which], more),
            ["match", "ip6", "priority", found, which, more @ ..] => (0, 20, [found, which], more),
            ["match", "u32", found, which, more @ ..] => (0, 0, [found, which], more),
            ["match", "u8", found, which, "at", offset, more @ ..] => {
                let offset: i64 = offset.parse().map_err(|_| schema("`at` needs a number"))?;
                (offset & !3, 24 - 8 * (offset & 3), [found, which], more)
            }
            ["flowid", found, more @ ..] => {
                class = Some((*found).to_owned());
                rest = more;
                continue;
            }
            _ => return Err(schema(&format!("u32 does not know `{}`", rest.join(" ")))),
        };
        at = offset;
        value |= number(found)? << shift;
        mask |= number(which)? << shift;
        rest = more;
    }
    let class = class.ok_or_else(|| schema("a filter needs `flowid CLASS`"))?;
    Ok(FilterAct::Bits {
        at,
        mask,
        value,
        class,
    })
}

fn number(text: &str) -> Result<u32, Mistake> {
    let read = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    read.ok()
        .filter(|number| *number < 256)
        .ok_or_else(|| schema(&format!("`{text}`: write a number from 0 to 0xff")))
}

fn program(words: &[&str]) -> Result<FilterAct, Mistake> {
    let at = words.iter().position(|word| *word == "object-file");
    let path = at.and_then(|at| words.get(at + 1));
    let object = path.and_then(|path| path.rsplit('/').next());
    Ok(FilterAct::Program {
        object: object
            .ok_or_else(|| schema("bpf needs `object-file FILE`"))?
            .to_owned(),
        direct: words
            .iter()
            .any(|word| ["direct-action", "da"].contains(word)),
    })
}

fn check_filter(port: &TcPort, filter: &TcFilter) -> Result<(), Mistake> {
    if !port.qdiscs.contains_key(&filter.parent) {
        return Err((
            Rule::Dangling,
            format!("a filter stands at {}, which is not there", filter.parent),
        ));
    }
    if let FilterAct::Bits { class, .. } = &filter.act {
        check_class(port, class)?;
    }
    match port.filters.contains(filter) {
        true => Err(schema("the same filter is there already")),
        false => Ok(()),
    }
}
