//! Starts the `gradwire` that was built, and reads its output.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The command with some arguments, and without variables of the environment that could change it.
pub(crate) fn gradwire(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradwire"));
    command
        .args(arguments)
        .env_remove("GRADWIRE_JOB")
        .env_remove("GRADWIRE_TOKEN")
        .env_remove("GRADWIRE_LOG")
        .env_remove("GRADWIRE_TRACE");
    command
}

/// Runs the command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    gradwire(arguments).output().expect("the command starts")
}

/// The standard error of a finished command.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON objects that a finished command printed, one a line.
pub(crate) fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object a line"))
        .collect()
}

/// A file of this test with some text.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).expect("the test's folder is writable");
    path
}

/// A folder of one test, empty.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Whatever an earlier run of this test left.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("the test's folder is writable");
    path
}

/// A rank of `gradwire rank` while it runs. It is ended when the test ends.
pub(crate) struct Rank {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    /// Starts a rank of two.
    pub(crate) fn start(rank: u16, rendezvous: &str, more: &[&str]) -> Self {
        let number = rank.to_string();
        let rank = [
            "rank",
            "--rank",
            &number,
            "--world",
            "2",
            "--rendezvous",
            rendezvous,
        ];
        let mut process = gradwire(&rank)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let output = BufReader::new(process.stdout.take().expect("it was asked for"));
        Self { process, output }
    }

    /// Starts rank 0 at a free port; gives it and where it listens.
    pub(crate) fn lead(more: &[&str]) -> (Self, String) {
        let mut leader = Self::start(0, "127.0.0.1:0", more);
        let opened = leader.object();
        let rendezvous = opened["rendezvous"]
            .as_str()
            .expect("rank 0 tells where it listens");
        (leader, rendezvous.to_owned())
    }

    /// The next JSON object that it prints.
    pub(crate) fn object(&mut self) -> Value {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("its output can be read");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}: {}", self.errors()))
    }

    /// Waits for its end: its exit code and its standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let errors = self.errors();
        let status = self.process.wait().expect("it can be waited for");
        (status.code(), errors)
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            errors.read_to_string(&mut text).expect("errors are text");
        }
        text
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until something is so; tells whether it happened within ten seconds.
pub(crate) fn within_ten_seconds(so: impl Fn() -> bool) -> bool {
    (0..200).any(|_| {
        let now = so();
        if !now {
            std::thread::sleep(Duration::from_millis(50));
        }
        now
    })
}

/// The processes that a process has started.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Whether a process runs.
pub(crate) fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Kills a process that this test has caused, without any warning to it.
pub(crate) fn kill(process: u32) {
    signal(process, "KILL");
}

/// Sends a signal to a process that this test has caused.
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status();
    assert!(
        sent.expect("kill starts").success(),
        "process {process} takes a signal"
    );
}
