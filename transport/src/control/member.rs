//! Every rank but 0: finds rank 0, proves itself, and stays connected.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use gradwire_protocol::units::Rank;
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Membership;
use super::assembly::VERSION;
use super::error::{Holder, JoinError, Ranks, Refusal, TurnedAway};
use super::identity::{self, SERVER_NAME, Side, Token, setup};
use super::link::{INBOX, Inbound, Link, listen};
use super::messages::{self, Admission, Frame, FromLeader, FromMember, MESSAGE_LIMIT};
use super::participant::{Command, Participant};
use super::seat::{self, Seat, Wakefulness};

/// The first attempt ends after this long, each further one after twice as long as the one before:
/// a rank 0 that starts later is found quickly, and one busy with a thousand ranks is not stormed.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(50);

/// Joins and stays until this rank is done.
pub(super) async fn run(leader: SocketAddr, mut seat: Seat) {
    let mut entrance = match Entrance::new(leader, &seat) {
        Ok(entrance) => entrance,
        Err(error) => return seat.joined.answer(Err(error)),
    };
    match entrance.enter().await {
        Ok((admission, conversation)) => {
            seat.joined.answer(Ok(admission.clone()));
            let ranks = admission.start.roster.iter().map(|peer| peer.rank);
            let rank = seat.membership.rank;
            let participant = Participant::new(rank, ranks, seat.on_event);
            let wakefulness = Wakefulness::new(seat.membership.peer_timeout);
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
struct Conversation {
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

/// Why one attempt did not succeed.
enum Setback {
    /// Trying again may help.
    Passing(String),
    /// It will not.
    Final(JoinError),
}

impl Setback {
    fn passing(reason: impl ToString) -> Self {
        Self::Passing(reason.to_string())
    }

    /// A certificate that is refused once will be refused again.
    fn of_connection(error: &ConnectionError) -> Self {
        match identity::distrust(error, Holder::Member) {
            Some(refusal) => Self::Final(refusal.into()),
            None => Self::passing(error),
        }
    }
}

struct Entrance {
    endpoint: Endpoint,
    leader: SocketAddr,
    token: Token,
    rank: Rank,
    world_size: u32,
    hello: Frame,
    timeout: Duration,
    /// Whom rank 0 awaits, once it has let this rank in.
    missing: Option<Ranks>,
}

impl Entrance {
    fn new(leader: SocketAddr, seat: &Seat) -> Result<Self, JoinError> {
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
    async fn enter(&mut self) -> Result<(Admission, Conversation), JoinError> {
        let deadline = Instant::now() + self.timeout;
        let mut patience = FIRST_ATTEMPT;
        let mut reason = String::from("no answer");
        loop {
            let outcome = timeout_at(deadline, self.attempt(patience)).await;
            match outcome {
                Ok(Ok(entered)) => return Ok(entered),
                Ok(Err(Setback::Final(error))) => return Err(error),
                Ok(Err(Setback::Passing(why))) => reason = why,
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
            Some(missing) => JoinError::Refused(Refusal::Incomplete {
                waited: self.timeout,
                world_size: self.world_size,
                missing,
                turned_away: TurnedAway::default(),
            }),
            None => JoinError::Unreachable {
                leader: self.leader,
                waited: self.timeout,
                reason,
            },
        }
    }

    /// Connects within `patience`, then waits as long as rank 0 keeps the connection.
    async fn attempt(&mut self, patience: Duration) -> Result<(Admission, Conversation), Setback> {
        self.missing = None;
        let connecting = self.endpoint.connect(self.leader, SERVER_NAME);
        let connecting =
            connecting.map_err(|error| Setback::Final(setup("connecting to rank 0", &error)))?;
        let connection = timeout(patience, connecting)
            .await
            .map_err(|_| Setback::passing("no answer"))?
            .map_err(|error| Setback::of_connection(&error))?;
        let entered = self.enter_by(connection.clone()).await;
        entered.map_err(|setback| match (setback, connection.close_reason()) {
            // Rank 0 looks at this rank's certificate when this rank has seen its own accepted.
            (Setback::Passing(_), Some(error)) => Setback::of_connection(&error),
            (setback, _) => setback,
        })
    }

    async fn enter_by(
        &mut self,
        connection: Connection,
    ) -> Result<(Admission, Conversation), Setback> {
        let (send, receive) = connection.open_bi().await.map_err(Setback::passing)?;
        let mut conversation = Conversation {
            connection,
            send,
            receive,
        };
        self.prove(&mut conversation).await?;
        let hello = conversation.send.write_all(&self.hello).await;
        hello.map_err(Setback::passing)?;
        let admission = self.await_start(&mut conversation).await?;
        Ok((admission, conversation))
    }

    async fn prove(&self, conversation: &mut Conversation) -> Result<(), Setback> {
        let binding = identity::binding(&conversation.connection);
        let proof = FromMember::Prove {
            rank: self.rank,
            version: VERSION.into(),
            proof: self.token.prove(Side::Member, &binding),
        };
        let proof = messages::encode(&proof).expect("a proof is small");
        let sent = conversation.send.write_all(&proof).await;
        sent.map_err(Setback::passing)?;
        match messages::read(&mut conversation.receive, MESSAGE_LIMIT).await {
            Ok(FromLeader::Prove { proof })
                if self.token.accepts(Side::Leader, &binding, &proof) =>
            {
                Ok(())
            }
            Ok(FromLeader::Refused(refusal)) => Err(Setback::Final(refusal.into())),
            Ok(_) => Err(Setback::Final(JoinError::Impostor {
                leader: self.leader,
            })),
            Err(failure) => Err(Setback::passing(failure)),
        }
    }

    async fn await_start(&mut self, conversation: &mut Conversation) -> Result<Admission, Setback> {
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
                    return Err(Setback::Final(refusal.into()));
                }
                (Ok(_), _) => return Err(Setback::passing("it spoke out of turn")),
                (Err(failure), _) => return Err(Setback::passing(failure)),
            }
        }
    }
}

fn own_hello(membership: &Membership) -> Result<Frame, JoinError> {
    let hello = FromMember::Join(membership.hello());
    messages::encode(&hello).map_err(|bytes| {
        JoinError::Refused(Refusal::TooLarge {
            what: "description of this rank".into(),
            bytes,
            limit: MESSAGE_LIMIT,
        })
    })
}

/// Carries messages and commands until this rank is done.
async fn serve(
    conversation: Conversation,
    (mut participant, mut wakefulness): (Participant, Wakefulness),
    commands: &mut tokio::sync::mpsc::UnboundedReceiver<Command>,
) {
    let leader = Rank(0);
    let link = Link::new(conversation.connection.clone(), conversation.send);
    let (inbox, mut inbound): (_, Receiver<(Rank, Inbound<FromLeader>)>) = channel(INBOX);
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
                Inbound::Message(message) => participant.receive(message),
                Inbound::Closed(reason) => participant.leader_lost(&reason),
            },
            command = commands.recv() => {
                participant.command(command.unwrap_or(Command::Close), Instant::now());
            }
            () = seat::until(participant.poll_timeout()) => {
                participant.handle_timeout(Instant::now());
            }
        }
    }
    link.close().await;
}
