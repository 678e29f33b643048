//! Every rank but 0: finds rank 0, proves the token, and stays connected.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::assembly::VERSION;
use super::command::ControlCommand;
use super::error::JoinError;
use super::identity::{self, SERVER_NAME, Token, TokenSide, setup};
use super::lifeline;
use super::link::{INBOX, LinkInput, RankLink, listen};
use super::membership::Membership;
use super::messages::{self, Admission, Frame, FromLeader, FromMember, JoinRequest, MESSAGE_LIMIT};
use super::participant::Participant;
use super::rank_list::RankList;
use super::refusal::{CertificateHolder, JoinRefusal, RefusedJoins};
use super::stall::StallDetector;
use super::task::{self, ControlTask, LocalParticipant};

/// The first attempt ends after this long, and each further one may take twice as long as the one
/// before. A rank 0 that starts later is found quickly, and a rank 0 busy with a thousand ranks is
/// not flooded.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(8);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Joins and stays until this rank is done.
pub(super) async fn run(leader: SocketAddr, task: ControlTask) {
    let mut attempts = match JoinAttempts::new(leader, &task) {
        Ok(attempts) => attempts,
        Err(error) => return task.joined.answer(Err(error)),
    };
    match attempts.join().await {
        Ok((admission, connection)) => {
            task.joined.answer(Ok(admission.clone()));
            let ranks = admission.start.roster.iter().map(|peer| peer.rank);
            let local = LocalParticipant {
                participant: Participant::new(task.membership.rank, ranks, task.on_event),
                stall: StallDetector::new(task.membership.peer_timeout),
                commands: task.commands,
            };
            serve(connection, local).await;
            task::close(&attempts.endpoint).await;
        }
        Err(error) => {
            task::close(&attempts.endpoint).await;
            task.joined.answer(Err(error));
        }
    }
}

/// A connection on which both sides have proved the token.
struct ProvenConnection {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

/// Why one attempt did not succeed.
enum AttemptFailure {
    /// Another attempt may succeed.
    Passing(String),
    /// Every further attempt would fail the same way.
    Final(JoinError),
}

impl AttemptFailure {
    fn passing(reason: impl ToString) -> Self {
        Self::Passing(reason.to_string())
    }

    /// A connection that failed; a refused certificate will be refused again.
    fn of_connection(error: &ConnectionError) -> Self {
        match identity::distrust(error, CertificateHolder::Member) {
            Some(refusal) => Self::Final(refusal.into()),
            None => Self::passing(error),
        }
    }
}

/// Attempts of one rank to join, and what rank 0 said in the latest.
struct JoinAttempts {
    endpoint: Endpoint,
    leader: SocketAddr,
    token: Token,
    rank: Rank,
    world_size: u32,
    request: Frame,
    timeout: Duration,
    /// The ranks that rank 0 still waits for, once it has let this rank in.
    missing: Option<RankList>,
}

impl JoinAttempts {
    fn new(leader: SocketAddr, task: &ControlTask) -> Result<Self, JoinError> {
        let any: SocketAddr = match leader {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let mut endpoint =
            Endpoint::client(any).map_err(|error| setup("opening a UDP socket", &error))?;
        let certificates = task.membership.certificates.as_ref();
        let silence = task.membership.peer_timeout;
        endpoint.set_default_client_config(identity::client(certificates, silence)?);
        let Membership {
            rank, world_size, ..
        } = task.membership;
        Ok(Self {
            endpoint,
            leader,
            token: Token::new(&task.membership.token),
            rank,
            world_size,
            request: own_request(&task.membership)?,
            timeout: task.timeout,
            missing: None,
        })
    }

    /// Tries to join until the timeout.
    async fn join(&mut self) -> Result<(Admission, ProvenConnection), JoinError> {
        let deadline = Instant::now() + self.timeout;
        let mut patience = FIRST_ATTEMPT;
        let mut reason = String::from("no answer");
        loop {
            let outcome = timeout_at(deadline, self.attempt(patience)).await;
            match outcome {
                Ok(Ok(joined)) => return Ok(joined),
                Ok(Err(AttemptFailure::Final(error))) => return Err(error),
                Ok(Err(AttemptFailure::Passing(why))) => reason = why,
                Err(_) => return Err(self.gave_up(reason)),
            }
            patience = (patience * 2).min(LONGEST_ATTEMPT);
            if timeout_at(deadline, sleep(PAUSE)).await.is_err() {
                return Err(self.gave_up(reason));
            }
        }
    }

    fn gave_up(&self, reason: String) -> JoinError {
        match self.missing.clone() {
            Some(missing) => JoinError::Refused(JoinRefusal::Incomplete {
                waited: self.timeout,
                world_size: self.world_size,
                missing,
                turned_away: RefusedJoins::default(),
            }),
            None => JoinError::Unreachable {
                leader: self.leader,
                waited: self.timeout,
                reason,
            },
        }
    }

    /// Connects within `patience`, then waits for the start for as long as rank 0 keeps the
    /// connection.
    async fn attempt(
        &mut self,
        patience: Duration,
    ) -> Result<(Admission, ProvenConnection), AttemptFailure> {
        self.missing = None;
        let connecting = self.endpoint.connect(self.leader, SERVER_NAME);
        let connecting = connecting
            .map_err(|error| AttemptFailure::Final(setup("connecting to rank 0", &error)))?;
        let connection = timeout(patience, connecting)
            .await
            .map_err(|_| AttemptFailure::passing("no answer"))?
            .map_err(|error| AttemptFailure::of_connection(&error))?;
        let joined = self.join_over(connection.clone()).await;
        joined.map_err(|failure| match (failure, connection.close_reason()) {
            // Rank 0 verifies this rank's certificate after this rank's side of the handshake is
            // complete, so a refusal shows up as a close of an open connection.
            (AttemptFailure::Passing(_), Some(error)) => AttemptFailure::of_connection(&error),
            (failure, _) => failure,
        })
    }

    async fn join_over(
        &mut self,
        connection: Connection,
    ) -> Result<(Admission, ProvenConnection), AttemptFailure> {
        let (send, receive) = connection
            .open_bi()
            .await
            .map_err(AttemptFailure::passing)?;
        let mut proven = ProvenConnection {
            connection,
            send,
            receive,
        };
        self.prove(&mut proven).await?;
        let sent = proven.send.write_all(&self.request).await;
        sent.map_err(AttemptFailure::passing)?;
        let admission = self.await_start(&mut proven).await?;
        Ok((admission, proven))
    }

    async fn prove(&self, proven: &mut ProvenConnection) -> Result<(), AttemptFailure> {
        let binding = identity::binding(&proven.connection);
        let proof = FromMember::Prove {
            rank: self.rank,
            version: VERSION.into(),
            proof: self.token.prove(TokenSide::Member, &binding),
            has_token: Some(!self.token.is_empty()),
        };
        let proof = messages::encode(&proof).expect("a proof is small");
        let sent = proven.send.write_all(&proof).await;
        sent.map_err(AttemptFailure::passing)?;
        match messages::read(&mut proven.receive, MESSAGE_LIMIT).await {
            Ok(FromLeader::Prove { proof })
                if self.token.accepts(TokenSide::Leader, &binding, &proof) =>
            {
                Ok(())
            }
            Ok(FromLeader::Refused(refusal)) => Err(AttemptFailure::Final(refusal.into())),
            Ok(_) => Err(AttemptFailure::Final(JoinError::Impostor {
                leader: self.leader,
            })),
            Err(failure) => Err(AttemptFailure::passing(failure)),
        }
    }

    async fn await_start(
        &mut self,
        proven: &mut ProvenConnection,
    ) -> Result<Admission, AttemptFailure> {
        let mut secrets = None;
        loop {
            let message = messages::read(&mut proven.receive, MESSAGE_LIMIT).await;
            match (message, secrets.take()) {
                (Ok(FromLeader::Waiting { missing }), None) => self.missing = Some(missing),
                (Ok(FromLeader::Lifeline(offer)), None) => {
                    tokio::spawn(lifeline::hold(offer, proven.connection.clone()));
                }
                (Ok(FromLeader::Secrets(given)), None) => secrets = Some(given),
                (Ok(FromLeader::Start(start)), Some(secrets))
                    if [start.roster.len(), secrets.len()] == [self.world_size as usize; 2] =>
                {
                    return Ok(Admission { start, secrets });
                }
                (Ok(FromLeader::Refused(refusal)), _) => {
                    return Err(AttemptFailure::Final(refusal.into()));
                }
                (Ok(_), _) => return Err(AttemptFailure::passing("it sent a message out of turn")),
                (Err(failure), _) => return Err(AttemptFailure::passing(failure)),
            }
        }
    }
}

fn own_request(membership: &Membership) -> Result<Frame, JoinError> {
    let request = FromMember::Join(JoinRequest::of(membership));
    messages::encode(&request).map_err(|bytes| {
        JoinError::Refused(JoinRefusal::TooLarge {
            what: "description of this rank".into(),
            bytes,
            limit: MESSAGE_LIMIT,
        })
    })
}

/// Carries messages and commands until this rank is done.
async fn serve(proven: ProvenConnection, mut local: LocalParticipant) {
    let leader = Rank(0);
    let link = RankLink::new(proven.connection.clone(), proven.send);
    let (inbox, mut inbound): (_, Receiver<(Rank, LinkInput<FromLeader>)>) = channel(INBOX);
    listen(leader, proven.connection, proven.receive, inbox);
    let participant = &mut local.participant;
    loop {
        local.stall.look(participant);
        while let Some(message) = participant.poll_outgoing() {
            link.send(messages::encode(&message).expect("reasons are cut to a bound"));
        }
        if participant.is_finished() {
            break;
        }
        tokio::select! {
            () = local.stall.tick() => {}
            Some((_, input)) = inbound.recv() => match input {
                LinkInput::Message(message) => participant.receive(message),
                LinkInput::Closed(reason) => participant.leader_lost(&reason),
            },
            command = local.commands.recv() => {
                let command = command.unwrap_or(ControlCommand::Close);
                participant.command(command, Instant::now());
            }
            () = task::until(participant.poll_timeout()) => {
                participant.handle_timeout(Instant::now());
            }
        }
    }
    link.close().await;
}
