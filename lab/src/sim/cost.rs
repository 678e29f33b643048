//! The resources that a run takes of this machine: CPU time, wall time, memory.

use std::time::{Duration, Instant};

use gradwire_protocol::units::Span;
use nix::sys::resource::{Usage, UsageWho, getrusage};

/// The resources of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunCost {
    /// User CPU time in seconds.
    pub cpu_s: f64,
    /// Time on the wall in seconds.
    pub wall_s: f64,
    /// Most memory that the process had resident since it started, in bytes.
    pub peak_rss_bytes: u64,
}

/// Measures resources from its start to its stop.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    whose: Whose,
    cpu: Duration,
    began: Instant,
}

/// Whose CPU time counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whose {
    /// That of the calling thread: other runs may be under way beside it.
    Thread,
    /// That of the whole process: the run has threads of its own.
    Process,
}

impl Whose {
    fn usage(self) -> Usage {
        let who = match self {
            Self::Thread => UsageWho::RUSAGE_THREAD,
            Self::Process => UsageWho::RUSAGE_SELF,
        };
        getrusage(who).expect("the system tells a process what it uses itself")
    }

    fn cpu(self) -> Duration {
        let time = self.usage().user_time();
        Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1_000)
    }
}

impl Meter {
    /// Starts to measure a run of this many threads, to be stopped on the same thread.
    pub fn start(threads: usize) -> Self {
        let whose = match threads {
            1 => Whose::Thread,
            _ => Whose::Process,
        };
        Self {
            whose,
            cpu: whose.cpu(),
            began: now(),
        }
    }

    /// The resources used since the start.
    pub fn stop(&self) -> RunCost {
        let peak = Whose::Process.usage().max_rss();
        RunCost {
            cpu_s: self.whose.cpu().saturating_sub(self.cpu).as_secs_f64(),
            wall_s: now().duration_since(self.began).as_secs_f64(),
            // The system counts it in units of 1,024 bytes.
            peak_rss_bytes: u64::try_from(peak).unwrap_or(0) * 1024,
        }
    }
}

/// The time by which experiments are measured.
#[expect(clippy::disallowed_methods, reason = "the command measures time")]
pub fn now() -> Instant {
    Instant::now()
}

/// How many cores this machine has for this process.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// User CPU time of the calling thread.
pub fn thread_cpu() -> Span {
    Span::from_nanos(Whose::Thread.cpu().as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_other_threads_is_not_counted() {
        let meter = Meter::start(1);
        let both = Meter::start(2);
        let worker = std::thread::spawn(|| {
            let began = thread_cpu();
            let mut value = 1_u64;
            while thread_cpu().beyond(began) < Span::from_millis(60) {
                value = std::hint::black_box(value.wrapping_mul(3));
            }
        });
        worker.join().expect("it only counts");
        assert!(both.stop().cpu_s >= 0.05, "{:?}", both.stop());
        assert!(meter.stop().cpu_s < 0.05, "{:?}", meter.stop());
        assert!(meter.stop().wall_s > 0.0 && meter.stop().peak_rss_bytes > 1 << 20);
    }
}
