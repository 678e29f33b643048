//! The memory of a caller's tensor while an operation has it.
//!
//! 1. An operation holds an address, and makes a reference for one call at a time. The caller may
//!    read the tensor as soon as it hears of the end, while the operation still exists.
//! 2. Only the caller can promise that the memory stays valid, and that no thread changes it before
//!    the end: so the constructor is `unsafe`.
#![expect(unsafe_code, reason = "the memory of tensors comes as raw pointers")]

use std::ptr::NonNull;
use std::slice;

use gradwire_collectives::buffer::LentMemory;

/// What an operation may do with a tensor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TensorAccess {
    /// Change it.
    Change,
    /// Read it, as other operations may at the same time.
    Read,
}

/// A tensor that an operation has: a number of bytes at an address.
#[derive(Debug)]
pub(crate) struct LentTensor {
    start: NonNull<u8>,
    bytes: usize,
    access: TensorAccess,
}

// SAFETY: it is an address; the caller who lends the memory promises that any thread may use it.
unsafe impl Send for LentTensor {}
// SAFETY: as for `Send`.
unsafe impl Sync for LentTensor {}

impl LentTensor {
    /// The tensor at an address; `None` if that is null although there are bytes.
    ///
    /// # Safety
    /// From here on until the operation has ended the memory is valid, no thread writes to it, and
    /// none reads it if the operation may change it.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize, access: TensorAccess) -> Option<Self> {
        let start = match bytes {
            0 => Some(NonNull::dangling()),
            _ => NonNull::new(start),
        };
        start.map(|start| Self {
            start,
            bytes,
            access,
        })
    }
}

impl LentMemory for LentTensor {
    fn length(&self) -> usize {
        self.bytes
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised valid memory that no thread writes to, and the operation reads
        // no tensor after its end. Without bytes the address is aligned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match self.access {
            TensorAccess::Read => None,
            TensorAccess::Change => {
                let (start, bytes) = (self.start.as_ptr(), self.bytes);
                // SAFETY: `new` was promised that nothing else uses the memory before the end, and
                // the operation writes to no tensor after it.
                Some(unsafe { slice::from_raw_parts_mut(start, bytes) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gradwire_collectives::buffer::Buffer;

    use super::*;

    #[test]
    fn a_loan_is_the_memory_of_its_caller() {
        let mut tensor = vec![1_u8; 8];
        let start = tensor.as_mut_ptr();
        // SAFETY: the memory outlives the buffer, and each access is over before the next one.
        let lent = unsafe { LentTensor::new(start, 8, TensorAccess::Change) }.expect("an address");
        let mut buffer = Buffer::Lent(Box::new(lent));
        buffer.bytes_mut().expect("it may be changed")[0] = 7;
        // SAFETY: as above.
        let read = unsafe {
            *start.add(1) = 5;
            *start
        };
        let moved = buffer;
        assert_eq!(
            (read, moved.bytes()),
            (7, Some(&[7, 5, 1, 1, 1, 1, 1, 1][..]))
        );
    }

    #[test]
    fn operations_share_an_input_and_change_none() {
        let tensor = [3_u8; 4];
        // SAFETY: the memory outlives the buffers, and is not written to.
        let lent = || unsafe { LentTensor::new(tensor.as_ptr().cast_mut(), 4, TensorAccess::Read) };
        let mut buffers =
            [lent(), lent()].map(|lent| Buffer::Lent(Box::new(lent.expect("an address"))));
        assert!(
            buffers
                .iter()
                .all(|buffer| buffer.bytes() == Some(&tensor[..]))
        );
        assert_eq!(buffers[0].bytes_mut(), None);
    }

    #[test]
    fn no_address_is_needed_for_no_bytes() {
        // SAFETY: no memory is used.
        let (empty, absent) = unsafe {
            let null = std::ptr::null_mut();
            let lent = |bytes| LentTensor::new(null, bytes, TensorAccess::Change);
            (lent(0), lent(1))
        };
        assert_eq!(empty.map(|lent| lent.bytes().len()), Some(0));
        assert!(absent.is_none());
    }
}
