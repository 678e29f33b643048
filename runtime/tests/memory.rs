//! Ranks of one host whose shared memory is small, full, read-only or absent: they use sockets.

#[expect(dead_code, reason = "other facts need more of it")]
mod world;

use std::sync::Mutex;
use std::thread;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::Span;
use gradwire_runtime::{LocalRank, OpenRank, RankTask};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use world::{PATIENCE, open, sum};

const FOLDER: &str = "/dev/shm";

/// Runs `body` on a thread that sees another /dev/shm: a file system of this size.
fn with_memory(size: &str, body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let own = scope.spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                eprintln!("skipped: this user makes no mount namespaces");
                return;
            }
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).expect("it is ours");
            let (size, flags) = (format!("size={size}"), MsFlags::empty());
            let made = mount(
                Some("none"),
                FOLDER,
                Some("tmpfs"),
                flags,
                Some(size.as_str()),
            );
            made.expect("the namespace is ours");
            body();
        });
        own.join().expect("the test does not panic");
    });
}

/// A job of two ranks that have not met.
fn two(job: &Job) -> [OpenRank; 2] {
    [0, 1].map(|rank| open(rank, 2, job))
}

/// Lets the ranks of jobs of two meet and sum; returns the wire of each rank.
fn wires(jobs: Vec<[OpenRank; 2]>) -> Vec<&'static str> {
    let wires = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for ranks in jobs {
            let rendezvous = ranks[0].rendezvous().expect("rank 0 listens").to_string();
            for rank in ranks {
                let (wires, rendezvous) = (&wires, rendezvous.clone());
                scope.spawn(move || {
                    let rank = rank
                        .join(&rendezvous, PATIENCE)
                        .expect("memory is optional");
                    wires.lock().expect("no panic").push(rank.wire());
                    sums(&rank);
                    rank.close(PATIENCE);
                });
            }
        }
    });
    wires.into_inner().expect("no panic")
}

/// A sum of a tensor that fills rings several times.
fn sums(rank: &LocalRank) {
    let ones: Vec<u8> = (0..500_000).flat_map(|_| 1_f32.to_ne_bytes()).collect();
    let task = RankTask {
        operation: sum(2, 0, ones),
        timeout: Some(Span::from_millis(20_000)),
    };
    let ended = rank.run(task).expect("both ranks sum");
    let bytes = ended.buffer.bytes().expect("a buffer of its own");
    assert!(
        bytes
            .chunks_exact(4)
            .all(|value| value == 2_f32.to_ne_bytes())
    );
}

#[test]
fn memory_that_is_absent_is_not_needed() {
    with_memory("4m", || {
        umount2(FOLDER, MntFlags::empty()).expect("it is ours");
        let flags = MsFlags::MS_RDONLY;
        let made = mount(Some("none"), FOLDER, Some("proc"), flags, None::<&str>);
        made.expect("the namespace is ours");
        assert_eq!(wires(vec![two(&Job::default())]), ["udp"; 2]);
    });
}

#[test]
fn memory_that_is_read_only_is_not_needed() {
    with_memory("4m", || {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        let changed = mount(None::<&str>, FOLDER, None::<&str>, flags, None::<&str>);
        changed.expect("the namespace is ours");
        assert_eq!(wires(vec![two(&Job::default())]), ["udp"; 2]);
    });
}

#[test]
fn memory_that_fills_up_while_ranks_meet_is_not_needed() {
    with_memory("4m", || {
        let ranks = two(&Job::default());
        let filled = std::fs::write(format!("{FOLDER}/other"), vec![1; 8 << 20]);
        filled.expect_err("the file system is smaller");
        assert_eq!(wires(vec![ranks]), ["udp"; 2]);
    });
}

#[test]
fn jobs_that_begin_together_share_a_small_memory() {
    with_memory("4m", || {
        let jobs = (0..5).map(|_| two(&Job::default())).collect();
        assert_eq!(wires(jobs), ["shm"; 10]);
    });
}
