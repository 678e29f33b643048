//! Rows of a measurement, for people and for programs.

use gradwire_protocol::job::Job;
use gradwire_protocol::job::notation::show_share;
use gradwire_protocol::units::ByteCount;
use serde_json::json;

use super::ELEMENT_BYTES;
use super::messages::Measured;
use crate::arguments::Perf;

/// One size.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its size.
    pub bytes: ByteCount,
    /// What each rank saw, per round; warm-up first.
    pub parts: Vec<Vec<Measured>>,
    ranks: u16,
    time_us: f64,
    rival_time_us: Option<f64>,
    iterations: usize,
}

impl Row {
    /// A row of the timed iterations of ours and the rival's, which may be none.
    pub fn new(
        ranks: u16,
        bytes: ByteCount,
        parts: Vec<Vec<Measured>>,
        (ours, theirs): (Vec<f64>, Vec<f64>),
    ) -> Self {
        let iterations = ours.len();
        let rival_time_us = (!theirs.is_empty()).then(|| median(theirs));
        Self {
            bytes,
            parts,
            ranks,
            time_us: median(ours),
            rival_time_us,
            iterations,
        }
    }

    fn sum(&self, count: fn(&Measured) -> u64) -> u64 {
        self.parts.iter().flatten().map(count).sum()
    }

    /// Bytes per microsecond are megabytes per second.
    fn algbw_gigabytes(&self) -> f64 {
        self.bytes.get() as f64 / self.time_us / 1e3
    }

    fn bus_factor(&self) -> f64 {
        2.0 * f64::from(self.ranks - 1) / f64::from(self.ranks)
    }

    fn max_lost_share(&self) -> f64 {
        self.parts
            .iter()
            .flatten()
            .map(|rank| rank.max_lost_share)
            .fold(0.0, f64::max)
    }

    fn wrong(&self) -> u64 {
        let differing = |part: &Vec<Measured>| {
            let first = &part[0].hashes;
            let others = part.iter().flat_map(|rank| first.iter().zip(&rank.hashes));
            others.filter(|(a, b)| a != b).count() as u64
        };
        self.sum(|rank| rank.wrong_elements) + self.parts.iter().map(differing).sum::<u64>()
    }

    fn json(&self) -> String {
        let gigabits = self.algbw_gigabytes() * 8.0;
        let mut object = json!({
            "size_bytes": self.bytes.get(),
            "time_us": rounded(self.time_us),
            "algbw_gbps": rounded(gigabits),
            "busbw_gbps": rounded(gigabits * self.bus_factor()),
            "lost_segments": self.sum(|rank| rank.lost_segments),
            "repaired_segments": self.sum(|rank| rank.repaired_segments),
            "sent_segments": self.sum(|rank| rank.sent_segments),
            "ledger_lost_segments": self.sum(|rank| rank.ledger_lost_segments),
            "max_lost_share": self.max_lost_share(),
            "wrong": self.wrong(),
            "faults_dropped": self.sum(|rank| rank.faults_dropped),
            "kernel_drops": self.sum(|rank| rank.kernel_drops),
            "iterations": self.iterations,
            "ranks": self.ranks,
        });
        if let Some(rival) = self.rival_time_us {
            object["gloo_time_us"] = rounded(rival).into();
            object["ratio"] = rounded(rival / self.time_us).into();
        }
        object.to_string()
    }

    fn text(&self) -> String {
        let algbw = self.algbw_gigabytes();
        let mut line = format!(
            "{:>12} {:>12} {:>6} {:>6} {:>10.1} {:>8.3} {:>8.3} {:>8} {:>8} {:>10} {:>7}",
            self.bytes.get(),
            self.bytes.get() / ELEMENT_BYTES,
            "float",
            "sum",
            self.time_us,
            algbw,
            algbw * self.bus_factor(),
            self.sum(|rank| rank.lost_segments),
            self.sum(|rank| rank.repaired_segments),
            self.sum(|rank| rank.sent_segments),
            self.wrong(),
        );
        if let Some(rival) = self.rival_time_us {
            line += &format!(" {:>10.1} {:>7.2}", rival, rival / self.time_us);
        }
        line
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The median; 0 of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// Where rows go.
#[derive(Debug)]
pub struct Table {
    format: Format,
}

#[derive(Debug)]
enum Format {
    Text,
    Json,
}

impl Table {
    /// A table; in text it starts with what is measured and the names of the columns.
    pub fn new(options: &Perf, job: &Job) -> Self {
        if options.json {
            return Self {
                format: Format::Json,
            };
        }
        println!(
            "# all-reduce, {} ranks on this machine over UDP, job {:?}, tolerance {}, dropped {}",
            options.ranks,
            job.name,
            show_share(job.tolerance),
            show_share(job.faults.drop),
        );
        let (names, units) = match options.against {
            Some(_) => (" gloo time   gloo/", "        us    ours"),
            None => ("", ""),
        };
        println!(
            "#{:>11} {:>12} {:>6} {:>6} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7}{names}",
            "size",
            "count",
            "type",
            "redop",
            "time",
            "algbw",
            "busbw",
            "lost",
            "repaired",
            "sent",
            "#wrong",
        );
        println!(
            "#{:>11} {:>12} {:>6} {:>6} {:>10} {:>8} {:>8} {:>8} {:>8} {:>10} {:>7} {units}",
            "bytes",
            "elements",
            "",
            "",
            "us",
            "GB/s",
            "GB/s",
            "segments",
            "segments",
            "segments",
            "",
        );
        Self {
            format: Format::Text,
        }
    }

    /// Adds a row.
    pub fn print(&self, row: &Row) {
        match self.format {
            Format::Text => println!("{}", row.text()),
            Format::Json => println!("{}", row.json()),
        }
    }

    /// Ends the table.
    pub fn finish(&self) {
        if matches!(self.format, Format::Text) {
            println!("# every result was compared with the exact sum on every rank");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn json_has_gigabits_and_text_gigabytes() {
        let parts = vec![vec![Measured::default(); 4]];
        let row = Row::new(
            4,
            ByteCount::new(1_000_000),
            parts,
            (vec![1000.0], vec![2000.0]),
        );
        let json: serde_json::Value = serde_json::from_str(&row.json()).expect("valid JSON");
        assert_eq!(json["algbw_gbps"], 8.0);
        assert_eq!(json["busbw_gbps"], 12.0);
        assert_eq!(json["ratio"], 2.0);
        assert!(row.text().contains(" 1.000    1.500 "), "{}", row.text());
    }
}
