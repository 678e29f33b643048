//! One message as its ends describe it: by their callers, and by the header of every packet.

use serde::{Deserialize, Serialize};

use crate::priority::{SegmentTags, Urgency};
use crate::segment::Segmentation;
use crate::units::{Instant, MessageId, MessageKey, MessageSerial, Share, Signature, Step};
use crate::wire::{Header, PacketKind};

/// The sum that a message is a contribution to, and the step that pays for what it lacks.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SumName {
    /// Its step.
    pub step: Step,
    /// The key of all its messages, one from each peer.
    pub key: MessageKey,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The receive that it answers.
    pub key: MessageKey,
    /// The kind of its operation.
    pub signature: Signature,
    /// The training step that it belongs to.
    pub step: Step,
    /// Its length in bytes; may be zero.
    pub bytes: u32,
    /// The share that may be missing; [`Share::NONE`] for messages that must arrive whole.
    pub tolerance: Share,
    /// How many ranks' values are summed in it.
    pub contributors: u16,
    /// Layers, magnitudes and protection of its segments.
    pub tags: SegmentTags,
}

/// A message to receive.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReceiveRequest {
    /// The key that its sender gives it.
    pub key: MessageKey,
    /// The kind of its operation.
    pub signature: Signature,
    /// The training step that it belongs to.
    pub step: Step,
    /// Its length in bytes, as `length` says.
    pub bytes: u32,
    /// Whether it may be shorter.
    pub length: LengthRule,
    /// The share that may be missing.
    pub tolerance: Share,
    /// How urgent it is; `None` when that is not known.
    pub urgency: Option<ReceiveUrgency>,
    /// From then on the sum that it belongs to takes no more segments than it needs: those still on
    /// their way count as missing. `None`: it waits for all that are not lost. Messages of one sum
    /// have the same key, and come from different peers.
    pub patience_ends: Option<Instant>,
}

/// How urgent a message is to its receiver, the most urgent first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ReceiveUrgency {
    /// The urgency of its operation; `None`, before all others, when that is not known.
    pub operation: Option<Urgency>,
    /// Whether the operation needs the messages of other peers, too.
    pub role: MessageRole,
    /// Its place among equally urgent ones; `None`, before all others, where whatever has arrived
    /// is taken first.
    pub order: Option<ReceiveOrder>,
}

/// The place of a message among equally urgent ones: of an older operation first, and of one
/// operation what others wait for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct ReceiveOrder {
    /// When its operation began at the receiver.
    pub begun: Instant,
    /// Its turn in the operation.
    pub turn: u16,
}

/// Whether the result of a message's operation needs the messages of several peers.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum MessageRole {
    /// It does, so none of them may run ahead: contributions to a sum, blocks of a tensor.
    Part,
    /// It needs only this one: from a root, or from rank to rank.
    Whole,
}

/// Which messages answer a [`ReceiveRequest`].
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum LengthRule {
    /// One of exactly its length.
    Exact,
    /// One that is no longer. [`EndpointEvent::Received`](crate::event::EndpointEvent::Received)
    /// has its length. Such a message has no patience.
    AtMost,
}

impl ReceiveRequest {
    /// The sum that its message is a contribution to.
    pub(crate) fn sum(&self) -> SumName {
        SumName {
            step: self.step,
            key: self.key,
        }
    }

    /// Whether a message answers it.
    pub(crate) fn takes(&self, came: MessageOutline) -> bool {
        let fits = match self.length {
            LengthRule::Exact => came.bytes == self.bytes,
            LengthRule::AtMost => came.bytes <= self.bytes,
        };
        fits && came.signature == self.signature
    }

    pub(crate) fn outline(&self) -> MessageOutline {
        MessageOutline {
            bytes: self.bytes,
            signature: self.signature,
        }
    }
}

/// The properties that every packet of a message carries, and that both of its ends must agree on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MessageOutline {
    /// Its length in bytes.
    pub bytes: u32,
    /// The kind of its operation.
    pub signature: Signature,
}

/// Number of ids of one sender that can be told apart when ids wrap.
const HALF_OF_IDS: u64 = 1 << 31;

/// Where `search` and `serials` have the open message with this id. `search` finds a number,
/// `serials` are those of the open messages in rising order, and `newest` is about as high as the
/// highest number that was ever used.
pub(crate) fn find_open(
    newest: MessageSerial,
    id: MessageId,
    search: impl Fn(MessageSerial) -> Option<usize>,
    mut serials: impl Iterator<Item = MessageSerial> + Clone,
) -> Option<usize> {
    if let Some(at) = search(newest.nearest(id)) {
        return Some(at);
    }
    // Half of all ids may have been used since the oldest message was opened. No other message gets
    // its id until it has ended.
    let oldest = serials.clone().next()?;
    let is_old = oldest.0 + HALF_OF_IDS <= newest.0;
    (is_old.then(|| serials.position(|serial| serial.id() == id))).flatten()
}

/// Whether a header of a sender describes its message as this job cuts it, and a header of DATA or
/// PARITY the payload.
pub(crate) fn is_consistent(header: &Header, segment_bytes: u32) -> bool {
    let cut = Segmentation::new(header.message_bytes, segment_bytes);
    let in_range = header.segments == cut.segments() && header.segment < header.segments;
    let length = u32::from(header.length);
    in_range
        && match header.kind {
            PacketKind::Data => length == cut.length(header.segment),
            PacketKind::Parity => length == cut.length(0),
            _ => true,
        }
}
