//! Rows of a measurement, for people and for programs.

use gradwire_protocol::job::Job;
use gradwire_protocol::job::notation::show_share;
use gradwire_report::columns::heads;
use gradwire_report::printing::OutputForm;
use serde_json::{Map, Value, json};

use gradwire_lab::crew::ELEMENT_BYTES;
use gradwire_lab::crew::kind::PerfCollective;
use gradwire_lab::crew::messages::Measured;
use gradwire_lab::crew::rounds::{Ratio, RoundSeries};

/// Who did a row.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Backend {
    /// "gradwire" or the rival.
    pub name: &'static str,
    /// The wire that carried packets.
    pub wire: String,
    /// How they were protected.
    pub security: &'static str,
}

/// The subject of a table: the collective, its ranks and its backends.
#[derive(Clone, Debug)]
pub struct PerfSubject {
    /// Which collective.
    pub kind: PerfCollective,
    /// How many ranks do it.
    pub ranks: u16,
    /// In how many rounds.
    pub rounds: u32,
    /// The network that joins the ranks.
    pub network: &'static str,
    /// The job.
    pub job: Job,
    /// Ours first.
    pub backends: Vec<Backend>,
    /// Other facts that readers of the rows must know, one line each.
    pub remarks: Vec<String>,
}

/// One size, with the measurements of each backend.
#[derive(Clone, Debug)]
pub struct SizeRow {
    /// Its size.
    pub bytes: u64,
    /// In the order of the subject's backends.
    pub series: Vec<RoundSeries>,
}

/// Sums over all ranks and rounds of one backend.
struct Counted<'a>(&'a RoundSeries);

impl Counted<'_> {
    fn sum(&self, count: fn(&Measured) -> u64) -> u64 {
        self.0.parts().flatten().map(count).sum()
    }

    fn max_lost_share(&self) -> f64 {
        let shares = self.0.parts().flatten().map(|rank| rank.max_lost_share);
        shares.fold(0.0, f64::max)
    }

    fn wrong(&self) -> u64 {
        let differing = |part: &Vec<Measured>| {
            let first = &part[0].hashes;
            let others = part.iter().flat_map(|rank| first.iter().zip(&rank.hashes));
            others.filter(|(a, b)| a != b).count() as u64
        };
        self.sum(|rank| rank.wrong_elements) + self.0.parts().map(differing).sum::<u64>()
    }
}

/// Bytes per microsecond are megabytes per second.
pub fn gigabytes(bytes: u64, time_us: f64) -> f64 {
    if time_us > 0.0 {
        bytes as f64 / time_us / 1e3
    } else {
        0.0
    }
}

/// Three digits behind the point.
pub fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// A ratio with its spread.
pub fn ratio_json(ratio: &Ratio) -> Value {
    json!({
        "median": rounded(ratio.median),
        "min": rounded(ratio.min),
        "max": rounded(ratio.max),
        "rounds_won": ratio.won,
    })
}

/// The form in which a sweep prints its rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PerfForm {
    /// A table with a summary, or JSON.
    Report(OutputForm),
    /// Comma-separated values: a line of names, then a line for each size and backend.
    Csv,
}

/// The columns of comma-separated values, with the names that JSON has.
const CSV: [&str; 13] = [
    "collective",
    "backend",
    "wire",
    "security",
    "ranks",
    "size_bytes",
    "time_us",
    "algbw_gb_per_s",
    "busbw_gb_per_s",
    "lost_segments",
    "repaired_segments",
    "sent_segments",
    "wrong",
];

/// The table of a sweep over sizes: prints rows as they come, and a summary.
#[derive(Debug)]
pub struct PerfTable {
    subject: PerfSubject,
    form: PerfForm,
    rows: Vec<SizeRow>,
}

impl PerfTable {
    /// A table; in text it starts with its subject and the names of the columns.
    pub fn new(subject: PerfSubject, form: PerfForm) -> Self {
        match form {
            PerfForm::Report(form) => form.remark(format_args!("{}", subject.heading())),
            PerfForm::Csv => println!("{}", CSV.join(",")),
        }
        Self {
            subject,
            form,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn print(&mut self, row: SizeRow) {
        let Self { subject, form, .. } = self;
        match form {
            PerfForm::Report(OutputForm::Text) => println!("{}", subject.text(&row)),
            PerfForm::Report(OutputForm::Json) => {
                let objects = subject.objects(&row).into_iter();
                objects.for_each(|object| println!("{object}"));
            }
            PerfForm::Csv => {
                let objects = subject.objects(&row);
                objects
                    .iter()
                    .for_each(|object| println!("{}", csv(object)));
            }
        }
        self.rows.push(row);
    }

    /// Ends the table: who was faster, and where.
    pub fn finish(&self) {
        let PerfForm::Report(form) = self.form else {
            return;
        };
        let text = || {
            let verdicts = self.subject.verdicts(&self.rows).into_iter();
            let verdicts: String = verdicts.map(|line| format!("# {line}\n")).collect();
            let footer = self.subject.footer(&self.rows);
            format!(
                "{verdicts}# every result was compared with the exact one on every rank, or \
                 between ranks with a codec\n{footer}"
            )
        };
        form.print(text, || self.subject.summary(&self.rows));
    }
}

/// The values of a row's object, in the order of the columns.
fn csv(object: &Value) -> String {
    let values = CSV.map(|name| match &object[name] {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    });
    values.join(",")
}

impl PerfSubject {
    fn rivals(&self) -> impl Iterator<Item = (usize, &Backend)> {
        self.backends.iter().enumerate().skip(1)
    }

    fn heading(&self) -> String {
        let (kind, ranks, job) = (self.kind, self.ranks, &self.job);
        let ours = &self.backends[0];
        let mut text = format!(
            "# {kind}, {ranks} ranks on this machine ({}) over {}, security {}\n",
            self.network, ours.wire, ours.security
        );
        text += &format!(
            "# job {:?}, tolerance {}, dropped {}, rounds {}\n",
            job.name,
            show_share(job.tolerance),
            show_share(job.faults.drop),
            self.rounds,
        );
        for remark in &self.remarks {
            text += &format!("# {remark}\n");
        }
        let mut widths = vec![12, 12, 6, 6, 10, 8, 8, 8, 8, 10, 7];
        let mut names = "size | count | type | redop | time | algbw | busbw | lost | repaired \
                         | sent | #wrong"
            .to_owned();
        let mut units =
            "bytes | elements | | | us | GB/s | GB/s | segments | segments | segments |".to_owned();
        for (_, rival) in self.rivals() {
            widths.extend([12, 8, 7, 13]);
            names += &format!(" | {} | algbw | ratio | rounds", rival.name);
            units += " | us | GB/s | | min-max";
        }
        let (names, units) = (heads(&widths, &names), heads(&widths, &units));
        format!("{text}{names}\n{units}")
    }

    fn text(&self, row: &SizeRow) -> String {
        let ours = &row.series[0];
        let (counted, time_us) = (Counted(ours), ours.time_us());
        let algbw = gigabytes(row.bytes, time_us);
        let mut line = format!(
            "{:>12} {:>12} {:>6} {:>6} {:>10.1} {:>8.3} {:>8.3} {:>8} {:>8} {:>10} {:>7}",
            row.bytes,
            row.bytes / ELEMENT_BYTES,
            "float",
            self.kind.reduction(),
            time_us,
            algbw,
            algbw * self.kind.bus_factor(self.ranks),
            counted.sum(|rank| rank.lost_segments),
            counted.sum(|rank| rank.repaired_segments),
            counted.sum(|rank| rank.sent_segments),
            counted.wrong(),
        );
        for (at, _) in self.rivals() {
            let (theirs, ratio) = (row.series[at].time_us(), Ratio::of(&row.series[at], ours));
            let spread = format!("{:.2}-{:.2}", ratio.min, ratio.max);
            let algbw = gigabytes(row.bytes, theirs);
            line += &format!(
                " {theirs:>12.1} {algbw:>8.3} {:>7.2} {spread:>13}",
                ratio.median
            );
        }
        line
    }

    /// One object for each backend.
    fn objects(&self, row: &SizeRow) -> Vec<Value> {
        let mut objects: Vec<Value> = self
            .backends
            .iter()
            .zip(&row.series)
            .map(|(backend, series)| self.object(row.bytes, backend, series))
            .collect();
        for (at, rival) in self.rivals() {
            let ratio = Ratio::of(&row.series[at], &row.series[0]);
            objects[at]["ratio"] = rounded(ratio.median).into();
            objects[at]["ratio_min"] = rounded(ratio.min).into();
            objects[at]["ratio_max"] = rounded(ratio.max).into();
            let key = format!("{}_time_us", rival.name);
            objects[0][key] = rounded(row.series[at].time_us()).into();
            if at == 1 {
                objects[0]["ratio"] = rounded(ratio.median).into();
            }
        }
        objects
    }

    fn object(&self, bytes: u64, backend: &Backend, series: &RoundSeries) -> Value {
        let (counted, time_us) = (Counted(series), series.time_us());
        let algbw = gigabytes(bytes, time_us);
        let rounds = series.medians_us().into_iter().map(rounded);
        json!({
            "collective": self.kind.to_string(),
            "backend": backend.name,
            "wire": backend.wire,
            "security": backend.security,
            "size_bytes": bytes,
            "time_us": rounded(time_us),
            "round_times_us": rounds.collect::<Vec<f64>>(),
            "algbw_gb_per_s": rounded(algbw),
            "busbw_gb_per_s": rounded(algbw * self.kind.bus_factor(self.ranks)),
            "lost_segments": counted.sum(|rank| rank.lost_segments),
            "repaired_segments": counted.sum(|rank| rank.repaired_segments),
            "sent_segments": counted.sum(|rank| rank.sent_segments),
            "ledger_lost_segments": counted.sum(|rank| rank.ledger_lost_segments),
            "max_lost_share": counted.max_lost_share(),
            "wrong": counted.wrong(),
            "faults_dropped": counted.sum(|rank| rank.faults_dropped),
            "kernel_drops": counted.sum(|rank| rank.kernel_drops),
            "iterations": series.iterations(),
            "ranks": self.ranks,
        })
    }

    /// The summary of all rows.
    fn summary(&self, rows: &[SizeRow]) -> Value {
        let mut ratios = Map::new();
        let mut wins = Map::new();
        for (at, rival) in self.rivals() {
            let of_row = |row: &SizeRow| Ratio::of(&row.series[at], &row.series[0]);
            let sizes = rows.iter().map(|row| {
                let ratio = ratio_json(&of_row(row));
                (row.bytes.to_string(), ratio)
            });
            ratios.insert(rival.name.to_owned(), Value::Object(sizes.collect()));
            let won = rows.iter().filter(|row| of_row(row).median > 1.0).count();
            let won = json!({ "gradwire": won, rival.name: rows.len() - won });
            wins.insert(rival.name.to_owned(), won);
        }
        let ours = &self.backends[0];
        let wrong = rows.iter().flat_map(|row| &row.series);
        json!({
            "summary": {
                "collective": self.kind.to_string(),
                "ranks": self.ranks,
                "network": self.network,
                "wire": ours.wire,
                "security": ours.security,
                "job": self.job.name,
                "tolerance": self.job.tolerance.get(),
                "dropped": self.job.faults.drop.get(),
                "rounds": self.rounds,
                "sizes": rows.len(),
                "wrong": wrong.map(|series| Counted(series).wrong()).sum::<u64>(),
                "faster_at_sizes": wins,
                "remarks": self.remarks,
            },
            "ratios": ratios,
        })
    }

    /// The last lines of nccl-tests, which scripts look for.
    fn footer(&self, rows: &[SizeRow]) -> String {
        let wrong: u64 = rows.iter().map(|row| Counted(&row.series[0]).wrong()).sum();
        let is_ok = if wrong == 0 { "OK" } else { "FAILED" };
        let factor = self.kind.bus_factor(self.ranks);
        let busbw = |row: &SizeRow| gigabytes(row.bytes, row.series[0].time_us()) * factor;
        let sum: f64 = rows.iter().map(busbw).sum();
        let mean = sum / rows.len().max(1) as f64;
        format!("# Out of bounds values : {wrong} {is_ok}\n# Avg bus bandwidth    : {mean:.3}")
    }

    /// Who was faster where, one line for each rival.
    fn verdicts(&self, rows: &[SizeRow]) -> Vec<String> {
        let of_rival = |(at, rival): (usize, &Backend)| {
            let ratio = |row: &&SizeRow| Ratio::of(&row.series[at], &row.series[0]).median;
            let lost = rows.iter().filter(|row| ratio(row) <= 1.0);
            let lost: Vec<String> = lost.map(|row| row.bytes.to_string()).collect();
            let (name, sizes) = (rival.name, rows.len());
            match lost.as_slice() {
                [] => format!("gradwire is faster than {name} at every size, {sizes} in all"),
                lost => format!(
                    "{name} is faster at {} of {sizes} sizes: {}",
                    lost.len(),
                    lost.join(", ")
                ),
            }
        };
        self.rivals().map(of_rival).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &'static str, wire: &str) -> Backend {
        Backend {
            name,
            wire: wire.to_owned(),
            security: "none",
        }
    }

    fn subject() -> PerfSubject {
        PerfSubject {
            kind: PerfCollective::AllReduce,
            ranks: 4,
            rounds: 1,
            network: "loopback",
            job: Job::default(),
            backends: vec![backend("gradwire", "udp"), backend("gloo", "tcp")],
            remarks: Vec::new(),
        }
    }

    fn row(ours: f64, theirs: f64) -> SizeRow {
        let series = |time| RoundSeries {
            warmup: Vec::new(),
            rounds: vec![vec![Measured {
                times_us: vec![time],
                ..Measured::default()
            }]],
        };
        SizeRow {
            bytes: 1_000_000,
            series: vec![series(ours), series(theirs)],
        }
    }

    #[test]
    fn json_and_text_have_the_same_unit() {
        let (subject, row) = (subject(), row(1000.0, 2000.0));
        let objects = subject.objects(&row);
        assert_eq!(objects[0]["algbw_gb_per_s"], 1.0);
        assert_eq!(objects[0]["busbw_gb_per_s"], 1.5);
        assert_eq!(objects[0]["gloo_time_us"], 2000.0);
        assert_eq!(objects[1]["ratio"], 2.0);
        assert_eq!(objects[1]["wire"], "tcp");
        let text = subject.text(&row);
        assert!(text.contains(" 1.000    1.500 "), "{text}");
        assert!(text.ends_with("    2.00     2.00-2.00"), "{text}");
    }

    #[test]
    fn footer_is_that_of_nccl_tests() {
        let rows = [row(1000.0, 2000.0), row(2000.0, 500.0)];
        let wanted = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.125";
        assert_eq!(subject().footer(&rows), wanted);
    }

    #[test]
    fn values_stand_in_the_order_of_their_names() {
        let objects = subject().objects(&row(1000.0, 2000.0));
        let wanted = "all-reduce,gloo,tcp,none,4,1000000,2000.0,0.5,0.75,0,0,0,0";
        assert_eq!(csv(&objects[1]), wanted);
    }

    #[test]
    fn a_rival_that_wins_is_shown_winning() {
        let rows = [row(1000.0, 2000.0), row(1000.0, 500.0)];
        let verdicts = subject().verdicts(&rows);
        assert_eq!(verdicts, ["gloo is faster at 1 of 2 sizes: 1000000"]);
        let summary = subject().summary(&rows);
        assert_eq!(summary["summary"]["faster_at_sizes"]["gloo"]["gloo"], 1);
        assert_eq!(summary["ratios"]["gloo"]["1000000"]["median"], 0.5);
    }
}
