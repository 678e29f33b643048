//! One connection between rank 0 and another rank: one task reads, one task writes, and closing
//! waits until the last messages are delivered.

use std::time::Duration;

use gradwire_protocol::units::Rank;
use quinn::{Connection, RecvStream, SendStream};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::identity::{Binding, data_material};
use super::messages::{Frame, MESSAGE_LIMIT, read};
use super::task::FLUSH;

/// How many messages are read ahead of the control thread; more wait in the network.
pub(super) const INBOX: usize = 256;

/// Something that a connection's reader delivers.
pub(super) enum LinkInput<M> {
    Message(M),
    /// The connection has ended, for this reason.
    Closed(String),
}

/// The sending side of a connection.
pub(super) struct RankLink {
    connection: Connection,
    outgoing: UnboundedSender<Frame>,
    writer: JoinHandle<()>,
}

impl RankLink {
    /// Starts the task that writes to `stream`.
    pub(super) fn new(connection: Connection, stream: SendStream) -> Self {
        let (outgoing, frames) = unbounded_channel();
        Self {
            connection,
            outgoing,
            writer: tokio::spawn(write(stream, frames)),
        }
    }

    /// Key material that only the two ends of this connection can export; packet secrets are drawn
    /// from it.
    pub(super) fn data_material(&self) -> Binding {
        data_material(&self.connection)
    }

    /// The least time, so far, in which the other rank has answered.
    pub(super) fn round_trip(&self) -> Duration {
        self.connection.min_rtt()
    }

    /// Queues a message.
    pub(super) fn send(&self, frame: Frame) {
        // When the connection has ended, its reader reports that.
        let _ = self.outgoing.send(frame);
    }

    /// Waits up to [`FLUSH`] until the peer has every message, then closes.
    pub(super) async fn close(self) {
        drop(self.outgoing);
        // The connection closes even if the peer does not confirm in time.
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
        // This ends when the peer has every message, or is gone.
        let _ = stream.stopped().await;
    }
}

/// Starts the task that reads messages of `rank` from `stream` into `inbox`.
pub(super) fn listen<M>(
    rank: Rank,
    connection: Connection,
    mut stream: RecvStream,
    inbox: LinkInbox<M>,
) where
    M: DeserializeOwned + Send + 'static,
{
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

/// Takes the messages of all readers, each with the rank that sent it.
pub(super) type LinkInbox<M> = Sender<(Rank, LinkInput<M>)>;
