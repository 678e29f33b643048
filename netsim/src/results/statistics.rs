//! Statistics of an outcome: percentiles, slowdowns, goodput, utilisation, intervals of means.
//!
//! Percentiles are exact, by nearest rank: the p-th percentile of n values is the smallest value
//! that at least p of them do not exceed, so it is always one of the values. Flows and tasks that
//! did not end are in no percentile; a report that shows percentiles must show their number, too.

use std::collections::BTreeMap;

use gradwire_protocol::units::{Instant, Span};
use serde::{Deserialize, Serialize};

use crate::results::outcome::{ClassCounts, FlowOutcome, LinkOutcome, Outcome, TaskOutcome};
use gradwire_fabric::topology::{Device, Fabric};
use gradwire_workloads::workload::{Task, Work, Workload};

/// Mean and percentiles of some values, in their unit, to a millionth of it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median by nearest rank.
    pub p50: f64,
    /// 99th percentile by nearest rank.
    pub p99: f64,
    /// 99.9th percentile by nearest rank.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// Smallest.
    pub min: f64,
}

impl Spread {
    /// The spread of `values`, in any order; `None` when there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Self {
            mean: rounded(values.iter().sum::<f64>() / values.len() as f64),
            p50: rounded(percentile(&values, 500)),
            p99: rounded(percentile(&values, 990)),
            p999: rounded(percentile(&values, 999)),
            max: rounded(max),
            min: rounded(min),
        })
    }
}

/// To a millionth, such as the picosecond of a microsecond, without the noise of binary fractions.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The value at `per_mille` thousandths of `sorted`, which is ascending and not empty, by nearest
/// rank. The rank is computed in whole numbers, so no rounding moves it.
pub fn percentile(sorted: &[f64], per_mille: usize) -> f64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Time from a flow's start until its receiver had all that it needs.
pub fn completion(flow: &FlowOutcome) -> Option<Span> {
    Some(flow.received?.since(flow.started?))
}

/// Time from a flow's start until its sender knew that its receiver has all that it needs.
pub fn acknowledged(flow: &FlowOutcome) -> Option<Span> {
    Some(flow.acknowledged?.since(flow.started?))
}

/// Completion time over the time that the flow would have taken alone on an idle fabric.
pub fn slowdown(flow: &FlowOutcome) -> Option<f64> {
    let ideal = flow.ideal.as_picos();
    let ratio = completion(flow)?.as_picos() as f64 / ideal as f64;
    (ideal > 0).then_some(ratio)
}

/// Microseconds of a span.
pub fn micros(span: Span) -> f64 {
    span.as_picos() as f64 / 1e6
}

/// The bytes that flows delivered together, and the time that this took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goodput {
    /// Bytes that receivers have, without headers and without accepted losses.
    pub bytes: u64,
    /// From the first start to the last completion.
    pub over: Span,
    /// Hosts that received.
    pub receivers: usize,
}

impl Goodput {
    /// Of those flows that were completed.
    pub fn of(flows: &[FlowOutcome]) -> Self {
        let mut hosts = Vec::new();
        let mut extent = Extent::default();
        let mut bytes = 0;
        for flow in flows.iter().filter(|flow| flow.received.is_some()) {
            extent.add(flow.started, flow.received);
            bytes += flow.bytes.get().saturating_sub(flow.lost_bytes);
            hosts.push(flow.destination);
        }
        hosts.sort_unstable();
        hosts.dedup();
        Self {
            bytes,
            over: extent.span(),
            receivers: hosts.len(),
        }
    }

    /// All flows together, in Gb/s; zero when no byte was delivered.
    pub fn gbps(&self) -> f64 {
        match self.over.as_picos() {
            0 => 0.0,
            // Bits per picosecond are terabits per second.
            picos => self.bytes as f64 * 8e3 / picos as f64,
        }
    }

    /// The mean of the hosts that received, in Gb/s.
    pub fn gbps_per_receiver(&self) -> f64 {
        self.gbps() / self.receivers.max(1) as f64
    }
}

/// From the first start to the last end of flows and tasks: the time of a training step.
pub fn makespan(flows: &[FlowOutcome], tasks: &[TaskOutcome]) -> Span {
    let mut extent = Extent::default();
    for flow in flows {
        extent.add(flow.started, flow.received);
    }
    for task in tasks {
        extent.add(task.started, task.ended);
    }
    extent.span()
}

/// Least and largest of some times.
#[derive(Clone, Copy, Default)]
struct Extent {
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Extent {
    fn add(&mut self, start: Option<Instant>, end: Option<Instant>) {
        if let Some(start) = start {
            self.first = Some(self.first.map_or(start, |first| first.min(start)));
        }
        self.last = self.last.max(end);
    }

    fn span(self) -> Span {
        match (self.first, self.last) {
            (Some(first), Some(last)) => last.since(first),
            _ => Span::ZERO,
        }
    }
}

/// The tasks of one name, over all hosts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NamedTasks {
    /// Their name, or their work where they have no name.
    pub name: String,
    /// Their number.
    pub tasks: usize,
    /// Number of tasks that ended.
    pub finished: usize,
    /// Mean time from start to end, in microseconds.
    pub mean_us: f64,
    /// Longest time from start to end, in microseconds.
    pub max_us: f64,
}

/// Tasks by name, those that took longest in all first.
pub fn named_tasks(workload: &Workload, outcomes: &[TaskOutcome]) -> Vec<NamedTasks> {
    let programs = workload.programs.iter();
    let programs: BTreeMap<u32, &[Task]> = programs
        .map(|program| (program.host, program.tasks.as_slice()))
        .collect();
    let mut groups: BTreeMap<&str, (usize, Vec<Span>)> = BTreeMap::new();
    for outcome in outcomes {
        let tasks = programs.get(&outcome.host);
        let name = tasks
            .and_then(|tasks| tasks.get(outcome.task as usize))
            .map_or("unknown", name_of);
        let group = groups.entry(name).or_default();
        group.0 += 1;
        if let (Some(started), Some(ended)) = (outcome.started, outcome.ended) {
            group.1.push(ended.since(started));
        }
    }
    let total = |times: &[Span]| times.iter().fold(Span::ZERO, |sum, span| sum + *span);
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (_, times))| std::cmp::Reverse(total(times)));
    let named = groups.into_iter().map(|(name, (tasks, times))| NamedTasks {
        name: name.to_owned(),
        tasks,
        finished: times.len(),
        mean_us: micros(total(&times).divided(times.len().max(1) as u64)),
        max_us: micros(times.into_iter().max().unwrap_or_default()),
    });
    named.collect()
}

fn name_of(task: &Task) -> &str {
    if !task.name.is_empty() {
        return &task.name;
    }
    match &task.work {
        Work::Compute { .. } => "compute",
        Work::Send { .. } => "send",
        Work::Receive { .. } => "receive",
        Work::Collective { kind, .. } => kind.into(),
    }
}

/// Counters of each class, summed over all ports, highest class first.
pub fn by_class(links: &[LinkOutcome]) -> Vec<ClassCounts> {
    let classes = links.iter().map(|link| link.classes.len()).max();
    let mut sums = vec![ClassCounts::default(); classes.unwrap_or(0)];
    for link in links {
        for (sum, counts) in sums.iter_mut().zip(&link.classes) {
            sum.queued += counts.queued;
            sum.dropped_early += counts.dropped_early;
            sum.dropped_full += counts.dropped_full;
            sum.trimmed += counts.trimmed;
            sum.marked += counts.marked;
        }
    }
    sums
}

/// Packets that a port dropped; trimmed ones are not among them.
pub fn dropped(link: &LinkOutcome) -> u64 {
    link.classes.iter().map(ClassCounts::dropped).sum()
}

/// Share of `over` for which a link sent; zero when `over` is.
pub fn utilisation(link: &LinkOutcome, over: Span) -> f64 {
    let capacity = link.rate.as_bits_per_second() as f64 * over.as_secs_f64();
    if capacity > 0.0 {
        link.bytes as f64 * 8.0 / capacity
    } else {
        0.0
    }
}

/// Mean queue in bytes over `over`; zero when `over` is.
pub fn mean_queue(link: &LinkOutcome, over: Span) -> f64 {
    link.queue_integral as f64 / over.as_picos().max(1) as f64
}

/// The place of a device: host, or the word that the names of all switches of its tier begin with,
/// such as edge. Tiers without such a word are called leaf and spine, or edge, agg and core, by the
/// number of tiers.
pub fn place(fabric: &Fabric, device: Device) -> String {
    let Device::Switch(switch) = device else {
        return "host".to_owned();
    };
    let tier = fabric.switches[switch as usize].tier;
    let mut peers = fabric.switches.iter().filter(|peer| peer.tier == tier);
    let word = word_of(&fabric.switches[switch as usize].name);
    if word.len() > 2 && peers.all(|peer| word_of(&peer.name) == word) {
        return word.to_owned();
    }
    let top = fabric.switches.iter().map(|switch| switch.tier).max();
    let known: &[&str] = match top.unwrap_or(0) {
        0 => &["switch"],
        1 => &["leaf", "spine"],
        2 => &["edge", "agg", "core"],
        _ => &[],
    };
    let known = known.get(usize::from(tier));
    known.map_or_else(|| format!("tier{tier}"), |&name| name.to_owned())
}

/// The letters that a name begins with.
fn word_of(name: &str) -> &str {
    let end = name.find(|letter: char| !letter.is_ascii_alphabetic());
    &name[..end.unwrap_or(name.len())]
}

/// All links from devices of one place to those of another.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacePair {
    /// Such as `edge->agg`.
    pub name: String,
    /// Number of links, each direction counted by itself.
    pub links: usize,
    /// Mean share of the time for which they sent.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest.
    pub utilisation_max: f64,
    /// Largest queue in bytes.
    pub queue_peak: u64,
    /// Mean queue in bytes.
    pub queue_mean: f64,
    /// Packets dropped by ports or lost on the wire.
    pub lost: u64,
    /// Longest time for which one of them was paused.
    pub paused_max: Span,
}

/// Links by the places of their ends, upwards from the hosts and down again; `over` is the time
/// that utilisation and mean queues refer to.
pub fn by_places(fabric: &Fabric, links: &[LinkOutcome], over: Span) -> Vec<PlacePair> {
    let height = |device: Device| match device {
        Device::Host(_) => 0,
        Device::Switch(switch) => 1 + i32::from(fabric.switches[switch as usize].tier),
    };
    let order = |link: &LinkOutcome| {
        let (from, to) = (height(link.from), height(link.to));
        let along = if from <= to { from } else { -from };
        (from > to, along, to)
    };
    let mut groups: BTreeMap<_, Vec<&LinkOutcome>> = BTreeMap::new();
    for link in links {
        groups.entry(order(link)).or_default().push(link);
    }
    let pair = |links: Vec<&LinkOutcome>| PlacePair {
        name: format!(
            "{}->{}",
            place(fabric, links[0].from),
            place(fabric, links[0].to)
        ),
        links: links.len(),
        utilisation_mean: mean(links.iter().map(|link| utilisation(link, over))),
        utilisation_max: links
            .iter()
            .map(|link| utilisation(link, over))
            .fold(0.0, f64::max),
        queue_peak: links.iter().map(|link| link.peak_queue).max().unwrap_or(0),
        queue_mean: mean(links.iter().map(|link| mean_queue(link, over))),
        lost: links.iter().map(|link| dropped(link) + link.lost).sum(),
        paused_max: links
            .iter()
            .map(|link| link.paused)
            .max()
            .unwrap_or_default(),
    };
    groups.into_values().map(pair).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

/// A hash of the times and losses of every flow and task, FNV-1a of 64 bits: equal runs have equal
/// digests, on every machine.
pub fn digest(outcome: &Outcome) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |value: u64| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    let time = |at: Option<Instant>| at.map_or(u64::MAX, Instant::as_picos);
    for flow in &outcome.flows {
        add(u64::from(flow.flow));
        add(time(flow.started));
        add(time(flow.received));
        add(time(flow.acknowledged));
        add(flow.lost_bytes);
    }
    for task in &outcome.tasks {
        add(u64::from(task.host) << 32 | u64::from(task.task));
        add(time(task.started));
        add(time(task.ended));
    }
    hash
}

/// A mean with the interval that holds the true one in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// The mean of independent samples, by Student's t with n - 1 degrees of freedom; `None`
    /// without samples. One sample does not show its spread, so its interval is unbounded.
    pub fn of_mean(samples: &[f64]) -> Option<Self> {
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let half = match count {
            0 => return None,
            1 => f64::INFINITY,
            _ => {
                let variance = squares / (count - 1) as f64;
                student_t(count - 1) * (variance / count as f64).sqrt()
            }
        };
        Some(Self {
            mean,
            low: mean - half,
            high: mean + half,
        })
    }

    /// Ratio of the samples to `base`, pair by pair (same seed): the geometric mean of the ratios,
    /// so that the ratio of a to b is the reciprocal of that of b to a. All values must be
    /// positive; `None` where they are not, where the lengths differ, or without samples.
    pub fn of_ratio(samples: &[f64], base: &[f64]) -> Option<Self> {
        let usable = |values: &[f64]| values.iter().all(|value| *value > 0.0);
        if samples.len() != base.len() || !usable(samples) || !usable(base) {
            return None;
        }
        let pairs = samples.iter().zip(base);
        let logs: Vec<f64> = pairs.map(|(sample, base)| (sample / base).ln()).collect();
        let logs = Self::of_mean(&logs)?;
        Some(Self {
            mean: logs.mean.exp(),
            low: logs.low.exp(),
            high: logs.high.exp(),
        })
    }
}

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT_T: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
    2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
    2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
];
/// 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// The 97.5 % quantile of Student's t; beyond 30 degrees of freedom by the first two terms of its
/// expansion around the normal quantile (Abramowitz and Stegun, 26.7.5), right to 1e-4.
fn student_t(freedom: usize) -> f64 {
    STUDENT_T.get(freedom - 1).copied().unwrap_or_else(|| {
        let (z, v) = (NORMAL, freedom as f64);
        let second = 5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z;
        z + (z.powi(3) + z) / (4.0 * v) + second / (96.0 * v * v)
    })
}

/// Computing time of the host whose busiest unit computes longest, over these tasks, which are in
/// the order of hosts.
pub fn longest_compute(workload: &Workload, outcomes: &[TaskOutcome]) -> Span {
    let mut units: BTreeMap<(u32, u16), Span> = BTreeMap::new();
    for program in &workload.programs {
        let from = outcomes.partition_point(|outcome| outcome.host < program.host);
        let own = outcomes[from..].iter();
        for outcome in own.take_while(|outcome| outcome.host == program.host) {
            let task = program.tasks.get(outcome.task as usize);
            if let Some(Work::Compute { span, unit }) = task.map(|task| &task.work) {
                let sum = units.entry((program.host, *unit)).or_default();
                *sum = *sum + *span;
            }
        }
    }
    units.into_values().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use gradwire_protocol::units::{ByteCount, Rate, Share};

    use super::*;
    use gradwire_fabric::policy::SwitchBuffer;
    use gradwire_fabric::topology::{
        FRAMING, HostSpells, Link, MTU, PORT_BUFFER, Switch, Trimming,
    };
    use gradwire_workloads::workload::Program;

    fn at(micros: u64) -> Instant {
        Instant::START + Span::from_micros(micros)
    }

    fn flow(number: u32, started: u64, received: u64) -> FlowOutcome {
        FlowOutcome {
            flow: number,
            source: 0,
            destination: 1 + number,
            bytes: ByteCount::new(1_000_000),
            started: Some(at(started)),
            received: Some(at(received)),
            acknowledged: Some(at(received + 5)),
            lost_bytes: 0,
            ideal: Span::from_micros(50),
        }
    }

    fn link(from: Device, to: Device) -> LinkOutcome {
        LinkOutcome {
            from,
            to,
            rate: Rate::from_gbps(100),
            bytes: 0,
            packets: 0,
            data_packets: 0,
            peak_queue: 0,
            queue_integral: 0,
            lost: 0,
            paused: Span::ZERO,
            classes: vec![ClassCounts::default(); 2],
        }
    }

    #[test]
    fn percentiles_are_values_by_nearest_rank() {
        let values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let spread = Spread::of(values).expect("there are values");
        assert_eq!((spread.p50, spread.p99, spread.p999), (500.0, 990.0, 999.0));
        assert_eq!((spread.min, spread.max, spread.mean), (1.0, 1000.0, 500.5));
        let two = Spread::of(vec![7.0, 3.0]).expect("there are values");
        assert_eq!((two.p50, two.p99, two.p999), (3.0, 7.0, 7.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn a_flow_that_takes_twice_its_ideal_has_a_slowdown_of_two() {
        let flow = flow(0, 10, 110);
        assert_eq!(completion(&flow), Some(Span::from_micros(100)));
        assert_eq!(acknowledged(&flow), Some(Span::from_micros(105)));
        assert_eq!(slowdown(&flow), Some(2.0));
    }

    #[test]
    fn a_flow_that_did_not_end_has_no_times() {
        let flow = FlowOutcome {
            received: None,
            acknowledged: None,
            ..flow(0, 1, 2)
        };
        assert_eq!((completion(&flow), slowdown(&flow)), (None, None));
        assert_eq!(Goodput::of(&[flow]).gbps(), 0.0);
    }

    #[test]
    fn goodput_counts_what_was_delivered_from_the_first_start_to_the_last_end() {
        let with_holes = FlowOutcome {
            lost_bytes: 500_000,
            ..flow(1, 60, 160)
        };
        let goodput = Goodput::of(&[flow(0, 40, 120), with_holes]);
        assert_eq!((goodput.bytes, goodput.receivers), (1_500_000, 2));
        assert_eq!(goodput.over, Span::from_micros(120));
        assert_eq!(goodput.gbps(), 100.0);
        assert_eq!(goodput.gbps_per_receiver(), 50.0);
    }

    #[test]
    fn the_digest_changes_with_one_picosecond_of_one_flow() {
        let outcome = Outcome {
            flows: vec![flow(0, 1, 2), flow(1, 1, 3)],
            ..Outcome::default()
        };
        let mut other = outcome.clone();
        assert_eq!(digest(&outcome), digest(&other));
        other.flows[1].received = Some(at(3) + Span::from_picos(1));
        assert_ne!(digest(&outcome), digest(&other));
    }

    #[test]
    fn the_digest_of_nothing_is_the_offset_of_fnv() {
        assert_eq!(digest(&Outcome::default()), 0xcbf2_9ce4_8422_2325);
    }

    #[test]
    fn the_makespan_is_from_the_first_start_to_the_last_end() {
        let task = TaskOutcome {
            host: 0,
            task: 0,
            started: Some(at(2)),
            ended: Some(at(30)),
            expected_segments: 0,
            lost_segments: 0,
        };
        let flows = [flow(0, 5, 20), flow(1, 10, 25)];
        assert_eq!(makespan(&flows, &[task]), Span::from_micros(28));
        assert_eq!(makespan(&flows, &[]), Span::from_micros(20));
        assert_eq!(makespan(&[], &[]), Span::ZERO);
    }

    #[test]
    fn a_place_is_the_word_that_all_names_of_a_tier_begin_with() {
        let mut fabric = Fabric {
            name: "small".to_owned(),
            hosts: 0,
            switches: Vec::new(),
            links: Vec::new(),
            changes: Vec::new(),
            one_way: Vec::new(),
            spells: HostSpells::default(),
            buffer: SwitchBuffer::PerPort(PORT_BUFFER),
            mtu: MTU,
            framing: FRAMING,
            balance: None,
            marks_above: None,
            trimming: Trimming::Off,
        };
        let named = |names: [&str; 3]| {
            let tiers = names.into_iter().zip([0, 0, 1]);
            let switch = |(name, tier): (&str, u8)| Switch {
                name: name.to_owned(),
                tier,
            };
            tiers.map(switch).collect()
        };
        fabric.switches = named(["rail 0", "rail 1", "spine 0"]);
        let places = |fabric: &Fabric| [0, 2].map(|switch| place(fabric, Device::Switch(switch)));
        assert_eq!(places(&fabric), ["rail", "spine"]);
        fabric.switches = named(["s0", "s1", "s2"]);
        assert_eq!(places(&fabric), ["leaf", "spine"]);
    }

    #[test]
    fn links_are_grouped_by_places_upwards_and_down_again() {
        let switch = |name: &str, tier| Switch {
            name: name.to_owned(),
            tier,
        };
        let plain = |ends| Link {
            ends,
            rate: Rate::from_gbps(100),
            latency: Span::from_micros(1),
            loss: Share::NONE,
        };
        let (host, leaf, spine) = (Device::Host(0), Device::Switch(0), Device::Switch(1));
        let fabric = Fabric {
            name: "small".to_owned(),
            hosts: 1,
            switches: vec![switch("leaf", 0), switch("spine", 1)],
            links: vec![plain([host, leaf]), plain([leaf, spine])],
            changes: Vec::new(),
            one_way: Vec::new(),
            spells: HostSpells::default(),
            buffer: SwitchBuffer::PerPort(PORT_BUFFER),
            mtu: MTU,
            framing: FRAMING,
            balance: None,
            marks_above: None,
            trimming: Trimming::Off,
        };
        let mut links = vec![link(leaf, host), link(host, leaf), link(spine, leaf)];
        links.push(LinkOutcome {
            bytes: 625_000,
            queue_integral: 7_000 * 100_000_000,
            peak_queue: 9_000,
            ..link(leaf, spine)
        });
        links[3].classes[1].dropped_full = 2;
        let pairs = by_places(&fabric, &links, Span::from_micros(100));
        let names: Vec<&str> = pairs.iter().map(|pair| pair.name.as_str()).collect();
        assert_eq!(
            names,
            ["host->leaf", "leaf->spine", "spine->leaf", "leaf->host"]
        );
        assert_eq!(
            (pairs[1].utilisation_max, pairs[1].queue_mean),
            (0.5, 7_000.0)
        );
        assert_eq!((pairs[1].queue_peak, pairs[1].lost), (9_000, 2));
    }

    #[test]
    fn counts_of_a_class_are_summed_over_links() {
        let mut links = vec![link(Device::Host(0), Device::Switch(0)); 3];
        for link in &mut links {
            link.classes[1].marked = 2;
            link.classes[1].dropped_early = 1;
        }
        let sums = by_class(&links);
        assert_eq!((sums[0].marked, sums[1].marked), (0, 6));
        assert_eq!(sums[1].dropped_early, 3);
    }

    #[test]
    fn tasks_without_a_name_are_called_by_what_they_do() {
        let task = |name: &str| Task {
            name: name.to_owned(),
            work: Work::Compute {
                span: Span::from_micros(1),
                unit: 0,
            },
            after: Vec::new(),
            after_start: Vec::new(),
            step: 0,
        };
        let workload = Workload {
            programs: vec![Program {
                host: 3,
                tasks: vec![task(""), task("forward"), task("forward")],
            }],
            ..Workload::default()
        };
        let outcome = |task, ended: Option<u64>| TaskOutcome {
            host: 3,
            task,
            started: Some(at(1)),
            ended: ended.map(at),
            expected_segments: 0,
            lost_segments: 0,
        };
        let outcomes = [outcome(0, None), outcome(1, Some(3)), outcome(2, Some(5))];
        let named = named_tasks(&workload, &outcomes);
        assert_eq!((named[0].name.as_str(), named[0].tasks), ("forward", 2));
        assert_eq!((named[0].mean_us, named[0].max_us), (3.0, 4.0));
        assert_eq!((named[1].name.as_str(), named[1].finished), ("compute", 0));
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_a_text_book() {
        let estimate = Estimate::of_mean(&[4.0, 5.0, 6.0, 7.0, 8.0]).expect("there are samples");
        assert_eq!(estimate.mean, 6.0);
        assert!((estimate.high - 7.963_243).abs() < 1e-5, "{estimate:?}");
        assert!((estimate.low - 4.036_757).abs() < 1e-5, "{estimate:?}");
        let one = Estimate::of_mean(&[4.0]).expect("there is a sample");
        assert_eq!((one.low, one.high), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn quantiles_beyond_the_table_go_on_smoothly() {
        assert!(
            (student_t(31) - 2.039_513).abs() < 1e-4,
            "{}",
            student_t(31)
        );
        assert!((student_t(100) - 1.983_972).abs() < 1e-4);
    }

    #[test]
    fn a_ratio_is_the_reciprocal_of_its_reverse() {
        let (a, b) = ([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]);
        let forward = Estimate::of_ratio(&a, &b).expect("all are positive");
        let back = Estimate::of_ratio(&b, &a).expect("all are positive");
        assert!((forward.mean * back.mean - 1.0).abs() < 1e-12);
        assert!((forward.low * back.high - 1.0).abs() < 1e-12);
        assert_eq!(Estimate::of_ratio(&[0.0], &[1.0]), None);
    }
}
