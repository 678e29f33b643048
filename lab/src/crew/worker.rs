//! One rank of `gradwire perf`: a process that follows the launcher's orders.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::Rank;
use gradwire_runtime::{OpenRank, Opening};

use super::bench::RankBench;
use super::messages::{FromRank, Open, ToRank};
use crate::error::LabError;

/// How long ranks may take to meet.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait at the end for operations; all have ended by then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// How a rank of `perf` is told to run.
#[derive(Clone, Debug)]
pub struct RankProcess {
    /// The folder into which the flight recorder is written on failure.
    pub trace_folder: Option<PathBuf>,
    /// The exit code when the launcher has gone.
    pub orphaned: u8,
}

impl RankProcess {
    /// Follows the orders on standard input; ends this process when that ends early.
    ///
    /// # Errors
    /// [`LabError`] when an operation failed; the launcher is to be told with [`tell_failure`].
    pub fn run(&self) -> Result<(), LabError> {
        follow(&orders(self.orphaned), self)
    }
}

/// Tells the launcher why this rank ends, and with which exit code.
pub fn tell_failure(message: String, exit: u8) {
    answer(&FromRank::Failed { message, exit });
}

/// Lines from the launcher. When it is gone this rank has no purpose any more.
fn orders(orphaned: u8) -> Receiver<ToRank> {
    let (pass_on, orders) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else {
                break;
            };
            let last = matches!(order, ToRank::End {});
            if pass_on.send(order).is_err() || last {
                return;
            }
        }
        std::process::exit(i32::from(orphaned));
    });
    orders
}

fn answer(answer: &FromRank) {
    let line = serde_json::to_string(answer).expect("answers are plain data");
    // Without a launcher the reading thread ends this process.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn follow(orders: &Receiver<ToRank>, process: &RankProcess) -> Result<(), LabError> {
    let mut opened = None;
    let mut bench: Option<RankBench> = None;
    while let Ok(order) = orders.recv() {
        match (order, bench.as_mut()) {
            (ToRank::Open(open), _) => {
                let rank = open_rank(open, process)?;
                let rendezvous = rank
                    .rendezvous()
                    .map_or_else(String::new, |at| at.to_string());
                answer(&FromRank::Opened { rendezvous });
                opened = Some(rank);
            }
            (ToRank::Join { rendezvous }, _) => {
                let open = opened.take().ok_or_else(out_of_order)?;
                let world = open.world_size();
                let joined = RankBench::new(open.join(&rendezvous, JOIN_PATIENCE)?, world);
                let wire = joined.wire().to_owned();
                bench = Some(joined);
                answer(&FromRank::Joined { wire });
            }
            (ToRank::Round(round), Some(bench)) => {
                answer(&FromRank::Measured(bench.round(&round)?));
            }
            (ToRank::Buckets(buckets), Some(bench)) => {
                answer(&FromRank::Measured(bench.buckets(&buckets)?));
            }
            (ToRank::Round(_) | ToRank::Buckets(_), None) => return Err(out_of_order()),
            (ToRank::End {}, _) => break,
        }
    }
    if let Some(bench) = bench {
        bench.rank().close(CLOSE_PATIENCE);
    }
    Ok(())
}

fn out_of_order() -> LabError {
    LabError::Usage("perf-rank takes orders from gradwire perf and cannot run alone".to_owned())
}

fn open_rank(open: Open, process: &RankProcess) -> Result<OpenRank, LabError> {
    Ok(OpenRank::open(Opening {
        job: Job::from_toml(&open.job).map_err(|error| LabError::Options(Box::new(error)))?,
        rank: Rank(open.rank),
        world_size: open.world,
        bind: open.bind,
        port: 0,
        token: open.token,
        certificates: None,
    })?
    .with_trace_folder(process.trace_folder.clone()))
}
