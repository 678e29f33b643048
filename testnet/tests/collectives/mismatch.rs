//! Ranks that call different operations: the packets show the difference in any order of events,
//! and every rank hears the same reason.

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::job::ReduceAlgorithm;
use gradwire_protocol::units::{Rank, Span};
use gradwire_testnet::link::Profile;
use gradwire_testnet::network::Ended;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::world::{World, all_reduce, rough, small_job};

const RULE: &str = "all ranks of a group must call the same operation in the same order";

/// One call, which becomes an operation on each rank that makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Called {
    collective: Collective,
    dtype: DType,
    op: ReduceOp,
    elements: usize,
}

impl Called {
    const SUM: Self = Self {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        elements: 300,
    };

    fn of(collective: Collective) -> Self {
        Self {
            collective,
            ..Self::SUM
        }
    }

    /// Returns the operation that `rank` of `ranks` submits.
    fn operation(self, (rank, ranks): (u16, u16), sequence: u32) -> Operation {
        let block = self.elements * self.dtype.bytes();
        let all = block * usize::from(ranks);
        let is_root = |root: Rank| root == Rank(rank);
        let (buffer, input) = match self.collective {
            Collective::AllGather => (all, Some(block)),
            Collective::ReduceScatter => (block, Some(all)),
            Collective::AllToAll => (all, Some(all)),
            Collective::Gather { root } if is_root(root) => (all, Some(block)),
            Collective::Scatter { root } if is_root(root) => (block, Some(all)),
            Collective::Barrier => (0, None),
            _ => (block, None),
        };
        Operation {
            collective: self.collective,
            dtype: self.dtype,
            op: self.op,
            input: input.map(|bytes| Buffer::Owned(vec![1; bytes])),
            ..all_reduce(ranks, sequence, vec![1; buffer])
        }
    }
}

/// The error of a rank's next completion, or nothing if it has none.
fn next_error(world: &mut World, rank: u16) -> Option<String> {
    let completion = world.completion(rank)?;
    Some(completion.result.err()?.to_string())
}

/// Runs until a rank finds a mismatch, and passes its reason to all ranks, as the control plane
/// does.
fn found(world: &mut World) -> Option<String> {
    let deadline = world.at(Span::from_millis(5_000));
    let any = |ranks: &[Communicator]| ranks.iter().any(|rank| rank.aborted().is_some());
    if world.network.run(deadline, any) != Ended::Reached {
        return None;
    }
    let hosts = world.network.hosts().iter();
    let reason = hosts.filter_map(|rank| rank.aborted()).next()?.to_owned();
    for rank in 0..world.ranks {
        let told = format!("told: {reason}");
        (world.network).command(Rank(rank), |communicator, _| communicator.abort(&told));
    }
    Some(reason)
}

/// Returns the reason that two ranks with these calls find, in either order of submitting.
fn reasons_of(calls: [Called; 2]) -> [String; 2] {
    [[0, 1], [1, 0]].map(|order| {
        let perfect = Profile::perfect(Span::from_micros(10));
        let mut world = World::new(2, &small_job(), perfect, 1);
        for rank in order {
            let operation = calls[usize::from(rank)].operation((rank, 2), 5);
            world.submit(rank, operation).expect("a valid operation");
            let until = world.at(Span::from_micros(500));
            world.network.run_until(until);
        }
        let reason = found(&mut world).expect("the first packet tells");
        // An empty tensor waits for no rank.
        let waits = |rank: &u16| calls[usize::from(*rank)].elements > 0;
        for rank in (0..2).filter(waits) {
            let error = next_error(&mut world, rank).expect("the operation fails");
            assert!(error.contains(&reason), "{error}");
        }
        reason
    })
}

/// Asserts that both names are in the reasons, whichever rank finds the mismatch.
fn assert_named(calls: [Called; 2], expected: [&str; 2]) {
    for reason in reasons_of(calls) {
        assert!(
            expected.iter().all(|text| reason.contains(text)) && reason.contains(RULE),
            "{reason}"
        );
        assert!(
            reason.starts_with("group 0, sequence 5: rank 0"),
            "{reason}"
        );
    }
}

#[test]
fn different_operations_are_named_with_their_ranks() {
    let root = |root| Called::of(Collective::Broadcast { root: Rank(root) });
    let sum = Called::SUM;
    let named = [
        "rank 0 called all_reduce(sum) of",
        "rank 1 called broadcast of",
    ];
    assert_named([sum, root(1)], named);
    assert_named([sum, root(0)], named);
    // Both act as the root, and send.
    assert_named([root(0), root(1)], ["f32 from rank 0", "f32 from rank 1"]);
    let barrier = Called::of(Collective::Barrier);
    assert_named(
        [barrier, sum],
        ["rank 0 called barrier,", "rank 1 called all_reduce"],
    );
}

#[test]
fn different_types_and_reductions_of_equal_length_are_named() {
    let with = |dtype, op| Called {
        dtype,
        op,
        ..Called::SUM
    };
    let f32_sum = with(DType::F32, ReduceOp::Sum);
    let i32_sum = with(DType::I32, ReduceOp::Sum);
    let f32_max = with(DType::F32, ReduceOp::Max);
    assert_named([f32_sum, i32_sum], ["f32, rank 1", "i32: all"]);
    assert_named([f32_sum, f32_max], ["all_reduce(sum)", "all_reduce(max)"]);
}

#[test]
fn different_shapes_are_named_whatever_their_algorithms() {
    let with = |elements| Called {
        elements,
        ..Called::SUM
    };
    for elements in [0, 301, 30_000] {
        for calls in [[with(300), with(elements)], [with(elements), with(300)]] {
            assert_named(calls, ["in different shapes (rank", "all_reduce(sum) of"]);
        }
    }
}

#[test]
fn what_comes_for_an_operation_that_has_completed_is_compared_with_it() {
    let mut world = World::new(2, &small_job(), rough(0.0), 9);
    let nothing = Called {
        elements: 0,
        ..Called::SUM
    };
    for sequence in 0..3 {
        let operation = nothing.operation((0, 2), sequence);
        world.submit(0, operation).expect("a valid operation");
        assert_eq!(world.result(0).0.len(), 0, "it waits for nobody");
    }
    let other = Called::of(Collective::AllGather).operation((1, 2), 1);
    world.submit(1, other).expect("a valid operation");
    let reason = found(&mut world).expect("rank 0 was there");
    let both =
        "sequence 1: rank 0 called all_reduce(sum) of 0 f32, rank 1 called all_gather of f32";
    assert!(reason.contains(both), "{reason}");
}

#[test]
fn a_send_of_another_length_is_named_and_one_of_another_type_received() {
    let pair = |dtype, elements: usize| {
        let send = Collective::Send {
            to: Rank(1),
            tag: 0,
        };
        let receive = Collective::Receive {
            from: Rank(0),
            tag: 0,
        };
        let sent = Called::of(send);
        let received = Called {
            dtype,
            elements,
            ..Called::of(receive)
        };
        [sent, received]
    };
    for reason in reasons_of(pair(DType::F32, 200)) {
        assert!(
            reason.contains("rank 1 called receive of 200 f32 from rank 0, tag 0"),
            "{reason}"
        );
        assert!(
            reason.contains("rank 0 sent 1200 bytes to rank 1, which expects 800"),
            "{reason}"
        );
    }
    let mut world = World::new(2, &small_job(), rough(0.0), 3);
    for (rank, call) in (0..).zip(pair(DType::I32, 300)) {
        let operation = call.operation((rank, 2), 0);
        world.submit(rank, operation).expect("a valid operation");
    }
    world.run();
    assert_eq!(world.result(1).0, vec![1; 1200]);
}

/// A call that every rank hears of from a neighbour.
fn symmetric(rng: &mut ChaCha8Rng) -> Called {
    let collectives = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Barrier,
    ];
    let dtypes = [DType::F32, DType::I32, DType::F64, DType::U8];
    let ops = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Product];
    Called {
        collective: collectives[rng.random_range(0..collectives.len())],
        dtype: dtypes[rng.random_range(0..dtypes.len())],
        op: ops[rng.random_range(0..ops.len())],
        // With fewer elements than ranks, some algorithms send nothing to some ranks.
        elements: [7, 30, 300, 2000][rng.random_range(0..4)],
    }
}

/// Whether both are the same call.
fn same(one: Called, other: Called) -> bool {
    let tensor = |call: Called| {
        let op = call.collective.reduces().then_some(call.op);
        (call.dtype, call.elements, op)
    };
    one.collective == other.collective
        && (one.collective == Collective::Barrier || tensor(one) == tensor(other))
}

/// Returns another call for one rank: any other operation, type, reduction or shape.
fn another(call: Called, ranks: u16, rng: &mut ChaCha8Rng) -> Called {
    loop {
        let root = Rank(rng.random_range(0..ranks));
        let mut other = symmetric(rng);
        match rng.random_range(0..6) {
            0 => other.collective = Collective::Broadcast { root },
            1 => other.collective = Collective::Reduce { root },
            2 => other.collective = Collective::Gather { root },
            3 => other.collective = Collective::Scatter { root },
            4 => {
                let elements = call.elements + rng.random_range(1..50_usize);
                other = Called { elements, ..call };
            }
            _ => {}
        }
        if !same(call, other) {
            return other;
        }
    }
}

/// Returns the calls of each rank: all equal, except that one rank makes one different call, or two
/// in the other order. Also returns that rank and its wrong calls.
fn programs(ranks: u16, rng: &mut ChaCha8Rng) -> (Vec<Vec<Called>>, u16, Vec<usize>) {
    let mut common: Vec<Called> = (0..5).map(|_| symmetric(rng)).collect();
    let (rank, at) = (rng.random_range(0..ranks), rng.random_range(0..4_usize));
    while same(common[at], common[at + 1]) {
        common[at + 1] = symmetric(rng);
    }
    let mut programs = vec![common.clone(); usize::from(ranks)];
    let own = &mut programs[usize::from(rank)];
    if rng.random::<bool>() {
        own.swap(at, at + 1);
        return (programs, rank, vec![at, at + 1]);
    }
    own[at] = another(common[at], ranks, rng);
    (programs, rank, vec![at])
}

/// Runs one case: ranks submit at random times. Panics with the fault.
fn check(seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let ranks = rng.random_range(2..=4);
    let mut job = small_job();
    // Of three ranks, halving and doubling leaves one without a message until it has sent one.
    let halving =
        [ReduceAlgorithm::HalvingDoubling, ReduceAlgorithm::Auto][usize::from(ranks == 3)];
    let algorithms = [
        ReduceAlgorithm::Auto,
        ReduceAlgorithm::Direct,
        ReduceAlgorithm::Ring,
        halving,
    ];
    job.collectives.algorithm = algorithms[rng.random_range(0..4)];
    let (programs, wrong, calls) = programs(ranks, rng);
    let mut world = World::new(ranks, &job, rough(rng.random_range(0.0..0.1)), seed);
    let mut submitted = vec![0; usize::from(ranks)];
    while let Some(rank) = pick(&submitted, &programs, rng) {
        let number = submitted[usize::from(rank)];
        let call = programs[usize::from(rank)][number];
        submitted[usize::from(rank)] += 1;
        let operation = call.operation((rank, ranks), number as u32);
        // A rank that knows the mismatch by now refuses it.
        let _ = world.submit(rank, operation);
        let until = world.at(Span::from_micros([0, 0, 20, 300][rng.random_range(0..4)]));
        world.network.run_until(until);
    }
    let case = format!("seed {seed}: rank {wrong} calls {calls:?} of {programs:#?}");
    let reason = found(&mut world).unwrap_or_else(|| panic!("nobody finds out, {case}"));
    let told = [RULE, "what is split off for a rank must be as long"];
    let told = told.iter().any(|rule| reason.contains(rule));
    let named = calls
        .iter()
        .any(|call| reason.contains(&format!("sequence {call}: rank")));
    assert!(named && told, "{reason}, {case}");
    assert!(
        reason.contains(&format!("rank {wrong} called")),
        "{reason}, {case}"
    );
    for rank in world.network.hosts() {
        assert!(rank.aborted().is_some() && rank.pending() == 0, "{case}");
    }
}

/// Returns a rank that still has a call to submit.
fn pick(submitted: &[usize], programs: &[Vec<Called>], rng: &mut ChaCha8Rng) -> Option<u16> {
    let ranks = (0_u16..).zip(submitted).zip(programs);
    let open = ranks.filter(|((_, submitted), program)| **submitted < program.len());
    let open: Vec<u16> = open.map(|((rank, _), _)| rank).collect();
    (!open.is_empty()).then(|| open[rng.random_range(0..open.len())])
}

#[test]
fn a_rank_that_deviates_is_named_in_every_order_of_events() {
    let slow = crate::is_slow();
    for seed in 0..if slow { 5_000 } else { 300 } {
        check(seed);
    }
}
