//! The state of tc on the ports, as far as plans are concerned: read from an export, and changed by
//! commands.
//!
//! [`TcPort::is_like`] compares configurations; it ignores counters and whatever the kernel rounds
//! or makes up.

use std::collections::{BTreeMap, BTreeSet};

/// The ports that were read, and settings of the kernel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TcState {
    /// Ports, in the order in which they stand.
    pub(super) ports: Vec<TcPort>,
    /// Settings of the kernel, by path.
    pub(super) settings: BTreeMap<String, String>,
    /// Object files of a script, by name: whether the bytes are those that the name stands for.
    pub(super) objects: BTreeMap<String, bool>,
}

impl TcState {
    /// The port of a name.
    pub(super) fn port(&self, name: &str) -> Option<&TcPort> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The port of a name, to be changed; added if it is not there.
    pub(super) fn port_mut(&mut self, name: &str) -> &mut TcPort {
        let at = self.ports.iter().position(|port| port.name == name);
        let at = at.unwrap_or_else(|| {
            self.ports.push(TcPort::new(name));
            self.ports.len() - 1
        });
        &mut self.ports[at]
    }
}

/// One port.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TcPort {
    /// Its name.
    pub(super) name: String,
    /// Queueing disciplines by handle; those that the kernel made, by parent.
    pub(super) qdiscs: BTreeMap<String, Qdisc>,
    /// Classes of HTB, by their number.
    pub(super) classes: BTreeMap<String, HtbClass>,
    /// Filters of the root and of `prio` below it.
    pub(super) filters: BTreeSet<TcFilter>,
    /// The numbers of the program's state; empty if the export has none.
    pub(super) numbers: Vec<u64>,
    /// The lines of the export about this port; empty once commands have changed the port.
    pub(super) text: String,
}

impl TcPort {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// The discipline at the root, unless it is the kernel's own.
    pub(super) fn root(&self) -> Option<&Qdisc> {
        let mut qdiscs = self.qdiscs.values();
        qdiscs.find(|qdisc| qdisc.parent == ROOT && !qdisc.is_default())
    }

    /// The discipline below a class.
    pub(super) fn leaf(&self, class: &str) -> Option<&Qdisc> {
        self.qdiscs.values().find(|qdisc| qdisc.parent == class)
    }

    /// Whether two ports are configured alike, apart from names and counters.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let tree = |port: &Self| -> Vec<(String, Qdisc)> {
            let qdiscs = port.qdiscs.iter();
            let ours = qdiscs.filter(|(_, qdisc)| !qdisc.is_default() && !qdisc.is_ingress());
            ours.map(|(handle, qdisc)| (handle.clone(), qdisc.configured()))
                .collect()
        };
        let classes = |port: &Self| -> Vec<(String, HtbClass)> {
            let classes = port.classes.iter();
            let classes = classes.map(|(number, class)| (number.clone(), class.configured()));
            classes.collect()
        };
        tree(self) == tree(other)
            && classes(self) == classes(other)
            && self.filters == other.filters
    }

    /// Removes the discipline at the root and everything below it.
    pub(super) fn clear(&mut self) {
        self.qdiscs.retain(|_, qdisc| qdisc.is_ingress());
        self.classes.clear();
        self.filters.clear();
        self.numbers.clear();
        self.text.clear();
    }
}

/// The parent of a discipline at the root.
pub(super) const ROOT: &str = "root";

/// A queueing discipline.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Qdisc {
    /// Its kind.
    pub(super) kind: String,
    /// Its handle: `1:`; `0:` where the kernel made it.
    pub(super) handle: String,
    /// The class that it serves, or [`ROOT`].
    pub(super) parent: String,
    /// Options by the names that an export gives them.
    pub(super) options: BTreeMap<String, String>,
    /// Counters, if the export has them.
    pub(super) counts: BTreeMap<String, u64>,
}

/// Options of each kind that make its configuration; an export shows more.
const OPTIONS: [(&str, &[&str]); 5] = [
    ("prio", &["bands", "priomap"]),
    (
        "red",
        &[
            "limit", "min", "max", "ecn", "harddrop", "adaptive", "nodrop", "ewma",
        ],
    ),
    ("bfifo", &["limit"]),
    ("pfifo", &["limit"]),
    ("htb", &["default"]),
];

impl Qdisc {
    /// Whether the kernel made it, and makes it again as soon as no other is there.
    pub(super) fn is_default(&self) -> bool {
        self.handle == "0:"
    }

    /// Whether it stands where packets come in, which plans do not touch.
    pub(super) fn is_ingress(&self) -> bool {
        self.handle == "ffff:"
    }

    /// A number among the options.
    pub(super) fn number(&self, option: &str) -> Option<u64> {
        self.options.get(option)?.parse().ok()
    }

    /// Whether an option is on.
    pub(super) fn is_on(&self, option: &str) -> bool {
        self.options
            .get(option)
            .is_some_and(|value| value == "true")
    }

    /// The configuration: without counters, and only with options that can be set.
    fn configured(&self) -> Self {
        let known = OPTIONS.iter().find(|(kind, _)| *kind == self.kind);
        let mut options = self.options.clone();
        if let Some((_, known)) = known {
            options.retain(|name, value| known.contains(&name.as_str()) && value != "false");
        }
        let counts = BTreeMap::new();
        Self {
            options,
            counts,
            ..self.clone()
        }
    }
}

/// A class of HTB.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct HtbClass {
    /// The class above it, or [`ROOT`].
    pub(super) parent: String,
    /// Its turn among the classes: 0 is served first.
    pub(super) turn: u8,
    /// The rate that it always gets, as tc shows it: `8Kbit`.
    pub(super) rate: String,
    /// The rate that it gets at most.
    pub(super) ceil: String,
    /// Bursts of `rate` and of `ceil` in bytes; the kernel rounds both.
    pub(super) bursts: [u64; 2],
}

impl HtbClass {
    /// The configuration, without the bursts that the kernel rounds.
    fn configured(&self) -> Self {
        Self {
            bursts: [0; 2],
            ..self.clone()
        }
    }
}

/// A filter: it sends packets to a class, or to a program.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TcFilter {
    /// Its preference: the lowest is asked first.
    pub(super) pref: u32,
    /// The discipline at which it stands.
    pub(super) parent: String,
    /// `ip`, `ipv6`, `arp`, `all`.
    pub(super) protocol: String,
    /// Match and action.
    pub(super) act: FilterAct,
}

/// Match and action of a filter.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum FilterAct {
    /// Packets with these bits at this offset of the network header go to a class.
    Bits {
        /// Offset in bytes, a multiple of four.
        at: i64,
        /// The bits to compare, of the four bytes at that offset.
        mask: u32,
        /// Their value.
        value: u32,
        /// The class.
        class: String,
    },
    /// A program decides.
    Program {
        /// Name of its object file.
        object: String,
        /// Whether its return value decides over the packet (`direct-action`).
        direct: bool,
    },
    /// A filter of another kind, which gradwire does not write.
    Other(String),
}

/// A rate as tc shows it. It divides by 1,000 as long as no digits are lost, and a rate of
/// 1,000,000 or more in any case.
pub(super) fn shown_rate(bits_per_second: u64) -> String {
    let mut rate = bits_per_second;
    let mut units = ["", "K", "M", "G", "T"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if rate < 1000 || (!rate.is_multiple_of(1000) && rate < 1_000_000) {
            break;
        }
        rate /= 1000;
        unit = larger;
    }
    format!("{rate}{unit}bit")
}

/// A rate that tc shows, in bits per second.
pub(super) fn read_rate(text: &str) -> Option<u64> {
    let text = text.strip_suffix("bit")?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes as tc shows it: `1600b`, `4Kb`, `2Mb`.
pub(super) fn read_size(text: &str) -> Option<u64> {
    let text = text.split('/').next()?.strip_suffix('b')?;
    let (digits, factor) = match (text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(digits), _) => (digits, 1 << 10),
        (_, Some(digits)) => (digits, 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}
