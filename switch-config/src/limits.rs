//! The abilities of a platform, and the source of each fact.
//!
//! A [`PlatformLimits`] is a table of data: each dialect has one per version, [`crate::plan`]
//! decides by it, and `gradwire switch platforms` prints it. Each fact names its source. The tables
//! of a platform are in its `limits.toml`: facts of all versions, those by which a version differs
//! from them, and remarks on all versions or on some.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;

/// A fact and where it is known from: a document, a schema, or a measurement.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// The document, schema or measurement that says so; where there is none, it admits that.
    pub source: String,
}

impl<T> Fact<T> {
    /// A fact with its source.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        let source = source.into();
        Self { value, source }
    }
}

/// The fate of not-ECT packets in a queue above its threshold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum NotEct {
    /// Drops them, and marks ECT packets. Gradwire's tags are made for this.
    DropsEarly,
    /// Keeps them until the queue is full: a second DSCP must tell them apart.
    DropsWhenFull,
    /// Keeps them and does not mark others either: a sending host, which has no thresholds.
    Kept,
    /// As [`Self::DropsEarly`] by all signs, but no document says so.
    ProbablyDropsEarly,
    /// No source was found; treated as [`Self::DropsWhenFull`].
    Unknown,
}

/// The unit of a threshold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Multiples of this many bytes.
    Bytes(u64),
    /// Whole percents of the memory that a port may take.
    PercentOfPort,
}

/// How thresholds are written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Thresholds {
    /// Their unit.
    pub unit: Unit,
    /// The least that can be written, in units.
    pub least: u64,
    /// The most that can be written, in units.
    pub most: u64,
    /// How far, in units, the upper threshold must at least be above the lower.
    pub apart: u64,
}

/// Dynamic thresholds of shared memory that can be written: powers of two.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Alphas {
    /// Exponent of the least.
    pub least: i8,
    /// Exponent of the most.
    pub most: i8,
}

/// Sizes to which packets can be trimmed, in bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Trims {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

/// The abilities of one version of a platform.
#[derive(Clone, Debug, Deserialize)]
pub struct PlatformLimits {
    /// Unicast queues of a port.
    pub queues: Fact<u8>,
    /// How thresholds are written.
    pub thresholds: Fact<Thresholds>,
    /// The fate of droppable packets that share a queue with protected ones.
    pub not_ect: Fact<NotEct>,
    /// Whether packets of one queue can be dropped by the drop precedence of their DSCP.
    pub drop_precedence: Fact<bool>,
    /// Whether a queue can mark ECT packets while another drop precedence of it drops; of these
    /// platforms cannot do both, so no plan asks for it.
    pub marks_beside_precedence: Fact<bool>,
    /// Whether a queue can have a share of the link beside others that keep their strict order;
    /// where not, each queue has a weight.
    pub order_beside_share: Fact<bool>,
    /// Whether a queue can mark ECT packets and drop others only when it is full.
    pub marks_without_drops: Fact<bool>,
    /// Dynamic thresholds of shared memory, where they can be written.
    pub alphas: Fact<Option<Alphas>>,
    /// Packet trimming, where there is any.
    pub trims: Fact<Option<Trims>>,
    /// How packets can be spread over equal paths, by the names of
    /// [`Balance`](gradwire_fabric::policy::Balance).
    pub balances: Fact<Vec<String>>,
    /// Remarks for people: one sentence each.
    #[serde(skip)]
    pub remarks: Vec<Fact<String>>,
}

/// A `limits.toml`.
#[derive(Deserialize)]
struct LimitsFile {
    all: Table,
    #[serde(default)]
    versions: BTreeMap<String, Table>,
    remarks: Vec<Remark>,
}

/// A remark, on these versions or on all.
#[derive(Deserialize)]
struct Remark {
    #[serde(default)]
    versions: Vec<String>,
    #[serde(flatten)]
    fact: Fact<String>,
}

impl PlatformLimits {
    /// The limits of a version, from the text of a `limits.toml`.
    pub(crate) fn of(version: &str, text: &str) -> Self {
        let file: LimitsFile = toml::from_str(text).expect("it is ours, and tests read it");
        let mut facts = file.all;
        facts.extend(file.versions.get(version).cloned().unwrap_or_default());
        let limits: Self = facts.try_into().expect("it is ours, and tests read it");
        let remarks = file.remarks.into_iter();
        let remarks = remarks.filter(|remark| {
            remark.versions.is_empty() || remark.versions.iter().any(|name| name == version)
        });
        Self {
            remarks: remarks.map(|remark| remark.fact).collect(),
            ..limits
        }
    }
}
