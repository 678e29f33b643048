//! A forked child has a copy of its parent's ranks, and may not use them.
#![expect(unsafe_code, reason = "forks are calls of libc")]

mod world;

use std::sync::mpsc::channel;
use std::time::Duration;

use gradwire_protocol::job::{Job, WireChoice};
use gradwire_protocol::units::Span;
use gradwire_runtime::{EndError, LocalRank, RankTask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use world::{PATIENCE, on_ranks, sum};

fn task(sequence: u32) -> RankTask {
    RankTask {
        operation: sum(2, sequence, 1_f32.to_ne_bytes().to_vec()),
        timeout: Some(Span::from_millis(10_000)),
    }
}

/// Runs `body` in a forked child; returns whether it returned true.
fn in_a_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls only functions that work without the threads that it lacks.
    match unsafe { fork() }.expect("the system has processes") {
        // SAFETY: the child ends here, without running what its parent has registered.
        ForkResult::Child => unsafe { nix::libc::_exit(i32::from(!body())) },
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).expect("it is our child");
            ended == WaitStatus::Exited(child, 0)
        }
    }
}

fn refuses(rank: LocalRank) -> bool {
    let ran = matches!(rank.run(task(1)), Err(EndError::Forked));
    let (tell, told) = channel();
    let ticket = rank.submit(task(1), Box::new(move |result| drop(tell.send(result))));
    rank.wait(&ticket, PATIENCE);
    let called_back = matches!(told.recv_timeout(PATIENCE), Ok(Err(EndError::Forked)));
    let words = EndError::Forked.to_string();
    rank.abort("not ours");
    rank.close(Duration::ZERO);
    ran && called_back && words.contains("forkserver")
}

#[test]
fn a_forked_child_is_refused_and_harms_no_rank() {
    for wire in [WireChoice::Udp, WireChoice::SharedMemory] {
        let mut job = Job::default();
        job.transport.wire = wire;
        on_ranks(2, &job, |rank| {
            rank.run(task(0)).expect("both ranks sum");
            // SAFETY: the copy is used and dropped in the child only, which has a copy of all
            // memory.
            let copy = |rank: &LocalRank| unsafe { std::ptr::read(rank) };
            if rank.rank().0 == 0 {
                assert!(in_a_child(|| refuses(copy(&rank))));
            }
            let ended = rank.run(task(1)).expect("both ranks sum");
            assert_eq!(ended.buffer.bytes(), Some(2_f32.to_ne_bytes().as_slice()));
            rank.close(PATIENCE);
        });
    }
}
