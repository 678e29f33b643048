//! Rank 0: keeps the door until all ranks are in and agree, then carries messages between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand::fill;
use gradwire_protocol::units::{JobId, Rank};
use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use super::assembly::Assembly;
use super::door::{Candidate, JoinAttempt, keep_door};
use super::error::{JoinError, JoinRefusal};
use super::hub::Hub;
use super::identity::{self, Token, setup};
use super::link::{INBOX, LinkInbox, LinkInput, RankLink, listen};
use super::messages::{self, Admission, FromLeader, FromMember, JobStart, MESSAGE_LIMIT};
use super::participant::{ControlCommand, Participant};
use super::seat::{self, ControlTask, StallDetector};
use super::secrets::{PairSecrets, RootSecret};
use super::{ControlEvent, Listener, OnEvent, RosterPeer};

const LEADER: Rank = Rank(0);
/// How often waiting ranks hear who is missing.
const NEWS: Duration = Duration::from_secs(1);

/// Gathers the job and serves it until this rank is done.
pub(super) async fn run(listener: Listener, mut seat: ControlTask) {
    let mut leader = match Leader::open(listener, &seat) {
        Ok(leader) => leader,
        Err(error) => return seat.joined.answer(Err(error)),
    };
    match leader.assemble(&seat).await {
        Ok(admission) => {
            let ranks = || admission.start.roster.iter().map(|peer| peer.rank);
            let hub = Hub::new(ranks());
            let participant = Participant::new(LEADER, ranks(), seat.on_event);
            seat.joined.answer(Ok(admission));
            let wakefulness = StallDetector::new(seat.membership.peer_timeout);
            let mut rank = (participant, wakefulness);
            leader.serve(hub, &mut rank, &mut seat.commands).await;
            leader.close().await;
        }
        Err(refusal) => {
            leader.tell_all(&FromLeader::Refused(refusal.clone()));
            leader.close().await;
            seat.joined.answer(Err(refusal.into()));
        }
    }
}

struct Leader {
    endpoint: Endpoint,
    assembly: Assembly,
    links: BTreeMap<Rank, RankLink>,
    inbox: LinkInbox<FromMember>,
    inbound: Receiver<(Rank, LinkInput<FromMember>)>,
    door: Receiver<JoinAttempt>,
}

impl Leader {
    fn open(listener: Listener, seat: &ControlTask) -> Result<Self, JoinError> {
        let assembly = Assembly::new(&seat.membership, listener.address);
        let endpoint = Endpoint::new(
            EndpointConfig::default(),
            Some(identity::server(
                seat.membership.certificates.as_ref(),
                seat.membership.peer_timeout,
            )?),
            listener.socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|error| setup("using its UDP socket", &error))?;
        let (inbox, inbound) = channel(INBOX);
        let (knocks, door) = channel(INBOX);
        let token = Token::new(&seat.membership.token);
        tokio::spawn(keep_door(endpoint.clone(), token, knocks));
        Ok(Self {
            endpoint,
            assembly,
            links: BTreeMap::new(),
            inbox,
            inbound,
            door,
        })
    }

    /// Lets ranks in until all are there, then starts the job or says why there is none.
    async fn assemble(&mut self, seat: &ControlTask) -> Result<Admission, JoinRefusal> {
        let deadline = Instant::now() + seat.timeout;
        let mut news = interval(NEWS);
        while !self.assembly.is_complete() {
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {
                    return Err(self.assembly.incomplete(seat.timeout));
                }
                Some((rank, inbound)) = self.inbound.recv() => {
                    // Before the start there is nothing to say, so only an end matters.
                    if matches!(inbound, LinkInput::Closed(_)) {
                        self.assembly.withdraw(rank);
                        self.links.remove(&rank);
                    }
                }
                Some(knock) = self.door.recv() => self.open_door(knock, &seat.on_event),
                _ = news.tick() => {
                    let missing = self.assembly.missing();
                    self.tell_all(&FromLeader::Waiting { missing });
                }
            }
        }
        let start = start(self.assembly.agree()?);
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

    /// Gives every other rank the secrets of its pairs; gives back this rank's.
    async fn hand_out_secrets(&self, start: &JobStart) -> PairSecrets {
        let shared = |(rank, link): (&Rank, &RankLink)| (*rank, link.data_material());
        let root = RootSecret::draw(self.links.iter().map(shared));
        let ranks = || start.roster.iter().map(|peer| peer.rank);
        let row = |rank| root.row((JobId(start.job_id), start.epoch), rank, ranks());
        for (rank, link) in &self.links {
            link.send(frame(&FromLeader::Secrets(row(*rank))));
            // Thousands of ranks have millions of pairs: connections are kept alive meanwhile.
            tokio::task::yield_now().await;
        }
        row(LEADER)
    }

    fn open_door(&mut self, knock: JoinAttempt, on_event: &OnEvent) {
        let (from, refusal) = match knock {
            JoinAttempt::TurnedAway { from, refusal } => (from, refusal),
            JoinAttempt::Guest(guest) => match self.admit(guest) {
                Ok(()) => return,
                Err(refused) => refused,
            },
        };
        self.assembly.turn_away(from, &refusal);
        on_event(ControlEvent::Refused { from, refusal });
    }

    fn admit(&mut self, guest: Candidate) -> Result<(), (SocketAddr, JoinRefusal)> {
        let from = guest.connection.remote_address();
        let rank = guest.hello.peer.rank;
        let link = RankLink::new(guest.connection.clone(), guest.send);
        if let Err(refusal) = self.assembly.admit(guest.hello, from) {
            dismiss(link, &refusal);
            return Err((from, refusal));
        }
        let missing = self.assembly.missing();
        link.send(frame(&FromLeader::Waiting { missing }));
        listen(rank, (guest.connection, guest.receive), self.inbox.clone());
        self.links.insert(rank, link);
        Ok(())
    }

    /// Carries messages and commands until this rank is done.
    async fn serve(
        &mut self,
        mut hub: Hub,
        (participant, wakefulness): &mut (Participant, StallDetector),
        commands: &mut UnboundedReceiver<ControlCommand>,
    ) {
        loop {
            wakefulness.look(participant);
            self.settle(&mut hub, participant);
            if participant.is_finished() {
                return;
            }
            let deadlines = [hub.poll_timeout(), participant.poll_timeout()];
            tokio::select! {
                () = wakefulness.tick() => {}
                Some((rank, inbound)) = self.inbound.recv() => match inbound {
                    LinkInput::Message(message) => hub.handle(rank, message, Instant::now()),
                    LinkInput::Closed(reason) => {
                        self.links.remove(&rank);
                        hub.lost(rank, &reason);
                    }
                },
                command = commands.recv() => {
                    participant.command(command.unwrap_or(ControlCommand::Close), Instant::now());
                }
                Some(knock) = self.door.recv() => participant.raise(too_late(knock)),
                () = seat::until(deadlines.into_iter().flatten().min()) => {
                    let now = Instant::now();
                    hub.handle_timeout(now);
                    participant.handle_timeout(now);
                }
            }
        }
    }

    /// Delivers until nobody has anything to say.
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
        seat::close(&self.endpoint).await;
    }
}

/// Encodes what is small by construction: every text in it was cut to a bound.
fn frame(message: &impl Serialize) -> messages::Frame {
    messages::encode(message).expect("every text in a message of rank 0 is cut to a bound")
}

fn dismiss(link: RankLink, refusal: &JoinRefusal) {
    link.send(frame(&FromLeader::Refused(refusal.clone())));
    tokio::spawn(link.close());
}

/// Refuses whoever knocks once the job has started.
fn too_late(knock: JoinAttempt) -> ControlEvent {
    match knock {
        JoinAttempt::TurnedAway { from, refusal } => ControlEvent::Refused { from, refusal },
        JoinAttempt::Guest(guest) => {
            let from = guest.connection.remote_address();
            let rank = guest.hello.peer.rank;
            let refusal = JoinRefusal::AlreadyStarted { rank };
            dismiss(RankLink::new(guest.connection, guest.send), &refusal);
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
