//! Ranks that call different operations, over real sockets: each of them hears what was called
//! where, at once, and nothing hangs.

mod world;

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::{Job, Wire};
use gradwire_protocol::units::{Rank, Span};
use gradwire_runtime::{LocalRank, Task};

use world::{PATIENCE, on_ranks, sum};

/// How soon everybody knows, on a machine that has other things to do: far below any timeout.
const SOON: Duration = Duration::from_secs(4);
const RULE: &str = "all ranks of a group must call the same operation in the same order with the \
                    same shape and type";

/// The errors of operations that are submitted one after the other, and all fail. Gives them when
/// the last has ended.
#[expect(
    clippy::disallowed_methods,
    reason = "what a user waits is no time of the protocol"
)]
fn errors(rank: &LocalRank, operations: impl IntoIterator<Item = Operation>) -> Vec<String> {
    let start = Instant::now();
    let (tell, told) = channel();
    for operation in operations {
        let timeout = Some(Span::from_millis(60_000));
        let tell = tell.clone();
        let done = move |ended: Result<gradwire_runtime::Ended, _>| {
            let _ = tell.send(ended.map(|_| ()));
        };
        rank.submit(Task { operation, timeout }, Box::new(done));
    }
    drop(tell);
    let ended = told.iter();
    let errors = ended.map(|ended| ended.expect_err("ranks disagree").to_string());
    let errors: Vec<String> = errors.collect();
    assert!(start.elapsed() < SOON, "{:?}: {errors:?}", start.elapsed());
    errors
}

/// On every wire and in every size of world, rank 1 makes its own calls and all others the same;
/// every rank must hear `expected`.
fn assert_all_hear(
    worlds: &[u16],
    calls: impl Fn(u16, u16) -> Vec<Operation> + Sync,
    expected: &[&str],
) {
    for wire in [Wire::Udp, Wire::Auto] {
        for &world_size in worlds {
            let mut job = Job::default();
            job.transport.wire = wire;
            on_ranks(world_size, &job, |rank| {
                for error in errors(&rank, calls(rank.rank().0, world_size)) {
                    let named = expected.iter().all(|text| error.contains(text));
                    assert!(named && error.contains(RULE), "{world_size} ranks: {error}");
                }
                rank.close(PATIENCE);
            });
        }
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
fn another_type_of_the_same_length_is_named_on_every_rank() {
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
        assert_all_hear(&[2, 3, 4], calls, &["sequence 2: rank", "of another shape"]);
    }
}

#[test]
fn two_operations_in_the_other_order_are_named_on_every_rank() {
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
