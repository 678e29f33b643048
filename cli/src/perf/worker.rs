//! One rank of `gradwire perf`: does what the launcher says, and checks every result.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use gradwire_collectives::buffer::Buffer;
use gradwire_collectives::dtype::{DType, ReduceOp};
use gradwire_collectives::operation::{Collective, Group, Layers, Loss, Operation, Outcome};
use gradwire_protocol::job::{Holes, Job};
use gradwire_protocol::units::{Rank, Span, Step};
use gradwire_runtime::{EndError, LocalRank, OpenRank, Opening, Task};

use super::ELEMENT_BYTES;
use super::messages::{FromRank, Measured, Open, Round, ToRank};
use super::pattern::{self, Estimate};
use crate::exit::{Exit, Failure};

/// How long ranks may take to meet.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);
/// How long one operation may take.
const OPERATION_PATIENCE: Span = Span::from_millis(120_000);
/// How long to wait at the end for operations; there are none.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// The one tensor that is reduced, for what is kept between steps.
const TENSOR_KEY: u64 = 1;

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
                bench = Some(Bench::new(open.join(&rendezvous, JOIN_PATIENCE)?, world));
                answer(&FromRank::Joined {});
            }
            (ToRank::Round(round), Some(bench)) => {
                answer(&FromRank::Measured(bench.round(&round)?));
            }
            (ToRank::Round(_), None) => return Err(out_of_order()),
            (ToRank::End {}, _) => break,
        }
    }
    if let Some(bench) = bench {
        bench.rank.close(CLOSE_PATIENCE);
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
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        token: open.token,
    })?)
}

/// A rank that does all-reduces in a loop.
#[derive(Debug)]
pub struct Bench {
    rank: LocalRank,
    group: Group,
    sequence: u32,
    step: u32,
}

impl Bench {
    /// A bench over all ranks of a job.
    pub fn new(rank: LocalRank, world: u16) -> Self {
        let ranks = (0..world).map(Rank).collect();
        Self {
            rank,
            group: Group { id: 0, ranks },
            sequence: 0,
            step: 0,
        }
    }

    /// The rank.
    pub fn rank(&self) -> &LocalRank {
        &self.rank
    }

    /// Does the all-reduces of a round, each between barriers, and checks each result.
    ///
    /// # Errors
    /// [`EndError`] of the first that fails.
    pub fn round(&mut self, round: &Round) -> Result<Measured, EndError> {
        let elements = round.bytes / ELEMENT_BYTES;
        let world = self.group.ranks.len() as u16;
        let contribution = pattern::contribution(self.rank.rank().0, elements);
        let exact = pattern::sum(world, elements);
        let before = self.rank.counters();
        let mut measured = Measured::default();
        let mut buffer = contribution.clone();
        for _ in 0..round.iterations {
            buffer.copy_from_slice(&contribution);
            self.barrier()?;
            let (took, result, outcome) = self.all_reduce(buffer)?;
            buffer = result;
            measured.times_us.push(took.as_secs_f64() * 1e6);
            measured.operations_lost_segments += outcome.lost_segments;
            let share = outcome.max_lost_share.get();
            measured.max_lost_share = measured.max_lost_share.max(share);
            self.check(&mut measured, (&buffer, &exact));
        }
        self.barrier()?;
        let counted = self.rank.counters() - before;
        Ok(Measured {
            sent_segments: counted.sent_segments,
            lost_segments: counted.lost_segments,
            repaired_segments: counted.repaired_segments,
            ledger_lost_segments: counted.ledger_lost_segments,
            faults_dropped: counted.faults_dropped,
            kernel_drops: counted.kernel_drops,
            segment_bytes: u64::from(self.rank.segment_bytes()),
            ..measured
        })
    }

    fn check(&self, measured: &mut Measured, (result, exact): (&[u8], &[u8])) {
        let job = self.rank.job();
        let estimate = match job.holes {
            Holes::Rescale => Estimate::Rescaled,
            Holes::Zero | Holes::Previous | Holes::ErrorFeedback => Estimate::Partial,
        };
        let world = self.group.ranks.len() as u16;
        let found = pattern::deviations(result, exact, world, estimate);
        measured.estimated_elements += found.estimated;
        measured.wrong_elements += if job.tolerance.is_none() {
            found.estimated
        } else {
            found.wrong
        };
        measured.hashes.push(if found.estimated == 0 {
            0
        } else {
            pattern::hash(result)
        });
    }

    fn barrier(&mut self) -> Result<(), EndError> {
        let barrier = self.operation(Collective::Barrier, Buffer::Owned(Vec::new()), Loss::NONE);
        self.run(barrier).map(drop)
    }

    #[expect(clippy::disallowed_methods, reason = "the command measures time")]
    fn all_reduce(&mut self, buffer: Vec<u8>) -> Result<(Duration, Vec<u8>, Outcome), EndError> {
        self.step += 1;
        let job = self.rank.job();
        let loss = Loss {
            tolerance: job.tolerance,
            holes: job.holes,
        };
        let operation = self.operation(Collective::AllReduce, Buffer::Owned(buffer), loss);
        let start = std::time::Instant::now();
        let (buffer, outcome) = self.run(operation)?;
        let took = start.elapsed();
        let Buffer::Owned(bytes) = buffer else {
            unreachable!("an owned buffer comes back")
        };
        Ok((took, bytes, outcome))
    }

    fn operation(&mut self, collective: Collective, buffer: Buffer, loss: Loss) -> Operation {
        self.sequence += 1;
        Operation {
            group: self.group.clone(),
            sequence: self.sequence,
            collective,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            buffer,
            input: None,
            loss,
            step: Step(self.step),
            layers: Layers::default(),
            tensor_key: TENSOR_KEY,
            deadline: None,
        }
    }

    fn run(&self, operation: Operation) -> Result<(Buffer, Outcome), EndError> {
        let ended = self.rank.run(Task {
            operation,
            timeout: Some(OPERATION_PATIENCE),
        })?;
        Ok((ended.buffer, ended.outcome))
    }
}
