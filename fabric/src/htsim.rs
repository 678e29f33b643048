//! Topology files of htsim (`.topo`): fat trees and leaf-spines.
//!
//! ```text
//! Nodes 128                    hosts
//! Tiers 3                      2: edge and aggregation switches; 3: cores too
//! Podsize 16                   hosts of a pod
//! Tier 0                       edge switches; a block for each tier, in any order
//! Downlink_speed_Gbps 100      of the links below this tier
//! Downlink_Latency_ns 1000     likewise
//! Radix_Down 4                 ports down
//! Radix_Up 4                   ports up; not of the highest tier
//! Oversubscribed 1             Radix_Down / Radix_Up, rounded down; 1 by default
//! Bundle 1                     parallel links to each switch below; 1 by default
//! Switch_Latency_ns 0          0 by default
//! Queue_Down 512000            bytes of a port; one size for all ports
//! Queue_Up 512000              likewise
//! ```
//!
//! Keys may be in upper or lower case; a line that begins with `#` is a comment. The meaning is
//! that of `FatTreeTopologyCfg` in ultraethernet/uet-htsim, `sim/datacenter/fat_tree_topology.cpp`:
//! the port counts determine the `Radix_Up / Bundle` aggregation switches of a pod, and the cores
//! likewise. The conditions that htsim asserts are checked here, too, but a missing
//! `Oversubscribed` is derived from the ports.
//!
//! The delay of a switch is put on its links, half on the one that a packet arrives by and half on
//! the one that it leaves by, so that every path takes as long as in htsim.

use std::collections::BTreeMap;

use gradwire_protocol::job::spelling::{did_you_mean, nearest};
use gradwire_protocol::units::{ByteCount, Rate, Share, Span};

use crate::policy::SwitchBuffer;
use crate::settings::{HOSTS_MAX, LINKS_MAX, Settings};
use crate::topology::Fabric;
use crate::tree::{Tree, Wire};

/// The reason why a topology file of htsim is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HtsimError {
    /// No such key at this place.
    #[error(
        "line {line}: unknown key `{given}` in {place}{}; known keys are {known}",
        did_you_mean(*.nearest)
    )]
    UnknownKey {
        /// Line of the text, from 1.
        line: usize,
        /// The key as written.
        given: String,
        /// "the header" or a tier.
        place: String,
        /// The known key with the most similar spelling, if any.
        nearest: Option<&'static str>,
        /// All keys of the place.
        known: String,
    },
    /// A value that is not a number, or outside its range.
    #[error("line {line}: {key} {given}: allowed is one whole number from {least} to {most}")]
    Value {
        /// Line of the text, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// Its value as written.
        given: String,
        /// Least that is allowed.
        least: u32,
        /// Most that is allowed.
        most: u32,
    },
    /// A key that occurs twice at one place.
    #[error("line {line}: {key} is given already in line {before}; once is allowed")]
    Twice {
        /// Line of the text, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// Line of its first occurrence.
        before: usize,
    },
    /// A missing key.
    #[error("{place} has no {key}; add `{key} NUMBER`")]
    Missing {
        /// "the header" or a tier.
        place: String,
        /// The key.
        key: &'static str,
    },
    /// A number that contradicts the others.
    #[error("line {line}: {key} {given} does not fit the other numbers: {rule}")]
    Mismatch {
        /// Line of the text, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// Its value.
        given: u32,
        /// The condition that it breaks.
        rule: String,
    },
    /// More links than can be simulated.
    #[error(
        "the numbers of ports and bundles make more than {} links; that is the most",
        LINKS_MAX
    )]
    TooLarge,
}

/// A key, and the range of its value.
struct Key(&'static str, std::ops::RangeInclusive<u32>);

const HEADER: [Key; 3] = [
    Key("Nodes", 1..=HOSTS_MAX as u32),
    Key("Tiers", 2..=3),
    Key("Podsize", 1..=HOSTS_MAX as u32),
];
const TIER: [Key; 9] = [
    Key(SPEED, 1..=10_000),
    Key(LATENCY, 0..=1_000_000_000),
    Key(DOWN, 1..=65_536),
    Key(UP, 1..=65_536),
    Key("Oversubscribed", 1..=65_536),
    Key("Bundle", 1..=65_536),
    Key("Switch_Latency_ns", 0..=1_000_000_000),
    Key("Queue_Down", 1..=u32::MAX),
    Key("Queue_Up", 1..=u32::MAX),
];
const SPEED: &str = "Downlink_speed_Gbps";
const LATENCY: &str = "Downlink_Latency_ns";
const DOWN: &str = "Radix_Down";
const UP: &str = "Radix_Up";

/// A number and its line.
#[derive(Clone, Copy, Debug)]
struct Given {
    value: u32,
    line: usize,
}

/// The keys of the header, or of a tier.
#[derive(Debug, Default)]
struct Block(BTreeMap<&'static str, Given>);

impl Block {
    fn or(&self, key: &str, default: u32) -> u32 {
        self.0.get(key).map_or(default, |given| given.value)
    }

    fn required(&self, place: &str, key: &'static str) -> Result<Given, HtsimError> {
        self.0.get(key).copied().ok_or_else(|| HtsimError::Missing {
            place: place.to_owned(),
            key,
        })
    }
}

impl Fabric {
    /// The fabric of a topology file of htsim.
    pub fn from_htsim(text: &str) -> Result<Self, HtsimError> {
        let file = Topology::read(text)?;
        let tiers = file.header.required("the header", "Tiers")?.value as usize;
        let tree = file.tree(tiers)?;
        if !tree.fits() {
            return Err(HtsimError::TooLarge);
        }
        let kinds = match tiers {
            2 => ["leaf", "spine", ""],
            _ => ["edge", "agg", "core"],
        };
        let wires = file.wires(tiers)?;
        let graph = tree.graph(kinds, wires);
        let mut settings = Settings::default();
        if let Some(queue) = file.queue()? {
            settings.buffer = SwitchBuffer::PerPort(queue);
        }
        Ok(settings.fabric(format!("htsim topology of {} hosts", graph.hosts), graph))
    }
}

#[derive(Debug, Default)]
struct Topology {
    header: Block,
    tiers: [Block; 3],
}

impl Topology {
    fn read(text: &str) -> Result<Self, HtsimError> {
        let mut file = Self::default();
        let mut tier = None;
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.trim();
            let (key, value) = row.split_once(char::is_whitespace).unwrap_or((row, ""));
            if row.is_empty() || row.starts_with('#') {
                continue;
            }
            if key.eq_ignore_ascii_case("Tier") {
                let most = file.header.or("Tiers", 3) - 1;
                tier = Some(number(line, &Key("Tier", 0..=most), value)?.value as usize);
                continue;
            }
            let (keys, block) = match tier {
                None => (&HEADER[..], &mut file.header),
                Some(tier) => (&TIER[..], &mut file.tiers[tier]),
            };
            let known = keys.iter().find(|known| key.eq_ignore_ascii_case(known.0));
            let known = known.ok_or_else(|| unknown(line, key, tier, keys))?;
            let given = number(line, known, value)?;
            if let Some(before) = block.0.insert(known.0, given) {
                return Err(HtsimError::Twice {
                    line,
                    key: known.0,
                    before: before.line,
                });
            }
        }
        Ok(file)
    }

    /// The value of a tier's key, which must be present.
    fn at(&self, tier: usize, key: &'static str) -> Result<Given, HtsimError> {
        self.tiers[tier].required(&place(Some(tier)), key)
    }

    fn tree(&self, tiers: usize) -> Result<Tree, HtsimError> {
        let hosts = self.header.required("the header", "Nodes")?;
        let podsize = self.header.required("the header", "Podsize")?;
        let edge = self.at(0, DOWN)?;
        divides(hosts, "Nodes", podsize.value, "Podsize")?;
        divides(podsize, "Podsize", edge.value, "Radix_Down of tier 0")?;
        let bundle = |tier: usize| self.tiers[tier].or("Bundle", 1);
        if bundle(0) != 1 {
            let given = self.at(0, "Bundle")?;
            return Err(given.refused("Bundle", "a host has one link".to_owned()));
        }
        let up = |tier: usize| {
            let ports = self.at(tier, UP)?;
            divides(ports, UP, bundle(tier + 1), "the Bundle of the tier above")?;
            self.check_oversubscribed(tier, ports.value)?;
            Ok(ports.value / bundle(tier + 1))
        };
        let tree = Tree {
            pods: hosts.value / podsize.value,
            edges: podsize.value / edge.value,
            hosts: edge.value,
            aggs: up(0)?,
            cores: if tiers == 3 { up(1)? } else { 0 },
            bundles: [bundle(1), bundle(2)],
        };
        self.check_down(1, tree.edges, "edge switches of a pod")?;
        if tiers == 3 {
            self.check_down(2, tree.pods, "pods")?;
        }
        Ok(tree)
    }

    /// A switch has a bundle to each of `below` switches.
    fn check_down(&self, tier: usize, below: u32, what: &str) -> Result<(), HtsimError> {
        let bundle = self.tiers[tier].or("Bundle", 1);
        let ports = self.at(tier, DOWN)?;
        if u64::from(ports.value) == u64::from(below) * u64::from(bundle) {
            return Ok(());
        }
        let needed = format!("{below} {what} in bundles of {bundle} need {below} x {bundle} ports");
        Err(ports.refused(DOWN, needed))
    }

    fn check_oversubscribed(&self, tier: usize, up: u32) -> Result<(), HtsimError> {
        let ratio = self.at(tier, DOWN)?.value / up;
        match self.tiers[tier].0.get("Oversubscribed") {
            Some(given) if given.value != ratio => {
                let rule = format!("Radix_Down / Radix_Up of the tier is {ratio}");
                Err(given.refused("Oversubscribed", rule))
            }
            _ => Ok(()),
        }
    }

    /// The links below each tier.
    fn wires(&self, tiers: usize) -> Result<[Wire; 3], HtsimError> {
        let mut wires = [Wire {
            rate: Rate::default(),
            latency: Span::ZERO,
            loss: Share::NONE,
        }; 3];
        let inside = |tier: usize| {
            let nanos = self.tiers[tier].or("Switch_Latency_ns", 0);
            Span::from_nanos(nanos.into()).divided(2)
        };
        for (tier, wire) in wires.iter_mut().enumerate().take(tiers) {
            let below = if tier == 0 {
                Span::ZERO
            } else {
                inside(tier - 1)
            };
            let latency = Span::from_nanos(self.at(tier, LATENCY)?.value.into());
            wire.rate = Rate::from_gbps(self.at(tier, SPEED)?.value.into());
            wire.latency = latency + inside(tier) + below;
        }
        Ok(wires)
    }

    /// The one size of all queues, if the file has one.
    fn queue(&self) -> Result<Option<ByteCount>, HtsimError> {
        let keys = ["Queue_Down", "Queue_Up"];
        let tiers = self.tiers.iter();
        let all = tiers.flat_map(|tier| keys.map(|key| tier.0.get(key).map(|given| (key, *given))));
        let mut all = all.flatten();
        let Some((_, first)) = all.next() else {
            return Ok(None);
        };
        match all.find(|(_, given)| given.value != first.value) {
            None => Ok(Some(ByteCount::new(first.value.into()))),
            Some((key, given)) => {
                let rule = format!(
                    "all ports have one size here, and line {} says {}",
                    first.line, first.value
                );
                Err(given.refused(key, rule))
            }
        }
    }
}

impl Given {
    fn refused(&self, key: &'static str, rule: String) -> HtsimError {
        HtsimError::Mismatch {
            line: self.line,
            key,
            given: self.value,
            rule,
        }
    }
}

fn divides(given: Given, key: &'static str, by: u32, what: &str) -> Result<(), HtsimError> {
    if given.value.is_multiple_of(by) {
        return Ok(());
    }
    Err(given.refused(key, format!("it must be a multiple of {by}, {what}")))
}

fn place(tier: Option<usize>) -> String {
    tier.map_or_else(|| "the header".to_owned(), |tier| format!("tier {tier}"))
}

fn number(line: usize, key: &Key, given: &str) -> Result<Given, HtsimError> {
    let value = given.trim().parse().ok();
    let value = value.filter(|value| key.1.contains(value));
    let value = value.ok_or_else(|| HtsimError::Value {
        line,
        key: key.0,
        given: given.trim().to_owned(),
        least: *key.1.start(),
        most: *key.1.end(),
    })?;
    Ok(Given { value, line })
}

fn unknown(line: usize, given: &str, tier: Option<usize>, keys: &'static [Key]) -> HtsimError {
    let known = || keys.iter().map(|key| key.0).chain(["Tier"]);
    HtsimError::UnknownKey {
        line,
        given: given.to_owned(),
        place: place(tier),
        nearest: nearest(given, known()),
        known: known().collect::<Vec<_>>().join(", "),
    }
}
