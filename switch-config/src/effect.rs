//! The effect of a change on ports: each setting before and after, for people to read.
//!
//! Both sides are [`Reading`]s, so that one comparison serves all platforms. Ports on which a
//! change does the same are one list.

use crate::lint::Finding;
use crate::reading::{Landing, Marking, PortReading, QueueReading, Reading, Service};
use gradwire_fabric::policy::DSCPS;

/// A setting, before and after a change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangedSetting {
    /// Which: `DSCP 8-15`, `queue 3`, `PFC`.
    pub setting: String,
    /// Before the change.
    pub before: String,
    /// After it.
    pub after: String,
}

/// Ports on which a change does the same.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Effect {
    /// Their names, in the order of the plan.
    pub ports: Vec<String>,
    /// What changes on each of them.
    pub settings: Vec<ChangedSetting>,
}

/// The effects of a change on these ports; ports without any are left out.
pub fn effects<'a>(
    ports: impl IntoIterator<Item = &'a str>,
    before: &Reading,
    after: &Reading,
) -> Vec<Effect> {
    let mut effects: Vec<Effect> = Vec::new();
    for port in ports {
        let nothing = PortReading::default();
        let before = before.ports.get(port).unwrap_or(&nothing);
        let settings = settings(before, after.ports.get(port).unwrap_or(&nothing));
        if settings.is_empty() {
            continue;
        }
        match effects.iter_mut().find(|one| one.settings == settings) {
            Some(alike) => alike.ports.push(port.to_owned()),
            None => effects.push(Effect {
                ports: vec![port.to_owned()],
                settings,
            }),
        }
    }
    effects
}

/// Mistakes outside the settings of [`effects`] that a change mends: how the whole switch chooses
/// paths, a watchdog of pauses.
pub fn mended(before: &Reading, after: &Reading) -> Vec<Finding> {
    let found = before.findings.iter();
    let gone = found.filter(|finding| !after.findings.contains(finding));
    gone.cloned().collect()
}

fn settings(before: &PortReading, after: &PortReading) -> Vec<ChangedSetting> {
    let mut settings = landings(before, after);
    let numbers = before.queues.keys().chain(after.queues.keys());
    let mut numbers: Vec<u8> = numbers.copied().collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.dedup();
    settings.extend(numbers.into_iter().map(|number| ChangedSetting {
        setting: format!("queue {number}"),
        before: queue(before.queues.get(&number)),
        after: queue(after.queues.get(&number)),
    }));
    settings.push(ChangedSetting {
        setting: "PFC".to_owned(),
        before: pauses(&before.pauses),
        after: pauses(&after.pauses),
    });
    settings.retain(|setting| setting.before != setting.after);
    settings
}

/// DSCPs that go elsewhere, those with the same way together, in order of the first.
fn landings(before: &PortReading, after: &PortReading) -> Vec<ChangedSetting> {
    let mut ways: Vec<([Option<Landing>; 2], Vec<u8>)> = Vec::new();
    for dscp in 0..DSCPS {
        let way = [before.landings[dscp], after.landings[dscp]];
        match ways.iter_mut().find(|(known, _)| *known == way) {
            Some((_, dscps)) => dscps.push(dscp as u8),
            None => ways.push((way, vec![dscp as u8])),
        }
    }
    let changed = ways
        .into_iter()
        .filter(|([before, after], _)| before != after);
    let settings = changed.map(|([before, after], dscps)| ChangedSetting {
        setting: format!("DSCP {}", ranges(&dscps)),
        before: landing(before),
        after: landing(after),
    });
    settings.collect()
}

/// Ascending numbers as ranges: `0-7, 9`.
fn ranges(numbers: &[u8]) -> String {
    let mut texts = Vec::new();
    let mut rest = numbers;
    while let Some(first) = rest.first() {
        let run = rest
            .iter()
            .zip(*first..=u8::MAX)
            .take_while(|(a, b)| **a == *b);
        let length = run.count();
        texts.push(match length {
            1 => first.to_string(),
            _ => format!("{first}-{}", rest[length - 1]),
        });
        rest = &rest[length..];
    }
    texts.join(", ")
}

fn landing(landing: Option<Landing>) -> String {
    match landing {
        None => "not mapped".to_owned(),
        Some(Landing { queue, drops_first }) => match drops_first {
            true => format!("queue {queue}, dropped first"),
            false => format!("queue {queue}"),
        },
    }
}

fn queue(queue: Option<&QueueReading>) -> String {
    let Some(queue) = queue else {
        return "not configured".to_owned();
    };
    let service = match queue.service {
        Service::Unsaid => "service not said".to_owned(),
        Service::Strict { .. } => "strict".to_owned(),
        Service::Weighted { weight, rank } => {
            let weight = weight.map_or_else(String::new, |weight| format!(", weight {weight}"));
            match rank {
                0 => format!("in turn with others{weight}"),
                _ => format!("in order within a group{weight}"),
            }
        }
    };
    let memory = queue
        .alpha
        .map_or_else(String::new, |alpha| format!(", 2^{alpha} of free memory"));
    format!("{service}, {}{memory}", marking(queue.marking))
}

fn marking(marking: Option<Marking>) -> String {
    let Some(marking) = marking else {
        return "drops only when full".to_owned();
    };
    let act = match (marking.marks_ect, marking.drops_droppable) {
        (true, true) => "marks ECT and drops the rest",
        (true, false) => "marks ECT",
        (false, true) => "drops early",
        (false, false) => "thresholds without effect",
    };
    let Marking {
        low, high, percent, ..
    } = marking;
    let depth = match high.saturating_sub(low) {
        0 | 1 => format!("above {low} bytes"),
        _ => format!("from {low} to {high} bytes"),
    };
    match percent {
        100 => format!("{act} {depth}"),
        _ => format!("{act} {depth}, {percent} % of packets"),
    }
}

fn pauses(classes: &[u8]) -> String {
    match classes {
        [] => "off".to_owned(),
        _ => format!("on for {}", ranges(classes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[255]), "255");
        assert_eq!(ranges(&[]), "");
    }
}
