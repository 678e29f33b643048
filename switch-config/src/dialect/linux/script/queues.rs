//! The commands `tc qdisc add` and `tc class add`, for `prio`, `red`, `htb` and the two FIFOs.

use std::collections::BTreeMap;

use super::super::state::{HtbClass, Qdisc, ROOT, TcPort, shown_rate};
use super::{Mistake, check_class, options, schema};
use crate::lint::Rule;

/// Splits `root handle 1: REST` or `parent 1:1 handle 11: REST` into parent, handle and rest.
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

/// Adds the discipline of `root handle 1: prio …` or `parent 1:1 handle 11: red …`.
pub(super) fn add_qdisc(port: &mut TcPort, words: &[&str]) -> Result<(), Mistake> {
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

/// The most bands of `prio` (linux/pkt_sched.h, `TCQ_PRIO_BANDS`).
const BANDS_MOST: u64 = 16;

/// Options of prio.
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

/// Options of red. Instead of `probability`, `avpkt`, `burst` and `bandwidth` it has `ewma`, which
/// tc computes from them and which an export shows.
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

/// The exponent n of W = 2^-n that makes an average of `burst` packets, as tc computes it; `None`
/// if there is none (Floyd and Jacobson, IEEE/ACM ToN 1993, section 6).
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

/// Adds the class of `parent 1:1 classid 1:11 htb prio 0 … rate 8000bit ceil 10000000000bit …`.
pub(super) fn add_class(port: &mut TcPort, words: &[&str]) -> Result<(), Mistake> {
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
