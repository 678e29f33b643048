//! Messages that no rank will accept any more are forgotten at both ends.

use gradwire_collectives::communicator::Communicator;
use gradwire_collectives::operation::{Collective, Operation};
use gradwire_protocol::units::{Rank, Span};

use crate::world::{World, all_reduce, rough, small_job};

/// The error of a rank's next completion, as it is printed.
fn error(world: &mut World, rank: u16) -> String {
    let completion = world.completion(rank).expect("the operation has ended");
    let failure = completion.result.expect_err("the operation failed");
    failure.to_string()
}

fn send(to: u16, bytes: usize) -> Operation {
    let (to, tag) = (Rank(to), 5);
    Operation {
        collective: Collective::Send { to, tag },
        ..all_reduce(3, 0, vec![7; bytes])
    }
}

fn lose(world: &mut World, at: u16, lost: u16) {
    world.network.command(Rank(at), |communicator, _| {
        communicator.fail_peer(Rank(lost), "it crashed");
    });
}

fn end_group(world: &mut World, at: u16, group: u16) {
    world.network.command(Rank(at), |communicator, now| {
        communicator.end_group(now, group);
    });
}

/// Asserts that these ranks keep no message and no longer send packets.
fn assert_forgotten(world: &mut World, ranks: &[u16]) {
    let until = world.at(Span::from_millis(5_000));
    world.network.run_until(until);
    let before = world.network.delivered();
    let until = world.at(Span::from_millis(5_000));
    world.network.run_until(until);
    assert_eq!(world.network.delivered(), before, "still talking");
    for &rank in ranks {
        let communicator: &Communicator = &world.network.hosts()[usize::from(rank)];
        let kept = communicator.endpoint().footprint();
        let messages = [kept.outgoing, kept.cancelled, kept.incoming, kept.posted];
        assert_eq!(messages, [0; 4], "rank {rank}: {kept:?}");
        assert_eq!(communicator.kept_messages(), 0, "rank {rank}");
    }
}

#[test]
fn survivors_of_a_lost_rank_forget_its_operations() {
    for seed in 0..10 {
        let mut world = World::new(3, &small_job(), rough(0.1), seed);
        for sequence in 0..4 {
            let operation = all_reduce(3, sequence, vec![0; 4_000]);
            world.submit(0, operation).expect("a valid operation");
        }
        // Rank 1 is behind, and hears of the loss later.
        let operation = all_reduce(3, 0, vec![0; 4_000]);
        world.submit(1, operation).expect("a valid operation");
        let until = world.at(Span::from_millis(20));
        world.network.run_until(until);
        lose(&mut world, 0, 2);
        let until = world.at(Span::from_millis(seed * 3));
        world.network.run_until(until);
        lose(&mut world, 1, 2);
        world
            .network
            .command(Rank(2), |communicator, _| communicator.abort("it crashed"));
        assert_forgotten(&mut world, &[0, 1]);
    }
}

#[test]
fn a_rank_that_joins_late_refuses_what_cannot_complete() {
    let mut world = World::new(3, &small_job(), rough(0.1), 1);
    let operation = || all_reduce(3, 0, vec![0; 4_000]);
    world.submit(0, operation()).expect("a valid operation");
    lose(&mut world, 1, 2);
    let until = world.at(Span::from_millis(20));
    world.network.run_until(until);
    world.submit(1, operation()).expect_err("rank 2 is gone");
    lose(&mut world, 0, 2);
    world
        .network
        .command(Rank(2), |communicator, _| communicator.abort("it crashed"));
    assert_forgotten(&mut world, &[0, 1]);
}

#[test]
fn an_unmatched_send_ends_with_its_group() {
    for bytes in [0, 100, 100_000] {
        for (ends, seed) in [(0, 1), (1, 2)] {
            let mut world = World::new(3, &small_job(), rough(0.1), seed);
            world.submit(0, send(1, bytes)).expect("a valid operation");
            let until = world.at(Span::from_millis(20));
            world.network.run_until(until);
            end_group(&mut world, ends, 0);
            assert_forgotten(&mut world, &[0, 1, 2]);
            let failure = error(&mut world, 0);
            let reason = ["group 0 has ended", "rank 1 no longer accepts it"][usize::from(ends)];
            assert!(failure.contains(reason), "{failure}");
        }
    }
}

#[test]
fn an_ended_group_refuses_what_comes_later() {
    let mut world = World::new(3, &small_job(), rough(0.1), 3);
    end_group(&mut world, 1, 0);
    world
        .submit(0, send(1, 100_000))
        .expect("a valid operation");
    world
        .submit(0, all_reduce(3, 0, vec![0; 4_000]))
        .expect("a valid operation");
    let refusal = world
        .submit(1, all_reduce(3, 0, vec![0; 8]))
        .expect_err("it has ended");
    assert!(
        refusal
            .to_string()
            .contains("group 0 has ended on this rank"),
        "{refusal}"
    );
    let until = world.at(Span::from_millis(100));
    world.network.run_until(until);
    assert!(error(&mut world, 0).contains("rank 1 no longer accepts it"));
    end_group(&mut world, 0, 0);
    assert!(error(&mut world, 0).contains("group 0 has ended"));
    end_group(&mut world, 2, 0);
    assert_forgotten(&mut world, &[0, 1, 2]);
}

#[test]
fn a_receive_fails_when_its_message_is_cancelled() {
    let mut world = World::new(3, &small_job(), rough(0.0), 4);
    world
        .submit(0, send(1, 10_000_000))
        .expect("a valid operation");
    let receive = Operation {
        collective: Collective::Receive {
            from: Rank(0),
            tag: 5,
        },
        ..all_reduce(3, 0, vec![0; 10_000_000])
    };
    world.submit(1, receive).expect("a valid operation");
    let until = world.at(Span::from_millis(1));
    world.network.run_until(until);
    end_group(&mut world, 0, 0);
    assert!(error(&mut world, 0).contains("group 0 has ended"));
    let until = world.at(Span::from_millis(100));
    world.network.run_until(until);
    let failure = error(&mut world, 1);
    assert!(failure.contains("rank 0 has cancelled it"), "{failure}");
    assert_forgotten(&mut world, &[0, 1]);
}

#[test]
fn an_ended_group_keeps_its_word_to_slower_ranks() {
    for seed in 0..10 {
        let mut world = World::new(3, &small_job(), rough(0.3), seed);
        let barrier = || Operation {
            collective: Collective::Barrier,
            ..all_reduce(3, 0, Vec::new())
        };
        world.submit_all(|_| barrier());
        let mut ended = [false; 3];
        while ended != [true; 3] {
            let until = world.at(Span::from_micros(20));
            world.network.run_until(until);
            for rank in 0..3 {
                if let Some(completion) = world.completion(rank) {
                    completion.result.expect("the barrier is passed");
                    end_group(&mut world, rank, 0);
                    ended[usize::from(rank)] = true;
                }
            }
        }
        assert_forgotten(&mut world, &[0, 1, 2]);
    }
}
