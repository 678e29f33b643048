//! The flight recorder of ranks of one process: what it reports while they run, and what it leaves
//! when an operation fails.

mod meeting;
mod world;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::{Rank, Span};
use gradwire_runtime::metrics::Snapshot;
use gradwire_runtime::trace::dump::TraceState;
use gradwire_runtime::trace::{COUNTS, TraceDump, dump::TraceEntry};
use gradwire_runtime::{EndError, LocalRank, OpenRank, RankTask};

use meeting::Meeting;
use world::{PATIENCE, on_ranks, open, sum};

fn all_reduce(sequence: u32, timeout: Span) -> RankTask {
    RankTask {
        operation: sum(2, sequence, vec![0; 40_000]),
        timeout: Some(timeout),
    }
}

const LONG: Span = Span::from_millis(10_000);

/// An empty folder of one test.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

/// As [`on_ranks`], for two ranks whose recorders are written into a folder.
fn on_two_ranks(job: &Job, folder: &Path, body: impl Fn(LocalRank) + Sync) {
    let open = |rank| open(rank, 2, job).with_trace_folder(Some(folder.to_owned()));
    let ranks: Vec<OpenRank> = (0..2).map(open).collect();
    let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
    thread::scope(|scope| {
        for rank in ranks {
            let (rendezvous, body) = (&rendezvous, &body);
            scope.spawn(move || body(rank.join(rendezvous, PATIENCE).expect("equal jobs")));
        }
    });
}

fn read(path: &Path) -> TraceDump {
    let text = std::fs::read_to_string(path).expect("the file was written");
    TraceDump::from_json(&text).expect("a whole dump")
}

fn file_of(error: &EndError) -> Option<PathBuf> {
    match error {
        EndError::Failed { trace, .. } => trace.clone(),
        _ => None,
    }
}

#[test]
fn a_trace_lists_last_and_pending_operations() {
    let mut job = Job::default();
    job.trace.entries = 4;
    let told = Meeting::of(2);
    on_ranks(2, &job, |rank| {
        for sequence in 0..7 {
            rank.run(all_reduce(sequence, LONG)).expect("nothing fails");
        }
        if rank.rank() == Rank(0) {
            rank.submit(all_reduce(7, LONG), Box::new(|_| {}));
            let dump = rank.trace();
            assert_eq!((dump.operations_total, dump.entries), (8, 4));
            assert_eq!(dump.groups[0].ranks, [0, 1]);
            assert_eq!((&dump.reason, &dump.incomplete), (&None, &None));
            let sequences: Vec<u32> = dump.operations.iter().map(|one| one.sequence).collect();
            assert_eq!(sequences, [4, 5, 6, 7]);
            let [.., done, pending] = &dump.operations[..] else {
                panic!("four operations are kept");
            };
            assert_eq!(done.state, TraceState::Completed);
            assert!(done.started_us >= Some(done.submitted_us) && done.ended_us >= done.started_us);
            let shape: fn(&TraceEntry) -> _ =
                |one| (one.kind.clone(), one.dtype.clone(), one.bytes);
            assert_eq!(
                shape(pending),
                ("all_reduce".to_owned(), "f32".to_owned(), 40_000)
            );
            assert_eq!(pending.reduction.as_deref(), Some("sum"));
            let needs = pending.needs.as_ref().expect("it waits");
            assert_eq!((&needs.ranks[..], needs.received_bytes), (&[1][..], 0));
            assert!(needs.expected_bytes > 0);
            told.wait();
        } else {
            told.wait();
            rank.run(all_reduce(7, LONG)).expect("nothing fails");
        }
        rank.close(PATIENCE);
        assert_eq!(
            rank.trace().incomplete.as_deref(),
            Some("the rank was closed, or its driver has failed")
        );
    });
}

#[test]
fn the_error_names_the_trace_of_its_failure() {
    let folder = folder("first-failure");
    let over = Meeting::of(2);
    on_two_ranks(&Job::default(), &folder, |rank| {
        rank.run(all_reduce(0, LONG)).expect("nothing fails");
        if rank.rank() == Rank(0) {
            let error = rank
                .run(all_reduce(1, Span::from_millis(200)))
                .expect_err("rank 1 takes no part");
            let path = file_of(&error).expect("it was written");
            assert!(error.to_string().contains(&path.display().to_string()));
            let name = path.file_name().and_then(|name| name.to_str());
            assert!(name.is_some_and(|name| name.ends_with("-rank0.json")));
            let dump = read(&path);
            assert!(
                dump.reason
                    .is_some_and(|reason| reason.contains("Timed out"))
            );
            let failed = dump.operations.last().expect("two operations");
            assert_eq!((failed.sequence, failed.state), (1, TraceState::Failed));
            assert!(failed.error.is_some());
            assert_eq!(
                failed.needs.as_ref().map(|needs| &needs.ranks[..]),
                Some(&[1][..])
            );
            let written = std::fs::metadata(&path).and_then(|file| file.modified());
            rank.abort("afterwards");
            over.wait();
            rank.close(PATIENCE);
            let again = std::fs::metadata(&path).and_then(|file| file.modified());
            assert_eq!(written.expect("it is there"), again.expect("it is there"));
        } else {
            over.wait();
            rank.close(PATIENCE);
        }
    });
}

#[test]
fn lost_peers_and_aborts_leave_a_trace() {
    let folder = folder("without-operations");
    let joined = Meeting::of(2);
    on_two_ranks(&Job::default(), &folder, |rank| {
        joined.wait();
        if rank.rank() == Rank(1) {
            return drop(rank);
        }
        let written = || {
            let files = std::fs::read_dir(&folder).into_iter().flatten();
            let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
            files.find(|path| path.extension().is_some_and(|ending| ending == "json"))
        };
        let waited = (0..100).find_map(|_| {
            thread::sleep(Duration::from_millis(100));
            written()
        });
        let dump = read(&waited.expect("it is written within ten seconds"));
        assert_eq!(dump.lost.len(), 1);
        assert!(
            dump.reason
                .is_some_and(|reason| reason.contains("rank 1 was lost"))
        );
        rank.close(PATIENCE);
    });
}

#[test]
fn a_leaving_rank_writes_its_counts() {
    let folder = folder("leaving");
    on_two_ranks(&Job::default(), &folder, |rank| {
        rank.run(all_reduce(0, LONG)).expect("nothing fails");
        rank.close(PATIENCE);
    });
    let files = std::fs::read_dir(&folder).expect("it was made");
    let names = files.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    for (rank, name) in names.iter().enumerate() {
        assert!(name.starts_with(COUNTS), "{name}");
        assert!(name.ends_with(&format!("-rank{rank}.json")), "{name}");
        let text = std::fs::read(folder.join(name)).expect("it was written");
        let counted: Snapshot = serde_json::from_slice(&text).expect("a whole snapshot");
        assert_eq!((counted.rank, counted.world_size), (rank as u16, 2));
        assert_eq!(counted.operations.len(), 1);
    }
}

#[test]
fn a_recorder_that_is_off_remembers_nothing() {
    let mut job = Job::default();
    job.trace.entries = 0;
    on_ranks(2, &job, |rank| {
        rank.run(all_reduce(0, LONG)).expect("nothing fails");
        let dump = rank.trace();
        assert!(dump.operations.is_empty() && dump.operations_total == 0);
        rank.close(PATIENCE);
    });
}

#[test]
fn an_unwritable_folder_does_not_hide_the_error() {
    let folder = folder("no-folder");
    std::fs::write(&folder, "a file").expect("the test's folder is writable");
    let over = Meeting::of(2);
    on_two_ranks(&Job::default(), &folder, |rank| {
        if rank.rank() == Rank(0) {
            let error = rank
                .run(all_reduce(0, Span::from_millis(100)))
                .expect_err("rank 1 takes no part");
            assert!(error.to_string().contains("Timed out"), "{error}");
            assert_eq!(file_of(&error), None);
        }
        over.wait();
        rank.close(PATIENCE);
    });
    std::fs::remove_file(&folder).expect("it is a file");
}
