//! Profiles of queues: how they are served, when they mark and drop, which classes they pause.

use super::{NvueReader, QUEUES};
use crate::lint::Rule;
use crate::notation::yaml::{rows_at, text_at};
use crate::plan::SwitchPort;
use crate::reading::{ConfigReader, Marking, PortReading, Service};
use crate::tree::ConfigEntry;

impl NvueReader<'_> {
    /// How queues are served.
    pub(super) fn add_service(&mut self, port: &SwitchPort, said: &mut PortReading) {
        let (place, Some(profile)) = self.profile(port, "egress-scheduler") else {
            return;
        };
        for value in rows_at(profile, &["traffic-class"]) {
            let keys = &value.name;
            let place = format!("{place}.traffic-class.{keys}");
            let share = text_at(value, &["bw-percent"]);
            let is_strict = match text_at(value, &["mode"]).unwrap_or("unset") {
                "strict" => true,
                "dwrr" => false,
                other => {
                    let text = format!("mode `{other}`: allowed are strict and dwrr");
                    self.find(Rule::Schema, &place, text);
                    continue;
                }
            };
            if is_strict && share.is_some_and(|share| share != "0") {
                let text = "is strict and has a bw-percent; unset that";
                self.find(Rule::StrictWeight, &place, text);
            }
            if share.is_some_and(|share| !share.parse().is_ok_and(|share: u8| share <= 100)) {
                self.find(Rule::Schema, &place, "bw-percent is 0 to 100");
            }
            for number in self.numbers(keys, QUEUES, &place, Rule::QueueRange) {
                let rank = u16::from(number);
                let service = match is_strict {
                    true => Service::Strict { rank },
                    false => Service::weighted(share.and_then(|share| share.parse().ok())),
                };
                said.queues.entry(number).or_default().service = service;
            }
        }
    }

    /// When queues mark and drop.
    pub(super) fn add_marking(&mut self, port: &SwitchPort, said: &mut PortReading) {
        let (place, Some(profile)) = self.profile(port, "congestion-control") else {
            return;
        };
        for value in rows_at(profile, &["traffic-class"]) {
            let keys = &value.name;
            let place = format!("{place}.traffic-class.{keys}");
            let marking = self.marking(value, &place);
            for number in self.numbers(keys, QUEUES, &place, Rule::QueueRange) {
                said.queues.entry(number).or_default().marking = marking;
            }
        }
    }

    /// When a queue marks and drops; `None` when it does neither.
    fn marking(&mut self, value: &ConfigEntry, place: &str) -> Option<Marking> {
        let ecn = self.is_enabled(value, "ecn", place);
        let red = self.is_enabled(value, "red", place);
        if text_at(value, &["mode"]) == Some("relative") {
            let text = "thresholds are relative to free memory; the plan has bytes: mode absolute";
            self.find(Rule::Threshold, place, text);
        }
        let mut depth = |key: &str| {
            let text = text_at(value, &[key]);
            let depth = text.and_then(|text| text.parse().ok());
            let depth = depth.filter(|depth: &u64| *depth > 0);
            let found = text.unwrap_or("unset");
            let text = format!("{key} `{found}`: wants bytes, at least 1");
            self.wanted(depth, Rule::Schema, place, text)
        };
        let (low, high) = (depth("min-threshold"), depth("max-threshold"));
        let percent = text_at(value, &["probability"]).unwrap_or("100");
        let percent = percent.parse().ok().filter(|percent| *percent <= 100);
        let percent = self.wanted(percent, Rule::Schema, place, "probability is 0 to 100");
        (ecn || red).then_some(Marking {
            low: low?,
            high: high?,
            percent: percent?,
            marks_ect: ecn,
            drops_droppable: red,
        })
    }

    fn is_enabled(&mut self, value: &ConfigEntry, key: &str, place: &str) -> bool {
        match text_at(value, &[key]) {
            Some("enable") => true,
            Some("disable") | None => false,
            Some(other) => {
                let text = format!("{key} `{other}`: allowed are enable and disable");
                self.find(Rule::Schema, place, text);
                false
            }
        }
    }

    /// Classes that are paused by PFC, or all by link pause.
    pub(super) fn add_pauses(&mut self, port: &SwitchPort, said: &mut PortReading) {
        for feature in ["link-pause", "pfc"] {
            let (place, Some(profile)) = self.profile(port, feature) else {
                continue;
            };
            let is_off = |side: &str| text_at(profile, &[side]) == Some("disable");
            if is_off("rx") && is_off("tx") {
                continue;
            }
            let classes = rows_at(profile, &["switch-priority"]);
            let before = said.pauses.len();
            for class in classes {
                let keys = &class.name;
                let place = format!("{place}.switch-priority.{keys}");
                let numbers = self.numbers(keys, QUEUES, &place, Rule::QueueRange);
                said.pauses.extend(numbers);
            }
            if said.pauses.len() == before && !place.ends_with(super::GLOBAL) {
                said.pauses.extend(0..QUEUES);
            }
        }
        said.pauses.sort_unstable();
        said.pauses.dedup();
    }
}
