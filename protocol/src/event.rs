//! The events that an endpoint gives to its caller. Sender, receiver and endpoint decide when.

use serde::{Deserialize, Serialize};

use crate::bitmap::Bitmap;
use crate::message::MessageOutline;
use crate::path::PathFault;
use crate::units::{Instant, MessageKey, Rank, Span};

/// Something that happened at an endpoint.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum EndpointEvent {
    /// A message that is not posted has begun to arrive. Its unscheduled start is taken.
    Announced {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// Its length and signature.
        outline: MessageOutline,
    },
    /// A posted message is complete, apart from the accepted holes.
    Received {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// Its length in bytes.
        bytes: u32,
        /// The segments that stay missing, if any.
        holes: Option<Bitmap>,
        /// When its first packet and its last segment arrived; `None` if none did.
        arrived: Option<(Instant, Instant)>,
    },
    /// The receiver needs nothing more of a message: its bytes may be reused.
    Sent {
        /// Its receiver.
        to: Rank,
        /// Its key.
        key: MessageKey,
        /// Its length in bytes.
        bytes: u32,
        /// The segments that the receiver accepted as holes, if any.
        missing: Option<Bitmap>,
        /// When its first packet left.
        first: Instant,
    },
    /// The receiver accepts no more of a message: its bytes may be reused. It has refused the
    /// message and forgotten the part that it had.
    Refused {
        /// Its receiver.
        to: Rank,
        /// Its key.
        key: MessageKey,
    },
    /// The sender has cancelled a message before it was complete: posted or not, no more of it
    /// arrives, and the segments that arrived are void.
    Reset {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
    },
    /// Everything that the receiver accepts of a message so far has arrived, and for a while it has
    /// granted no more: it has not posted the message, or grants others first. Given once per
    /// message.
    StandsStill {
        /// Its receiver.
        to: Rank,
        /// Its key.
        key: MessageKey,
    },
    /// A message arrived whose length or signature does not answer the posted one. It is not taken.
    Mismatch {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// As it was posted.
        ours: MessageOutline,
        /// As it came.
        theirs: MessageOutline,
    },
    /// A peer that owes acknowledgements has sent no packet for the job's peer timeout.
    PeerSilent {
        /// The peer.
        rank: Rank,
        /// For how long.
        silent: Span,
    },
    /// The path to or from a peer has a fault. The job continues, perhaps slowly, unless the fault
    /// is [`PathFault::LongPacketsLost`].
    PathFault {
        /// The peer.
        rank: Rank,
        /// The fault.
        fault: PathFault,
    },
}
