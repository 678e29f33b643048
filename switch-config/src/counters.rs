//! Whether marks and drops happened where they should, by the counters of a switch.

pub mod neutral;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::plan::{Plan, Purpose, Selection};

/// The counters of one queue of one port.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct QueueCount {
    /// Name of the port.
    pub port: String,
    /// Number of the queue, as the platform numbers it.
    pub queue: u8,
    /// Packets sent.
    pub sent: u64,
    /// Packets marked with CE, where the platform counts them.
    pub marked: Option<u64>,
    /// Packets dropped early, where the platform counts them.
    pub early: Option<u64>,
    /// Packets dropped because there was no room.
    pub full: u64,
}

/// Counters that are gathered from several outputs, by port and number of the queue.
pub(crate) type QueueCounts = BTreeMap<(String, u8), QueueCount>;

/// The entry of a queue; added with zeros if absent.
pub(crate) fn counted<'a>(
    counts: &'a mut QueueCounts,
    port: &str,
    queue: u8,
) -> &'a mut QueueCount {
    let count = counts.entry((port.to_owned(), queue)).or_default();
    (count.port, count.queue) = (port.to_owned(), queue);
    count
}

/// A number of an export in JSON, or one in quotes.
pub(crate) fn number_of(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// How an export is judged.
#[derive(Clone, Copy, Debug, Display, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CounterVerdict {
    /// As the plan says.
    Right,
    /// There was no traffic to judge by.
    Unseen,
    /// Not as the plan says, though a switch may do so.
    Odd,
    /// Against the plan.
    Wrong,
}

/// One thing that counters tell.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Judgement {
    /// How it is judged.
    pub verdict: CounterVerdict,
    /// Where: `Ethernet0, queue 3 (class-3)`.
    pub place: String,
    /// The counts, and their meaning.
    pub text: String,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {}: {}", self.verdict, self.place, self.text)
    }
}

/// The counts of `after` less those of `before`, queue by queue; a count that went down was
/// cleared between, and is taken as it is.
pub fn since(before: &[QueueCount], after: &[QueueCount]) -> Vec<QueueCount> {
    let less = |new: u64, old: u64| new.checked_sub(old).unwrap_or(new);
    let both = |new: Option<u64>, old: Option<u64>| new.map(|new| less(new, old.unwrap_or(0)));
    let one = |new: &QueueCount| {
        let same = |old: &&QueueCount| old.port == new.port && old.queue == new.queue;
        let Some(old) = before.iter().find(same) else {
            return new.clone();
        };
        QueueCount {
            port: new.port.clone(),
            queue: new.queue,
            sent: less(new.sent, old.sent),
            marked: both(new.marked, old.marked),
            early: both(new.early, old.early),
            full: less(new.full, old.full),
        }
    };
    after.iter().map(one).collect()
}

/// Judges the counters of the plan's ports, port by port, first queue first.
pub fn judge(plan: &Plan, counts: &[QueueCount]) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for port in &plan.site.ports {
        for queue in &plan.queues {
            let name = format!("{}, queue {} ({})", port.name, queue.number, queue.name());
            let same = |count: &&QueueCount| count.port == port.name && count.queue == queue.number;
            let (verdict, text) = match counts.iter().find(same) {
                None => (
                    CounterVerdict::Wrong,
                    "the export has no counters of it".to_owned(),
                ),
                Some(count) => match queue.purpose {
                    Purpose::Reserved | Purpose::Control => judge_control(count),
                    _ => judge_data(plan, count),
                },
            };
            judgements.push(Judgement {
                verdict,
                place: name,
                text,
            });
        }
        judgements.extend(strangers(plan, &port.name, counts));
    }
    judgements
}

/// As many early drops without a mark are no accident, where both are counted and wanted.
const EARLY_UNMARKED: u64 = 100;

fn judge_data(plan: &Plan, count: &QueueCount) -> (CounterVerdict, String) {
    let QueueCount {
        sent,
        marked,
        early,
        full,
        ..
    } = count;
    let marks = shown(*marked);
    let told = match early {
        Some(early) => {
            format!("{sent} sent, {marks} marked, {early} dropped early, {full} without room")
        }
        None => format!("{sent} sent, {marks} marked, {full} dropped, early or without room"),
    };
    match (marked.unwrap_or(0), early.unwrap_or(0), *full) {
        (0, 0, 0) if *sent == 0 => (CounterVerdict::Unseen, format!("{told}: no traffic yet")),
        (_, early, full) if count.early.is_some() && full > early => (
            CounterVerdict::Odd,
            format!("{told}: more found no room than were dropped early; is the buffer too small?"),
        ),
        (0, early, _)
            if marked.is_some() && early >= EARLY_UNMARKED && plan.selection == Selection::Ecn =>
        {
            let text = format!("{told}: nothing was marked; is ECN on?");
            (CounterVerdict::Odd, text)
        }
        _ => (CounterVerdict::Right, told),
    }
}

fn judge_control(count: &QueueCount) -> (CounterVerdict, String) {
    let (marked, early) = (count.marked.unwrap_or(0), count.early.unwrap_or(0));
    let told = format!(
        "{} sent, {marked} marked, {early} dropped early, {} without room",
        count.sent, count.full
    );
    if marked > 0 || early > 0 {
        let text = format!("{told}: this queue must neither mark nor drop early");
        return (CounterVerdict::Wrong, text);
    }
    if count.full > 0 {
        let text = format!("{told}: the highest queue lost packets; who else sends there?");
        return (CounterVerdict::Wrong, text);
    }
    match count.sent {
        0 => (CounterVerdict::Unseen, format!("{told}: no traffic yet")),
        _ => (CounterVerdict::Right, told),
    }
}

/// Queues that the plan does not have but that mark or drop early.
fn strangers(plan: &Plan, port: &str, counts: &[QueueCount]) -> Vec<Judgement> {
    let known = |queue: u8| plan.queues.iter().any(|one| one.number == queue);
    let others = counts
        .iter()
        .filter(|count| count.port == port && !known(count.queue));
    let acts = others.filter(|count| count.marked > Some(0) || count.early > Some(0));
    acts.map(|count| Judgement {
        verdict: CounterVerdict::Odd,
        place: format!("{port}, queue {}", count.queue),
        text: "marks or drops early, and is not the plan's".to_owned(),
    })
    .collect()
}

fn shown(count: Option<u64>) -> String {
    count.map_or_else(|| "not counted".to_owned(), |count| count.to_string())
}
