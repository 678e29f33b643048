//! The results of a probe, for people and for programs.

use std::time::Duration;

use gradwire_netsim::results::outcome::ClassCounts;
use gradwire_protocol::machine::Ecn;
use gradwire_switch_config::counters::Judgement;
use gradwire_transport::probe::{Passage, Passages};
use serde_json::{Value, json};

use super::Tagged;
use super::options::ProbeOptions;
use gradwire_report::printing::OutputForm;

/// The packets of a probe, and their fate.
pub struct ProbeReport<'a> {
    /// As it was asked for.
    pub options: &'a ProbeOptions,
    /// The streams.
    pub tags: &'a [Tagged],
    /// The fate of each.
    pub passages: Passages,
    /// The counters of simulated queues, highest first.
    pub queues: Option<[ClassCounts; 8]>,
    /// Their interpretation.
    pub judgements: Vec<Judgement>,
}

impl ProbeReport<'_> {
    /// The text to print, with its last line break.
    pub fn text(&self) -> String {
        match self.options.form() {
            OutputForm::Json => format!("{}\n", self.object()),
            OutputForm::Text => self.table(),
        }
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<9} {:>4} {:<7} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6} {:>9} {:>9}\n",
            "class", "DSCP", "ECN", "rate", "sent", "recv", "lost", "CE", "tag", "p50", "p99"
        );
        for (tag, passage) in self.tags.iter().zip(&self.passages.streams) {
            let lost = passage.sent.saturating_sub(passage.received);
            let percent = 100.0 * f64::from(lost) / f64::from(passage.sent.max(1));
            let [median, p99] = micros(passage).map(|time| match time {
                Some(time) => format!("{time:.0}"),
                None => "-".to_owned(),
            });
            text += &format!(
                "{:<9} {:>4} {:<7} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6} {:>9} {:>9}\n",
                tag.name(),
                tag.stream.dscp.0,
                ecn(tag),
                tag.stream.rate.to_string(),
                passage.sent,
                passage.received,
                format!("{percent:.1} %"),
                passage.marked,
                passage.rewritten + passage.bleached,
                median,
                p99,
            );
        }
        let refused: u32 = self.passages.streams.iter().map(|one| one.refused).sum();
        if refused > 0 {
            text += &format!("this kernel refused {refused} packets\n");
        }
        for judgement in &self.judgements {
            text += &format!("{judgement}\n");
        }
        text
    }

    fn object(&self) -> Value {
        let streams = self.tags.iter().zip(&self.passages.streams);
        let streams = streams.map(|(tag, passage)| {
            let [median, p99] = micros(passage);
            json!({
                "class": tag.name(),
                "dscp": tag.stream.dscp.0,
                "ecn": ecn(tag),
                "rate_bps": tag.stream.rate.as_bits_per_second(),
                "sent": passage.sent,
                "refused": passage.refused,
                "received": passage.received,
                "marked": passage.marked,
                "bleached": passage.bleached,
                "rewritten": passage.rewritten,
                "delay_p50_us": median,
                "delay_p99_us": p99,
            })
        });
        json!({
            "peer": self.options.peer,
            "simulated": self.options.simulate,
            "job": self.options.job,
            "seed": self.options.seed,
            "length_us": self.options.length.as_micros(),
            "payload_bytes": self.options.payload,
            "latest_us": self.passages.latest.as_micros() as u64,
            "kernel_drops": self.passages.kernel_drops,
            "streams": streams.collect::<Vec<_>>(),
            "queues": self.queues.as_ref().map(|queues| queues.map(queue)),
            "judgements": self.judgements,
        })
    }
}

fn ecn(tag: &Tagged) -> &'static str {
    match tag.stream.ecn {
        Ecn::NotEct => "not-ECT",
        Ecn::Ect | Ecn::Ce => "ECT",
    }
}

fn micros(passage: &Passage) -> [Option<f64>; 2] {
    let micros = |time: Duration| (time.as_secs_f64() * 1e7).round() / 10.0;
    match passage.delays {
        Some((median, p99)) => [median, p99].map(|time| Some(micros(time))),
        None => [None; 2],
    }
}

fn queue(counts: ClassCounts) -> Value {
    json!({
        "queued": counts.queued,
        "early": counts.dropped_early,
        "full": counts.dropped_full,
        "marked": counts.marked,
    })
}
