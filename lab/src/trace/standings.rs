//! Compares the recorders of several ranks: how far each is, who waits for whom, which operations
//! do not fit, which took longest.

use std::collections::{BTreeMap, BTreeSet};

use gradwire_runtime::trace::TraceDump;
use gradwire_runtime::trace::dump::{LostRank, OperationNeeds, TraceEntry, TraceState};
use serde::Serialize;

/// Operations whose tensors may have another length on each rank.
const UNEVEN: [&str; 3] = ["gather", "scatter", "all_to_all"];

/// Everything that is said about a run of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// Name of the job.
    pub job: String,
    /// Number of the run.
    pub job_id: u32,
    /// How many ranks the job has.
    pub world_size: u16,
    /// The ranks that have left a trace.
    pub ranks: Vec<RankLine>,
    /// Those that have not.
    pub absent: Vec<u16>,
    /// The groups, by number.
    pub groups: Vec<GroupReport>,
    /// Messages between two ranks that have not ended well.
    pub messages: Vec<OpenMessage>,
    /// The operations that took longest, longest first.
    pub longest: Vec<Long>,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankLine {
    /// The rank.
    pub rank: u16,
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// How many operations it has submitted.
    pub operations: u64,
    /// The reason why it wrote its trace; `None` when it was asked to.
    pub reason: Option<String>,
    /// The ranks that it has lost.
    pub lost: Vec<LostRank>,
    /// Why its trace does not tell everything, if so.
    pub incomplete: Option<String>,
}

/// One group: how far its ranks are with its collectives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its number.
    pub id: u16,
    /// Its ranks.
    pub ranks: Vec<u16>,
    /// How far they are, in the order of ranks.
    pub standings: Vec<RankStanding>,
    /// The ranks that have not entered an operation that others have.
    pub behind: Vec<u16>,
    /// The first operation that the ranks do not agree on.
    pub mismatch: Option<Mismatch>,
}

/// How far a rank is with the collectives of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankStanding {
    /// The rank.
    pub rank: u16,
    /// Whether it has left a trace.
    pub told: bool,
    /// The last sequence number that it has entered.
    pub entered: Option<u32>,
    /// The last that it has completed.
    pub completed: Option<u32>,
    /// The first operation that it has not completed.
    pub stuck: Option<Stuck>,
}

/// An operation that a rank has not completed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stuck {
    /// Its number in the group.
    pub sequence: u32,
    /// The operation, in words.
    pub operation: String,
    /// Where it stands.
    pub state: TraceState,
    /// For how long it was, or has been, on its way.
    pub took_us: u64,
    /// The condition that it waits for, or waited for when it failed.
    pub needs: Option<OperationNeeds>,
    /// Why it failed.
    pub error: Option<String>,
}

/// An operation that ranks of a group call by one number and do not agree on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mismatch {
    /// The number.
    pub sequence: u32,
    /// The operation that each rank has entered, in words.
    pub operations: Vec<(u16, String)>,
}

/// A message between two ranks that has not ended well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenMessage {
    /// The rank that tells it.
    pub rank: u16,
    /// The other rank; `None` where any may answer.
    pub peer: Option<u16>,
    /// Its group.
    pub group: u16,
    /// The operation.
    pub stuck: Stuck,
    /// Whether the other rank has its side open; `None` where it has left no trace, or any rank may
    /// answer.
    pub met: Option<bool>,
}

/// An operation that took long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Long {
    /// The rank that it took longest.
    pub rank: u16,
    /// Its group.
    pub group: u16,
    /// Its number in the group.
    pub sequence: u32,
    /// The operation, in words.
    pub operation: String,
    /// Where it stands on that rank.
    pub state: TraceState,
    /// How long it took that rank.
    pub took_us: u64,
    /// The rank that entered it last, by the clocks of their hosts.
    pub last_in: u16,
    /// How much later than the first.
    pub last_in_late_us: u64,
}

impl TraceReport {
    /// Compares the dumps of one run, one of each rank, in the order of ranks; at least one.
    pub fn of(dumps: &[TraceDump], longest: usize) -> Self {
        let first = dumps.first().expect("one file at least is asked for");
        let told: BTreeSet<u16> = dumps.iter().map(|dump| dump.rank).collect();
        let members = dumps.iter().flat_map(|dump| &dump.groups);
        let groups: BTreeMap<u16, &Vec<u16>> =
            members.map(|group| (group.id, &group.ranks)).collect();
        let groups = groups.into_iter();
        Self {
            job: first.job.clone(),
            job_id: first.job_id,
            world_size: first.world_size,
            ranks: dumps.iter().map(rank_line).collect(),
            absent: (0..first.world_size)
                .filter(|rank| !told.contains(rank))
                .collect(),
            groups: groups
                .filter_map(|(id, ranks)| group_report(dumps, id, ranks))
                .collect(),
            messages: messages(dumps),
            longest: longest_of(dumps, longest),
        }
    }
}

fn rank_line(dump: &TraceDump) -> RankLine {
    RankLine {
        rank: dump.rank,
        host: dump.host.clone(),
        process: dump.process,
        operations: dump.operations_total,
        reason: dump.reason.clone().or_else(|| dump.aborted.clone()),
        lost: dump.lost.clone(),
        incomplete: dump.incomplete.clone(),
    }
}

fn collectives(dump: &TraceDump, group: u16) -> impl Iterator<Item = &TraceEntry> {
    let all = dump.operations.iter();
    all.filter(move |entry| entry.group == group && !entry.is_message())
}

/// `None` for a group of which only messages between two ranks are remembered.
fn group_report(dumps: &[TraceDump], id: u16, ranks: &[u16]) -> Option<GroupReport> {
    let standing = |rank: &u16| {
        let dump = dumps.iter().find(|dump| dump.rank == *rank);
        standing(*rank, dump, id)
    };
    let standings: Vec<RankStanding> = ranks.iter().map(standing).collect();
    let furthest = standings.iter().filter_map(|one| one.entered).max()?;
    let is_behind = |one: &&RankStanding| one.told && one.entered < Some(furthest);
    Some(GroupReport {
        id,
        ranks: ranks.to_vec(),
        behind: standings
            .iter()
            .filter(is_behind)
            .map(|one| one.rank)
            .collect(),
        mismatch: mismatch(dumps, id),
        standings,
    })
}

fn standing(rank: u16, dump: Option<&TraceDump>, group: u16) -> RankStanding {
    let entries = || {
        dump.into_iter()
            .flat_map(move |dump| collectives(dump, group))
    };
    let open = entries().filter(|entry| entry.state != TraceState::Completed);
    let stuck = open.min_by_key(|entry| entry.sequence);
    let completed = entries().filter(|entry| entry.state == TraceState::Completed);
    RankStanding {
        rank,
        told: dump.is_some(),
        entered: entries().map(|entry| entry.sequence).max(),
        completed: completed.map(|entry| entry.sequence).max(),
        stuck: stuck.zip(dump).map(|(entry, dump)| stuck_of(entry, dump)),
    }
}

fn stuck_of(entry: &TraceEntry, dump: &TraceDump) -> Stuck {
    Stuck {
        sequence: entry.sequence,
        operation: in_words(entry),
        state: entry.state,
        took_us: entry.took_us(dump.at_us),
        needs: entry.needs.clone(),
        error: entry.error.clone(),
    }
}

/// An operation in words: "all_reduce sum f32, 4.0 MiB".
fn in_words(entry: &TraceEntry) -> String {
    let mut words = entry.kind.clone();
    let toward = match entry.kind.as_str() {
        "reduce" | "gather" | "send" => "to",
        _ => "from",
    };
    if let Some(rank) = entry.root.or(entry.peer) {
        words += &format!(" {toward} rank {rank}");
    }
    if let Some(tag) = entry.tag {
        words += &format!(", tag {tag},");
    }
    if let Some(reduction) = &entry.reduction {
        words += &format!(" {reduction}");
    }
    match entry.kind.as_str() {
        "barrier" => words,
        _ => format!("{words} {}, {}", entry.dtype, size(entry.bytes)),
    }
}

/// A number of bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// The properties of an operation that all ranks must share.
fn agreed(entry: &TraceEntry) -> (&str, Option<u16>, &str, Option<&str>, Option<u64>) {
    let kind = entry.kind.as_str();
    let bytes = (!UNEVEN.contains(&kind)).then_some(entry.bytes);
    let reduction = entry.reduction.as_deref();
    (kind, entry.root, &entry.dtype, reduction, bytes)
}

fn mismatch(dumps: &[TraceDump], group: u16) -> Option<Mismatch> {
    let mut by_sequence: BTreeMap<u32, Vec<(u16, &TraceEntry)>> = BTreeMap::new();
    for dump in dumps {
        for entry in collectives(dump, group) {
            let same = by_sequence.entry(entry.sequence).or_default();
            same.push((dump.rank, entry));
        }
    }
    let differ = |entries: &Vec<(u16, &TraceEntry)>| {
        entries
            .windows(2)
            .any(|pair| agreed(pair[0].1) != agreed(pair[1].1))
    };
    let (sequence, entries) = by_sequence.into_iter().find(|(_, all)| differ(all))?;
    let operations = entries.into_iter();
    Some(Mismatch {
        sequence,
        operations: operations
            .map(|(rank, entry)| (rank, in_words(entry)))
            .collect(),
    })
}

fn messages(dumps: &[TraceDump]) -> Vec<OpenMessage> {
    let mut messages = Vec::new();
    for dump in dumps {
        let open = dump.operations.iter();
        let open = open.filter(|entry| entry.is_message() && entry.state != TraceState::Completed);
        messages.extend(open.map(|entry| OpenMessage {
            rank: dump.rank,
            peer: entry.peer,
            group: entry.group,
            stuck: stuck_of(entry, dump),
            met: other_side(dumps, dump.rank, entry),
        }));
    }
    messages
}

/// Whether the other rank has such a message open, too; `None` where it left no trace, or may be
/// any.
fn other_side(dumps: &[TraceDump], rank: u16, entry: &TraceEntry) -> Option<bool> {
    let peer = entry.peer?;
    let other = dumps.iter().find(|other| other.rank == peer)?;
    let is_meant = |there: &&TraceEntry| {
        let same = (there.group, there.tag) == (entry.group, entry.tag);
        let toward = there.peer.is_none_or(|peer| peer == rank);
        let opposite = (there.kind == "send") != (entry.kind == "send");
        same && toward && opposite && there.state != TraceState::Completed
    };
    Some(other.operations.iter().filter(is_meant).count() > 0)
}

fn longest_of(dumps: &[TraceDump], count: usize) -> Vec<Long> {
    let mut sides: BTreeMap<(u16, u32), Vec<(&TraceDump, &TraceEntry)>> = BTreeMap::new();
    for dump in dumps {
        for entry in dump.operations.iter().filter(|entry| !entry.is_message()) {
            let same = sides.entry((entry.group, entry.sequence)).or_default();
            same.push((dump, entry));
        }
    }
    let mut longest: Vec<Long> = sides
        .into_values()
        .filter_map(|sides| long(&sides))
        .collect();
    longest.sort_by_key(|long| std::cmp::Reverse(long.took_us));
    longest.truncate(count);
    longest
}

fn long(sides: &[(&TraceDump, &TraceEntry)]) -> Option<Long> {
    let took = |side: &&(&TraceDump, &TraceEntry)| side.1.took_us(side.0.at_us);
    let (dump, entry) = sides.iter().max_by_key(took)?;
    let entered = |side: &(&TraceDump, &TraceEntry)| side.1.submitted_unix_s;
    let last = sides
        .iter()
        .max_by(|a, b| entered(a).total_cmp(&entered(b)))?;
    let first = sides.iter().map(entered).min_by(f64::total_cmp)?;
    Some(Long {
        rank: dump.rank,
        group: entry.group,
        sequence: entry.sequence,
        operation: in_words(entry),
        state: entry.state,
        took_us: entry.took_us(dump.at_us),
        last_in: last.0.rank,
        last_in_late_us: ((entered(last) - first) * 1e6) as u64,
    })
}
