//! Ranges of an operation's memory: a message carries one, and lands in one.

use std::ops::Range;

/// Which memory of an operation is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TensorMemory {
    /// The buffer that holds the result.
    Buffer,
    /// The separate input that some collectives have. It is never written.
    Input,
    /// Memory for partial sums or contributions for which the result buffer has no room.
    Scratch,
    /// No memory: the message is empty, and only its arrival counts.
    Nothing,
}

/// A range of an operation's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TensorRegion {
    pub(crate) place: TensorMemory,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl TensorRegion {
    /// The empty message.
    pub(crate) const NOTHING: Self = Self {
        place: TensorMemory::Nothing,
        offset: 0,
        bytes: 0,
    };

    /// `bytes` of the result buffer from `offset` on.
    pub(crate) fn buffer(offset: usize, bytes: usize) -> Self {
        Self {
            place: TensorMemory::Buffer,
            offset,
            bytes,
        }
    }

    /// `bytes` of the input from `offset` on.
    pub(crate) fn input(offset: usize, bytes: usize) -> Self {
        Self {
            place: TensorMemory::Input,
            offset,
            bytes,
        }
    }

    /// `bytes` of the scratch from `offset` on.
    pub(crate) fn scratch(offset: usize, bytes: usize) -> Self {
        Self {
            place: TensorMemory::Scratch,
            offset,
            bytes,
        }
    }

    /// The region, or the empty message if it has no bytes.
    pub(crate) fn or_nothing(self) -> Self {
        if self.bytes == 0 { Self::NOTHING } else { self }
    }

    /// Its bytes in the memory that it is a part of.
    pub(crate) fn range(self) -> Range<usize> {
        self.offset..self.offset + self.bytes
    }

    /// Whether the regions have bytes in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (ours, theirs) = (self.range(), other.range());
        self.place == other.place && ours.start < theirs.end && theirs.start < ours.end
    }

    /// Length of the region as a message.
    pub(crate) fn message_bytes(self) -> u32 {
        u32::try_from(self.bytes).expect("algorithms cut messages far below 4 GiB")
    }
}
