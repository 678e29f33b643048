//! The name of an operation in messages, and the numbers of point-to-point messages.

use std::fmt;

use crate::operation::call::Call;

/// An operation's name in messages: "all_reduce(sum) of 1000 f32, group 0, sequence 7".
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OperationLabel {
    /// Its call.
    pub call: Call,
    /// The number of its group.
    pub group: u16,
    /// Its number in the group.
    pub sequence: u32,
}

impl fmt::Display for OperationLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            group,
            sequence,
        } = self;
        write!(f, "{call}, group {group}, sequence {sequence}")
    }
}

/// Bits of a point-to-point sequence number that count; the bits above are the tag.
const COUNT_BITS: u32 = 16;

/// The sequence number of the message number `count` with this tag. It may equal one of a
/// collective, because part numbers tell both apart.
pub(crate) fn sequence(tag: u16, count: u16) -> u32 {
    u32::from(tag) << COUNT_BITS | u32::from(count)
}

/// The tag in a sequence number, and the count.
pub(crate) fn tag_and_count(sequence: u32) -> (u16, u16) {
    ((sequence >> COUNT_BITS) as u16, sequence as u16)
}
