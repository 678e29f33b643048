//! The memory of a caller's tensor while an operation has it.
//!
//! 1. An operation holds an address, and makes a reference for one call at a time. The caller may
//!    read the tensor as soon as it hears of the end, while the operation still exists.
//! 2. Only the caller can promise that the memory stays valid, and that no thread changes it before
//!    the end: so both constructors are `unsafe`.
#![expect(unsafe_code, reason = "the memory of tensors comes as raw pointers")]

use std::ptr::NonNull;
use std::slice;

use gradwire_collectives::buffer::LentMemory;

/// A number of bytes at an address.
#[derive(Clone, Copy, Debug)]
struct MemoryRegion {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address; the caller who lends the memory promises that any thread may use it.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for `Send`.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// `None`: the address is null although there are bytes.
    fn new(start: *mut u8, bytes: usize) -> Option<Self> {
        let start = match bytes {
            0 => Some(NonNull::dangling()),
            _ => NonNull::new(start),
        };
        start.map(|start| Self { start, bytes })
    }

    /// # Safety
    /// The memory is valid, and is not written to while the slice exists.
    unsafe fn slice(&self) -> &[u8] {
        // SAFETY: the caller vouches for the bytes; without any the address is aligned.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

/// A tensor that an operation changes.
#[derive(Debug)]
pub(crate) struct LentTensor(MemoryRegion);

impl LentTensor {
    /// The tensor at an address; `None` if that is null although there are bytes.
    ///
    /// # Safety
    /// The memory is valid, and the caller leaves it alone, from here on until the operation has
    /// ended.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize) -> Option<Self> {
        MemoryRegion::new(start, bytes).map(Self)
    }
}

impl LentMemory for LentTensor {
    fn length(&self) -> usize {
        self.0.bytes
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised both. The operation reads no tensor after its end.
        unsafe { self.0.slice() }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let MemoryRegion { start, bytes } = self.0;
        // SAFETY: `new` was promised that nothing else uses the memory before the end, and the
        // operation writes to no tensor after it.
        Some(unsafe { slice::from_raw_parts_mut(start.as_ptr(), bytes) })
    }
}

/// A tensor that an operation only reads. Other operations may read it, too.
#[derive(Debug)]
pub(crate) struct LentInput(MemoryRegion);

impl LentInput {
    /// The tensor at an address; `None` if that is null although there are bytes.
    ///
    /// # Safety
    /// The memory is valid, and no thread writes to it, from here on until the operation has ended.
    pub(crate) unsafe fn new(start: *const u8, bytes: usize) -> Option<Self> {
        MemoryRegion::new(start.cast_mut(), bytes).map(Self)
    }
}

impl LentMemory for LentInput {
    fn length(&self) -> usize {
        self.0.bytes
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised both.
        unsafe { self.0.slice() }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use gradwire_collectives::buffer::Buffer;

    use super::*;

    /// A loan that kept a reference would make the caller's accesses undefined, which Miri tells.
    #[test]
    fn a_caller_has_its_tensor_before_the_loan_is_dropped() {
        let mut tensor = vec![1_u8; 8];
        let start = tensor.as_mut_ptr();
        // SAFETY: the memory outlives the buffer, and each access is over before the next one.
        let lent = unsafe { LentTensor::new(start, 8) }.expect("an address");
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
        let lent = || unsafe { LentInput::new(tensor.as_ptr(), 4) }.expect("an address");
        let mut buffers = [lent(), lent()].map(|lent| Buffer::Lent(Box::new(lent)));
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
            (LentTensor::new(null, 0), LentTensor::new(null, 1))
        };
        assert_eq!(empty.map(|lent| lent.bytes().len()), Some(0));
        assert!(absent.is_none());
    }
}
