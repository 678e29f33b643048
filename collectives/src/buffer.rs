//! The memory of an operation: whose it is, and which part of it a message is.

use gradwire_protocol::machine::Payload;

/// A tensor's memory while an operation has it.
#[derive(Debug)]
pub enum Buffer {
    /// The operation owns the bytes; its completion gives them back.
    Owned(Vec<u8>),
    /// The bytes belong to someone who leaves them alone until the completion.
    Borrowed(&'static mut [u8]),
    /// A number of bytes without contents, for simulations: nothing is copied or computed.
    Virtual(usize),
}

impl Buffer {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Borrowed(bytes) => bytes.len(),
            Self::Virtual(length) => *length,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, where there are bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Borrowed(bytes) => Some(bytes),
            Self::Virtual(_) => None,
        }
    }

    /// The bytes, where there are bytes.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Borrowed(bytes) => Some(bytes),
            Self::Virtual(_) => None,
        }
    }

    /// Another buffer with the same bytes, or as many without contents.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        match self.bytes() {
            Some(bytes) => Self::Owned(bytes.to_vec()),
            None => Self::Virtual(self.len()),
        }
    }

    /// The part of the buffer at `offset`, as the protocol sends it.
    pub(crate) fn payload(&self, offset: usize, bytes: usize) -> Payload<'_> {
        let whole = self
            .bytes()
            .map_or(Payload::Length(self.len()), Payload::Bytes);
        whole.part(offset, bytes)
    }
}

/// Which memory of an operation is meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// The buffer that holds the result.
    Buffer,
    /// The separate input that some collectives have. It is never written.
    Input,
    /// Where partial sums grow or contributions wait, where the result buffer has no room for them.
    Scratch,
    /// None: the message is empty and only its arrival counts.
    Nothing,
}

/// A range of an operation's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Region {
    pub(crate) place: Place,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Region {
    /// The empty message.
    pub(crate) const NOTHING: Self = Self {
        place: Place::Nothing,
        offset: 0,
        bytes: 0,
    };

    /// `bytes` of the result buffer from `offset` on.
    pub(crate) fn buffer(offset: usize, bytes: usize) -> Self {
        Self {
            place: Place::Buffer,
            offset,
            bytes,
        }
    }

    /// `bytes` of the input from `offset` on.
    pub(crate) fn input(offset: usize, bytes: usize) -> Self {
        Self {
            place: Place::Input,
            offset,
            bytes,
        }
    }

    /// `bytes` of the scratch from `offset` on.
    pub(crate) fn scratch(offset: usize, bytes: usize) -> Self {
        Self {
            place: Place::Scratch,
            offset,
            bytes,
        }
    }

    /// The region, or the empty message if nothing is in it.
    pub(crate) fn or_nothing(self) -> Self {
        if self.bytes == 0 { Self::NOTHING } else { self }
    }

    /// Length of the region as a message.
    pub(crate) fn message_bytes(self) -> u32 {
        u32::try_from(self.bytes).expect("algorithms cut messages far below 4 GiB")
    }
}
