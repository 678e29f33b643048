//! The memory of a tensor while an operation has it.

use gradwire_protocol::machine::Payload;

/// A tensor's memory while an operation has it.
#[derive(Debug)]
pub enum Buffer {
    /// The operation owns the bytes; its completion gives them back.
    Owned(Vec<u8>),
    /// The bytes belong to a caller who leaves them alone until the completion.
    Borrowed(&'static mut [u8]),
    /// As before, for an input: bytes that are only read, which other operations may read, too.
    ReadOnly(&'static [u8]),
    /// A number of bytes without contents, for simulations, which neither copy nor compute.
    Virtual(usize),
}

impl Buffer {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Borrowed(bytes) => bytes.len(),
            Self::ReadOnly(bytes) => bytes.len(),
            Self::Virtual(length) => *length,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes; `None` if the buffer is virtual.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Borrowed(bytes) => Some(bytes),
            Self::ReadOnly(bytes) => Some(bytes),
            Self::Virtual(_) => None,
        }
    }

    /// The bytes, to be changed; `None` if the buffer is virtual or an input.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Borrowed(bytes) => Some(bytes),
            Self::ReadOnly(_) | Self::Virtual(_) => None,
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
