//! Log lines of a rank for people, on standard error, in the form of NCCL's:
//! `host:process:thread [rank] GRADWIRE INFO text`.
//!
//! This package writes by the macros of `log`. The command and the Python package choose the level
//! with [`start`]; if neither calls it, no line is shown. Lines of other packages never are. A
//! program with a log of its own takes over the lines with [`divert`].

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use gradwire_protocol::units::Rank;
use log::{LevelFilter, Metadata, Record};

pub use log::Level;

/// How many lines are shown.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LogLevel {
    /// Failures, and settings that are probably not intended.
    Warn,
    /// The settings in use.
    Info,
    /// Each step of starting and ending.
    Debug,
    /// Every operation.
    Trace,
}

/// All levels by name, the quietest first.
const LEVELS: [(&str, LogLevel); 4] = [
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

/// There is no such level.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{given:?} is not a log level: allowed are warn, info, debug and trace")]
pub struct LevelError {
    /// As given.
    given: String,
}

impl FromStr for LogLevel {
    type Err = LevelError;

    /// Reads a level, in small or capital letters.
    fn from_str(text: &str) -> Result<Self, LevelError> {
        let found = LEVELS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|(_, level)| *level).ok_or_else(|| LevelError {
            given: text.to_owned(),
        })
    }
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Warn => Self::Warn,
            LogLevel::Info => Self::Info,
            LogLevel::Debug => Self::Debug,
            LogLevel::Trace => Self::Trace,
        }
    }
}

/// Shows lines up to a level from now on. Lines name the rank given to [`rank_is`] last.
pub fn start(level: LogLevel) {
    // If the process has another log already, gradwire's lines go there.
    let _ = log::set_logger(&LINES);
    log::set_max_level(level.into());
}

/// Lines are about this rank from now on.
pub fn rank_is(rank: Rank) {
    LINES.rank.store(u32::from(rank.0), Ordering::Relaxed);
}

/// Takes a line of this process instead of standard error; returns whether it did.
pub type LineSink = Box<dyn Fn(Level, &str) -> bool + Send + Sync>;

/// Gives lines to `sink` from now on; without one, they go to standard error again.
pub fn divert(sink: Option<LineSink>) {
    *LINES.sink.write().unwrap_or_else(PoisonError::into_inner) = sink;
}

static LINES: LineWriter = LineWriter {
    rank: AtomicU32::new(NO_RANK),
    host: OnceLock::new(),
    sink: RwLock::new(None),
};
const NO_RANK: u32 = u32::MAX;

/// Writes lines to standard error, or to a sink.
struct LineWriter {
    rank: AtomicU32,
    host: OnceLock<String>,
    sink: RwLock<Option<LineSink>>,
}

impl LineWriter {
    /// Whether a sink has taken the line.
    fn is_taken(&self, record: &Record<'_>) -> bool {
        let sink = self.sink.read().unwrap_or_else(PoisonError::into_inner);
        let Some(sink) = &*sink else {
            return false;
        };
        let text = match self.rank.load(Ordering::Relaxed) {
            NO_RANK => record.args().to_string(),
            rank => format!("rank {rank}: {}", record.args()),
        };
        sink(record.level(), &text)
    }
}

impl log::Log for LineWriter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gradwire")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || self.is_taken(record) {
            return;
        }
        let line = line(
            &LineOrigin {
                host: self.host.get_or_init(host_name),
                process: std::process::id(),
                thread: thread_number(),
                rank: self.rank.load(Ordering::Relaxed),
            },
            record,
        );
        // A closed standard error is no reason to stop training.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// The name of this host, as its kernel tells it.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

/// Where a line comes from.
struct LineOrigin<'a> {
    host: &'a str,
    process: u32,
    thread: u32,
    rank: u32,
}

fn line(origin: &LineOrigin<'_>, record: &Record<'_>) -> String {
    let LineOrigin {
        host,
        process,
        thread,
        rank,
    } = origin;
    let rank: &dyn fmt::Display = match *rank {
        NO_RANK => &"-",
        _ => rank,
    };
    let (level, text) = (record.level(), record.args());
    format!("{host}:{process}:{thread} [{rank}] GRADWIRE {level} {text}\n")
}

/// The kernel's number of the calling thread, as debuggers and `top -H` show it.
fn thread_number() -> u32 {
    let path = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let number = path.file_name().and_then(|name| name.to_str());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_level_names_the_known_ones() {
        assert_eq!("INFO".parse(), Ok(LogLevel::Info));
        assert_eq!("trace".parse(), Ok(LogLevel::Trace));
        let error = "verbose".parse::<LogLevel>().expect_err("no level");
        let text = "\"verbose\" is not a log level: allowed are warn, info, debug and trace";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_line_has_the_shape_of_nccl() {
        let mut origin = LineOrigin {
            host: "box",
            process: 7,
            thread: 9,
            rank: 3,
        };
        let record = |origin: &LineOrigin<'_>| {
            let mut record = Record::builder();
            line(
                origin,
                &record
                    .level(Level::Warn)
                    .args(format_args!("a {}", 1))
                    .build(),
            )
        };
        assert_eq!(record(&origin), "box:7:9 [3] GRADWIRE WARN a 1\n");
        origin.rank = NO_RANK;
        assert!(record(&origin).contains(" [-] "));
    }
}
