//! What an endpoint tells whoever gave it commands. When it tells what is decided elsewhere.

use crate::bitmap::Bitmap;
use crate::message::MessageOutline;
use crate::units::{MessageKey, Rank, Span};

/// What happened, for whoever gave the commands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EndpointEvent {
    /// A message that is not posted has begun to arrive: as much of it as is unscheduled.
    Announced {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// What it says of itself.
        outline: MessageOutline,
    },
    /// A posted message is complete.
    Received {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// The segments that it lacks, if any.
        holes: Option<Bitmap>,
    },
    /// A message was received, as far as it ever will be: its bytes may be reused.
    Sent {
        /// Its receiver.
        to: Rank,
        /// Its key.
        key: MessageKey,
        /// The segments that the receiver did without, if any.
        missing: Option<Bitmap>,
    },
    /// All of a message that its receiver takes so far has arrived, and for a while nothing more
    /// came of it: the receiver has not posted it, or takes others before it. Told once.
    StandsStill {
        /// Its receiver.
        to: Rank,
        /// Its key.
        key: MessageKey,
    },
    /// A message came that is not the posted one.
    Mismatch {
        /// Its sender.
        from: Rank,
        /// Its key.
        key: MessageKey,
        /// What was posted.
        ours: MessageOutline,
        /// What came.
        theirs: MessageOutline,
    },
    /// A peer that has messages of ours to acknowledge said nothing for too long.
    PeerSilent {
        /// The peer.
        rank: Rank,
        /// For how long.
        silent: Span,
    },
}
