//! Rank 0 greets each connection: it checks the proof of the token and passes candidates on.
//!
//! A stranger costs a bounded amount of time and memory, and the started job never notices it.

use std::net::SocketAddr;
use std::time::Duration;

use gradwire_protocol::units::Rank;
use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::assembly::check_version;
use super::identity::{self, Token, TokenSide};
use super::messages::{self, FromLeader, FromMember, GREETING_LIMIT, JoinRequest, MESSAGE_LIMIT};
use super::refusal::{CertificateHolder, JoinRefusal};

/// The maximum time from the first packet of a connection to the end of its greeting.
const GREETING_TIME: Duration = Duration::from_secs(10);
/// Greetings at one time. Further connections are refused and may try again. From half of them on
/// a connection has to show first that its address is its own (RFC 9000, 8.1.2).
const GREETINGS: usize = 1024;
const HALF: usize = GREETINGS / 2;

/// One attempt to join.
pub(super) enum JoinAttempt {
    /// The process has proved the token.
    Proved(JoinCandidate),
    /// The process was refused and told why: wrong token, another release, a wrong certificate.
    Refused {
        from: SocketAddr,
        refusal: JoinRefusal,
    },
}

/// A process that has proved the token and asks to be a rank of the job.
pub(super) struct JoinCandidate {
    pub(super) request: JoinRequest,
    pub(super) connection: Connection,
    pub(super) send: SendStream,
    pub(super) receive: RecvStream,
}

/// Greets every connection until the endpoint closes.
pub(super) async fn greet_all(endpoint: Endpoint, token: Token, attempts: Sender<JoinAttempt>) {
    let mut greetings = JoinSet::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                None => return,
                Some(incoming) => match Welcome::of(greetings.len(), &incoming) {
                    Welcome::Refuse => incoming.refuse(),
                    // It fails only if no retry is possible, which was checked.
                    Welcome::Retry => drop(incoming.retry()),
                    Welcome::Greet => {
                        greetings.spawn(timeout(GREETING_TIME, greet(incoming, token.clone())));
                    }
                },
            },
            Some(greeted) = greetings.join_next() => {
                let attempt = greeted.ok().and_then(Result::ok).flatten();
                if let Some(attempt) = attempt && attempts.send(attempt).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// How a connection is received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Welcome {
    Greet,
    /// It has to come again with a token that only the owner of its address receives.
    Retry,
    Refuse,
}

impl Welcome {
    /// While this many others are being greeted.
    fn of(greetings: usize, incoming: &Incoming) -> Self {
        match greetings {
            GREETINGS.. => Self::Refuse,
            HALF.. if incoming.may_retry() => Self::Retry,
            _ => Self::Greet,
        }
    }
}

/// `None` when the other end is no rank of any job, or went away.
async fn greet(incoming: Incoming, token: Token) -> Option<JoinAttempt> {
    let from = incoming.remote_address();
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => {
            let refusal = identity::distrust(&error, CertificateHolder::Leader)?;
            return Some(JoinAttempt::Refused { from, refusal });
        }
    };
    let (mut send, mut receive) = connection.accept_bi().await.ok()?;
    let prove = messages::read(&mut receive, GREETING_LIMIT).await.ok()?;
    match examine(&prove, &connection, &token) {
        Some(Ok(proof)) => say(&mut send, &FromLeader::Prove { proof }).await?,
        Some(Err(refusal)) => {
            say(&mut send, &FromLeader::Refused(refusal.clone())).await?;
            send.finish().ok()?;
            // A close sent now could overtake the refusal.
            let _ = send.stopped().await;
            return Some(JoinAttempt::Refused { from, refusal });
        }
        None => return None,
    }
    match messages::read(&mut receive, MESSAGE_LIMIT).await.ok()? {
        FromMember::Join(request) => Some(JoinAttempt::Proved(JoinCandidate {
            request,
            connection,
            send,
            receive,
        })),
        _ => None,
    }
}

/// Checks a proof and makes rank 0's own proof in return; `None` when the message is not a proof.
fn examine(
    message: &FromMember,
    connection: &Connection,
    token: &Token,
) -> Option<Result<Vec<u8>, JoinRefusal>> {
    let FromMember::Prove {
        rank,
        version,
        proof,
        has_token,
    } = message
    else {
        return None;
    };
    let binding = identity::binding(connection);
    if !token.accepts(TokenSide::Member, &binding, proof) {
        return Some(Err(match (has_token, token.is_empty()) {
            (Some(false), false) => JoinRefusal::TokenMissing { rank: *rank },
            (Some(true), true) => JoinRefusal::TokenMissing { rank: Rank(0) },
            _ => JoinRefusal::WrongToken,
        }));
    }
    let checked = check_version(*rank, version);
    Some(checked.map(|()| token.prove(TokenSide::Leader, &binding)))
}

async fn say(stream: &mut SendStream, message: &FromLeader) -> Option<()> {
    let frame = messages::encode(message).expect("greetings are small");
    stream.write_all(&frame).await.ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::{JoinHandle, spawn};

    use tokio::task::spawn_blocking;

    use super::super::error::JoinError;
    use super::super::{ControlEvent, ControlPlane, JoinRole, Listener, Membership, join};
    use super::*;
    use crate::lanes::AegisLanes;

    const PATIENCE: Duration = Duration::from_secs(10);
    const TOKEN: &str = "a long random secret";

    fn membership(rank: u16) -> Membership {
        Membership {
            rank: Rank(rank),
            world_size: 2,
            token: TOKEN.into(),
            certificates: None,
            job: BTreeMap::new(),
            data_addresses: Vec::new(),
            host: "here".into(),
            mtu: 1500,
            receive_buffer: 1 << 20,
            lanes: AegisLanes::of_this_host(),
            memory: None,
            peer_timeout: Duration::from_secs(3),
        }
    }

    type Joining = JoinHandle<Result<ControlPlane, JoinError>>;

    fn leader() -> (SocketAddr, Joining, Receiver<ControlEvent>) {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("free ports");
        let address = listener.local_addr();
        let (sender, events) = channel();
        let joining = spawn(move || {
            let on_event = Box::new(move |event| drop(sender.send(event)));
            join(
                JoinRole::Leader(listener),
                membership(0),
                PATIENCE,
                on_event,
            )
        });
        (address, joining, events)
    }

    fn member(address: SocketAddr) -> Joining {
        spawn(move || {
            join(
                JoinRole::Member(address),
                membership(1),
                PATIENCE,
                Box::new(drop),
            )
        })
    }

    /// Waits for a thread without holding up this test's own connections.
    async fn ended(joining: Joining) -> Result<ControlPlane, JoinError> {
        let joined = spawn_blocking(move || joining.join().expect("no panic"));
        joined.await.expect("no panic")
    }

    async fn next(events: Receiver<ControlEvent>) -> ControlEvent {
        let event = spawn_blocking(move || events.recv_timeout(PATIENCE));
        event.await.expect("no panic").expect("rank 0 tells")
    }

    async fn connect(address: SocketAddr) -> (Connection, SendStream, RecvStream) {
        let any = ([127, 0, 0, 1], 0).into();
        let mut endpoint = Endpoint::client(any).expect("free ports");
        endpoint.set_default_client_config(identity::client(None, PATIENCE).expect("has TLS"));
        let connecting = endpoint.connect(address, "anything").expect("valid");
        let connection = connecting.await.expect("rank 0 answers");
        let (send, receive) = connection.open_bi().await.expect("one is allowed");
        (connection, send, receive)
    }

    async fn send(stream: &mut SendStream, message: &FromMember) {
        let frame = messages::encode(message).expect("small");
        stream.write_all(&frame).await.expect("rank 0 reads");
    }

    fn proof(connection: &Connection) -> FromMember {
        FromMember::Prove {
            rank: Rank(1),
            version: super::super::assembly::VERSION.into(),
            proof: Token::new(TOKEN).prove(TokenSide::Member, &identity::binding(connection)),
            has_token: Some(true),
        }
    }

    /// Takes one rank's connection, with a certificate of its own.
    async fn intercept(endpoint: &Endpoint) -> (Connection, SendStream, FromMember) {
        let incoming = endpoint.accept().await.expect("open");
        let connection = incoming.await.expect("accepts any certificate");
        let (send, mut receive) = connection.accept_bi().await.expect("opens one");
        let message = messages::read(&mut receive, GREETING_LIMIT).await;
        (connection, send, message.expect("proves the token first"))
    }

    fn impostor() -> Endpoint {
        let config = identity::server(None, PATIENCE).expect("has TLS");
        Endpoint::server(config, ([127, 0, 0, 1], 0).into()).expect("free ports")
    }

    #[tokio::test]
    async fn a_relayed_proof_is_refused() {
        let (address, joining, events) = leader();
        let middle = impostor();
        let victim = member(middle.local_addr().expect("bound"));
        let (_to_victim, mut back, prove) = intercept(&middle).await;
        let (_to_leader, mut forth, mut answer) = connect(address).await;
        send(&mut forth, &prove).await;
        let answer: FromLeader = messages::read(&mut answer, MESSAGE_LIMIT)
            .await
            .expect("rank 0 answers");
        assert!(matches!(
            answer,
            FromLeader::Refused(JoinRefusal::WrongToken)
        ));
        say(&mut back, &answer).await.expect("the victim listens");
        let error = ended(victim).await.expect_err("refused");
        assert!(matches!(error, JoinError::Refused(JoinRefusal::WrongToken)));
        let event = next(events).await;
        assert!(matches!(event, ControlEvent::Refused { .. }));
        ended(member(address)).await.expect("joins");
        ended(joining).await.expect("joins");
    }

    #[tokio::test]
    async fn rank_0_without_the_token_is_an_impostor() {
        let endpoint = impostor();
        let victim = member(endpoint.local_addr().expect("bound"));
        let (connection, mut back, _) = intercept(&endpoint).await;
        let binding = identity::binding(&connection);
        let proof = Token::new("guess").prove(TokenSide::Leader, &binding);
        say(&mut back, &FromLeader::Prove { proof })
            .await
            .expect("the victim listens");
        let error = ended(victim).await.expect_err("refuses");
        assert!(matches!(error, JoinError::Impostor { .. }));
    }

    #[tokio::test]
    async fn a_crowded_rank_0_asks_for_the_address() {
        let endpoint = impostor();
        let address = endpoint.local_addr().expect("bound");
        let client = tokio::spawn(connect(address));
        let incoming = endpoint.accept().await.expect("open");
        assert_eq!(Welcome::of(HALF - 1, &incoming), Welcome::Greet);
        assert_eq!(Welcome::of(HALF, &incoming), Welcome::Retry);
        assert_eq!(Welcome::of(GREETINGS, &incoming), Welcome::Refuse);
        incoming.retry().expect("it has not been validated");
        let again = endpoint.accept().await.expect("open");
        assert_eq!(Welcome::of(HALF, &again), Welcome::Greet);
        let _connection = again.await.expect("accepts any certificate");
        client.await.expect("no panic");
    }

    #[tokio::test]
    async fn rank_0_cannot_reflect_a_proof() {
        let endpoint = impostor();
        let victim = member(endpoint.local_addr().expect("bound"));
        let (_connection, mut back, prove) = intercept(&endpoint).await;
        let FromMember::Prove { proof, .. } = prove else {
            panic!("proves first");
        };
        say(&mut back, &FromLeader::Prove { proof })
            .await
            .expect("the victim listens");
        let error = ended(victim).await.expect_err("refuses");
        assert!(matches!(error, JoinError::Impostor { .. }));
    }

    #[tokio::test]
    async fn only_noise_from_a_rank_matters() {
        let (address, joining, events) = leader();
        let (_stranger, mut noise, _receive) = connect(address).await;
        noise.write_all(&[0xff; 5000]).await.expect("accepted");
        let (connection, mut forth, mut receive) = connect(address).await;
        send(&mut forth, &proof(&connection)).await;
        let hello = JoinRequest::of(&membership(1));
        send(&mut forth, &FromMember::Join(hello)).await;
        let proved: FromLeader = messages::read(&mut receive, MESSAGE_LIMIT)
            .await
            .expect("a right proof is answered");
        assert!(matches!(proved, FromLeader::Prove { .. }));
        let control = ended(joining).await.expect("joins");
        let mut noise = (1_u32 << 20).to_be_bytes().to_vec();
        noise.resize(4 + (1 << 20), b'x');
        noise[4] = b'"';
        noise[3 + (1 << 20)] = b'"';
        forth.write_all(&noise).await.expect("accepted");
        let event = next(events).await;
        let ControlEvent::PeerLost { rank, reason } = event else {
            panic!("another event");
        };
        assert_eq!(rank, Rank(1));
        assert!(
            reason.contains("not a message of this protocol"),
            "{reason}"
        );
        drop(control);
    }
}
