//! The list of all keys: what each is for, what may be written, where the value goes.
//!
//! One row per key serves reading, checking, printing and comparing, so that none can be
//! forgotten. Values are read and shown by a [`Notation`], which also knows the allowed range.

use std::fmt::Write;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use toml::{Table, Value};

use super::notation::{self, ALGORITHMS, show_share, show_size, show_span};
use super::{
    AlgorithmChoice, Checksum, DropFrom, GrantWindow, HoleFilling, IdleMode, Job, JobError, Mtu,
    PacketSecurity,
};
use super::{GradientTransform, MetricsAccess, WireChoice};
use crate::priority::{SendOrder, UntaggedTraffic};
use crate::units::{ByteCount, Dscp, Rank, Share, Span};

/// One key of a job.
pub(super) struct JobKey {
    /// Dotted name.
    pub(super) name: &'static str,
    /// What it is for, in one line.
    doc: &'static str,
    /// What may be written.
    allowed: fn() -> String,
    /// Puts a value into its place; tells whether it is allowed.
    set: fn(&mut Job, &Value) -> Option<()>,
    /// The value as TOML.
    pub(super) show: fn(&Job) -> String,
}

macro_rules! keys {
    ($($name:literal: $($field:ident).+ = $notation:expr, $doc:literal;)+) => {
        &[$(JobKey {
            name: $name,
            doc: $doc,
            allowed: || $notation.allowed(),
            set: |job, value| {
                job.$($field).+ = $notation.read(value)?;
                Some(())
            },
            show: |job| $notation.show(&job.$($field).+),
        }),+]
    };
}

pub(super) const KEYS: &[JobKey] = keys! {
    "name": name = Text, "Name of the job, for people.";
    "tolerance": tolerance = AnyShare, "Share of a gradient message that may be missing.";
    "holes": holes = OneOf(HOLES), "What stands in for missing elements.";
    "security": security = OneOf(SECURITY),
        "Protection of packets: AES-128-GCM with keys of the job's own, or none.";
    "transport.wire": transport.wire = OneOf(WIRES),
        "What carries packets; \"auto\" is shared memory within a host, UDP between hosts.";
    "transport.rdma_device": transport.rdma_device = Devices,
        "RDMA devices of a host, for ranks in turn; \"auto\" is the one with the rank's address.";
    "transport.rdma_gid": transport.rdma_gid = AutoIndex,
        "Index in the device's table of GIDs; \"auto\" is a RoCE v2 one of the rank's address.";
    "transport.idle": transport.idle = OneOf(IDLE),
        "What a rank does while it waits; adaptive sleeps at once if ranks outnumber cores.";
    "transport.mtu": transport.mtu = AutoMtu(576..=65_535), "Largest IP packet in bytes.";
    "transport.window": transport.window = Size(ByteCount::kib(64)..=GIB),
        "Most bytes in flight to one peer.";
    "transport.initial_window": transport.initial_window = Size(ByteCount::kib(16)..=GIB),
        "Bytes in flight to one peer at first.";
    "transport.unscheduled": transport.unscheduled = Size(ByteCount::new(1)..=GIB),
        "Bytes of a message (of all to a rank that grants) that may come before it is ready.";
    "transport.grant_window":
        transport.grant_window = Grantable(Size(ByteCount::kib(16)..=GIB)),
        "Bytes that all peers together may have on their way to one rank.";
    "transport.entropies": transport.entropies = whole::<u8>(1..=64), "Paths per peer.";
    "transport.spray_burst": transport.spray_burst = whole::<u16>(1..=64),
        "Packets in a row over one path.";
    "transport.gap": transport.gap = Time(Span::from_micros(10)..=Span::from_millis(1_000)),
        "Quiet time after which missing segments count as lost.";
    "transport.delay_target":
        transport.delay_target = Time(Span::from_micros(10)..=Span::from_millis(10_000)),
        "Queueing delay above which the window shrinks.";
    "transport.peer_timeout":
        transport.peer_timeout = Time(Span::from_millis(100)..=Span::from_millis(3_600_000)),
        "A peer that owes an answer and is silent for this long is lost.";
    "transport.checksum": transport.checksum = OnOff,
        "Whether packets that are not sealed carry a CRC-32.";
    "loss.min_message": loss.min_message = Size(ByteCount::new(0)..=GIB),
        "Smaller messages are always lossless.";
    "loss.protected_share": loss.protected_share = AnyShare,
        "Share of a message's segments, those of largest magnitude, that must arrive.";
    "loss.protected_back_layers": loss.protected_back_layers = AnyShare,
        "Share of the layers, counted from the back, that must arrive.";
    "loss.step_tolerance": loss.step_tolerance = AutoShare,
        "Share of a step that may be missing; \"auto\" adds no bound to the messages' own.";
    "loss.layer_tolerances": loss.layer_tolerances = Shares(16),
        "Tolerances of equal groups of layers, the front first; empty: `tolerance` for all.";
    "loss.tight_tolerance": loss.tight_tolerance = AutoShare,
        "Tolerance of a job's first step and of steps after a change of phase; \"auto\" is off.";
    "loss.tight_change": loss.tight_change = AnyShare,
        "A change of phase: the norm of a step's gradients differs from the last by this share.";
    "loss.transform": loss.transform = OneOf(TRANSFORMS),
        "What spreads a lost segment's values over many others, or nothing.";
    "priority.dscps": priority.dscps = Dscps(2),
        "DSCP of each class, highest first; the first is for control packets.";
    "priority.droppable_dscps": priority.droppable_dscps = Dscps(0),
        "DSCP of each data class's droppable packets, for switches that cannot tell them by ECN.";
    "priority.untagged": priority.untagged = OneOf(UNTAGGED),
        "Other programs' packets: share the last class with layers, or have it below them.";
    "collectives.algorithm": collectives.algorithm = OneOf(ALGORITHMS),
        "How an all-reduce or a reduce-scatter is done.";
    "collectives.table": collectives.table = Choices,
        "What \"auto\" takes for groups and tensors up to a size; the first that matches.";
    "collectives.chunk": collectives.chunk = Size(CHUNKS),
        "Bytes of a tensor that are reduced at a time.";
    "collectives.order": collectives.order = OneOf(ORDERS),
        "Which gradients leave first: those of front layers, or those that are there first.";
    "collectives.credit": collectives.credit = Size(ByteCount::new(0)..=GIB),
        "Bytes of gradients of a rank on their way at once; the rest waits. 0 is unbounded.";
    "collectives.tuning": collectives.tuning = whole::<u16>(0..=1000),
        "Trials by which the first steps find chunk and credit, under DDP's hook; 0 is off.";
    "metrics.port": metrics.port = whole::<u16>(0..=65_535),
        "TCP port of a host's first rank for Prometheus and `gradwire top`; 0 is off.";
    "metrics.bind": metrics.bind = OneOf(WATCHERS),
        "Who may ask for metrics: processes of the same host, or anybody.";
    "trace.entries": trace.entries = whole::<u32>(0..=1_000_000),
        "Operations that the flight recorder of a rank keeps, the last ones; 0 is off.";
    "faults.seed": faults.seed = whole::<u64>(0..=i64::MAX as u64), "Seed of all draws.";
    "faults.drop": faults.drop = AnyShare, "Share of packets dropped.";
    "faults.drop_from": faults.drop_from = OneOf(DROP_FROM),
        "Of which packets: all, or those that switches may drop early.";
    "faults.burst": faults.burst = Number(1.0..=1000.0), "Mean length of a run of drops.";
    "faults.duplicate": faults.duplicate = AnyShare, "Share of packets that arrive twice.";
    "faults.reorder": faults.reorder = AnyShare, "Share of packets that later ones overtake.";
    "faults.delay": faults.delay = Time(Span::ZERO..=Span::from_millis(10_000)),
        "Time by which every packet is late.";
    "faults.corrupt": faults.corrupt = AnyShare, "Share of packets with a flipped bit.";
    "faults.one_way": faults.one_way = Pairs, "Pairs of ranks between which nothing arrives.";
};

/// What `collectives.chunk` may be.
pub const CHUNKS: RangeInclusive<ByteCount> = ByteCount::kib(64)..=GIB;
const GIB: ByteCount = ByteCount::mib(1024);
const HOLES: &[(&str, HoleFilling)] = &[
    ("rescale", HoleFilling::Rescale),
    ("zero", HoleFilling::Zero),
    ("previous", HoleFilling::Previous),
    ("error-feedback", HoleFilling::ErrorFeedback),
];
const TRANSFORMS: &[(&str, GradientTransform)] = &[
    ("none", GradientTransform::None),
    ("hadamard", GradientTransform::Hadamard),
];
const ORDERS: &[(&str, SendOrder)] = &[
    ("layers", SendOrder::Layers),
    ("arrival", SendOrder::Arrival),
];
const SECURITY: &[(&str, PacketSecurity)] = &[
    ("aead", PacketSecurity::Aead),
    ("none", PacketSecurity::None),
];
const WIRES: &[(&str, WireChoice)] = &[
    ("auto", WireChoice::Auto),
    ("udp", WireChoice::Udp),
    ("uring", WireChoice::Uring),
    ("shm", WireChoice::SharedMemory),
    ("rdma", WireChoice::Rdma),
];
const WATCHERS: &[(&str, MetricsAccess)] = &[
    ("loopback", MetricsAccess::Loopback),
    ("any", MetricsAccess::Any),
];
const UNTAGGED: &[(&str, UntaggedTraffic)] = &[
    ("share", UntaggedTraffic::Shares),
    ("below", UntaggedTraffic::Below),
];
const DROP_FROM: &[(&str, DropFrom)] =
    &[("all", DropFrom::All), ("droppable", DropFrom::Droppable)];
const IDLE: &[(&str, IdleMode)] = &[
    ("busy", IdleMode::Busy),
    ("adaptive", IdleMode::Adaptive),
    ("block", IdleMode::Block),
];

/// What is known of a key: its dotted name, what it is for, what may be written.
pub fn describe() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    KEYS.iter().map(|key| (key.name, key.doc, (key.allowed)()))
}

/// Puts all values of `table` into `job`.
pub(super) fn read(job: &mut Job, table: &Table) -> Result<(), JobError> {
    for (name, value) in table {
        let Some(inner) = value.as_table().filter(|_| is_table(name)) else {
            read_key(job, "", name, value)?;
            continue;
        };
        for (key, value) in inner {
            read_key(job, name, key, value)?;
        }
    }
    Ok(())
}

fn read_key(job: &mut Job, table: &str, key: &str, value: &Value) -> Result<(), JobError> {
    let dotted = if table.is_empty() {
        key.to_owned()
    } else {
        format!("{table}.{key}")
    };
    let refused = |allowed| JobError::Value {
        key: dotted.clone(),
        given: value.to_string(),
        allowed,
    };
    if table.is_empty() && is_table(key) {
        return Err(refused(format!("a table, [{key}]")));
    }
    let known = KEYS.iter().find(|known| known.name == dotted);
    let known = known.ok_or_else(|| unknown(table, key))?;
    (known.set)(job, value).ok_or_else(|| refused((known.allowed)()))
}

fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| {
        key.name
            .split_once('.')
            .is_some_and(|(table, _)| table == name)
    })
}

fn unknown(table: &str, key: &str) -> JobError {
    let mut known: Vec<&str> = KEYS
        .iter()
        .filter_map(|known| match known.name.split_once('.') {
            Some((outer, inner)) if !table.is_empty() => (outer == table).then_some(inner),
            Some((outer, _)) => Some(outer),
            None => table.is_empty().then_some(known.name),
        })
        .collect();
    known.dedup();
    let nearest = known
        .iter()
        .map(|known| (distance(key, known), *known))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.chars().count() / 4);
    JobError::UnknownKey {
        key: key.to_owned(),
        table: if table.is_empty() {
            "the root table".to_owned()
        } else {
            format!("[{table}]")
        },
        nearest: nearest.map(|(_, known)| known.to_owned()),
        known: known.join(", "),
    }
}

/// Levenshtein's distance between two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Refuses values that exclude each other.
pub(super) fn check_together(job: &Job) -> Result<(), JobError> {
    let transport = &job.transport;
    let smaller = [
        ("transport.initial_window", transport.initial_window),
        ("transport.unscheduled", transport.unscheduled),
    ];
    for (key, size) in smaller {
        if size > transport.window {
            return Err(JobError::Conflict {
                key,
                given: Size(size..=size).show(&size),
                other_key: "transport.window",
                other: Size(size..=size).show(&transport.window),
                rule: "the first must not be larger",
            });
        }
    }
    let dscps = &job.priority.dscps;
    if dscps[1..].contains(&dscps[0]) {
        return Err(JobError::Conflict {
            key: "priority.dscps",
            given: Dscps(2).show(dscps),
            other_key: "its first entry",
            other: dscps[0].to_string(),
            rule: "control packets need a DSCP of their own",
        });
    }
    let untagged = job.priority.untagged;
    if untagged == UntaggedTraffic::Below && dscps.len() < 3 {
        return Err(JobError::Conflict {
            key: "priority.untagged",
            given: OneOf(UNTAGGED).show(&untagged),
            other_key: "priority.dscps",
            other: Dscps(2).show(dscps),
            rule: "three are needed: for control packets, for layers, for others",
        });
    }
    check_droppable(job)
}

/// Droppable packets have one DSCP per data class, or none of their own.
fn check_droppable(job: &Job) -> Result<(), JobError> {
    let (dscps, droppable) = (&job.priority.dscps, &job.priority.droppable_dscps);
    let fits = droppable.is_empty() || droppable.len() == dscps.len() - 1;
    if fits && !droppable.iter().any(|dscp| dscps.contains(dscp)) {
        return Ok(());
    }
    Err(JobError::Conflict {
        key: "priority.droppable_dscps",
        given: Dscps(0).show(droppable),
        other_key: "priority.dscps",
        other: Dscps(2).show(dscps),
        rule: "write one for each class but the first, each different from those",
    })
}

/// Writes a job, with `remark` behind each line.
pub(super) fn write(job: &Job, remark: impl Fn(&JobKey) -> String) -> String {
    let mut text = String::new();
    let mut current = "";
    for key in KEYS {
        let (table, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if table != current {
            let _ = write!(text, "\n[{table}]\n");
            current = table;
        }
        let _ = writeln!(text, "{name} = {}{}", (key.show)(job), remark(key));
    }
    text
}

/// How the value of a key is written.
trait Notation {
    type Value;
    /// The value, if it is allowed.
    fn read(&self, value: &Value) -> Option<Self::Value>;
    /// The value as TOML.
    fn show(&self, value: &Self::Value) -> String;
    /// What may be written.
    fn allowed(&self) -> String;
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

struct Text;

impl Notation for Text {
    type Value = String;
    fn read(&self, value: &Value) -> Option<String> {
        let text = value.as_str()?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ((1..=64).contains(&text.len()) && text.chars().all(plain)).then(|| text.to_owned())
    }
    fn show(&self, value: &String) -> String {
        quoted(value)
    }
    fn allowed(&self) -> String {
        "1 to 64 letters, digits and -_. in quotes".to_owned()
    }
}

struct AnyShare;

impl Notation for AnyShare {
    type Value = Share;
    fn read(&self, value: &Value) -> Option<Share> {
        match value {
            Value::Float(share) => Share::new(*share),
            Value::Integer(share) => Share::new(*share as f64),
            Value::String(text) => notation::share(text),
            _ => None,
        }
    }
    fn show(&self, value: &Share) -> String {
        quoted(&show_share(*value))
    }
    fn allowed(&self) -> String {
        "0 to 1, or \"0%\" to \"100%\"".to_owned()
    }
}

struct AutoShare;

impl Notation for AutoShare {
    type Value = Option<Share>;
    fn read(&self, value: &Value) -> Option<Option<Share>> {
        if value.as_str() == Some("auto") {
            return Some(None);
        }
        AnyShare.read(value).map(Some)
    }
    fn show(&self, value: &Option<Share>) -> String {
        value.map_or_else(|| quoted("auto"), |share| AnyShare.show(&share))
    }
    fn allowed(&self) -> String {
        format!("\"auto\", {}", AnyShare.allowed())
    }
}

/// A list of shares, with so many at most.
struct Shares(usize);

impl Notation for Shares {
    type Value = Vec<Share>;
    fn read(&self, value: &Value) -> Option<Vec<Share>> {
        let list = value.as_array().filter(|list| list.len() <= self.0)?;
        list.iter().map(|share| AnyShare.read(share)).collect()
    }
    fn show(&self, value: &Vec<Share>) -> String {
        let entries: Vec<String> = value.iter().map(|share| AnyShare.show(share)).collect();
        format!("[{}]", entries.join(", "))
    }
    fn allowed(&self) -> String {
        format!("up to {} shares such as [\"5%\", 0.01]", self.0)
    }
}

struct Grantable(Size);

impl Notation for Grantable {
    type Value = GrantWindow;
    fn read(&self, value: &Value) -> Option<GrantWindow> {
        if value.as_str() == Some("unlimited") {
            return Some(GrantWindow::Unlimited);
        }
        self.0.read(value).map(GrantWindow::Bytes)
    }
    fn show(&self, value: &GrantWindow) -> String {
        match value {
            GrantWindow::Unlimited => quoted("unlimited"),
            GrantWindow::Bytes(bytes) => self.0.show(bytes),
        }
    }
    fn allowed(&self) -> String {
        format!("\"unlimited\", {}", self.0.allowed())
    }
}

struct Size(RangeInclusive<ByteCount>);

impl Notation for Size {
    type Value = ByteCount;
    fn read(&self, value: &Value) -> Option<ByteCount> {
        let size = match value {
            Value::Integer(bytes) => ByteCount::new(u64::try_from(*bytes).ok()?),
            Value::String(text) => notation::size(text)?,
            _ => return None,
        };
        self.0.contains(&size).then_some(size)
    }
    fn show(&self, value: &ByteCount) -> String {
        quoted(&show_size(*value))
    }
    fn allowed(&self) -> String {
        let (least, most) = (show_size(*self.0.start()), show_size(*self.0.end()));
        format!("\"{least}\" to \"{most}\", or a number of bytes")
    }
}

struct Time(RangeInclusive<Span>);

impl Notation for Time {
    type Value = Span;
    fn read(&self, value: &Value) -> Option<Span> {
        notation::span(value.as_str()?).filter(|span| self.0.contains(span))
    }
    fn show(&self, value: &Span) -> String {
        quoted(&show_span(*value))
    }
    fn allowed(&self) -> String {
        let (least, most) = (show_span(*self.0.start()), show_span(*self.0.end()));
        format!("\"{least}\" to \"{most}\", with a unit of s, ms, us or ns")
    }
}

struct Whole<T>(RangeInclusive<u64>, PhantomData<T>);

fn whole<T>(range: RangeInclusive<u64>) -> Whole<T> {
    Whole(range, PhantomData)
}

impl<T: TryFrom<u64> + Copy + ToString> Notation for Whole<T> {
    type Value = T;
    fn read(&self, value: &Value) -> Option<T> {
        let number = u64::try_from(value.as_integer()?).ok()?;
        self.0
            .contains(&number)
            .then(|| T::try_from(number).ok())
            .flatten()
    }
    fn show(&self, value: &T) -> String {
        value.to_string()
    }
    fn allowed(&self) -> String {
        format!("whole numbers from {} to {}", self.0.start(), self.0.end())
    }
}

struct Number(RangeInclusive<f64>);

impl Notation for Number {
    type Value = f64;
    fn read(&self, value: &Value) -> Option<f64> {
        let number = value
            .as_float()
            .or_else(|| value.as_integer().map(|n| n as f64))?;
        self.0.contains(&number).then_some(number)
    }
    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }
    fn allowed(&self) -> String {
        format!("numbers from {} to {}", self.0.start(), self.0.end())
    }
}

struct OneOf<T: 'static>(&'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Notation for OneOf<T> {
    type Value = T;
    fn read(&self, value: &Value) -> Option<T> {
        let text = value.as_str()?;
        self.0
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| *value)
    }
    fn show(&self, value: &T) -> String {
        let named = self.0.iter().find(|(_, named)| named == value);
        quoted(named.expect("every variant has a name").0)
    }
    fn allowed(&self) -> String {
        let names: Vec<String> = self.0.iter().map(|(name, _)| quoted(name)).collect();
        names.join(", ")
    }
}

struct AutoMtu(RangeInclusive<i64>);

impl Notation for AutoMtu {
    type Value = Mtu;
    fn read(&self, value: &Value) -> Option<Mtu> {
        if value.as_str() == Some("auto") {
            return Some(Mtu::Auto);
        }
        let bytes = value.as_integer().filter(|bytes| self.0.contains(bytes))?;
        u32::try_from(bytes).ok().map(Mtu::Bytes)
    }
    fn show(&self, value: &Mtu) -> String {
        match value {
            Mtu::Auto => quoted("auto"),
            Mtu::Bytes(bytes) => bytes.to_string(),
        }
    }
    fn allowed(&self) -> String {
        format!("\"auto\", or {} to {} bytes", self.0.start(), self.0.end())
    }
}

/// Names with commas between them.
struct Devices;

impl Notation for Devices {
    type Value = Vec<String>;
    fn read(&self, value: &Value) -> Option<Vec<String>> {
        let text = value.as_str()?;
        if text == "auto" {
            return Some(Vec::new());
        }
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| {
            let usual = name != "auto" && name.chars().all(plain);
            usual && (1..=64).contains(&name.len())
        };
        names.iter().all(is_name).then_some(names)
    }
    fn show(&self, value: &Vec<String>) -> String {
        match value.as_slice() {
            [] => quoted("auto"),
            names => quoted(&names.join(",")),
        }
    }
    fn allowed(&self) -> String {
        "\"auto\", or names with commas between them".to_owned()
    }
}

struct AutoIndex;

impl Notation for AutoIndex {
    type Value = Option<u8>;
    fn read(&self, value: &Value) -> Option<Option<u8>> {
        if value.as_str() == Some("auto") {
            return Some(None);
        }
        u8::try_from(value.as_integer()?).ok().map(Some)
    }
    fn show(&self, value: &Option<u8>) -> String {
        value.map_or_else(|| quoted("auto"), |index| index.to_string())
    }
    fn allowed(&self) -> String {
        "\"auto\", or 0 to 255".to_owned()
    }
}

struct OnOff;

impl Notation for OnOff {
    type Value = Checksum;
    fn read(&self, value: &Value) -> Option<Checksum> {
        Some(if value.as_bool()? {
            Checksum::On
        } else {
            Checksum::Off
        })
    }
    fn show(&self, value: &Checksum) -> String {
        (*value == Checksum::On).to_string()
    }
    fn allowed(&self) -> String {
        "true, false".to_owned()
    }
}

/// A list of DSCPs, with so many at least.
struct Dscps(usize);

impl Notation for Dscps {
    type Value = Vec<Dscp>;
    fn read(&self, value: &Value) -> Option<Vec<Dscp>> {
        let entry = whole::<u8>(0..=63);
        let list = value
            .as_array()
            .filter(|list| (self.0..=8).contains(&list.len()))?;
        list.iter()
            .map(|value| entry.read(value).map(Dscp))
            .collect()
    }
    fn show(&self, value: &Vec<Dscp>) -> String {
        let entries: Vec<String> = value.iter().map(Dscp::to_string).collect();
        format!("[{}]", entries.join(", "))
    }
    fn allowed(&self) -> String {
        format!("{} to 8 numbers from 0 to 63, in brackets", self.0)
    }
}

struct Choices;

impl Notation for Choices {
    type Value = Vec<AlgorithmChoice>;
    fn read(&self, value: &Value) -> Option<Vec<AlgorithmChoice>> {
        let entries = value.as_array()?.iter();
        entries
            .map(|value| notation::choice(value.as_str()?))
            .collect()
    }
    fn show(&self, value: &Vec<AlgorithmChoice>) -> String {
        let entries: Vec<String> = value
            .iter()
            .map(|choice| quoted(&notation::show_choice(*choice)))
            .collect();
        format!("[{}]", entries.join(", "))
    }
    fn allowed(&self) -> String {
        let named = ALGORITHMS.iter().map(|(name, _)| *name);
        let named: Vec<&str> = named.filter(|name| *name != "auto").collect();
        format!(
            "entries such as [\"4 256KiB direct\"]: most ranks from 2, most bytes, and {}",
            named.join(" or ")
        )
    }
}

struct Pairs;

impl Notation for Pairs {
    type Value = Vec<(Rank, Rank)>;
    fn read(&self, value: &Value) -> Option<Vec<(Rank, Rank)>> {
        value
            .as_array()?
            .iter()
            .map(|value| notation::pair(value.as_str()?))
            .collect()
    }
    fn show(&self, value: &Vec<(Rank, Rank)>) -> String {
        let pairs: Vec<String> = value
            .iter()
            .map(|pair| quoted(&notation::show_pair(*pair)))
            .collect();
        format!("[{}]", pairs.join(", "))
    }
    fn allowed(&self) -> String {
        "pairs of ranks such as [\"0->1\"]".to_owned()
    }
}
