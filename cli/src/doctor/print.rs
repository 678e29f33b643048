//! How findings are shown: a list for people, one object for programs.

use std::fmt::Write;

use gradwire_report::printing::OutputForm;
use serde::{Deserialize, Serialize};

use super::finding::{FindingState, HostFinding, worst};
use super::pair::Pair;

/// Columns of the name of a check.
const NAME_COLUMNS: usize = 15;
/// Columns of an entry of the table of ranks.
const ENTRY_COLUMNS: usize = 16;

/// Everything that was found on one host.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its rank, where the ranks of a job check each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u16>,
    /// Addresses that were checked.
    pub addresses: Vec<String>,
    /// The findings.
    pub checks: Vec<HostFinding>,
}

/// Everything that was found; the object that `--json` prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DoctorReport {
    /// This host.
    pub host: HostReport,
    /// Those of other ranks, where they told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostReport>,
    /// The paths.
    pub pairs: Vec<Pair>,
}

impl DoctorReport {
    /// How many findings have this state.
    pub fn count(&self, state: FindingState) -> usize {
        let hosts = self.hosts.iter().chain([&self.host]);
        let of_hosts = hosts.flat_map(|host| &host.checks);
        let of_pairs = self.pairs.iter().flat_map(|pair| &pair.checks);
        of_hosts
            .chain(of_pairs)
            .filter(|finding| finding.state == state)
            .count()
    }

    /// The text for standard output.
    pub fn text(&self, form: OutputForm) -> String {
        form.lines(|| self.list(), || self)
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for host in [&self.host].into_iter().chain(&self.hosts) {
            let rank = host
                .rank
                .map_or_else(String::new, |rank| format!("rank {rank}, "));
            heading(
                &mut text,
                &format!("{rank}host {} ({})", host.name, host.addresses.join(", ")),
            );
            text.extend(host.checks.iter().map(entry));
        }
        if !self.hosts.is_empty() {
            heading(
                &mut text,
                "paths between ranks: worst finding, median round trip",
            );
            text += &self.matrix();
        }
        for pair in &self.pairs {
            heading(&mut text, &format!("path {} -> {}", pair.from, pair.to));
            text.extend(pair.checks.iter().map(entry));
        }
        let [ok, warnings, problems] = [
            FindingState::Ok,
            FindingState::Warning,
            FindingState::Problem,
        ]
        .map(|state| self.count(state));
        heading(
            &mut text,
            &format!("ok: {ok}, warnings: {warnings}, problems: {problems}"),
        );
        text
    }

    /// One row per rank that looked, one column per rank that was looked at.
    fn matrix(&self) -> String {
        let mut ranks: Vec<&str> = Vec::new();
        for pair in &self.pairs {
            for rank in [&pair.from, &pair.to] {
                if !ranks.contains(&rank.as_str()) {
                    ranks.push(rank);
                }
            }
        }
        ranks.sort_unstable_by_key(|rank| (rank.len(), *rank));
        let mut text = format!("  {:<ENTRY_COLUMNS$}", "");
        for to in &ranks {
            let _ = write!(text, "{:<ENTRY_COLUMNS$}", format!("-> {to}"));
        }
        for from in &ranks {
            let _ = write!(text, "\n  {from:<ENTRY_COLUMNS$}");
            for to in &ranks {
                let found = self
                    .pairs
                    .iter()
                    .find(|pair| (&*pair.from, &*pair.to) == (*from, *to));
                let shown = found.map_or_else(|| "-".to_owned(), summary);
                let _ = write!(text, "{shown:<ENTRY_COLUMNS$}");
            }
        }
        text.lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }
}

fn summary(pair: &Pair) -> String {
    let state = worst(&pair.checks).word();
    let trip = pair.round_trip_us.map(|us| format!(" {us:.0} us"));
    format!("{state}{}", trip.unwrap_or_default())
}

fn heading(text: &mut String, heading: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(heading);
    text.push('\n');
}

fn entry(finding: &HostFinding) -> String {
    let HostFinding {
        name,
        state,
        found,
        costs,
        mend,
    } = finding;
    let mut text = format!("  {:<8} {name:<NAME_COLUMNS$} {found}\n", state.word());
    if *state != FindingState::Ok {
        for (what, line) in [("costs", costs), ("mend", mend)] {
            if let Some(line) = line {
                let _ = writeln!(text, "  {:<8} {what:>NAME_COLUMNS$}: {line}", "");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> DoctorReport {
        let pair = |from: &str, to: &str, finding| Pair {
            from: from.to_owned(),
            to: to.to_owned(),
            round_trip_us: Some(44.6),
            mtu: Some(1_500),
            checks: vec![finding],
        };
        let host = |rank| HostReport {
            name: "alpha".to_owned(),
            rank: Some(rank),
            addresses: vec!["10.0.0.1".to_owned()],
            checks: vec![HostFinding::ok("gso", "runs leave whole")],
        };
        let lost = HostFinding::problem("dscp", "all lost")
            .costs("a hang")
            .mend("tc filter show");
        DoctorReport {
            host: host(0),
            hosts: vec![host(1)],
            pairs: vec![
                pair("rank 0", "rank 1", HostFinding::ok("loss", "none")),
                pair("rank 1", "rank 0", lost),
            ],
        }
    }

    #[test]
    fn text_has_marks_costs_mends_and_ranks() {
        let text = report().text(OutputForm::Text);
        for line in [
            "rank 0, host alpha (10.0.0.1)",
            "  ok       gso             runs leave whole",
            "  rank 0          -               ok 45 us",
            "  rank 1          problem 45 us   -",
            "  problem  dscp            all lost",
            "                     costs: a hang",
            "                      mend: tc filter show",
            "ok: 3, warnings: 0, problems: 1",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line:?} is in\n{text}"
            );
        }
    }

    #[test]
    fn programs_read_what_others_told_as_it_was_written() {
        let text = report().text(OutputForm::Json);
        assert_eq!(text.lines().count(), 1);
        let read: DoctorReport = serde_json::from_str(&text).expect("it was written by this");
        assert_eq!(read.text(OutputForm::Json), text);
        assert_eq!(read.count(FindingState::Problem), 1);
    }
}
