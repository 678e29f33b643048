//! Memory that a device reads and writes by itself.
//!
//! A rank registers its own two rings once, for local access only: no peer can name an address in
//! its memory, since datagrams carry none and no remote key is ever given away.
#![expect(unsafe_code, reason = "a device writes into this memory")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::abi::{ACCESS_LOCAL_WRITE, MemoryRegistration};
use super::device::RdmaDevice;
use super::error::RdmaError;
use super::verbs_object::VerbsObject;
use crate::dma_region::DmaRegion;

/// A region that a device may use.
#[derive(Debug)]
pub(super) struct RegisteredRegion {
    registration: VerbsObject<MemoryRegistration>,
    pub(super) region: Arc<DmaRegion>,
}

impl RegisteredRegion {
    /// Registers new memory.
    ///
    /// # Errors
    /// [`RdmaError::NoLockedMemory`] if the limit is too low; [`RdmaError::Verb`] otherwise.
    pub(super) fn new(device: &RdmaDevice, bytes: usize) -> Result<Self, RdmaError> {
        let region = DmaRegion::new(bytes);
        let bytes = region.bytes();
        let start = region.place(0, bytes).as_ptr().cast();
        // SAFETY: the region has these bytes, and lives at least as long as its registration.
        let raw =
            unsafe { (device.library.register)(device.domain(), start, bytes, ACCESS_LOCAL_WRITE) };
        // SAFETY: just made, for us.
        let registration = unsafe { device.registered(raw, bytes) }?;
        Ok(Self {
            registration,
            region,
        })
    }

    /// The key by which requests name the memory.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the registration lives, and its keys do not change.
        unsafe { (*self.registration.raw()).local_key }
    }
}

/// A range of memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct GpuRange<'a> {
    /// The dma-buf of the memory.
    pub fd: BorrowedFd<'a>,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Memory of a GPU that a device may use, by the descriptor that the GPU's driver exported it as
/// (`cuMemGetHandleForAddressRange` with `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`).
#[derive(Debug)]
pub(super) struct GpuMemory {
    registration: VerbsObject<MemoryRegistration>,
}

impl GpuMemory {
    /// Registers a range of a dma-buf.
    ///
    /// # Errors
    /// [`RdmaError::Dmabuf`] names the part that does not support it, or the mistake in the range.
    pub(super) fn new(device: &RdmaDevice, range: GpuRange<'_>) -> Result<Self, RdmaError> {
        let GpuRange { fd, offset, bytes } = range;
        let fd = fd.as_raw_fd();
        let refused = |cause: String| RdmaError::Dmabuf {
            fd,
            device: device.name.clone(),
            cause,
        };
        let Some(register) = device.library.register_dmabuf else {
            let cause = "libibverbs.so.1 has no ibv_reg_dmabuf_mr: rdma-core 34 or newer is needed";
            return Err(refused(cause.to_owned()));
        };
        let access = ACCESS_LOCAL_WRITE;
        // SAFETY: numbers and a live domain; the kernel checks the descriptor.
        let raw = unsafe { register(device.domain(), offset, bytes, offset, fd, access) };
        // SAFETY: just made, for us.
        let registration = unsafe { VerbsObject::new(raw, device.library.unregister) };
        let registration = registration.map_err(|source| {
            let mend = match source.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT) => {
                    "the device or its driver cannot: a GPUDirect device and Linux 5.12 are needed"
                }
                Some(libc::EBADF) => "it is no dma-buf: export the memory from the GPU's driver",
                Some(libc::ENOMEM) => "the limit of locked memory (`ulimit -l`) is too low",
                Some(libc::EINVAL) => "offset and length do not lie within it, or it is no dma-buf",
                _ => "`dmesg` may tell more",
            };
            refused(format!("{source}; {mend}"))
        })?;
        Ok(Self { registration })
    }

    /// The key by which requests name the memory.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the registration lives, and its keys do not change.
        unsafe { (*self.registration.raw()).local_key }
    }
}
