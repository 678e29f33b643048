//! Ranks that die, strangers, and jobs that do not fit together: each rank gets the right message,
//! and no process is left behind.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use gradwire_lab::netns;

use crate::processes::{Rank, children, file, gradwire, kill, runs, signal, within_ten_seconds};

const TOKEN: &[&str] = &["--token", "secret"];
/// So many all-reduces that a rank is in the middle of one when the test acts.
const ENDLESS: &[&str] = &[
    "--token",
    "secret",
    "--iterations",
    "1000000",
    "--bytes",
    "4M",
];

#[test]
fn killed_ranks_are_named_within_ten_seconds() {
    let (mut leader, rendezvous) = Rank::lead(ENDLESS);
    let mut victim = Rank::start(1, &rendezvous, ENDLESS);
    assert_eq!(leader.object()["joined"], 2);
    std::thread::sleep(Duration::from_millis(500));
    let survivor = leader.process.id();
    victim.process.kill().expect("it runs");
    victim.process.wait().expect("it can be waited for");
    assert!(within_ten_seconds(|| !runs(survivor)), "the survivor ends");
    let (code, errors) = leader.end();
    assert_eq!(code, Some(4), "{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    assert_eq!(lines.len(), 2, "the log's and the command's: {errors}");
    let named = lines.iter().all(|line| line.contains("rank 1 was lost"));
    assert!(named, "{errors}");
}

/// Two network namespaces joined by a link, as two hosts. `None` where this user makes none.
fn two_hosts() -> Option<[File; 2]> {
    let rooms = [netns::unnamed().ok()?, netns::unnamed().ok()?];
    let other = format!("/proc/{}/fd/{}", std::process::id(), rooms[1].as_raw_fd());
    let link = format!("link add gwd0 type veth peer name gwd1 netns {other}");
    netns::batch("the test", "ip", &rooms[0], &[link]).expect("iproute2 is installed");
    for (host, room) in rooms.iter().enumerate() {
        let lines = [
            format!("address add {}/24 dev gwd{host}", HOSTS[host]),
            format!("link set gwd{host} up"),
            "link set lo up".to_owned(),
        ];
        netns::batch("the test", "ip", room, &lines).expect("the link is there");
    }
    Some(rooms)
}

/// The addresses of two hosts.
const HOSTS: [&str; 2] = ["10.214.8.1", "10.214.8.2"];

#[test]
fn dead_ranks_of_other_hosts_are_found_soon() {
    let Some(rooms) = two_hosts() else {
        eprintln!("skipped: this user makes no network namespaces");
        return;
    };
    // The list of interfaces in /sys is that of the first namespace, so the MTU is given.
    let job = file(
        "two-hosts.toml",
        "[transport]\nmtu = 1500\nwire = \"udp\"\n",
    );
    let job = job.to_str().expect("a plain path");
    let start = |host: usize, rendezvous: &str| {
        let options = [ENDLESS, &["--bind", HOSTS[host], "--job", job]].concat();
        netns::within(&rooms[host], || {
            Rank::start(host as u16, rendezvous, &options)
        })
        .expect("the namespace is there")
    };
    for victim in [1, 0] {
        let mut leader = start(0, &format!("{}:0", HOSTS[0]));
        let opened = leader.object();
        let rendezvous = opened["rendezvous"].as_str().expect("rank 0 listens");
        let member = start(1, rendezvous);
        assert_eq!(leader.object()["joined"], 2);
        std::thread::sleep(Duration::from_millis(500));
        let mut ranks = [leader, member];
        ranks[victim].process.kill().expect("it runs");
        #[expect(clippy::disallowed_methods, reason = "the test measures time")]
        let killed = Instant::now();
        let [leader, member] = ranks;
        let (code, errors) = [member, leader].into_iter().nth(victim).expect("two").end();
        assert_eq!(code, Some(4), "{errors}");
        let word = format!("rank {victim} was lost (");
        assert!(errors.contains(&word), "{errors}");
        assert!(killed.elapsed() < Duration::from_secs(2), "{errors}");
    }
}

/// Options of a rank of a job whose ranks wait so long for a sign of life, over some wire.
fn waiting(peer_timeout: &str, wire: &str, iterations: &'static str) -> Vec<String> {
    let name = format!("waiting-{peer_timeout}-{wire}.toml");
    let text = format!("[transport]\npeer_timeout = \"{peer_timeout}\"\nwire = \"{wire}\"\n");
    let job = file(&name, &text);
    let job = job.to_str().expect("a plain path");
    let options = [
        "--token",
        "secret",
        "--bytes",
        "1M",
        "--iterations",
        iterations,
    ];
    let options = options.into_iter().chain(["--job", job]);
    options.map(str::to_owned).collect()
}

/// Starts two ranks, stops rank 1 in the middle of its work for so long, and lets both end.
fn with_a_stop(options: &[String], stopped: Duration) -> [(Option<i32>, String); 2] {
    with_a_pause(options, |process| {
        signal(process, "STOP");
        std::thread::sleep(stopped);
        signal(process, "CONT");
    })
}

/// Starts two ranks, pauses rank 1 in the middle of its work, and lets both end.
fn with_a_pause(options: &[String], pause: impl FnOnce(u32)) -> [(Option<i32>, String); 2] {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (mut leader, rendezvous) = Rank::lead(&options);
    let other = Rank::start(1, &rendezvous, &options);
    assert_eq!(leader.object()["joined"], 2);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        runs(leader.process.id()),
        "it has work for longer than this"
    );
    pause(other.process.id());
    [leader.end(), other.end()]
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "tests are asked for by the environment"
)]
fn ranks_stopped_briefly_continue() {
    let slow = std::env::var_os("GRADWIRE_SLOW").is_some();
    // One minute is the default.
    let (timeout, stopped) = if slow { ("60s", 12_000) } else { ("3s", 1_500) };
    // Shared memory is several times as fast.
    for (wire, iterations) in [("udp", "2000"), ("auto", "6000")] {
        let options = waiting(timeout, wire, iterations);
        for (code, errors) in with_a_stop(&options, Duration::from_millis(stopped)) {
            assert_eq!((code, errors.as_str()), (Some(0), ""), "{wire}");
        }
    }
}

/// A control group whose processes can be frozen, as a container runtime and a batch system do.
struct Freezer(PathBuf);

impl Freezer {
    /// `None` where this user makes no such groups.
    fn new() -> Option<Self> {
        let name = format!("gradwire-{}", std::process::id());
        let freezer = Self(PathBuf::from("/sys/fs/cgroup/freezer").join(name));
        std::fs::create_dir(&freezer.0).ok().map(|()| freezer)
    }

    fn write(&self, file: &str, text: &str) {
        let written = std::fs::write(self.0.join(file), text);
        written.expect("the group is ours");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md"
)]
fn a_frozen_control_group_is_waited_for() {
    let slow = std::env::var_os("GRADWIRE_SLOW").is_some();
    let Some(freezer) = Freezer::new().filter(|_| slow) else {
        eprintln!("skipped: slow, or this user makes no control groups");
        return;
    };
    let options = waiting("60s", "udp", "2000");
    let ended = with_a_pause(&options, |process| {
        freezer.write("cgroup.procs", &process.to_string());
        freezer.write("freezer.state", "FROZEN");
        std::thread::sleep(Duration::from_secs(12));
        freezer.write("freezer.state", "THAWED");
    });
    for (code, errors) in ended {
        assert_eq!((code, errors.as_str()), (Some(0), ""));
    }
}

#[test]
fn ranks_stopped_for_long_are_lost_and_end() {
    let options = waiting("1s", "udp", "1000000");
    let [survivor, stopped] = with_a_stop(&options, Duration::from_millis(3_500));
    assert_eq!(
        (survivor.0, stopped.0),
        (Some(4), Some(4)),
        "{survivor:?} {stopped:?}"
    );
    assert!(survivor.1.contains("rank 1 was lost"), "{survivor:?}");
    assert!(stopped.1.contains("it did not run for 3."), "{stopped:?}");
    assert!(
        stopped.1.contains("the other ranks count it as dead"),
        "{stopped:?}"
    );
}

#[test]
fn perf_ends_all_ranks_when_one_is_killed() {
    let options = ["-n", "3", "-b", "4M", "-e", "4M", "--iterations", "100000"];
    let launcher = gradwire(&[&["perf", "all-reduce"], &options[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let process = launcher.id();
    assert!(
        within_ten_seconds(|| children(process).len() == 3),
        "three ranks start"
    );
    std::thread::sleep(Duration::from_millis(500));
    let ranks = children(process);
    kill(ranks[1]);
    let output = launcher.wait_with_output().expect("it can be waited for");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains("rank 1"), "{errors}");
    assert!(ranks.iter().all(|rank| !runs(*rank)), "no rank is left");
}

#[test]
fn ranks_end_when_their_launcher_is_killed() {
    let options = ["-b", "4M", "-e", "4M", "--iterations", "100000"];
    let mut launcher = gradwire(&[&["perf", "all-reduce"], &options[..]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let process = launcher.id();
    assert!(
        within_ten_seconds(|| children(process).len() == 2),
        "two ranks start"
    );
    let ranks = children(process);
    launcher.kill().expect("it runs");
    launcher.wait().expect("it can be waited for");
    assert!(
        within_ten_seconds(|| ranks.iter().all(|rank| !runs(*rank))),
        "no rank is left"
    );
}

#[test]
fn a_wrong_token_is_told_to_both_sides() {
    let (leader, rendezvous) = Rank::lead(&["--token", "secret", "--join-timeout", "3s"]);
    let (code, errors) = Rank::start(1, &rendezvous, &["--token", "guessed"]).end();
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains("token"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let (code, errors) = leader.end();
    assert_eq!(code, Some(3), "{errors}");
    assert!(
        errors.contains("rank 1") && errors.contains("token"),
        "{errors}"
    );
}

#[test]
fn ranks_with_different_jobs_are_told_which_key_differs() {
    let job = file("other.toml", "[transport]\nwindow = \"2MiB\"\n");
    let job = [
        "--token",
        "secret",
        "--job",
        job.to_str().expect("a plain path"),
    ];
    let (leader, rendezvous) = Rank::lead(TOKEN);
    let member = Rank::start(1, &rendezvous, &job);
    for (code, errors) in [member.end(), leader.end()] {
        assert_eq!(code, Some(3), "{errors}");
        for word in ["transport.window", "2MiB", "auto"] {
            assert!(errors.contains(word), "{errors}");
        }
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let (_leader, rendezvous) = Rank::lead(TOKEN);
    let (code, errors) = Rank::start(0, &rendezvous, TOKEN).end();
    assert_eq!(code, Some(5), "{errors}");
    assert!(
        errors.contains(&rendezvous) && errors.contains("in use"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn ranks_without_token_or_world_do_not_start() {
    let (code, errors) = Rank::start(0, "127.0.0.1:0", &[]).end();
    assert_eq!(code, Some(2));
    assert!(errors.contains("--token or set GRADWIRE_TOKEN"), "{errors}");
    let lonely = ["--cert", "rank.crt"];
    let (code, errors) = Rank::start(0, "127.0.0.1:0", &lonely).end();
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("no key and no authority is given"),
        "{errors}"
    );
    let nowhere = [
        "--cert", "/nowhere", "--key", "/nowhere", "--ca", "/nowhere",
    ];
    let (code, errors) = Rank::start(0, "127.0.0.1:0", &nowhere).end();
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("the certificate /nowhere: No such file"),
        "{errors}"
    );
    let (code, errors) = Rank::start(5, "127.0.0.1:1", TOKEN).end();
    assert_eq!(code, Some(2));
    assert!(
        errors.contains("rank 5 of world size 2 does not exist"),
        "{errors}"
    );
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the stranger needs a socket of its own"
)]
fn random_datagrams_are_counted_and_change_nothing() {
    let options = ["--token", "secret", "--iterations", "20", "--bytes", "64K"];
    let mut leader = Rank::start(0, "127.0.0.1:0", &options);
    let opened = leader.object();
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for address in opened["data_addresses"].as_array().expect("a list") {
        for length in [0, 1, 63, 64, 65, 1400] {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    noise = noise
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (noise >> 56) as u8
                })
                .collect();
            let address = address.as_str().expect("an address");
            stranger
                .send_to(&bytes, address)
                .expect("loopback takes it");
        }
    }
    let rendezvous = opened["rendezvous"]
        .as_str()
        .expect("rank 0 listens")
        .to_owned();
    let mut member = Rank::start(1, &rendezvous, &options);
    let last = |rank: &mut Rank| {
        assert_eq!(rank.object()["joined"], 2);
        rank.object()
    };
    member.object();
    let (report, other) = (last(&mut leader), last(&mut member));
    assert!(
        report["malformed_packets"]
            .as_u64()
            .is_some_and(|count| count >= 30),
        "{report}"
    );
    for report in [report, other] {
        assert_eq!(report["all_reduces"], 20, "{report}");
        assert_eq!(report["wrong"], 0, "{report}");
    }
    assert_eq!((leader.end().0, member.end().0), (Some(0), Some(0)));
}
