//! Processes that take orders line by line and never outlive the launcher: it ends them when it
//! fails, and they end themselves when their standard input closes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gradwire_protocol::job::{Job, ReduceAlgorithm};

use super::aggregator::CrewAggregator;
use super::leash::{self, how_it_ended};
use super::messages::{BucketsRound, FromRank, Measured, Open, Round, ToRank};
use super::place::CrewPlace;
use crate::error::LabError;

/// How long processes may take to start, and ranks to meet.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long processes may take to end by themselves.
const END_PATIENCE: Duration = Duration::from_secs(40);
/// Lines of a process's standard error that are kept for the case that it fails.
const ERROR_LINES: usize = 5;

/// The processes of one job, rank by rank.
#[derive(Debug)]
pub struct Crew {
    name: &'static str,
    wire: String,
    members: Vec<Member>,
    answers: Receiver<(usize, Heard)>,
    aggregator: Option<CrewAggregator>,
}

/// The settings that the members of a crew share.
struct CrewTerms<'a> {
    job: &'a Job,
    token: String,
    place: &'a CrewPlace,
}

#[derive(Debug)]
struct Member {
    process: Child,
    orders: Option<ChildStdin>,
    complaints: Arc<Mutex<VecDeque<String>>>,
}

#[derive(Debug)]
enum Heard {
    Line(String),
    End,
}

impl Crew {
    /// Starts ranks of gradwire and lets them meet.
    ///
    /// # Errors
    /// [`LabError`] of the first rank that fails; the others have been ended by then.
    pub fn of_ranks(world: u16, job: &Job, place: &CrewPlace) -> Result<Self, LabError> {
        let start = || {
            let mut command = leash::own(&["perf-rank"])?;
            command.stderr(Stdio::inherit());
            Ok(command)
        };
        let (mut job, token) = (job.clone(), random_token()?);
        let collectives = &mut job.collectives;
        let mut aggregator = None;
        if collectives.algorithm == ReduceAlgorithm::InNetwork && collectives.aggregator.is_none() {
            let started = CrewAggregator::start(&job, &token, (place, world))?;
            job.collectives.aggregator = Some(started.address());
            aggregator = Some(started);
        }
        let mut crew = Self::start_with(
            "rank",
            (world, start),
            CrewTerms {
                job: &job,
                token,
                place,
            },
        )?;
        crew.aggregator = aggregator;
        Ok(crew)
    }

    /// Starts a process per rank and lets them meet.
    ///
    /// # Errors
    /// As [`Crew::of_ranks`].
    pub fn start(
        name: &'static str,
        (world, command): (u16, impl Fn() -> io::Result<Command>),
        job: &Job,
        place: &CrewPlace,
    ) -> Result<Self, LabError> {
        let token = random_token()?;
        Self::start_with(name, (world, command), CrewTerms { job, token, place })
    }

    fn start_with(
        name: &'static str,
        (world, command): (u16, impl Fn() -> io::Result<Command>),
        terms: CrewTerms<'_>,
    ) -> Result<Self, LabError> {
        let CrewTerms { job, token, place } = terms;
        let (heard, answers) = channel();
        let mut crew = Self {
            name,
            wire: String::new(),
            members: Vec::new(),
            answers,
            aggregator: None,
        };
        for rank in 0..usize::from(world) {
            let mut command = command().map_err(LabError::system("finding this program"))?;
            crew.members
                .push(Member::start(&mut command, (place, rank), &heard)?);
        }
        let opened = crew.ask(START_PATIENCE, |rank| {
            let (token, job) = (token.clone(), job.to_toml());
            ToRank::Open(Open {
                rank,
                world,
                token,
                job,
                bind: place.address(rank),
            })
        })?;
        let leader = opened.into_iter().find_map(|answer| match answer {
            FromRank::Opened { rendezvous } => Some(rendezvous).filter(|place| !place.is_empty()),
            _ => None,
        });
        let leader = leader.ok_or_else(|| crew.failure(0, "told no rendezvous".into()))?;
        let joined = crew.ask(START_PATIENCE, |_| ToRank::Join {
            rendezvous: leader.clone(),
        })?;
        let wires = joined.into_iter().filter_map(|answer| match answer {
            FromRank::Joined { wire } => Some(wire),
            _ => None,
        });
        let mut wires: Vec<String> = wires.collect();
        wires.sort();
        wires.dedup();
        crew.wire = wires.join(", ");
        Ok(crew)
    }

    /// The wires that the ranks report, with commas.
    pub fn wire(&self) -> &str {
        &self.wire
    }

    /// Has all ranks run one round and returns each rank's measurement.
    ///
    /// # Errors
    /// [`LabError`] of the first rank that fails.
    pub fn round(&mut self, round: &Round, patience: Duration) -> Result<Vec<Measured>, LabError> {
        let answers = self.ask(patience, |_| ToRank::Round(round.clone()))?;
        self.measured(answers)
    }

    /// Has all ranks run many all-reduces at once and returns each rank's measurement.
    ///
    /// # Errors
    /// [`LabError`] of the first rank that fails.
    pub fn buckets(
        &mut self,
        buckets: &BucketsRound,
        patience: Duration,
    ) -> Result<Vec<Measured>, LabError> {
        let answers = self.ask(patience, |_| ToRank::Buckets(buckets.clone()))?;
        self.measured(answers)
    }

    fn measured(&self, answers: Vec<FromRank>) -> Result<Vec<Measured>, LabError> {
        let measured = answers
            .into_iter()
            .enumerate()
            .map(|(rank, answer)| match answer {
                FromRank::Measured(measured) => Ok(measured),
                other => Err(self.failure(rank, format!("answered {other:?} to a round"))),
            });
        measured.collect()
    }

    /// Lets all ranks leave, and waits until their processes have ended.
    ///
    /// # Errors
    /// [`LabError`] of a rank that ends in another way.
    pub fn end(mut self) -> Result<(), LabError> {
        self.tell(|_| ToRank::End {});
        for _ in 0..self.members.len() {
            match self.answers.recv_timeout(END_PATIENCE) {
                Ok((rank, Heard::End)) => {
                    let status = self.members[rank].wait();
                    if !status.is_some_and(|status| status.success()) {
                        return Err(self.ended(rank));
                    }
                }
                Ok((rank, Heard::Line(line))) => return Err(self.unexpected(rank, &line)),
                Err(_) => return Err(self.failure(0, "did not end in time".into())),
            }
        }
        Ok(())
    }

    fn tell(&mut self, order: impl Fn(u16) -> ToRank) {
        for (rank, member) in self.members.iter_mut().enumerate() {
            let order = order(u16::try_from(rank).expect("world sizes have 16 bits"));
            let line = serde_json::to_string(&order).expect("orders are plain data");
            if let Some(orders) = &mut member.orders {
                // A process that does not listen has ended, which its output tells.
                let _ = writeln!(orders, "{line}");
            }
        }
    }

    /// Tells every rank something and waits for one answer of each.
    fn ask(
        &mut self,
        patience: Duration,
        order: impl Fn(u16) -> ToRank,
    ) -> Result<Vec<FromRank>, LabError> {
        self.tell(order);
        let mut answers: Vec<Option<FromRank>> = vec![None; self.members.len()];
        while let Some(missing) = answers.iter().position(Option::is_none) {
            let (rank, heard) = self.answers.recv_timeout(patience).map_err(|error| {
                let why = match error {
                    RecvTimeoutError::Timeout => format!("no answer within {patience:?}"),
                    RecvTimeoutError::Disconnected => "no rank is left".to_owned(),
                };
                self.failure(missing, why)
            })?;
            let Heard::Line(line) = heard else {
                return Err(self.ended(rank));
            };
            match serde_json::from_str(&line) {
                Ok(FromRank::Failed { message, exit }) => {
                    let (who, code) = (format!("{} {rank}", self.name), Some(exit));
                    return Err(LabError::Process { who, message, code });
                }
                Ok(answer) => answers[rank] = Some(answer),
                Err(_) => return Err(self.unexpected(rank, &line)),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    fn unexpected(&self, rank: usize, line: &str) -> LabError {
        self.failure(
            rank,
            format!("answered {line:?}, which is not a valid answer"),
        )
    }

    fn failure(&self, rank: usize, message: String) -> LabError {
        LabError::Process {
            who: format!("{} {rank}", self.name),
            message,
            code: None,
        }
    }

    /// The failure of a process that has ended, or closed its output.
    fn ended(&mut self, rank: usize) -> LabError {
        let status = self.members[rank].wait();
        let mut message = status.map_or_else(|| "closed its output".to_owned(), how_it_ended);
        let complaints = &self.members[rank].complaints;
        let last = complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_back();
        message.extend(last.map(|line| format!(": {line}")));
        self.failure(rank, message)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.orders = None;
            // One that has ended already cannot be killed, and needs not.
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

impl Member {
    fn start(
        command: &mut Command,
        (place, rank): (&CrewPlace, usize),
        heard: &Sender<(usize, Heard)>,
    ) -> Result<Self, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = place
            .spawn(rank, command)
            .map_err(LabError::system(format!("starting {program}")))?;
        let complaints = Arc::default();
        if let Some(errors) = process.stderr.take() {
            let complaints = Arc::clone(&complaints);
            std::thread::spawn(move || keep_last_lines(errors, &complaints));
        }
        let output = process.stdout.take().expect("it was asked for");
        let heard = heard.clone();
        std::thread::spawn(move || listen(output, rank, &heard));
        Ok(Self {
            orders: process.stdin.take(),
            process,
            complaints,
        })
    }

    /// How the process ended, if it did.
    fn wait(&mut self) -> Option<ExitStatus> {
        self.orders = None;
        self.process.wait().ok()
    }
}

fn listen(output: ChildStdout, rank: usize, heard: &Sender<(usize, Heard)>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if heard.send((rank, Heard::Line(line))).is_err() {
            return;
        }
    }
    // The receiver is gone once the crew has been dropped.
    let _ = heard.send((rank, Heard::End));
}

fn keep_last_lines(errors: ChildStderr, kept: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !line.trim().is_empty() {
            kept.push_back(line);
        }
        if kept.len() > ERROR_LINES {
            kept.pop_front();
        }
    }
}

/// 128 random bits in hexadecimal digits.
fn random_token() -> Result<String, LabError> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(LabError::system("drawing a token"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
