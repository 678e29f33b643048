//! Sends, receives and receives from any rank: each gets the right message on any network.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::dtype::DType;
use gradwire_collectives::operation::{Collective, Completion, Operation, OperationId};
use gradwire_protocol::job::Job;
use gradwire_protocol::units::{ByteCount, Rank, Span};
use gradwire_testnet::network::Ended;

use crate::world::{World, all_reduce, rough, small_job};

/// Tags with the lengths of their messages; the last ones exceed the unscheduled bytes.
const TAGS: [(u16, usize); 4] = [(0, 0), (7, 40), (40_000, 3000), (65_535, 20_000)];

/// A job with few unscheduled bytes.
fn shy_job() -> Job {
    let mut job = small_job();
    job.transport.unscheduled = ByteCount::kib(1);
    job
}

fn bytes_of(tag: u16) -> usize {
    let found = TAGS.iter().find(|(known, _)| *known == tag);
    found.expect("one of the tags").1
}

/// Returns the content of message `number` of a pair and tag.
fn message(from: u16, tag: u16, number: usize) -> Vec<u8> {
    let first = 7 * usize::from(from) + 31 * number + usize::from(tag);
    (first..first + bytes_of(tag))
        .map(|value| value as u8)
        .collect()
}

fn moving(ranks: u16, collective: Collective, buffer: Vec<u8>) -> Operation {
    Operation {
        collective,
        dtype: DType::U8,
        ..all_reduce(ranks, 0, buffer)
    }
}

fn send(ranks: u16, to: u16, (tag, bytes): (u16, Vec<u8>)) -> Operation {
    let to = Rank(to);
    moving(ranks, Collective::Send { to, tag }, bytes)
}

fn receive(ranks: u16, from: u16, tag: u16) -> Operation {
    let from = Rank(from);
    let buffer = vec![0; bytes_of(tag)];
    moving(ranks, Collective::Receive { from, tag }, buffer)
}

fn receive_any(ranks: u16, tag: u16) -> Operation {
    moving(
        ranks,
        Collective::ReceiveAny { tag },
        vec![0; bytes_of(tag)],
    )
}

fn submit(world: &mut World, rank: u16, operation: Operation) -> OperationId {
    let submitted = world.network.command(Rank(rank), |communicator, now| {
        communicator.submit(now, operation)
    });
    submitted.expect("a valid operation")
}

/// Runs until no operation is pending, and returns all completions of a rank.
fn finish(world: &mut World, seed: u64) -> Vec<BTreeMap<OperationId, Completion>> {
    let deadline = world.at(Span::from_millis(60_000));
    let idle = |ranks: &[Communicator]| ranks.iter().all(|rank| rank.pending() == 0);
    let ended = world.network.run(deadline, idle);
    assert_eq!(ended, Ended::Reached, "seed {seed}: operations are pending");
    let ranks = world.ranks;
    let all = |rank| {
        let next = || world.completion(rank);
        std::iter::from_fn(next)
            .map(|completion| (completion.id, completion))
            .collect()
    };
    (0..ranks).map(all).collect()
}

fn bytes(completion: &Completion) -> &[u8] {
    completion.buffer.bytes().expect("tests own their buffers")
}

/// A task that a rank will submit.
#[derive(Clone, Copy, Debug)]
enum Task {
    Send { to: u16, tag: u16 },
    Receive { from: u16, tag: u16 },
    ReceiveAny { tag: u16 },
}

/// For random pairs and tags, as many sends as receives, of which some are from any rank.
fn program(ranks: u16, rng: &mut impl Rng) -> Vec<(u16, Task)> {
    let mut tasks = Vec::new();
    for (from, to) in (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to))) {
        for (tag, _) in TAGS.into_iter().filter(|_| from != to) {
            for _ in 0..rng.random_range(0..5) {
                tasks.push((from, Task::Send { to, tag }));
                let any = rng.random_bool(0.5);
                let receive = match any {
                    true => Task::ReceiveAny { tag },
                    false => Task::Receive { from, tag },
                };
                tasks.push((to, receive));
            }
        }
    }
    for at in (1..tasks.len()).rev() {
        tasks.swap(at, rng.random_range(0..=at));
    }
    for (rank, tag) in (0..ranks).flat_map(|rank| TAGS.map(|(tag, _)| (rank, tag))) {
        claim_first(&mut tasks, rank, tag);
    }
    tasks
}

/// Puts receives from a named rank before those from any, which would otherwise take their
/// messages.
fn claim_first(tasks: &mut [(u16, Task)], rank: u16, tag: u16) {
    let from_any = |&(by, task): &(u16, Task)| match task {
        Task::Receive { tag: its, .. } if (by, its) == (rank, tag) => Some(false),
        Task::ReceiveAny { tag: its } if (by, its) == (rank, tag) => Some(true),
        _ => None,
    };
    let places: Vec<usize> = (0..tasks.len())
        .filter(|&at| from_any(&tasks[at]).is_some())
        .collect();
    let mut receives: Vec<_> = places.iter().map(|&at| tasks[at]).collect();
    receives.sort_by_key(from_any);
    for (at, receive) in places.into_iter().zip(receives) {
        tasks[at] = receive;
    }
}

/// Submitted receives: the rank, the operation, the source.
type Receives = Vec<(u16, OperationId, Task)>;

/// Submits all tasks, with time passing now and then.
fn play(world: &mut World, tasks: &[(u16, Task)], rng: &mut impl Rng) -> Receives {
    let (mut sent, mut receives) = (BTreeMap::new(), Vec::new());
    let ranks = world.ranks;
    for &(rank, task) in tasks {
        let operation = match task {
            Task::Send { to, tag } => {
                let number: &mut usize = sent.entry((rank, to, tag)).or_default();
                let bytes = message(rank, tag, *number);
                *number += 1;
                send(ranks, to, (tag, bytes))
            }
            Task::Receive { from, tag } => receive(ranks, from, tag),
            Task::ReceiveAny { tag } => receive_any(ranks, tag),
        };
        let id = submit(world, rank, operation);
        if !matches!(task, Task::Send { .. }) {
            receives.push((rank, id, task));
        }
        if rng.random_bool(0.2) {
            let until = world.at(Span::from_micros(rng.random_range(1..300)));
            world.network.run_until(until);
        }
    }
    receives
}

#[test]
fn every_message_is_received_once_and_those_of_a_pair_and_tag_in_order() {
    let seeds = if crate::is_slow() { 400 } else { 60 };
    for seed in 0..seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let ranks = rng.random_range(2..=4);
        let loss = [0.0, 0.02, 0.1][rng.random_range(0..3)];
        let mut world = World::new(ranks, &shy_job(), rough(loss), seed);
        let tasks = program(ranks, &mut rng);
        let receives = play(&mut world, &tasks, &mut rng);
        let completions = finish(&mut world, seed);
        // Number of the next message, of those that were received from a named rank and of those
        // from any: each kind keeps the order, together they are all.
        let mut numbers: BTreeMap<_, [Vec<usize>; 2]> = BTreeMap::new();
        for (rank, id, task) in receives {
            let completion = &completions[usize::from(rank)][&id];
            let outcome = completion.result.clone().expect("nobody was lost");
            let source = outcome.source.expect("receives have a source").0;
            let (kind, tag) = match task {
                Task::Receive { from, tag } => {
                    assert_eq!(from, source, "seed {seed}");
                    (0, tag)
                }
                Task::ReceiveAny { tag } | Task::Send { tag, .. } => (1, tag),
            };
            let of_pair = |task: &&(u16, Task)| {
                task.0 == source
                    && matches!(task.1, Task::Send { to, tag: its } if to == rank && its == tag)
            };
            let known = tasks.iter().filter(of_pair).count();
            let taken = numbers.entry((rank, source, tag)).or_default();
            let is_it = |number: &usize| {
                !taken.concat().contains(number)
                    && bytes(completion) == message(source, tag, *number)
            };
            let number = (0..known).find(is_it);
            let number = number.unwrap_or_else(|| panic!("seed {seed}: {task:?} on {rank}"));
            taken[kind].push(number);
        }
        for ((rank, source, tag), kinds) in numbers {
            let place = format!("seed {seed}: rank {rank} from {source}, tag {tag}");
            let in_order = kinds.iter().all(|numbers| numbers.is_sorted());
            assert!(in_order || bytes_of(tag) == 0, "{place}: {kinds:?}");
        }
    }
}

#[test]
fn a_receive_from_any_rank_takes_what_came_before_it_was_asked_for() {
    let mut world = World::new(3, &shy_job(), rough(0.0), 1);
    for from in [2, 1] {
        submit(&mut world, from, send(3, 0, (7, message(from, 7, 0))));
        let until = world.at(Span::from_millis(5));
        world.network.run_until(until);
    }
    let ids = [(); 2].map(|()| submit(&mut world, 0, receive_any(3, 7)));
    let completions = finish(&mut world, 1);
    let sources = ids.map(|id| {
        completions[0][&id]
            .result
            .clone()
            .map(|outcome| outcome.source)
    });
    assert_eq!(sources, [Ok(Some(Rank(2))), Ok(Some(Rank(1)))]);
}

#[test]
fn a_large_message_that_nobody_has_asked_for_holds_up_no_other() {
    let mut world = World::new(2, &shy_job(), rough(0.02), 2);
    let large = submit(&mut world, 0, send(2, 1, (65_535, message(0, 65_535, 0))));
    let until = world.at(Span::from_millis(50));
    world.network.run_until(until);
    let small = submit(&mut world, 1, receive(2, 0, 40_000));
    submit(&mut world, 0, send(2, 1, (40_000, message(0, 40_000, 0))));
    let deadline = world.at(Span::from_millis(5000));
    let ended = world.network.run(deadline, |ranks| ranks[1].pending() == 0);
    assert_eq!(ended, Ended::Reached);
    let until = world.at(Span::from_millis(50));
    world.network.run_until(until);
    assert_eq!(world.network.hosts()[0].pending(), 1, "the large one waits");
    let any = submit(&mut world, 1, receive_any(2, 65_535));
    let completions = finish(&mut world, 2);
    assert!(completions[0][&large].result.is_ok());
    assert_eq!(bytes(&completions[1][&small]), message(0, 40_000, 0));
    assert_eq!(bytes(&completions[1][&any]), message(0, 65_535, 0));
}

#[test]
fn a_receive_from_any_rank_outlives_all_others_but_the_last() {
    let mut world = World::new(3, &shy_job(), rough(0.0), 3);
    let lose = |world: &mut World, rank| {
        world.network.command(Rank(0), |communicator, _| {
            communicator.fail_peer(Rank(rank), "killed");
        });
    };
    submit(&mut world, 0, receive_any(3, 7));
    lose(&mut world, 1);
    assert_eq!(world.network.hosts()[0].pending(), 1);
    submit(&mut world, 2, send(3, 0, (7, message(2, 7, 0))));
    world.run();
    assert_eq!(world.result(0).0, message(2, 7, 0));
    submit(&mut world, 0, receive_any(3, 7));
    lose(&mut world, 2);
    let end = world.completion(0).expect("nobody is left");
    let error = end.result.expect_err("nobody is left").to_string();
    let expected = "rank 2 was lost (killed) during receive of 40 u8 from any rank, tag 7, group \
                    0, sequence 0";
    assert_eq!(error, expected);
    let refused = world
        .submit(0, receive_any(3, 7))
        .expect_err("nobody is left");
    assert!(refused.to_string().contains("was lost"), "{refused}");
}

#[test]
fn a_receive_from_any_rank_that_nobody_answers_times_out_and_names_the_others() {
    let mut world = World::new(3, &shy_job(), rough(0.0), 4);
    let deadline = Some(world.at(Span::from_millis(100)));
    let overdue = Operation {
        deadline,
        ..receive_any(3, 7)
    };
    submit(&mut world, 1, overdue);
    world.run();
    let error = world.completion(1).expect("it has ended").result;
    let error = error.expect_err("nobody sends").to_string();
    assert!(
        error.contains("Timed out waiting for ranks [0, 2]"),
        "{error}"
    );
    assert!(world.network.hosts()[1].aborted().is_some());
}

#[test]
fn lengths_that_differ_are_an_error_that_names_both() {
    for (index, wanted) in [0, 41, 20_000].into_iter().enumerate() {
        let mut world = World::new(2, &shy_job(), rough(0.0), index as u64);
        submit(&mut world, 0, send(2, 1, (7, message(0, 7, 0))));
        let any = Collective::ReceiveAny { tag: 7 };
        submit(&mut world, 1, moving(2, any, vec![0; wanted]));
        let until = world.at(Span::from_millis(500));
        world.network.run_until(until);
        let error = world.completion(1).expect("it has ended").result;
        let error = error.expect_err("the lengths differ").to_string();
        let told = format!("rank 0 sent 40 bytes to rank 1, which expects {wanted}");
        assert!(error.contains(&told), "{error}");
    }
}

#[test]
fn many_messages_of_one_tag_may_be_on_their_way() {
    let count = 3000;
    let mut world = World::new(2, &small_job(), rough(0.01), 5);
    for number in 0..count {
        submit(&mut world, 0, send(2, 1, (7, message(0, 7, number))));
    }
    let receives: Vec<_> = (0..count)
        .map(|_| submit(&mut world, 1, receive(2, 0, 7)))
        .collect();
    let completions = finish(&mut world, 5);
    for (number, id) in receives.into_iter().enumerate() {
        assert_eq!(
            bytes(&completions[1][&id]),
            message(0, 7, number),
            "{number}"
        );
    }
}

#[test]
fn a_rank_alone_in_its_group_can_neither_send_nor_receive() {
    let mut world = World::new(1, &small_job(), rough(0.0), 6);
    for operation in [
        receive_any(1, 7),
        receive(1, 0, 7),
        send(1, 0, (7, Vec::new())),
    ] {
        let refused = world.submit(0, operation).expect_err("there is nobody");
        assert!(
            refused.to_string().contains("need another rank"),
            "{refused}"
        );
    }
}
