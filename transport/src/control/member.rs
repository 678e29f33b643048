//! Every rank but 0: finds rank 0, proves itself, and stays connected.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Membership;
use super::assembly::VERSION;
use super::error::{CertificateHolder, JoinError, JoinRefusal, RankList, RefusedJoins};
use super::identity::{self, SERVER_NAME, Token, TokenSide, setup};
use super::link::{INBOX, LinkInput, RankLink, listen};
use super::messages::{self, Admission, Frame, FromLeader, FromMember, MESSAGE_LIMIT};
use super::participant::{ControlCommand, Participant};
use super::seat::{self, ControlTask, StallDetector};

/// The first attempt ends after this long, each further one after twice as long as the one before:
/// a rank 0 that starts later is found quickly, and one busy with a thousand ranks is not stormed.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(50);

/// Joins and stays until this rank is done.
pub(super) async fn run(leader: SocketAddr, mut seat: ControlTask) {
    let mut entrance = match JoinAttempts::new(leader, &seat) {
        Ok(entrance) => entrance,
        Err(error) => return seat.joined.answer(Err(error)),
    };
    match entrance.enter().await {
        Ok((admission, conversation)) => {
            seat.joined.answer(Ok(admission.clone()));
            let ranks = admission.start.roster.iter().map(|peer| peer.rank);
            let rank = seat.membership.rank;
            let participant = Participant::new(rank, ranks, seat.on_event);
            let wakefulness = StallDetector::new(seat.membership.peer_timeout);
            let rank = (participant, wakefulness);
            serve(conversation, rank, &mut seat.commands).await;
            seat::close(&entrance.endpoint).await;
        }
        Err(error) => {
            seat::close(&entrance.endpoint).await;
            seat.joined.answer(Err(error));
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
    /// Trying again may help.
    Passing(String),
    /// It will not.
    Final(JoinError),
}

impl AttemptFailure {
    fn passing(reason: impl ToString) -> Self {
        Self::Passing(reason.to_string())
    }

    /// A certificate that is refused once will be refused again.
    fn of_connection(error: &ConnectionError) -> Self {
        match identity::distrust(error, CertificateHolder::Member) {
            Some(refusal) => Self::Final(refusal.into()),
            None => Self::passing(error),
        }
    }
}

struct JoinAttempts {
    endpoint: Endpoint,
    leader: SocketAddr,
    token: Token,
    rank: Rank,
    world_size: u32,
    hello: Frame,
    timeout: Duration,
    /// Whom rank 0 awaits, once it has let this rank in.
    missing: Option<RankList>,
}

impl JoinAttempts {
    fn new(leader: SocketAddr, seat: &ControlTask) -> Result<Self, JoinError> {
        let any: SocketAddr = match leader {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let mut endpoint =
            Endpoint::client(any).map_err(|error| setup("opening a UDP socket", &error))?;
        let certificates = seat.membership.certificates.as_ref();
        let silence = seat.membership.peer_timeout;
        endpoint.set_default_client_config(identity::client(certificates, silence)?);
        let Membership {
            rank, world_size, ..
        } = seat.membership;
        Ok(Self {
            endpoint,
            leader,
            token: Token::new(&seat.membership.token),
            rank,
            world_size,
            hello: own_hello(&seat.membership)?,
            timeout: seat.timeout,
            missing: None,
        })
    }

    /// Tries until the timeout to become part of a started job.
    async fn enter(&mut self) -> Result<(Admission, ProvenConnection), JoinError> {
        let deadline = Instant::now() + self.timeout;
        let mut patience = FIRST_ATTEMPT;
        let mut reason = String::from("no answer");
        loop {
            let outcome = timeout_at(deadline, self.attempt(patience)).await;
            match outcome {
                Ok(Ok(entered)) => return Ok(entered),
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

    /// Connects within `patience`, then waits as long as rank 0 keeps the connection.
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
        let entered = self.enter_by(connection.clone()).await;
        entered.map_err(|setback| match (setback, connection.close_reason()) {
            // Rank 0 looks at this rank's certificate when this rank has seen its own accepted.
            (AttemptFailure::Passing(_), Some(error)) => AttemptFailure::of_connection(&error),
            (setback, _) => setback,
        })
    }

    async fn enter_by(
        &mut self,
        connection: Connection,
    ) -> Result<(Admission, ProvenConnection), AttemptFailure> {
        let (send, receive) = connection
            .open_bi()
            .await
            .map_err(AttemptFailure::passing)?;
        let mut conversation = ProvenConnection {
            connection,
            send,
            receive,
        };
        self.prove(&mut conversation).await?;
        let hello = conversation.send.write_all(&self.hello).await;
        hello.map_err(AttemptFailure::passing)?;
        let admission = self.await_start(&mut conversation).await?;
        Ok((admission, conversation))
    }

    async fn prove(&self, conversation: &mut ProvenConnection) -> Result<(), AttemptFailure> {
        let binding = identity::binding(&conversation.connection);
        let proof = FromMember::Prove {
            rank: self.rank,
            version: VERSION.into(),
            proof: self.token.prove(TokenSide::Member, &binding),
        };
        let proof = messages::encode(&proof).expect("a proof is small");
        let sent = conversation.send.write_all(&proof).await;
        sent.map_err(AttemptFailure::passing)?;
        match messages::read(&mut conversation.receive, MESSAGE_LIMIT).await {
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
        conversation: &mut ProvenConnection,
    ) -> Result<Admission, AttemptFailure> {
        let mut secrets = None;
        loop {
            let message = messages::read(&mut conversation.receive, MESSAGE_LIMIT).await;
            match (message, secrets.take()) {
                (Ok(FromLeader::Waiting { missing }), None) => self.missing = Some(missing),
                (Ok(FromLeader::Secrets(given)), None) => secrets = Some(given),
                (Ok(FromLeader::Start(start)), Some(secrets))
                    if [start.roster.len(), secrets.len()] == [self.world_size as usize; 2] =>
                {
                    return Ok(Admission { start, secrets });
                }
                (Ok(FromLeader::Refused(refusal)), _) => {
                    return Err(AttemptFailure::Final(refusal.into()));
                }
                (Ok(_), _) => return Err(AttemptFailure::passing("it spoke out of turn")),
                (Err(failure), _) => return Err(AttemptFailure::passing(failure)),
            }
        }
    }
}

fn own_hello(membership: &Membership) -> Result<Frame, JoinError> {
    let hello = FromMember::Join(membership.hello());
    messages::encode(&hello).map_err(|bytes| {
        JoinError::Refused(JoinRefusal::TooLarge {
            what: "description of this rank".into(),
            bytes,
            limit: MESSAGE_LIMIT,
        })
    })
}

/// Carries messages and commands until this rank is done.
async fn serve(
    conversation: ProvenConnection,
    (mut participant, mut wakefulness): (Participant, StallDetector),
    commands: &mut tokio::sync::mpsc::UnboundedReceiver<ControlCommand>,
) {
    let leader = Rank(0);
    let link = RankLink::new(conversation.connection.clone(), conversation.send);
    let (inbox, mut inbound): (_, Receiver<(Rank, LinkInput<FromLeader>)>) = channel(INBOX);
    listen(
        leader,
        (conversation.connection, conversation.receive),
        inbox,
    );
    loop {
        wakefulness.look(&mut participant);
        while let Some(message) = participant.poll_outgoing() {
            link.send(messages::encode(&message).expect("reasons are cut to a bound"));
        }
        if participant.is_finished() {
            break;
        }
        tokio::select! {
            () = wakefulness.tick() => {}
            Some((_, inbound)) = inbound.recv() => match inbound {
                LinkInput::Message(message) => participant.receive(message),
                LinkInput::Closed(reason) => participant.leader_lost(&reason),
            },
            command = commands.recv() => {
                participant.command(command.unwrap_or(ControlCommand::Close), Instant::now());
            }
            () = seat::until(participant.poll_timeout()) => {
                participant.handle_timeout(Instant::now());
            }
        }
    }
    link.close().await;
}
