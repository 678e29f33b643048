//! One connection between rank 0 and another rank: a task that reads, a task that writes, and an
//! end that lets the last words out.

use gradwire_protocol::units::Rank;
use quinn::{Connection, RecvStream, SendStream};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::identity::{Binding, data_material};
use super::messages::{Frame, MESSAGE_LIMIT, read};
use super::seat::FLUSH;

/// How many unhandled messages are read ahead; more wait in the network.
pub(super) const INBOX: usize = 256;

/// What a connection brings.
pub(super) enum LinkInput<M> {
    Message(M),
    /// Nothing more will come, for this reason.
    Closed(String),
}

/// The sending side of a connection.
pub(super) struct RankLink {
    connection: Connection,
    outgoing: UnboundedSender<Frame>,
    writer: JoinHandle<()>,
}

impl RankLink {
    /// Starts to write to `stream`.
    pub(super) fn new(connection: Connection, stream: SendStream) -> Self {
        let (outgoing, frames) = unbounded_channel();
        Self {
            connection,
            outgoing,
            writer: tokio::spawn(write(stream, frames)),
        }
    }

    /// What both ends of this connection, and nobody else, can make secrets of packets with.
    pub(super) fn data_material(&self) -> Binding {
        data_material(&self.connection)
    }

    /// Queues a message.
    pub(super) fn send(&self, frame: Frame) {
        // When the connection has ended the reader says so.
        let _ = self.outgoing.send(frame);
    }

    /// Waits until the peer has everything, for a short while, and closes.
    pub(super) async fn close(self) {
        drop(self.outgoing);
        // A peer that does not confirm in time is closed on all the same.
        let _ = timeout(FLUSH, self.writer).await;
        self.connection.close(0_u32.into(), b"");
    }
}

async fn write(mut stream: SendStream, mut frames: UnboundedReceiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        if stream.write_all(&frame).await.is_err() {
            return;
        }
    }
    if stream.finish().is_ok() {
        // Either the peer has everything now, or it is gone.
        let _ = stream.stopped().await;
    }
}

/// Starts to read messages of `rank` into `inbox`.
pub(super) fn listen<M>(rank: Rank, from: (Connection, RecvStream), inbox: LinkInbox<M>)
where
    M: DeserializeOwned + Send + 'static,
{
    let (connection, mut stream) = from;
    tokio::spawn(async move {
        loop {
            let inbound = match read(&mut stream, MESSAGE_LIMIT).await {
                Ok(message) => LinkInput::Message(message),
                Err(failure) => {
                    let address = connection.remote_address();
                    LinkInput::Closed(format!("{address}: {failure}"))
                }
            };
            let ended = matches!(inbound, LinkInput::Closed(_));
            if inbox.send((rank, inbound)).await.is_err() || ended {
                return;
            }
        }
    });
}

/// Where readers put what they read.
pub(super) type LinkInbox<M> = Sender<(Rank, LinkInput<M>)>;
