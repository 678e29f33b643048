//! The ports of a switch as its export names them. A plan for ports that the switch does not have,
//! or at another speed than theirs, must not be loaded: [`SeenPorts::mistakes`].

use std::collections::BTreeMap;

use gradwire_protocol::units::Rate;

use crate::lint::{Finding, Rule};
use crate::plan::{Plan, SwitchPort};
use crate::tree::ConfigEntry;
use crate::tree::order::natural;

/// Ports that an error lists.
const LISTED: usize = 8;

/// Whether an export names every port of its switch.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PortListing {
    /// Only those that have settings.
    #[default]
    Partial,
    /// Every port.
    Whole,
}

/// The ports that an export names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SeenPorts {
    /// By name: the speed, where the export tells it.
    pub rates: BTreeMap<String, Option<Rate>>,
    /// Whether these are all.
    pub listing: PortListing,
}

impl SeenPorts {
    /// Every port of a switch; where an export names none, it tells nothing about ports.
    pub fn all(ports: impl IntoIterator<Item = (String, Option<Rate>)>) -> Self {
        let rates: BTreeMap<_, _> = ports.into_iter().collect();
        let listing = match rates.is_empty() {
            true => PortListing::Partial,
            false => PortListing::Whole,
        };
        Self { rates, listing }
    }

    /// The ports that have settings.
    pub fn some(ports: impl IntoIterator<Item = (String, Option<Rate>)>) -> Self {
        Self {
            rates: ports.into_iter().collect(),
            listing: PortListing::Partial,
        }
    }

    /// Ports of the plan that the switch does not have, or has at another speed.
    pub fn mistakes(&self, plan: &Plan) -> Vec<Finding> {
        let ports = plan.site.ports.iter();
        ports.filter_map(|port| self.mistake(port)).collect()
    }

    fn mistake(&self, port: &SwitchPort) -> Option<Finding> {
        match self.rates.get(&port.name) {
            None if self.listing == PortListing::Whole => {
                let text = format!(
                    "the export has no such port; name those of the plan with --ports: it has {}",
                    self.listed()
                );
                Some(Finding::new(Rule::PortAbsent, &port.name, text))
            }
            Some(Some(rate)) if *rate != port.rate => {
                let text = format!(
                    "runs at {rate} in the export, and at {} in the fabric, for which thresholds \
                     are computed: correct the fabric's link, or name another port with --ports",
                    port.rate
                );
                Some(Finding::new(Rule::PortSpeed, &port.name, text))
            }
            _ => None,
        }
    }

    /// The first ports, for people.
    fn listed(&self) -> String {
        let mut names: Vec<&str> = self.rates.keys().map(String::as_str).collect();
        names.sort_by(|one, other| natural(one, other));
        let more = names.len().saturating_sub(LISTED);
        names.truncate(LISTED);
        match more {
            0 => names.join(", "),
            _ => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// Ports that the plan does not have, to see the effect of a change on them.
    pub fn others(&self, plan: &Plan) -> Vec<SwitchPort> {
        let first = plan.site.ports.first().map(|port| port.rate);
        let others = self
            .rates
            .iter()
            .filter(|(name, _)| plan.site.ports.iter().all(|port| port.name != **name));
        let mut others: Vec<SwitchPort> = others
            .map(|(name, rate)| SwitchPort {
                name: name.clone(),
                rate: rate.or(first).unwrap_or_default(),
            })
            .collect();
        others.sort_by(|one, other| natural(&one.name, &other.name));
        others
    }
}

/// The ports of command lines: sections `interface Ethernet...`, with `speed ...` below them.
pub(crate) fn of_commands(tree: &[ConfigEntry]) -> SeenPorts {
    let interfaces = tree.iter().filter_map(|entry| {
        let name = entry.after("interface")?;
        let rate = entry.command("speed").and_then(speed);
        let is_port = name.starts_with("Ethernet") && !name.contains(['.', ',', '-']);
        is_port.then(|| (name.to_owned(), rate))
    });
    SeenPorts::all(interfaces)
}

/// A speed as platforms write it: `100000` (Mb/s), `100G`, `forced 100gfull`, `SPEED_100GB`.
pub(crate) fn speed(text: &str) -> Option<Rate> {
    let start = text.find(|letter: char| letter.is_ascii_digit())?;
    let text = &text[start..];
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let megabits = match text[digits..].chars().next() {
        Some('g' | 'G') => number.checked_mul(1000)?,
        None | Some('m' | 'M' | 'f') => number,
        Some(_) => return None,
    };
    Some(Rate::from_bits_per_second(megabits.checked_mul(1_000_000)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_platforms_write_them() {
        for (text, gbps) in [
            ("100000", 100),
            ("100G", 100),
            ("forced 100gfull", 100),
            ("100g-4", 100),
            ("SPEED_400GB", 400),
            ("forced 10000full", 10),
        ] {
            assert_eq!(speed(text), Some(Rate::from_gbps(gbps)), "{text}");
        }
        for text in ["auto", "", "99999999999999999999G", "10x"] {
            assert_eq!(speed(text), None, "{text}");
        }
    }
}
