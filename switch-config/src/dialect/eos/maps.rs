//! The map of DSCPs: EOS prints one line for all DSCPs of a traffic class, and takes commands for
//! any of them. Changes are made DSCP by DSCP, so lines are spread before and gathered behind.

use std::collections::BTreeMap;
use std::fmt;

use crate::tree::ConfigEntry;
use crate::tree::order::natural;

/// The drop precedence of droppable packets: the one that goes first.
pub(super) const FIRST_TO_DROP: u8 = 2;
/// The words that begin a line of the map.
pub(super) const DSCP: &str = "qos map dscp";

/// Where packets of a DSCP go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DscpTarget {
    /// The traffic class.
    pub(super) class: u8,
    /// Whether they have the drop precedence that goes first.
    pub(super) drops_first: bool,
}

impl fmt::Display for DscpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "traffic-class {}", self.class)?;
        match self.drops_first {
            true => write!(f, " drop-precedence {FIRST_TO_DROP}"),
            false => Ok(()),
        }
    }
}

/// Lines of the map, one for each target, in natural order.
pub(super) fn lines(rows: impl Iterator<Item = (u8, String)>) -> Vec<ConfigEntry> {
    let mut dscps: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    rows.for_each(|(dscp, target)| dscps.entry(target).or_default().push(dscp));
    let lines = dscps.into_iter().map(|(target, mut dscps)| {
        dscps.sort_unstable();
        dscps.dedup();
        let dscps: Vec<String> = dscps.iter().map(u8::to_string).collect();
        let to = if target.is_empty() { "" } else { " to " };
        ConfigEntry::leaf(format!("{DSCP} {}{to}{target}", dscps.join(" ")))
    });
    let mut lines: Vec<ConfigEntry> = lines.collect();
    lines.sort_by(|one, other| natural(one.text(), other.text()));
    lines
}

/// The DSCPs and the target of a line of the map; a line of another form has none.
pub(super) fn split(line: &ConfigEntry) -> Option<(Vec<u8>, &str)> {
    let rest = line.after(DSCP)?;
    let (list, target) = rest.split_once(" to ").unwrap_or((rest, ""));
    let mut dscps = Vec::new();
    for word in list.split_whitespace().flat_map(|word| word.split(',')) {
        match word.split_once('-') {
            Some((first, last)) => {
                let (first, last): (u8, u8) = (first.parse().ok()?, last.parse().ok()?);
                dscps.extend(first..=last);
            }
            None => dscps.push(word.parse().ok()?),
        }
    }
    let is_class = target.is_empty() || target.starts_with("traffic-class ");
    (!dscps.is_empty() && is_class).then_some((dscps, target.trim()))
}

/// Makes one line for each DSCP.
pub(super) fn spread(tree: &mut Vec<ConfigEntry>) {
    let lines = std::mem::take(tree);
    *tree = lines.into_iter().flat_map(spread_line).collect();
}

fn spread_line(line: ConfigEntry) -> Vec<ConfigEntry> {
    let (prefix, bare) = prefix(&line);
    let Some((dscps, target)) = split(&bare) else {
        return vec![line];
    };
    let to = if target.is_empty() { "" } else { " to " };
    let lines = dscps
        .iter()
        .map(|dscp| ConfigEntry::leaf(format!("{prefix}{DSCP} {dscp}{to}{target}")));
    lines.collect()
}

/// `no `, `default ` or an empty word, and the line without it.
fn prefix(line: &ConfigEntry) -> (&'static str, ConfigEntry) {
    let mut words = ["no ", "default "].into_iter();
    let found = words.find_map(|word| Some((word, line.text().strip_prefix(word)?)));
    let (word, text) = found.unwrap_or_else(|| ("", line.text()));
    (word, ConfigEntry::leaf(text))
}

/// Makes one line for each target again, at the place of the first.
pub(super) fn gather(tree: &mut Vec<ConfigEntry>) {
    for prefix in ["", "no "] {
        gather_with(tree, prefix);
    }
}

fn gather_with(tree: &mut Vec<ConfigEntry>, wanted: &str) {
    let mut rows: Vec<(u8, String)> = Vec::new();
    let mut first = None;
    let mut rest = Vec::new();
    for line in std::mem::take(tree) {
        let (word, bare) = prefix(&line);
        match split(&bare).filter(|_| word == wanted) {
            Some((dscps, target)) => {
                first = first.or(Some(rest.len()));
                rows.extend(dscps.iter().map(|dscp| (*dscp, target.to_owned())));
            }
            None => rest.push(line),
        }
    }
    let mut gathered = lines(rows.into_iter());
    for line in &mut gathered {
        *line = ConfigEntry::leaf(format!("{wanted}{}", line.text()));
    }
    let at = first.unwrap_or(rest.len());
    rest.splice(at..at, gathered);
    *tree = rest;
}
