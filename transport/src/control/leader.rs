//! Rank 0: greets ranks until all are in and agree, then carries messages between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::fill;
use gradwire_protocol::units::{JobId, Rank};
use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use super::assembly::Assembly;
use super::command::ControlCommand;
use super::error::JoinError;
use super::event::{ControlEvent, OnEvent};
use super::greeting::{JoinAttempt, JoinCandidate, greet_all};
use super::hub::Hub;
use super::identity::{self, Token, setup};
use super::lifeline::LifelineDesk;
use super::link::{INBOX, LinkInbox, LinkInput, RankLink, listen};
use super::membership::{Listener, RosterPeer};
use super::messages::{self, Admission, FromLeader, FromMember, JobStart, MESSAGE_LIMIT};
use super::participant::Participant;
use super::refusal::JoinRefusal;
use super::secrets::{JobEpoch, PairSecrets, RootSecret};
use super::stall::StallDetector;
use super::task::{self, ControlTask, LocalParticipant};

const LEADER: Rank = Rank(0);
/// How often waiting ranks hear which ranks are missing.
const NEWS: Duration = Duration::from_secs(1);

/// Gathers the job and serves it until this rank is done.
pub(super) async fn run(listener: Listener, task: ControlTask) {
    let mut leader = match Leader::open(listener, &task) {
        Ok(leader) => leader,
        Err(error) => return task.joined.answer(Err(error)),
    };
    match leader.assemble(&task).await {
        Ok(admission) => {
            let ranks = || admission.start.roster.iter().map(|peer| peer.rank);
            let hub = Hub::new(ranks());
            let mut local = LocalParticipant {
                participant: Participant::new(LEADER, ranks(), task.on_event),
                stall: StallDetector::new(task.membership.peer_timeout),
                commands: task.commands,
            };
            task.joined.answer(Ok(admission));
            leader.serve(hub, &mut local).await;
            leader.close().await;
        }
        Err(refusal) => {
            leader.tell_all(&FromLeader::Refused(refusal.clone()));
            leader.close().await;
            task.joined.answer(Err(refusal.into()));
        }
    }
}

struct Leader {
    endpoint: Endpoint,
    assembly: Assembly,
    links: BTreeMap<Rank, RankLink>,
    lifelines: Option<LifelineDesk>,
    /// Each link's reader puts messages here; `inbound` is the other end.
    inbox: LinkInbox<FromMember>,
    inbound: Receiver<(Rank, LinkInput<FromMember>)>,
    attempts: Receiver<JoinAttempt>,
}

impl Leader {
    fn open(listener: Listener, task: &ControlTask) -> Result<Self, JoinError> {
        let assembly = Assembly::new(&task.membership, listener.address);
        let lifelines = LifelineDesk::open(listener.address);
        let endpoint = Endpoint::new(
            EndpointConfig::default(),
            Some(identity::server(
                task.membership.certificates.as_ref(),
                task.membership.peer_timeout,
            )?),
            listener.socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|error| setup("using its UDP socket", &error))?;
        let (inbox, inbound) = channel(INBOX);
        let (greeted, attempts) = channel(INBOX);
        let token = Token::new(&task.membership.token);
        tokio::spawn(greet_all(endpoint.clone(), token, greeted));
        Ok(Self {
            endpoint,
            assembly,
            links: BTreeMap::new(),
            lifelines,
            inbox,
            inbound,
            attempts,
        })
    }

    /// Lets ranks in until all have joined, then starts the job or says why it cannot start.
    async fn assemble(&mut self, task: &ControlTask) -> Result<Admission, JoinRefusal> {
        let deadline = Instant::now() + task.timeout;
        let mut news = interval(NEWS);
        while !self.assembly.is_complete() {
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {
                    return Err(self.assembly.incomplete(task.timeout));
                }
                Some((rank, input)) = self.inbound.recv() => {
                    // A rank has nothing to say before the start, so only an end matters.
                    if matches!(input, LinkInput::Closed(_)) {
                        self.assembly.withdraw(rank);
                        self.links.remove(&rank);
                    }
                }
                Some(attempt) = self.attempts.recv() => self.decide(attempt, &task.on_event),
                _ = news.tick() => {
                    let missing = self.assembly.missing();
                    self.tell_all(&FromLeader::Waiting { missing });
                }
            }
        }
        let mut roster = self.assembly.agree()?;
        for peer in &mut roster {
            let link = self.links.get(&peer.rank);
            let round_trip = link.map(RankLink::round_trip).unwrap_or_default();
            peer.round_trip_us = round_trip.as_micros() as u64;
        }
        let start = start(roster);
        let message = FromLeader::Start(start.clone());
        if let Err(bytes) = messages::encode(&message) {
            return Err(JoinRefusal::TooLarge {
                what: "roster of all ranks".into(),
                bytes,
                limit: MESSAGE_LIMIT,
            });
        }
        let secrets = self.hand_out_secrets(&start).await;
        self.tell_all(&message);
        Ok(Admission { start, secrets })
    }

    /// Sends every other rank the secrets of its pairs; returns this rank's own.
    async fn hand_out_secrets(&self, start: &JobStart) -> PairSecrets {
        let shared = |(rank, link): (&Rank, &RankLink)| (*rank, link.data_material());
        let root = RootSecret::draw(self.links.iter().map(shared));
        let ranks = || start.roster.iter().map(|peer| peer.rank);
        let membership = JobEpoch {
            job: JobId(start.job_id),
            epoch: start.epoch,
        };
        let row = |rank| root.row(membership, rank, ranks());
        for (rank, link) in &self.links {
            link.send(frame(&FromLeader::Secrets(row(*rank))));
            // Thousands of ranks have millions of pairs: keep connections alive meanwhile.
            tokio::task::yield_now().await;
        }
        row(LEADER)
    }

    /// Enters a candidate into the job, or records that it was refused.
    fn decide(&mut self, attempt: JoinAttempt, on_event: &OnEvent) {
        let (from, refusal) = match attempt {
            JoinAttempt::Refused { from, refusal } => (from, refusal),
            JoinAttempt::Proved(candidate) => match self.admit(candidate) {
                Ok(()) => return,
                Err(refused) => refused,
            },
        };
        self.assembly.turn_away(from, &refusal);
        on_event(ControlEvent::Refused { from, refusal });
    }

    fn admit(&mut self, candidate: JoinCandidate) -> Result<(), (SocketAddr, JoinRefusal)> {
        let from = candidate.connection.remote_address();
        let rank = candidate.request.peer.rank;
        let link = RankLink::new(candidate.connection.clone(), candidate.send);
        if let Err(refusal) = self.assembly.admit(candidate.request, from) {
            dismiss(link, &refusal);
            return Err((from, refusal));
        }
        let lifelines = self.lifelines.as_mut();
        if let Some(offer) = lifelines.and_then(|desk| desk.expect(&candidate.connection)) {
            link.send(frame(&FromLeader::Lifeline(offer)));
        }
        let missing = self.assembly.missing();
        link.send(frame(&FromLeader::Waiting { missing }));
        let inbox = self.inbox.clone();
        listen(rank, candidate.connection, candidate.receive, inbox);
        self.links.insert(rank, link);
        Ok(())
    }

    /// Carries messages and commands until this rank is done.
    async fn serve(&mut self, mut hub: Hub, local: &mut LocalParticipant) {
        loop {
            let participant = &mut local.participant;
            local.stall.look(participant);
            self.settle(&mut hub, participant);
            if participant.is_finished() {
                return;
            }
            let deadlines = [hub.poll_timeout(), participant.poll_timeout()];
            tokio::select! {
                () = local.stall.tick() => {}
                Some((rank, input)) = self.inbound.recv() => match input {
                    LinkInput::Message(message) => hub.handle(rank, message, Instant::now()),
                    LinkInput::Closed(reason) => {
                        self.links.remove(&rank);
                        hub.lost(rank, &reason);
                    }
                },
                command = local.commands.recv() => {
                    let command = command.unwrap_or(ControlCommand::Close);
                    participant.command(command, Instant::now());
                }
                Some(attempt) = self.attempts.recv() => participant.raise(too_late(attempt)),
                () = task::until(deadlines.into_iter().flatten().min()) => {
                    let now = Instant::now();
                    hub.handle_timeout(now);
                    participant.handle_timeout(now);
                }
            }
        }
    }

    /// Delivers messages between hub, links and this rank until the queues are empty.
    fn settle(&self, hub: &mut Hub, participant: &mut Participant) {
        loop {
            while let Some(message) = participant.poll_outgoing() {
                hub.handle(LEADER, message, Instant::now());
            }
            let Some((rank, message)) = hub.poll_outgoing() else {
                return;
            };
            if rank == LEADER {
                participant.receive(message);
            } else if let Some(link) = self.links.get(&rank) {
                link.send(frame(&message));
            }
        }
    }

    fn tell_all(&self, message: &FromLeader) {
        let frame = frame(message);
        for link in self.links.values() {
            link.send(Arc::clone(&frame));
        }
    }

    async fn close(self) {
        let mut closing: JoinSet<()> = self.links.into_values().map(RankLink::close).collect();
        while closing.join_next().await.is_some() {}
        task::close(&self.endpoint).await;
    }
}

/// Encodes a message that is small by construction: every text in it was cut to a bound.
fn frame(message: &impl Serialize) -> messages::Frame {
    messages::encode(message).expect("every text in a message of rank 0 is cut to a bound")
}

fn dismiss(link: RankLink, refusal: &JoinRefusal) {
    link.send(frame(&FromLeader::Refused(refusal.clone())));
    tokio::spawn(link.close());
}

/// Refuses a process that connects after the job has started.
fn too_late(attempt: JoinAttempt) -> ControlEvent {
    match attempt {
        JoinAttempt::Refused { from, refusal } => ControlEvent::Refused { from, refusal },
        JoinAttempt::Proved(candidate) => {
            let from = candidate.connection.remote_address();
            let rank = candidate.request.peer.rank;
            let refusal = JoinRefusal::AlreadyStarted { rank };
            let link = RankLink::new(candidate.connection, candidate.send);
            dismiss(link, &refusal);
            ControlEvent::Refused { from, refusal }
        }
    }
}

fn start(roster: Vec<RosterPeer>) -> JobStart {
    let mut job_id = [0; 4];
    fill(&mut job_id).expect("the system's randomness already served the handshakes");
    JobStart {
        job_id: u32::from_ne_bytes(job_id),
        epoch: 0,
        roster,
    }
}
