//! libibverbs, loaded when a job asks for it.
//!
//! Nothing of rdma-core is needed to build gradwire, and a host without it runs as before. The
//! crates that wrap rdma-core do not do: rdma-mummy-sys builds its stand-in with cmake and reads
//! headers with libclang. A dozen functions by `dlsym` are less than that.
#![expect(
    unsafe_code,
    reason = "a library's symbols have the types that are said"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::abi::{
    AddressHandle, AddressVector, AsyncEvent, CompletionChannel, Cq, DeviceContext, DeviceLimits,
    GidEntry, ListedDevice, MemoryRegistration, PortAttributes, ProtectionDomain, Qp, QpAttributes,
    QpOptions, Srq, SrqOptions,
};
use super::error::RdmaError;

/// What is loaded.
const NAME: &CStr = c"libibverbs.so.1";

macro_rules! library {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)+) => {
        /// The functions of libibverbs that make and end things. Each is what the manual page of
        /// its symbol says.
        pub(super) struct Library {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)+
            /// Absent from versions before 34.
            pub(super) register_dmabuf: Option<RegisterDmabuf>,
        }

        impl Library {
            fn of(found: *mut c_void) -> Result<Self, RdmaError> {
                Ok(Self {
                    // SAFETY: the symbol is a function of this type, by the library's ABI.
                    $($field: unsafe { typed(found, $symbol)? },)+
                    // SAFETY: as above; a version without it gives none.
                    register_dmabuf: unsafe { typed(found, c"ibv_reg_dmabuf_mr").ok() },
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
    list = c"ibv_get_device_list": fn(*mut c_int) -> *mut *mut ListedDevice;
    free_list = c"ibv_free_device_list": fn(*mut *mut ListedDevice) -> ();
    name = c"ibv_get_device_name": fn(*mut ListedDevice) -> *const c_char;
    open = c"ibv_open_device": fn(*mut ListedDevice) -> *mut DeviceContext;
    close = c"ibv_close_device": fn(*mut DeviceContext) -> c_int;
    limits = c"ibv_query_device": fn(*mut DeviceContext, *mut DeviceLimits) -> c_int;
    port = c"ibv_query_port": fn(*mut DeviceContext, u8, *mut PortAttributes) -> c_int;
    gid = c"_ibv_query_gid_ex": fn(*mut DeviceContext, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    next_event = c"ibv_get_async_event": fn(*mut DeviceContext, *mut AsyncEvent) -> c_int;
    end_event = c"ibv_ack_async_event": fn(*mut AsyncEvent) -> ();
    make_domain = c"ibv_alloc_pd": fn(*mut DeviceContext) -> *mut ProtectionDomain;
    end_domain = c"ibv_dealloc_pd": fn(*mut ProtectionDomain) -> c_int;
    register = c"ibv_reg_mr": fn(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegistration;
    unregister = c"ibv_dereg_mr": fn(*mut MemoryRegistration) -> c_int;
    make_channel = c"ibv_create_comp_channel": fn(*mut DeviceContext) -> *mut CompletionChannel;
    end_channel = c"ibv_destroy_comp_channel": fn(*mut CompletionChannel) -> c_int;
    make_cq = c"ibv_create_cq":
        fn(*mut DeviceContext, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    end_cq = c"ibv_destroy_cq": fn(*mut Cq) -> c_int;
    next_notice = c"ibv_get_cq_event": fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    end_notices = c"ibv_ack_cq_events": fn(*mut Cq, u32) -> ();
    make_srq = c"ibv_create_srq": fn(*mut ProtectionDomain, *mut SrqOptions) -> *mut Srq;
    end_srq = c"ibv_destroy_srq": fn(*mut Srq) -> c_int;
    make_qp = c"ibv_create_qp": fn(*mut ProtectionDomain, *mut QpOptions) -> *mut Qp;
    change_qp = c"ibv_modify_qp": fn(*mut Qp, *mut QpAttributes, c_int) -> c_int;
    end_qp = c"ibv_destroy_qp": fn(*mut Qp) -> c_int;
    make_handle = c"ibv_create_ah": fn(*mut ProtectionDomain, *mut AddressVector) -> *mut AddressHandle;
    end_handle = c"ibv_destroy_ah": fn(*mut AddressHandle) -> c_int;
}

/// The library, which stays loaded.
///
/// # Errors
/// [`RdmaError`] when it is not there, or too old.
pub(super) fn loaded() -> Result<&'static Library, RdmaError> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    // SAFETY: the name is a C string; what the library's constructors do is its own affair.
    let found = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if found.is_null() {
        return Err(RdmaError::NoLibrary { said: said() });
    }
    let library = Library::of(found)?;
    Ok(LIBRARY.get_or_init(|| library))
}

/// A symbol as a function.
///
/// # Safety
/// `F` is the type of a pointer to the function that has this name.
unsafe fn typed<F: Copy>(found: *mut c_void, symbol: &CStr) -> Result<F, RdmaError> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is loaded and the name a C string.
    let address = unsafe { libc::dlsym(found, symbol.as_ptr()) };
    if address.is_null() {
        let symbol = symbol.to_string_lossy().into_owned();
        return Err(RdmaError::OldLibrary { symbol });
    }
    // SAFETY: the caller says that the address is one of such a function.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

/// What the loader said last.
fn said() -> String {
    // SAFETY: the loader gives a C string that lives until its next call by this thread, or none.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
