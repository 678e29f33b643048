//! Ranks of one process over loopback: what callers of a rank may rely on.

mod meeting;
mod world;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::ReduceOp;
use gradwire_collectives::operation::Collective;
use gradwire_protocol::job::{IdleMode, Job, WireChoice};
use gradwire_protocol::parity::ParityRule;
use gradwire_protocol::units::{Rank, Share, Span};
use gradwire_runtime::{EndError, OpenRank, Opening, RankTask};
use gradwire_transport::uring;

use meeting::Meeting;
use world::{PATIENCE, on_ranks, open, sum};

fn all_reduce(world_size: u16, sequence: u32, values: &[f32]) -> RankTask {
    let bytes = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let operation = sum(world_size, sequence, bytes);
    RankTask {
        operation,
        timeout: Some(Span::from_millis(10_000)),
    }
}

fn values(buffer: &Buffer) -> Vec<f32> {
    let bytes = buffer.bytes().expect("it has bytes");
    let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("chunks of four"));
    bytes.chunks_exact(4).map(float).collect()
}

#[test]
fn ranks_get_the_sum_and_close_together() {
    on_ranks(3, &Job::default(), |rank| {
        let own = f32::from(rank.rank().0);
        let ended = rank
            .run(all_reduce(3, 1, &[own, 1.0]))
            .expect("nothing fails");
        assert_eq!(values(&ended.buffer), [3.0, 3.0]);
        assert!(rank.counters().sent_segments > 0);
        rank.close(PATIENCE);
    });
}

/// UDP, memory of the host, and io_uring where this host allows it.
fn wires() -> Vec<WireChoice> {
    let mut wires = vec![WireChoice::Udp, WireChoice::Auto];
    match uring::probe() {
        Ok(_) => wires.push(WireChoice::Uring),
        Err(reason) => eprintln!("skipped on io_uring: {reason}"),
    }
    wires
}

fn job_over(wire: WireChoice, idle: IdleMode) -> Job {
    let mut job = Job::default();
    job.transport.wire = wire;
    job.transport.idle = idle;
    job
}

/// Elements of ranks 0, 1, ... are 1, 2, ... times these.
fn pattern(elements: usize) -> impl Iterator<Item = f32> {
    (0..elements).map(|at| (at % 251) as f32)
}

#[test]
fn sums_are_exact_over_every_wire() {
    let job_of = |wire| {
        [IdleMode::Busy, IdleMode::Adaptive, IdleMode::Block].map(|idle| job_over(wire, idle))
    };
    let jobs = wires().into_iter().flat_map(job_of);
    for (job, elements) in jobs.flat_map(|job| [(job.clone(), 3), (job, 300_003)]) {
        let name = match job.transport.wire {
            WireChoice::Udp => "udp",
            WireChoice::Uring => "uring",
            _ => "shm",
        };
        on_ranks(3, &job, |rank| {
            assert_eq!(rank.wire(), name);
            let factor = f32::from(rank.rank().0 + 1);
            let own: Vec<f32> = pattern(elements).map(|value| factor * value).collect();
            for sequence in 1..=2 {
                let task = all_reduce(3, sequence, &own);
                let sum = values(&rank.run(task).expect("nothing fails").buffer);
                assert!(
                    sum.into_iter()
                        .eq(pattern(elements).map(|value| 6.0 * value))
                );
            }
            rank.close(PATIENCE);
        });
    }
}

#[test]
fn segments_that_parity_restores_from_runs_are_exact() {
    let mut job = job_over(WireChoice::Udp, IdleMode::Adaptive);
    job.transport.parity = ParityRule::Share(Share::new(0.1).expect("a share"));
    job.faults.drop = Share::new(0.03).expect("a share");
    let restored = AtomicU64::new(0);
    on_ranks(2, &job, |rank| {
        let factor = f32::from(rank.rank().0 + 1);
        let own: Vec<f32> = pattern(100_003).map(|value| factor * value).collect();
        for sequence in 1..=60 {
            let task = all_reduce(2, sequence, &own);
            let sum = values(&rank.run(task).expect("nothing fails").buffer);
            assert!(
                sum.into_iter()
                    .eq(pattern(100_003).map(|value| 3.0 * value))
            );
        }
        let peer = &rank.metrics().expect("it is open").peers[0];
        restored.fetch_add(peer.restored_segments, Ordering::Relaxed);
        rank.close(PATIENCE);
    });
    assert!(restored.into_inner() > 0);
}

#[test]
fn threads_that_wait_and_callbacks_share_one_driver() {
    for wire in wires() {
        on_ranks(2, &job_over(wire, IdleMode::Adaptive), |rank| {
            let (tell, told) = channel();
            thread::scope(|scope| {
                for thread in 0..3_u32 {
                    let (rank, tell) = (&rank, tell.clone());
                    scope.spawn(move || {
                        for turn in 0..50 {
                            let sequence = 1 + 2 * (turn * 3 + thread);
                            let own = vec![sequence as f32; 5_000];
                            let tell = tell.clone();
                            let done =
                                move |ended: Result<gradwire_runtime::EndedOperation, EndError>| {
                                    let _ =
                                        tell.send(values(&ended.expect("nothing fails").buffer));
                                };
                            rank.submit(all_reduce(2, sequence + 1, &own), Box::new(done));
                            let ended = rank.run(all_reduce(2, sequence, &own));
                            let sum = values(&ended.expect("nothing fails").buffer);
                            assert_eq!(sum, vec![2.0 * sequence as f32; 5_000]);
                        }
                    });
                }
            });
            drop(tell);
            let called: Vec<Vec<f32>> = told.iter().collect();
            assert_eq!(called.len(), 150);
            assert!(
                called
                    .iter()
                    .all(|sum| sum.len() == 5_000 && sum[0] % 4.0 == 2.0)
            );
            rank.close(PATIENCE);
        });
    }
}

#[test]
fn a_ticket_is_called_back_exactly_once() {
    for wire in [WireChoice::Udp, WireChoice::Auto] {
        on_ranks(2, &job_over(wire, IdleMode::Adaptive), |rank| {
            let (tell, told) = channel();
            for sequence in 1..=200 {
                let tell = tell.clone();
                let done = Box::new(
                    move |ended: Result<gradwire_runtime::EndedOperation, EndError>| {
                        let _ = tell.send((sequence, ended.is_ok()));
                    },
                );
                let ticket = rank.submit(all_reduce(2, sequence, &[1.0; 100]), done);
                match sequence % 3 {
                    0 => rank.wait(&ticket, PATIENCE),
                    1 => rank.wait(&ticket, Duration::ZERO),
                    _ => {}
                }
                assert_eq!(told.recv_timeout(PATIENCE), Ok((sequence, true)));
                assert!(ticket.has_ended());
                rank.wait(&ticket, PATIENCE);
            }
            drop(tell);
            assert_eq!(told.iter().count(), 0);
            rank.close(PATIENCE);
        });
    }
}

#[test]
fn faults_on_purpose_are_those_of_a_network() {
    let mut faulty = job_over(WireChoice::Auto, IdleMode::Adaptive);
    faulty.faults.delay = Span::from_micros(1);
    on_ranks(2, &faulty, |rank| {
        assert_eq!(rank.wire(), "udp");
        rank.close(PATIENCE);
    });
}

#[test]
fn a_job_may_have_one_rank() {
    on_ranks(1, &Job::default(), |rank| {
        let ended = rank.run(all_reduce(1, 1, &[5.0])).expect("nothing fails");
        assert_eq!(values(&ended.buffer), [5.0]);
        rank.close(PATIENCE);
    });
}

#[test]
fn a_callback_may_wait_for_another_operation() {
    on_ranks(2, &Job::default(), |rank| {
        let rank = Arc::new(rank);
        let inner = Arc::clone(&rank);
        let (tell, told) = channel();
        rank.submit(
            all_reduce(2, 1, &[1.0]),
            Box::new(move |_| {
                let _ = tell.send(inner.run(all_reduce(2, 2, &[2.0])));
            }),
        );
        let ended = told.recv_timeout(PATIENCE).expect("the callback ends");
        assert_eq!(values(&ended.expect("nothing fails").buffer), [4.0]);
        rank.close(PATIENCE);
    });
}

#[test]
fn a_refused_operation_ends_like_any_other() {
    on_ranks(1, &Job::default(), |rank| {
        let mut task = all_reduce(1, 1, &[1.0]);
        task.operation.op = ReduceOp::BitAnd;
        assert!(matches!(rank.run(task), Err(EndError::Refused(_))));
        rank.close(PATIENCE);
        assert!(matches!(
            rank.run(all_reduce(1, 2, &[1.0])),
            Err(EndError::Closed)
        ));
    });
}

#[test]
fn operations_with_a_left_rank_fail_by_name() {
    on_ranks(2, &Job::default(), |rank| {
        if rank.rank() == Rank(1) {
            return rank.close(PATIENCE);
        }
        let error = rank
            .run(all_reduce(2, 1, &[1.0]))
            .expect_err("rank 1 takes no part");
        assert!(
            error
                .to_string()
                .contains("rank 1 was lost (it has left the job: Connection closed by peer)"),
            "{error}"
        );
        rank.close(PATIENCE);
    });
}

#[test]
fn leaving_after_a_loss_names_that_loss() {
    let joined = Meeting::of(3);
    on_ranks(3, &Job::default(), |rank| {
        joined.wait();
        if rank.rank() == Rank(2) {
            return drop(rank);
        }
        let first = rank.run(all_reduce(3, 1, &[1.0])).expect_err("rank 2 died");
        assert!(first.to_string().contains("rank 2 was lost"), "{first}");
        if rank.rank() == Rank(1) {
            return rank.close(PATIENCE);
        }
        let mut task = all_reduce(2, 1, &[1.0]);
        task.operation.group.id = 1;
        let second = rank.run(task).expect_err("rank 1 left").to_string();
        assert!(second.contains("rank 1 was lost (it has left"), "{second}");
        assert!(second.contains("after rank 2 was lost: "), "{second}");
        rank.close(PATIENCE);
    });
}

#[test]
fn operations_with_a_dead_rank_name_it() {
    let joined = Meeting::of(2);
    on_ranks(2, &Job::default(), |rank| {
        joined.wait();
        if rank.rank() == Rank(1) {
            return drop(rank);
        }
        let error = rank
            .run(all_reduce(2, 1, &[1.0]))
            .expect_err("rank 1 takes no part");
        assert!(error.to_string().contains("rank 1 was lost"), "{error}");
        rank.close(PATIENCE);
    });
}

#[test]
fn an_abort_reaches_every_rank_with_its_reason() {
    on_ranks(2, &Job::default(), |rank| {
        if rank.rank() == Rank(1) {
            rank.abort("the loss is not a number");
            return rank.close(PATIENCE);
        }
        let error = rank
            .run(all_reduce(2, 1, &[1.0]))
            .expect_err("the job was ended");
        assert!(
            error.to_string().contains("the loss is not a number"),
            "{error}"
        );
        rank.close(PATIENCE);
    });
}

#[test]
fn a_group_that_ends_fails_its_unmatched_send() {
    on_ranks(2, &Job::default(), |rank| {
        if rank.rank() == Rank(0) {
            let mut task = all_reduce(2, 1, &[1.0]);
            task.operation.group.id = 3;
            let (to, tag) = (Rank(1), 0);
            task.operation.collective = Collective::Send { to, tag };
            thread::scope(|scope| {
                let waits = scope.spawn(|| rank.run(task).expect_err("no rank receives it"));
                while rank.counters().sent_segments == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                rank.end_group(3);
                let error = waits.join().expect("it ends");
                let reason = "group 3 has ended on this rank";
                assert!(error.to_string().contains(reason), "{error}");
            });
        }
        rank.run(all_reduce(2, 1, &[1.0]))
            .expect("other groups go on");
        rank.close(PATIENCE);
    });
}

#[test]
fn a_timeout_names_the_awaited_ranks() {
    let (tell, told) = channel::<()>();
    let (tell, told) = (Mutex::new(Some(tell)), Mutex::new(told));
    on_ranks(2, &Job::default(), |rank| {
        if rank.rank() == Rank(0) {
            // Dropped also when an assertion fails, so that rank 1 does not wait forever.
            let _tell = tell.lock().expect("locked once").take();
            let mut task = all_reduce(2, 1, &[1.0]);
            task.timeout = Some(Span::from_millis(300));
            let error = rank
                .run(task)
                .expect_err("rank 1 does not take part in time");
            for part in [
                "all_reduce(sum) of 1 f32, group 0, sequence 1: Timed out after ",
                " of 300ms waiting for ranks [1], 0 of 4 bytes were received; rank 1 has not \
                 entered it (rank 1 has called nothing in group 0)",
            ] {
                assert!(error.to_string().contains(part), "{error}");
            }
        } else {
            let _ = told.lock().expect("locked once").recv();
        }
        rank.close(PATIENCE);
    });
}

#[test]
fn unknown_ranks_and_taken_ports_are_refused() {
    let job = Job::default();
    let leader = open(0, 2, &job);
    let port = leader.rendezvous().expect("rank 0 listens").port();
    let again = |rank: u16| {
        OpenRank::open(Opening {
            job: Job::default(),
            rank: Rank(rank),
            world_size: 2,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port,
            token: String::new(),
            certificates: None,
        })
    };
    let in_use = again(0).expect_err("the port is taken");
    assert!(in_use.to_string().contains("in use") && !in_use.is_usage());
    let outside = again(2).expect_err("ranks are 0 and 1");
    assert!(outside.is_usage());
}
