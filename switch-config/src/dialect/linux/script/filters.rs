//! The command `tc filter add`, for `u32` and `bpf`.

use super::super::state::{FilterAct, TcFilter, TcPort};
use super::{Mistake, check_class, schema};
use crate::lint::Rule;

/// Reads `parent 1: protocol ip pref 20 u32 match ip dsfield 0xb8 0xfc flowid 1:1`.
pub(super) fn filter(words: &[&str]) -> Result<TcFilter, Mistake> {
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

/// Reads `match … flowid CLASS`: several matches become one of four bytes.
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

/// A byte, decimal or after `0x`.
fn number(text: &str) -> Result<u32, Mistake> {
    let read = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    read.ok()
        .filter(|number| *number < 256)
        .ok_or_else(|| schema(&format!("`{text}`: write a number from 0 to 0xff")))
}

/// Reads `direct-action object-file FILE …`.
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

/// The discipline and the class of a filter must be there, and the filter must not.
pub(super) fn check_filter(port: &TcPort, filter: &TcFilter) -> Result<(), Mistake> {
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
