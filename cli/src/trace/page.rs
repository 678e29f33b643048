//! A report as text: tables for people, and below each its meaning.

use std::fmt::Write;

use gradwire_runtime::trace::dump::{OperationNeeds, TraceState};

use gradwire_lab::trace::standings::{
    GroupReport, OpenMessage, RankStanding, Stuck, TraceReport, size,
};

/// Rows whose texts are equal are one row; more messages than these are counted only.
const MESSAGES_MAX: usize = 20;

/// All of a report.
pub fn text(report: &TraceReport) -> String {
    let mut text = title(report);
    text += &ranks(report);
    for group in &report.groups {
        text += &group_text(group);
    }
    text += &messages(&report.messages);
    text += &longest(report);
    text
}

fn title(report: &TraceReport) -> String {
    let TraceReport {
        job,
        job_id,
        world_size,
        ..
    } = report;
    let told = report.ranks.len();
    let mut text = format!("# job {job}, run {job_id:08x}: {told} of {world_size} ranks\n");
    if !report.absent.is_empty() {
        let absent = named(&report.absent);
        let _ = writeln!(
            text,
            "# no trace of {absent}: killed, not failed yet, or its file was not given"
        );
    }
    text
}

fn ranks(report: &TraceReport) -> String {
    let mut table = Table::new("rank | host | process | operations | wrote this because");
    for line in &report.ranks {
        let why = line.reason.as_deref().unwrap_or("it was asked");
        let why = match &line.incomplete {
            Some(incomplete) => format!("{why} (incomplete: {incomplete})"),
            None => why.to_owned(),
        };
        table.row([
            line.rank.to_string(),
            line.host.clone(),
            line.process.to_string(),
            line.operations.to_string(),
            why,
        ]);
    }
    format!("\n{}", table.text())
}

fn group_text(group: &GroupReport) -> String {
    let mut table = Table::new(
        "ranks | entered | completed | not completed | state | for | received | waits for",
    );
    for standings in alike(&group.standings) {
        let ranks: Vec<u16> = standings.iter().map(|one| one.rank).collect();
        let one = standings[0];
        if !one.told {
            table.row([ranges(&ranks), "no trace".to_owned()]);
            continue;
        }
        let number =
            |sequence: Option<u32>| sequence.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let mut row = vec![ranges(&ranks), number(one.entered), number(one.completed)];
        row.extend(one.stuck.iter().flat_map(stuck_cells));
        table.row(row);
    }
    let members = ranges(&group.ranks);
    let mut text = format!("\ngroup {}, ranks {members}\n{}", group.id, table.text());
    for line in meaning(group) {
        let _ = writeln!(text, "=> {line}");
    }
    text
}

fn stuck_cells(stuck: &Stuck) -> [String; 5] {
    let (received, waits_for) = stuck.needs.as_ref().map_or_else(
        || ("-".to_owned(), "-".to_owned()),
        |needs| (received(needs), ranges(&needs.ranks)),
    );
    let operation = format!("{} {}", stuck.sequence, stuck.operation);
    let state = state(stuck.state).to_owned();
    [operation, state, time(stuck.took_us), received, waits_for]
}

fn received(needs: &OperationNeeds) -> String {
    let (received, expected) = (needs.received_bytes, needs.expected_bytes);
    format!("{} of {}", size(received), size(expected))
}

fn state(state: TraceState) -> &'static str {
    match state {
        TraceState::Submitted => "submitted",
        TraceState::Started => "started",
        TraceState::Completed => "completed",
        TraceState::Failed => "failed",
    }
}

/// Neighbouring ranks that stand alike.
fn alike(standings: &[RankStanding]) -> Vec<Vec<&RankStanding>> {
    let key = |one: &RankStanding| {
        let stuck = one.stuck.as_ref();
        let stuck = stuck.map(|stuck| (stuck.sequence, stuck.operation.clone(), stuck.state));
        let waits_for = one.stuck.as_ref().and_then(|stuck| stuck.needs.clone());
        let waits_for = waits_for.map(|needs| needs.ranks);
        (one.told, one.entered, one.completed, stuck, waits_for)
    };
    let mut rows: Vec<Vec<&RankStanding>> = Vec::new();
    for one in standings {
        match rows.iter_mut().find(|row| key(row[0]) == key(one)) {
            Some(row) => row.push(one),
            None => rows.push(vec![one]),
        }
    }
    rows
}

/// The meaning of a group's table, in sentences.
fn meaning(group: &GroupReport) -> Vec<String> {
    let mut lines = Vec::new();
    let furthest = group.standings.iter().filter_map(|one| one.entered).max();
    if let (Some(furthest), false) = (furthest, group.behind.is_empty()) {
        let behind = named(&group.behind);
        let verb = has(&group.behind);
        lines.push(format!(
            "{behind} {verb} not entered {furthest}, others have"
        ));
    }
    let silent = group.standings.iter().filter(|one| !one.told);
    let silent: Vec<u16> = silent.map(|one| one.rank).collect();
    let waited: Vec<u16> = silent
        .into_iter()
        .filter(|rank| is_waited_for(group, *rank))
        .collect();
    if !waited.is_empty() {
        let (ranks, verb) = (named(&waited), has(&waited));
        lines.push(format!(
            "{ranks} {verb} left no trace and others wait: look there first"
        ));
    }
    if let Some(mismatch) = &group.mismatch {
        let sequence = mismatch.sequence;
        lines.push(format!("the ranks do not agree on operation {sequence}:"));
        let operations = mismatch.operations.iter();
        lines.extend(operations.map(|(rank, words)| format!("  rank {rank}: {words}")));
    }
    if lines.is_empty() {
        lines.push("all ranks have entered the same operations".to_owned());
    }
    lines
}

fn is_waited_for(group: &GroupReport, rank: u16) -> bool {
    let needs = group.standings.iter();
    let mut needs = needs.filter_map(|one| one.stuck.as_ref()?.needs.as_ref());
    needs.any(|needs| needs.ranks.contains(&rank))
}

fn messages(messages: &[OpenMessage]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new("rank | group | not completed | state | for | received | the other side");
    for message in messages.iter().take(MESSAGES_MAX) {
        let [_, state, took, received, _] = stuck_cells(&message.stuck);
        let operation = message.stuck.operation.clone();
        let other = match (message.met, message.peer) {
            (Some(true), _) => "has it open, too",
            (Some(false), _) => "has none open",
            (None, Some(_)) => "has left no trace",
            (None, None) => "any rank",
        };
        table.row([
            message.rank.to_string(),
            message.group.to_string(),
            operation,
            state,
            took,
            received,
            other.to_owned(),
        ]);
    }
    let more = messages.len().saturating_sub(MESSAGES_MAX);
    let mut text = format!("\nmessages between two ranks\n{}", table.text());
    if more > 0 {
        let _ = writeln!(text, "and {more} more");
    }
    text
}

fn longest(report: &TraceReport) -> String {
    if report.longest.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new("took | on rank | group | operation | state | last in | after the first");
    for long in &report.longest {
        table.row([
            time(long.took_us),
            long.rank.to_string(),
            long.group.to_string(),
            format!("{} {}", long.sequence, long.operation),
            state(long.state).to_owned(),
            format!("rank {}", long.last_in),
            time(long.last_in_late_us),
        ]);
    }
    format!("\nlongest operations\n{}", table.text())
}

/// A time for people.
fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn named(ranks: &[u16]) -> String {
    match ranks {
        [rank] => format!("rank {rank}"),
        _ => format!("ranks {}", ranges(ranks)),
    }
}

fn has(ranks: &[u16]) -> &'static str {
    match ranks {
        [_] => "has",
        _ => "have",
    }
}

/// Ranks as people write them: "0, 2-7".
fn ranges(ranks: &[u16]) -> String {
    let mut parts = Vec::new();
    for run in ranks.chunk_by(|a, b| b.checked_sub(1) == Some(*a)) {
        match run {
            [only] => parts.push(only.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [] => {}
        }
    }
    match parts.is_empty() {
        true => "-".to_owned(),
        false => parts.join(", "),
    }
}

/// A table with columns as wide as their cells.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads, `|` between them.
    fn new(heads: &str) -> Self {
        let heads = heads.split(" | ").map(str::to_owned).collect();
        Self { rows: vec![heads] }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Lines without blanks at their ends; a row may have fewer cells than there are heads.
    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (at, cell) in row.iter().enumerate() {
                let width = self.width(at);
                let _ = write!(line, "{cell:<width$}  ");
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    fn width(&self, at: usize) -> usize {
        let cells = self
            .rows
            .iter()
            .filter(|row| row.len() == self.rows[0].len());
        let cells = cells.filter_map(|row| row.get(at));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_row_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 2, 3, 4, 9]), "0, 2-4, 9");
        assert_eq!(ranges(&[5, 6]), "5-6");
        assert_eq!(ranges(&[]), "-");
    }

    #[test]
    fn times_have_one_unit() {
        let times = [999, 1_500, 2_000_000].map(time);
        assert_eq!(times, ["999 us", "1.5 ms", "2.0 s"]);
    }
}
