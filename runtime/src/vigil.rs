//! Notices that the process of another rank of this host has ended, sooner than its silence does:
//! the kernel lets go of the lock that the process holds on its shared memory.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use gradwire_protocol::units::Rank;
use gradwire_transport::shm::RankLife;

/// Time between two checks. A process counts as ended if two checks find it so: a rank that leaves
/// properly has said so by then.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A thread that watches the processes of neighbours until it is dropped.
#[derive(Debug)]
pub(crate) struct ProcessVigil {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessVigil {
    /// Calls `ended` once for every rank whose process has ended. If no thread can be started, a
    /// dead rank is noticed by its silence.
    pub(crate) fn over(
        lives: Vec<(Rank, RankLife)>,
        ended: impl Fn(Rank) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let mut lives: Vec<(Rank, RankLife, u32)> = lives
            .into_iter()
            .map(|(rank, life)| (rank, life, 0))
            .collect();
        let look = move || {
            while !lives.is_empty()
                && stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout)
            {
                lives.retain_mut(|(rank, life, looks)| {
                    *looks = if life.has_ended() { *looks + 1 } else { 0 };
                    if *looks == 2 {
                        ended(*rank);
                    }
                    *looks < 2
                });
            }
        };
        let thread = std::thread::Builder::new().name("gradwire-vigil".to_owned());
        Self {
            stop: Some(stop),
            thread: thread.spawn(look).ok(),
        }
    }
}

impl Drop for ProcessVigil {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
