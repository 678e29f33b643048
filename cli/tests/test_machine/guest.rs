//! The test machine: boots every scenario once, for all tests, and reads the guest's files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;

/// The scenario of the folder `switch`.
pub(crate) const SWITCH: &str = "switch";
/// The scenario of the folder `rdma`.
pub(crate) const RDMA: &str = "rdma";
/// All there are.
const SCENARIOS: [&str; 2] = [RDMA, SWITCH];
/// How `vm.sh` says that this machine cannot have such a guest.
const CANNOT: i32 = 3;

fn is_slow() -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "a slow test asks GRADWIRE_SLOW, see CONTRIBUTING.md"
    )]
    std::env::var_os("GRADWIRE_SLOW").is_some()
}

/// Where the scenarios lie.
pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vm")
}

/// How the one run of a scenario went.
enum Run {
    /// The folder with the guest's files.
    Done(PathBuf),
    /// This machine cannot have such a guest, or the tests of the guest were not asked for.
    Skipped(String),
    /// The guest's script, or the guest, failed.
    Failed(String),
}

/// The guest's files of a scenario; `None`, having said why, when there is no guest.
///
/// Who asks first boots them all, so that they run beside each other.
pub(crate) fn written(scenario: &str) -> Option<&'static Path> {
    static RUNS: OnceLock<Vec<Run>> = OnceLock::new();
    let runs = RUNS.get_or_init(|| {
        thread::scope(|scope| {
            let guests = SCENARIOS.map(|scenario| scope.spawn(move || boot(scenario)));
            let ends = guests.map(|guest| guest.join().expect("booting tells its errors"));
            ends.into_iter().collect()
        })
    });
    let place = SCENARIOS.iter().position(|one| *one == scenario);
    match &runs[place.expect("a scenario that there is")] {
        Run::Done(out) => Some(out),
        Run::Skipped(why) => {
            println!("skipped: {why}");
            None
        }
        Run::Failed(told) => panic!("{told}"),
    }
}

fn boot(scenario: &str) -> Run {
    if !is_slow() {
        return Run::Skipped("GRADWIRE_SLOW=1 or make test-vm boots the test machine".to_owned());
    }
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("test-machine")
        .join(scenario);
    let _ = std::fs::remove_dir_all(&out);
    let ran = Command::new(scripts().join("vm.sh"))
        .arg("run")
        .args([&scripts().join(scenario), &out])
        .arg(env!("CARGO_BIN_EXE_gradwire"))
        .stdin(Stdio::null())
        .output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => return Run::Skipped(format!("tests/vm/vm.sh cannot be run: {error}")),
    };
    let errors = String::from_utf8_lossy(&ran.stderr);
    match ran.status.code() {
        Some(0) => Run::Done(out),
        Some(CANNOT) => {
            let why = errors.trim().lines().last();
            Run::Skipped(why.unwrap_or("no reason").to_owned())
        }
        _ => Run::Failed(format!(
            "{scenario}: {}\n{errors}",
            String::from_utf8_lossy(&ran.stdout)
        )),
    }
}

/// A file that the guest wrote.
pub(crate) fn text(out: &Path, name: &str) -> String {
    let path = out.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file that the guest wrote, which is one JSON value.
pub(crate) fn object(out: &Path, name: &str) -> Value {
    let text = text(out, name);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
}

/// A count in an object.
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}
