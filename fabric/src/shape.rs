//! Fabrics in one line: `fat-tree:k=16@100G`, `leaf-spine:9x16x4@100G/400G,mtu=9000`.
//!
//! ```text
//! SHAPE:SIZE@RATE[,OPTION=VALUE]...          RATE of all links, or HOST RATE/RATE BETWEEN SWITCHES
//!
//! fat-tree:k=K                    three tiers of switches with K ports (Al-Fares et al., SIGCOMM
//!                                 2008): K pods of K/2 edge and K/2 aggregation switches, K²/4
//!                                 cores, K³/4 hosts
//! leaf-spine:LEAVESxHOSTSxSPINES  HOSTS of each leaf, every leaf linked once to every spine
//! rail:SERVERSxRAILS[xSPINES]     GPU r of every server is a host on rail switch r; every rail
//!                                 switch is linked once to every spine. As many spines as
//!                                 servers by default, so that no uplink is oversubscribed. GPU r
//!                                 of server s is host s x RAILS + r; links within a server are
//!                                 not part of the fabric
//! servers:SERVERSxGPUS            GPUs of a server at a switch of its own (NVLink), and from there
//!                                 a link for each GPU to a rail switch: a leaf-spine of servers
//!                                 whose spines are rails. Host s x GPUS + g is GPU g of server s
//! single:HOSTS                    one switch
//! ```
//!
//! Options may follow the size or the rate. `over=N`, for a fat-tree only, oversubscribes edge
//! switches N : 1: each has K/2/N uplinks, and a pod as many aggregation switches, as htsim's
//! `Oversubscribed`. The others are those of [`options`].

use gradwire_protocol::job::spelling::{did_you_mean, nearest};
use gradwire_protocol::units::Rate;

use crate::graph::Graph;
use crate::settings::{self, RATE_ALLOWED, SETTINGS, Settings};
use crate::topology::{Device, Fabric};
use crate::tree::{Tree, Wire};

/// The reason why a one-line form is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// No such shape.
    #[error(
        "unknown shape `{given}`{}; known shapes are {}, as in fat-tree:k=16@100G",
        did_you_mean(*.nearest),
        FORMS.map(|form| form.name).join(", ")
    )]
    Unknown {
        /// The shape as written.
        given: String,
        /// The known shape with the most similar spelling, if any.
        nearest: Option<&'static str>,
    },
    /// A size that the shape cannot have.
    #[error("{shape}:{given}: allowed are {allowed}")]
    Size {
        /// The shape.
        shape: &'static str,
        /// Its size as written.
        given: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// No rate.
    #[error("{shape} has no rate; behind an @ allowed are {allowed}")]
    NoRate {
        /// The shape.
        shape: &'static str,
        /// The allowed values.
        allowed: String,
    },
    /// A rate that cannot be read.
    #[error("rate `{given}` of {shape}: allowed behind the @ are {allowed}")]
    Rate {
        /// The shape.
        shape: &'static str,
        /// The rate as written.
        given: String,
        /// The allowed values.
        allowed: String,
    },
    /// No such option.
    #[error("unknown option `{given}`{}; known options are {known}", did_you_mean(*.nearest))]
    UnknownOption {
        /// The option as written.
        given: String,
        /// The known option with the most similar spelling, if any.
        nearest: Option<&'static str>,
        /// All options of the shape.
        known: String,
    },
    /// A value that an option cannot have.
    #[error("{option}={given}: allowed are {allowed}")]
    Value {
        /// The option.
        option: &'static str,
        /// Its value as written.
        given: String,
        /// The allowed values.
        allowed: String,
    },
}

/// A shape: its size in words, and how the size is read.
struct Form {
    name: &'static str,
    allowed: &'static str,
    /// Names of its switches, from the hosts up.
    kinds: [&'static str; 3],
    /// The tree of a size; `None` when the size is not allowed.
    tree: fn(&str) -> Option<Tree>,
}

const FORMS: [&Form; 5] = [&FAT_TREE, &LEAF_SPINE, &RAIL, &SERVERS, &SINGLE];
const FAT_TREE: Form = Form {
    name: "fat-tree",
    allowed: "k=K with an even K from 2 to 64, such as fat-tree:k=16@100G",
    kinds: ["edge", "agg", "core"],
    tree: |size| {
        let k: u32 = size.strip_prefix("k=")?.parse().ok()?;
        let half = (k.is_multiple_of(2) && (2..=64).contains(&k)).then_some(k / 2)?;
        Some(Tree {
            pods: k,
            cores: half,
            ..Tree::two_tier(half, half, half)
        })
    },
};
const LEAF_SPINE: Form = Form {
    name: "leaf-spine",
    allowed: "LEAVESxHOSTSxSPINES, each at least 1, of at most 65536 hosts, \
              such as leaf-spine:9x16x4@100G",
    kinds: ["leaf", "spine", ""],
    tree: |size| match counts(size)?[..] {
        [leaves, hosts, spines] => Some(Tree::two_tier(leaves, hosts, spines)),
        _ => None,
    },
};
const RAIL: Form = Form {
    name: "rail",
    allowed: "SERVERSxRAILS or SERVERSxRAILSxSPINES, each at least 1, of at most 65536 hosts, \
              such as rail:8x8@400G",
    kinds: ["rail", "spine", ""],
    tree: |size| match counts(size)?[..] {
        [servers, rails] => Some(Tree::two_tier(rails, servers, servers)),
        [servers, rails, spines] => Some(Tree::two_tier(rails, servers, spines)),
        _ => None,
    },
};
const SERVERS: Form = Form {
    name: "servers",
    allowed: "SERVERSxGPUS, each at least 1, of at most 65536 hosts, \
              such as servers:8x8@3600G/400G",
    kinds: ["server", "rail", ""],
    tree: |size| match counts(size)?[..] {
        [servers, gpus] => Some(Tree::two_tier(servers, gpus, gpus)),
        _ => None,
    },
};
const SINGLE: Form = Form {
    name: "single",
    allowed: "a number of hosts from 1 to 65536, such as single:64@25G",
    kinds: ["switch", "", ""],
    tree: |size| match counts(size)?[..] {
        [hosts] => Some(Tree::two_tier(1, hosts, 0)),
        _ => None,
    },
};

/// Numbers above zero with an `x` between them.
fn counts(size: &str) -> Option<Vec<u32>> {
    let count = |text: &str| text.parse().ok().filter(|count| *count > 0);
    size.split('x').map(count).collect()
}

/// The shapes: each name, and the sizes allowed after its colon.
pub fn shapes() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMS.into_iter().map(|form| (form.name, form.allowed))
}

/// The options of shapes: name, purpose, allowed values.
pub fn options() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let settings = SETTINGS.iter();
    let settings = settings.map(|setting| (setting.name, setting.doc, setting.allowed));
    settings.chain([(
        "over",
        "How many times more bytes an edge switch of a fat-tree can get than pass on; 1 by \
         default.",
        "the numbers that divide K/2",
    )])
}

impl Fabric {
    /// The fabric of a one-line form.
    pub fn from_shape(text: &str) -> Result<Self, ShapeError> {
        let shape = Shape::read(text)?;
        let mut fabric = shape.fabric()?;
        let faults = shape.settings.core_faults(&mut fabric);
        faults.map_err(|refused| ShapeError::Value {
            option: refused.option,
            given: refused.given.to_string(),
            allowed: refused.allowed(),
        })?;
        Ok(fabric)
    }
}

/// A one-line form, parsed.
pub(super) struct Shape {
    text: String,
    form: &'static Form,
    tree: Tree,
    rates: [Rate; 2],
    /// Oversubscription of a fat-tree's edge switches: rate from hosts over rate of uplinks.
    pub(super) over: u32,
    pub(super) settings: Settings,
}

impl Shape {
    pub(super) fn read(text: &str) -> Result<Self, ShapeError> {
        let text = text.trim();
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let form = FORMS.into_iter().find(|form| form.name == name);
        let form = form.ok_or_else(|| ShapeError::Unknown {
            given: name.to_owned(),
            nearest: nearest(name, FORMS.iter().map(|form| form.name)),
        })?;
        let (sized, rated) = rest.split_once('@').unwrap_or((rest, ""));
        let mut behind_size = sized.split(',');
        let mut behind_rate = rated.split(',');
        let size = behind_size.next().unwrap_or("").trim();
        let rates = behind_rate.next().unwrap_or("").trim();
        let tree = (form.tree)(size).filter(Tree::fits);
        let mut shape = Self {
            text: text.to_owned(),
            form,
            tree: tree.ok_or_else(|| ShapeError::Size {
                shape: form.name,
                given: size.to_owned(),
                allowed: form.allowed,
            })?,
            rates: form.rates(rates)?,
            over: 1,
            settings: Settings::default(),
        };
        for option in behind_size.chain(behind_rate) {
            shape.set(option.trim())?;
        }
        Ok(shape)
    }

    fn set(&mut self, option: &str) -> Result<(), ShapeError> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if name == "over" && self.has_over() {
            self.over = value.parse().map_err(|_| self.over_refused(value))?;
            return Ok(());
        }
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| self.unknown(name))?;
        (setting.set)(&mut self.settings, value).ok_or_else(|| ShapeError::Value {
            option: setting.name,
            given: value.to_owned(),
            allowed: setting.allowed.to_owned(),
        })
    }

    /// Whether edge switches can be oversubscribed by a factor. In other shapes the counts decide.
    fn has_over(&self) -> bool {
        self.form.name == FAT_TREE.name
    }

    fn unknown(&self, name: &str) -> ShapeError {
        let over = self.has_over().then_some("over");
        let settings = SETTINGS.iter().map(|setting| setting.name);
        let known: Vec<&'static str> = settings.chain(over).collect();
        ShapeError::UnknownOption {
            given: name.to_owned(),
            nearest: nearest(name, known.iter().copied()),
            known: known.join(", "),
        }
    }

    fn over_refused(&self, given: &str) -> ShapeError {
        let half = self.tree.edges;
        let divisors = (1..=half).filter(|over| half.is_multiple_of(*over));
        let divisors: Vec<String> = divisors.map(|over| over.to_string()).collect();
        ShapeError::Value {
            option: "over",
            given: given.to_owned(),
            allowed: match self.has_over() {
                true => format!("{}, which divide the {half} uplinks", divisors.join(", ")),
                false => format!("1; the counts of a {} say the rest", self.form.name),
            },
        }
    }

    pub(super) fn fabric(&self) -> Result<Fabric, ShapeError> {
        let mut tree = self.tree;
        if self.over != 1 {
            let allowed = self.has_over() && self.over != 0 && tree.aggs.is_multiple_of(self.over);
            if !allowed {
                return Err(self.over_refused(&self.over.to_string()));
            }
            tree.aggs /= self.over;
        }
        let wire = |rate| Wire {
            rate,
            latency: self.settings.latency,
            loss: self.settings.loss,
        };
        let [host, between] = self.rates.map(wire);
        let mut graph = tree.graph(self.form.kinds, [host, between, between]);
        if self.form.name == RAIL.name {
            number_by_server(&mut graph, tree.edges);
        }
        Ok(self.settings.fabric(self.text.clone(), graph))
    }
}

impl Form {
    fn rates(&self, given: &str) -> Result<[Rate; 2], ShapeError> {
        let between_switches = self.name != SINGLE.name;
        let one = settings::rate(given).map(|rate| [rate, rate]);
        let two = |(slash, _)| {
            let host = settings::rate(&given[..slash])?;
            Some([host, settings::rate(&given[slash + 1..])?])
        };
        let two = given.match_indices('/').find_map(two);
        let rates = one.or_else(|| two.filter(|_| between_switches));
        let allowed = || match between_switches {
            true => format!("{RATE_ALLOWED}, or the hosts' rate / that between switches"),
            false => RATE_ALLOWED.to_owned(),
        };
        rates.ok_or_else(|| match given {
            "" => ShapeError::NoRate {
                shape: self.name,
                allowed: allowed(),
            },
            _ => ShapeError::Rate {
                shape: self.name,
                given: given.to_owned(),
                allowed: allowed(),
            },
        })
    }
}

/// Numbers hosts server by server instead of switch by switch.
fn number_by_server(graph: &mut Graph, rails: u32) {
    let (hosts, servers) = (graph.hosts, graph.hosts / rails);
    let by_switch = graph.links[..hosts as usize].to_vec();
    for (number, link) in (0..).zip(&mut graph.links[..hosts as usize]) {
        let (server, rail) = (number / rails, number % rails);
        *link = by_switch[(rail * servers + server) as usize];
        link.ends[0] = Device::Host(number);
    }
}
