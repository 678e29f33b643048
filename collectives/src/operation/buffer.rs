//! The memory of a tensor while an operation has it.

use std::fmt::Debug;

use gradwire_protocol::machine::Payload;

/// Memory of a caller, who leaves it alone until the completion.
///
/// The caller may read the tensor as soon as it hears of the end, while the operation still exists.
/// So an implementor has no reference to the memory, and makes one for each call.
pub trait LentMemory: Debug + Send + Sync {
    /// How many bytes there are.
    fn length(&self) -> usize;

    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The bytes, to be changed; `None` for an input, which other operations may read, too.
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;
}

/// A tensor's memory while an operation has it.
#[derive(Debug)]
pub enum Buffer {
    /// The operation owns the bytes; its completion gives them back.
    Owned(Vec<u8>),
    /// The bytes belong to a caller.
    Lent(Box<dyn LentMemory>),
    /// A number of bytes without contents, for simulations, which neither copy nor compute.
    Virtual(usize),
}

impl Buffer {
    /// How many bytes there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(bytes) => bytes.len(),
            Self::Lent(memory) => memory.length(),
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
            Self::Lent(memory) => Some(memory.bytes()),
            Self::Virtual(_) => None,
        }
    }

    /// The bytes, to be changed; `None` if the buffer is virtual or an input.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Owned(bytes) => Some(bytes),
            Self::Lent(memory) => memory.bytes_mut(),
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
