//! libibverbs, loaded when a job asks for it.
//!
//! Building gradwire needs no part of rdma-core, and a host without it runs all other wires. The
//! crates that wrap rdma-core would end both: rdma-sys links the library and reads its installed
//! headers, ibverbs-sys and rdma-mummy-sys build rdma-core or a stand-in with cmake, and all three
//! read headers with libclang.
#![expect(
    unsafe_code,
    reason = "a library's symbols are trusted to have these types"
)]

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::sync::OnceLock;

use libloading::os::unix;

use super::abi::{
    AddressHandle, AddressVector, AsyncEvent, CompletionChannel, Cq, DeviceLimits, GidEntry,
    ListedDevice, MemoryRegistration, OpenDevice, PortAttributes, ProtectionDomain, Qp,
    QpAttributes, QpOptions, Srq, SrqOptions,
};
use super::error::RdmaError;

/// The library's file.
const NAME: &str = "libibverbs.so.1";

macro_rules! library {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions of libibverbs that create and destroy objects. The manual page of each
        /// symbol documents it.
        pub(super) struct VerbsLibrary {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)+
            /// Absent from versions before 34.
            pub(super) register_dmabuf: Option<RegisterDmabuf>,
        }

        impl VerbsLibrary {
            fn of(found: &unix::Library) -> Result<Self, RdmaError> {
                Ok(Self {
                    // SAFETY: by the library's ABI, the symbol is a function of this type.
                    $($field: unsafe { typed(found, $symbol)? },)+
                    // SAFETY: as above; older versions lack the symbol.
                    register_dmabuf: unsafe { typed(found, "ibv_reg_dmabuf_mr").ok() },
                })
            }
        }
    };
}

type RegisterDmabuf = unsafe extern "C" fn(
    *mut ProtectionDomain,
    u64,
    usize,
    u64,
    c_int,
    c_int,
) -> *mut MemoryRegistration;

library! {
    list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut ListedDevice;
    free_list = "ibv_free_device_list": fn(*mut *mut ListedDevice) -> ();
    name = "ibv_get_device_name": fn(*mut ListedDevice) -> *const c_char;
    open = "ibv_open_device": fn(*mut ListedDevice) -> *mut OpenDevice;
    close = "ibv_close_device": fn(*mut OpenDevice) -> c_int;
    limits = "ibv_query_device": fn(*mut OpenDevice, *mut DeviceLimits) -> c_int;
    port = "ibv_query_port": fn(*mut OpenDevice, u8, *mut PortAttributes) -> c_int;
    gid = "_ibv_query_gid_ex": fn(*mut OpenDevice, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    next_event = "ibv_get_async_event": fn(*mut OpenDevice, *mut AsyncEvent) -> c_int;
    end_event = "ibv_ack_async_event": fn(*mut AsyncEvent) -> ();
    make_domain = "ibv_alloc_pd": fn(*mut OpenDevice) -> *mut ProtectionDomain;
    end_domain = "ibv_dealloc_pd": fn(*mut ProtectionDomain) -> c_int;
    register = "ibv_reg_mr":
        fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegistration;
    unregister = "ibv_dereg_mr": fn(*mut MemoryRegistration) -> c_int;
    make_channel = "ibv_create_comp_channel": fn(*mut OpenDevice) -> *mut CompletionChannel;
    end_channel = "ibv_destroy_comp_channel": fn(*mut CompletionChannel) -> c_int;
    make_cq = "ibv_create_cq":
        fn(*mut OpenDevice, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    end_cq = "ibv_destroy_cq": fn(*mut Cq) -> c_int;
    next_notice = "ibv_get_cq_event":
        fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    end_notices = "ibv_ack_cq_events": fn(*mut Cq, u32) -> ();
    make_srq = "ibv_create_srq": fn(*mut ProtectionDomain, *mut SrqOptions) -> *mut Srq;
    end_srq = "ibv_destroy_srq": fn(*mut Srq) -> c_int;
    make_qp = "ibv_create_qp": fn(*mut ProtectionDomain, *mut QpOptions) -> *mut Qp;
    change_qp = "ibv_modify_qp": fn(*mut Qp, *mut QpAttributes, c_int) -> c_int;
    end_qp = "ibv_destroy_qp": fn(*mut Qp) -> c_int;
    make_handle = "ibv_create_ah":
        fn(*mut ProtectionDomain, *mut AddressVector) -> *mut AddressHandle;
    end_handle = "ibv_destroy_ah": fn(*mut AddressHandle) -> c_int;
}

/// The library, which stays loaded.
///
/// # Errors
/// [`RdmaError`] if it is missing or too old.
pub(super) fn loaded() -> Result<&'static VerbsLibrary, RdmaError> {
    static LIBRARY: OnceLock<VerbsLibrary> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    // SAFETY: the library's constructors register providers, which needs no care of ours.
    let found = unsafe { unix::Library::open(Some(NAME), unix::RTLD_NOW | unix::RTLD_LOCAL) };
    let found = found.map_err(|error| RdmaError::NoLibrary {
        said: error.to_string(),
    })?;
    let library = VerbsLibrary::of(&found)?;
    // Never closed: the functions are called until the process ends.
    mem::forget(found);
    Ok(LIBRARY.get_or_init(|| library))
}

/// A symbol as a function.
///
/// # Safety
/// `F` is the type of a pointer to the function that has this name.
unsafe fn typed<F: Copy>(found: &unix::Library, symbol: &str) -> Result<F, RdmaError> {
    // SAFETY: the caller promises the type.
    let function = unsafe { found.get::<F>(symbol) };
    let function = function.map_err(|_| RdmaError::OldLibrary {
        symbol: symbol.to_owned(),
    })?;
    Ok(*function)
}
