//! One rank of `gradwire perf`: the process that does what the launcher says.

use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_protocol::job::Job;
use gradwire_protocol::units::Rank;
use gradwire_runtime::{OpenRank, Opening};

use super::bench::Bench;
use super::messages::{FromRank, Open, ToRank};
use crate::environment::Environment;
use crate::exit::{Exit, Failure};

/// How long ranks may take to meet.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long to wait at the end for operations; there are none.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Follows the orders on standard input; ends this process when that ends early.
///
/// # Errors
/// None are left: the launcher is told, and the process ends with the exit code.
pub fn run() -> Result<(), Failure> {
    let orders = orders();
    match follow(&orders) {
        Ok(()) => Ok(()),
        Err(failure) => {
            let (message, exit) = (failure.to_string(), failure.exit() as u8);
            answer(&FromRank::Failed { message, exit });
            std::process::exit(i32::from(exit));
        }
    }
}

/// Lines from the launcher. When it is gone this rank has no purpose any more.
fn orders() -> Receiver<ToRank> {
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
        std::process::exit(i32::from(Exit::PeerLost as u8));
    });
    orders
}

fn answer(answer: &FromRank) {
    let line = serde_json::to_string(answer).expect("answers are plain data");
    // Without a launcher the reading thread ends this process.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn follow(orders: &Receiver<ToRank>) -> Result<(), Failure> {
    let mut opened = None;
    let mut bench: Option<Bench> = None;
    while let Ok(order) = orders.recv() {
        match (order, bench.as_mut()) {
            (ToRank::Open(open), _) => {
                let rank = open_rank(open)?;
                let rendezvous = rank
                    .rendezvous()
                    .map_or_else(String::new, |at| at.to_string());
                answer(&FromRank::Opened { rendezvous });
                opened = Some(rank);
            }
            (ToRank::Join { rendezvous }, _) => {
                let open = opened.take().ok_or_else(out_of_order)?;
                let world = open.world_size();
                let joined = Bench::new(open.join(&rendezvous, JOIN_PATIENCE)?, world);
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

fn out_of_order() -> Failure {
    Failure::Usage("perf-rank is started and told what to do by gradwire perf".to_owned())
}

fn open_rank(open: Open) -> Result<OpenRank, Failure> {
    Ok(OpenRank::open(Opening {
        job: Job::from_toml(&open.job).map_err(|error| Failure::Options(Box::new(error)))?,
        rank: Rank(open.rank),
        world_size: open.world,
        bind: open.bind,
        port: 0,
        token: open.token,
        certificates: None,
    })?
    .with_trace_folder(Environment::read().trace))
}
