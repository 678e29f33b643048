//! `gradwire top` against ranks that run.
#![expect(clippy::disallowed_methods, reason = "tests look for free ports")]

use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::processes::{Rank, errors, file, gradwire, objects, run};

const ENDLESS: [&str; 6] = [
    "--token",
    "secret",
    "--iterations",
    "1000000",
    "--bytes",
    "1M",
];

/// Who holds it alone has watched ranks: `top` asks 64 ports, and would find those of other tests.
fn alone() -> MutexGuard<'static, ()> {
    static WATCHED: Mutex<()> = Mutex::new(());
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port of loopback that was free just now, with some room above it.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = listener.local_addr().expect("it has an address").port();
    port.min(65_000)
}

/// Two ranks in the middle of all-reduces, whose job says that it is watched at `port`.
fn watched_ranks(port: u16) -> [Rank; 2] {
    let job = format!(
        "name = \"seen\"\ntolerance = \"10%\"\n[transport]\nwire = \"udp\"\n\
         [faults]\ndrop = \"1%\"\n[metrics]\nport = {port}\n"
    );
    let job = file(&format!("watched-{port}.toml"), &job);
    let job = job.to_str().expect("the path is text");
    let more = [&ENDLESS[..], &["--job", job]].concat();
    let (mut leader, rendezvous) = Rank::lead(&more);
    let mut other = Rank::start(1, &rendezvous, &more);
    assert_eq!(leader.object()["joined"], 2);
    assert_eq!(other.object()["rendezvous"], Value::Null);
    [leader, other]
}

#[test]
fn top_shows_a_running_job_and_who_has_gone() {
    let _alone = alone();
    let port = free_port();
    let [leader, other] = watched_ranks(port);
    let given = port.to_string();
    let output = run(&["top", "--port", &given, "--once", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let lines = objects(&output);
    assert_eq!(lines.len(), 1);
    let ranks = lines[0]["ranks"].as_array().expect("a list of ranks");
    assert_eq!(ranks.len(), 2);
    for (at, rank) in ranks.iter().enumerate() {
        assert_eq!((&rank["job"], &rank["rank"]), (&"seen".into(), &at.into()));
        assert_eq!(rank["state"], "up");
        let number = |key: &str| rank[key].as_f64().unwrap_or(-1.0);
        // Of each message in whole bytes, so a little less than the job allows.
        assert!((0.0999..=0.1).contains(&number("tolerance")), "{rank}");
        assert!(number("out_bytes_per_s") > 0.0 && number("in_bytes_per_s") > 0.0);
        assert!(
            number("operations_per_s") > 0.0 && number("rtt_p99_us") > 0.0,
            "{rank}"
        );
        assert!((0.0..=0.1).contains(&number("lost_share")), "{rank}");
        assert_eq!(rank["peers"].as_array().map(Vec::len), Some(1));
        assert_eq!(rank["peers"][0]["rank"], 1 - at);
        assert!(
            rank["peers"][0]["repairs_per_s"].as_f64() > Some(0.0),
            "{rank}"
        );
    }
    let text = run(&["top", "--port", &given]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("# job \"seen\", 2 of 2 ranks\n"), "{text}");
    // The ranks, a line between, their peers, and a head for both.
    assert_eq!(text.lines().count(), 1 + 3 + 1 + 3, "{text}");
    let watcher = gradwire(&["top", "--port", &given, "--json", "--interval", "200ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    std::thread::sleep(std::time::Duration::from_millis(1_000));
    drop((leader, other));
    let output = watcher
        .wait_with_output()
        .expect("it ends when all are gone");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let last = objects(&output).pop().expect("a refresh at least");
    let ranks = last["ranks"].as_array().expect("a list of ranks");
    assert!(ranks.len() == 2 && ranks.iter().all(|rank| rank["state"] == "gone"));
}

#[test]
fn top_without_a_rank_says_what_to_write_where() {
    let _alone = alone();
    let port = free_port().to_string();
    let output = run(&["top", "--port", &port, "--once"]);
    assert_eq!(output.status.code(), Some(5));
    let errors = errors(&output);
    assert!(
        errors.contains(&format!("write port = {port} under [metrics]")),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(run(&["top", "--interval", "1ms"]).status.code(), Some(2));
}

#[test]
fn taken_metrics_ports_are_only_a_warning() {
    let _alone = alone();
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = taken.local_addr().expect("it has an address").port();
    let job = file("taken-port.toml", &format!("[metrics]\nport = {port}\n"));
    let job = job.to_str().expect("the path is text");
    let more = ["--token", "secret", "--iterations", "3", "--job", job];
    let mut leader = gradwire(&["rank", "--rank", "0", "--world", "2"])
        .args(["--rendezvous", "127.0.0.1:0"])
        .args(more)
        .env("LOCAL_RANK", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut first = String::new();
    let mut said = std::io::BufReader::new(leader.stdout.take().expect("it was asked for"));
    std::io::BufRead::read_line(&mut said, &mut first).expect("it can be read");
    let opened: Value = serde_json::from_str(&first).expect("a JSON object");
    let rendezvous = opened["rendezvous"].as_str().expect("rank 0 listens");
    let other = Rank::start(1, rendezvous, &more);
    let (code, errors) = other.end();
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).expect("it can be read");
    let output = leader.wait_with_output().expect("it can be waited for");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let warning = format!("[0] GRADWIRE WARN no metrics: port {port} on 127.0.0.1");
    assert!(errors.contains(&warning), "{errors}");
    assert!(rest.contains("\"all_reduces\":3"), "{rest}");
}
