//! Ranks that call different operations, or none, over real sockets: each of them hears what was
//! called where, and nothing hangs.

mod world;

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{Job, ReduceAlgorithm, WireChoice};
use gradwire_protocol::units::{Rank, Span};
use gradwire_runtime::{EndError, LocalRank, RankTask};

use world::{PATIENCE, on_ranks, sum};

/// How soon every rank knows, on a busy machine: far below any timeout.
const SOON: Duration = Duration::from_secs(4);
const RULE: &str = "all ranks of a group must call the same operation in the same order with the \
                    same shape and type";

/// The errors of operations that are submitted one after the other, and all fail. Returns them when
/// the last has ended.
#[expect(
    clippy::disallowed_methods,
    reason = "what a user waits is no time of the protocol"
)]
fn errors(
    rank: &LocalRank,
    timeout: Span,
    operations: impl IntoIterator<Item = Operation>,
) -> Vec<String> {
    let start = Instant::now();
    let (tell, told) = channel();
    for operation in operations {
        let timeout = Some(timeout);
        let tell = tell.clone();
        let done = move |ended: Result<gradwire_runtime::EndedOperation, _>| {
            let _ = tell.send(ended.map(|_| ()));
        };
        rank.submit(RankTask { operation, timeout }, Box::new(done));
    }
    drop(tell);
    let ended = told.iter();
    let errors = ended.map(|ended| ended.expect_err("ranks disagree").to_string());
    let errors: Vec<String> = errors.collect();
    assert!(start.elapsed() < SOON, "{:?}: {errors:?}", start.elapsed());
    errors
}

/// In every size of world, over sockets and memory in turn, rank 1 makes its own calls and all
/// others the same; every rank must hear `expected`.
fn assert_all_hear(
    worlds: &[u16],
    calls: impl Fn(u16, u16) -> Vec<Operation> + Sync,
    expected: &[&str],
) {
    let wires = [WireChoice::Udp, WireChoice::Auto].into_iter().cycle();
    for (wire, &world_size) in wires.zip(worlds) {
        let mut job = Job::default();
        job.transport.wire = wire;
        on_ranks(world_size, &job, |rank| {
            let calls = calls(rank.rank().0, world_size);
            for error in errors(&rank, Span::from_millis(60_000), calls) {
                let named = expected.iter().all(|text| error.contains(text));
                assert!(named && error.contains(RULE), "{world_size} ranks: {error}");
            }
            rank.close(PATIENCE);
        });
    }
}

fn floats(world_size: u16, sequence: u32, elements: usize) -> Operation {
    sum(world_size, sequence, vec![0; 4 * elements])
}

#[test]
fn another_operation_is_named_on_every_rank() {
    let calls = |rank, world_size| {
        let mut operation = floats(world_size, 5, 1000);
        if rank == 1 {
            operation.collective = Collective::Broadcast { root: Rank(1) };
        }
        vec![operation]
    };
    let expected = [
        "group 0, sequence 5: rank 0 called all_reduce(sum) of",
        "rank 1 called broadcast of",
        "f32 from rank 1",
    ];
    assert_all_hear(&[2], calls, &expected);
    assert_all_hear(&[3, 4], calls, &expected[1..]);
}

#[test]
fn a_differing_type_is_named_on_every_rank() {
    let calls = |rank, world_size| {
        let mut operation = floats(world_size, 0, 100_000);
        if rank == 1 {
            operation.dtype = DType::I32;
        }
        vec![operation]
    };
    assert_all_hear(&[2, 3, 4], calls, &["all_reduce(sum) of", "f32", "i32"]);
}

#[test]
fn another_shape_is_named_on_every_rank() {
    for (ours, theirs) in [(1000, 1001), (1000, 300_000), (300_000, 1000)] {
        let calls = |rank, world_size| {
            let elements = if rank == 1 { theirs } else { ours };
            vec![floats(world_size, 2, elements)]
        };
        assert_all_hear(
            &[2, 3, 4],
            calls,
            &["sequence 2: rank", "in different shapes"],
        );
    }
}

#[test]
fn swapped_operations_are_named_on_every_rank() {
    let calls = |rank, world_size| {
        let gather = |sequence| {
            let mut operation = floats(world_size, sequence, 100 * usize::from(world_size));
            operation.collective = Collective::AllGather;
            operation.input = Some(Buffer::Owned(vec![0; 400]));
            operation
        };
        if rank == 1 {
            vec![gather(1), floats(world_size, 2, 100)]
        } else {
            vec![floats(world_size, 1, 100), gather(2)]
        }
    };
    assert_all_hear(&[2, 3, 4], calls, &["all_reduce(sum) of", "all_gather of"]);
}

#[test]
fn an_absent_rank_is_named_on_every_rank() {
    for algorithm in [ReduceAlgorithm::Ring, ReduceAlgorithm::Direct] {
        let mut job = Job::default();
        job.collectives.algorithm = algorithm;
        on_ranks(4, &job, |rank| {
            let limit = Span::from_millis(400);
            let absent = rank.rank() == Rank(2);
            let sequence = if absent { 6 } else { 7 };
            // The absent rank's own operation has no limit: it hears of the others' failure.
            let limit = if absent {
                Span::from_millis(60_000)
            } else {
                limit
            };
            let mut operation = floats(4, sequence, 100_000);
            if absent {
                operation.group.id = 1;
            }
            for error in errors(&rank, limit, [operation]) {
                for part in [
                    "all_reduce(sum) of 100000 f32, group 0, sequence 7: Timed out after ",
                    "ms of 400ms waiting for ranks [",
                    "rank 2 has not entered it (rank 2 is in all_reduce(sum) of 100000 f32, \
                     group 1",
                ] {
                    assert!(error.contains(part), "{algorithm:?}: {error}");
                }
            }
            rank.close(PATIENCE);
        });
    }
}

#[test]
fn ranks_that_only_receive_are_named_at_timeout() {
    on_ranks(2, &Job::default(), |rank| {
        let other = Rank(1 - rank.rank().0);
        let mut operation = floats(2, 3, 10);
        operation.collective = Collective::Broadcast { root: other };
        for error in errors(&rank, Span::from_millis(300), [operation]) {
            let names = [0, 1].map(|rank| {
                let root = 1 - rank;
                format!("rank {rank} is in broadcast of 10 f32 from rank {root}, group 0")
            });
            assert!(names.iter().any(|name| error.contains(name)), "{error}");
        }
        rank.close(PATIENCE);
    });
}

#[test]
fn a_receive_without_a_send_locates_the_sender() {
    on_ranks(2, &Job::default(), |rank| {
        let mut operation = floats(2, 0, 10);
        let mut limit = Span::from_millis(60_000);
        if rank.rank() == Rank(0) {
            operation.collective = Collective::Receive {
                from: Rank(1),
                tag: 0,
            };
            limit = Span::from_millis(300);
        }
        for error in errors(&rank, limit, [operation]) {
            let absent =
                "receive of 10 f32 from rank 1, tag 0, group 0, sequence 0: Timed out after ";
            let doing =
                "rank 1 has not entered it (rank 1 is in all_reduce(sum) of 10 f32, group 0";
            assert!(error.contains(absent) && error.contains(doing), "{error}");
        }
        rank.close(PATIENCE);
    });
}

#[test]
fn calls_after_a_timeout_are_refused_with_reason() {
    let (tell, told) = channel::<()>();
    let ends = Mutex::new((Some(tell), Some(told)));
    on_ranks(2, &Job::default(), |rank| {
        if rank.rank() == Rank(0) {
            let tell = ends.lock().expect("no panic").0.take();
            let late = errors(&rank, Span::from_millis(300), [floats(2, 0, 10)]);
            assert!(late[0].contains("rank 1 has not entered it"), "{late:?}");
            drop(tell);
            return rank.close(PATIENCE);
        }
        let told = ends.lock().expect("no panic").1.take();
        // Until the other rank has dropped its end.
        let _ = told.expect("taken once").recv();
        thread::sleep(Duration::from_millis(300));
        let timeout = Some(Span::from_millis(60_000));
        let operation = floats(2, 0, 10);
        let refused = rank
            .run(RankTask { operation, timeout })
            .expect_err("the job has failed");
        assert!(matches!(refused, EndError::Refused(_)), "{refused}");
        let reason =
            "rank 0 ended the job: all_reduce(sum) of 10 f32, group 0, sequence 0: Timed out";
        assert!(refused.to_string().contains(reason), "{refused}");
        rank.close(PATIENCE);
    });
}
