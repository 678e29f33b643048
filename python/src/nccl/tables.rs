//! The symbols that NCCL looks for: tables of functions, one for each version of its net interface.
//!
//! Version 12 has the functions of `plugin` as they are. The others adapt what differs: sizes that
//! are `int` (8), no context (8 to 10), no handles of the profiler (8, 9), and properties.
//!
//! NCCL 2.20 to 2.23 takes version 8, 2.24 and 2.25 take 9, 2.26 and 2.27 take 10, 2.28 and 2.29
//! take 11, and 2.30 and later 12.
#![expect(unsafe_code, reason = "NCCL's interface is made of raw pointers")]
#![expect(
    clippy::too_many_arguments,
    reason = "NCCL fixes the arguments of its functions"
)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use super::abi::{
    Logger, NcclResult, ProfilerCallback, PropertiesV8, PropertiesV9, PropertiesV11, PropertiesV12,
};
use super::plugin;

type Pointer = *mut c_void;
type Place = *mut *mut c_void;

type Plain = unsafe extern "C" fn(Pointer) -> NcclResult;
type Devices = unsafe extern "C" fn(*mut c_int) -> NcclResult;
type Accept = unsafe extern "C" fn(Pointer, Place, Place) -> NcclResult;
type RegMr = unsafe extern "C" fn(Pointer, Pointer, usize, c_int, Place) -> NcclResult;
type DeregMr = unsafe extern "C" fn(Pointer, Pointer) -> NcclResult;
type Iflush = unsafe extern "C" fn(Pointer, c_int, Place, *mut c_int, Place, Place) -> NcclResult;
type Test = unsafe extern "C" fn(Pointer, *mut c_int, *mut c_int) -> NcclResult;

type Properties<P> = unsafe extern "C" fn(c_int, *mut P) -> NcclResult;
type InitV8 = unsafe extern "C" fn(Logger) -> NcclResult;
type InitV10 = unsafe extern "C" fn(Logger, ProfilerCallback) -> NcclResult;
type InitV11 = unsafe extern "C" fn(Place, u64, Pointer, Logger, ProfilerCallback) -> NcclResult;
type ListenV8 = unsafe extern "C" fn(c_int, Pointer, Place) -> NcclResult;
type ListenV11 = unsafe extern "C" fn(Pointer, c_int, Pointer, Place) -> NcclResult;
type ConnectV8 = unsafe extern "C" fn(c_int, Pointer, Place, Place) -> NcclResult;
type ConnectV10 = unsafe extern "C" fn(c_int, Pointer, Pointer, Place, Place) -> NcclResult;
type ConnectV11 = unsafe extern "C" fn(Pointer, c_int, Pointer, Place, Place) -> NcclResult;
type IsendV8 = unsafe extern "C" fn(Pointer, Pointer, c_int, c_int, Pointer, Place) -> NcclResult;
type IsendV9 = unsafe extern "C" fn(Pointer, Pointer, usize, c_int, Pointer, Place) -> NcclResult;
type IsendV10 =
    unsafe extern "C" fn(Pointer, Pointer, usize, c_int, Pointer, Pointer, Place) -> NcclResult;
type IrecvV8 =
    unsafe extern "C" fn(Pointer, c_int, Place, *mut c_int, *mut c_int, Place, Place) -> NcclResult;
type IrecvV9 =
    unsafe extern "C" fn(Pointer, c_int, Place, *mut usize, *mut c_int, Place, Place) -> NcclResult;
type IrecvV10 = unsafe extern "C" fn(
    Pointer,
    c_int,
    Place,
    *mut usize,
    *mut c_int,
    Place,
    Place,
    Place,
) -> NcclResult;

/// The functions that all versions have, in NCCL's order; six of them differ.
#[derive(Debug)]
#[repr(C)]
pub struct NetTable<Init, P, Listen, Connect, Isend, Irecv> {
    name: *const c_char,
    init: Init,
    devices: Devices,
    get_properties: Properties<P>,
    listen: Listen,
    connect: Connect,
    accept: Accept,
    reg_mr: RegMr,
    /// `regMrDmaBuf`: only for memory of devices.
    reg_mr_dma_buf: Option<Plain>,
    dereg_mr: DeregMr,
    isend: Isend,
    irecv: Irecv,
    iflush: Iflush,
    test: Test,
    close_send: Plain,
    close_recv: Plain,
    close_listen: Plain,
    /// `getDeviceMr`: only for memory of devices.
    get_device_mr: Option<Plain>,
    /// `irecvConsumed`: without it NCCL does not use a request that is done.
    irecv_consumed: Option<Plain>,
}

// SAFETY: the table never changes, and its name is a literal.
unsafe impl<Init, P, Listen, Connect, Isend, Irecv> Sync
    for NetTable<Init, P, Listen, Connect, Isend, Irecv>
{
}

/// `ncclNet_v8_t`.
pub type NetTableV8 = NetTable<InitV8, PropertiesV8, ListenV8, ConnectV8, IsendV8, IrecvV8>;

/// `ncclNet_v9_t`.
#[derive(Debug)]
#[repr(C)]
pub struct NetTableV9 {
    base: NetTable<InitV8, PropertiesV9, ListenV8, ConnectV8, IsendV9, IrecvV9>,
    /// `makeVDevice`: there is one device.
    make_virtual: Option<Plain>,
}

/// `ncclNet_v10_t`.
#[derive(Debug)]
#[repr(C)]
pub struct NetTableV10 {
    base: NetTable<InitV10, PropertiesV9, ListenV8, ConnectV10, IsendV10, IrecvV10>,
    /// `makeVDevice`: there is one device.
    make_virtual: Option<Plain>,
}

/// `ncclNet_v11_t`.
#[derive(Debug)]
#[repr(C)]
pub struct NetTableV11 {
    base: NetTable<InitV11, PropertiesV11, ListenV11, ConnectV11, IsendV10, IrecvV10>,
    /// `makeVDevice`: there is one device.
    make_virtual: Option<Plain>,
    finalize: Plain,
    /// `setNetAttr`: nothing depends on attributes.
    set_net_attr: Option<Plain>,
}

/// `ncclNet_v12_t`.
#[derive(Debug)]
#[repr(C)]
pub struct NetTableV12 {
    base: NetTable<InitV11, PropertiesV12, ListenV11, ConnectV11, IsendV10, IrecvV10>,
    /// `makeVDevice`: there is one device.
    make_virtual: Option<Plain>,
    finalize: Plain,
    /// `setNetAttr`: nothing depends on attributes.
    set_net_attr: Option<Plain>,
}

/// A table of the functions that are the same in all versions, and of these six.
macro_rules! table {
    ($init:path, $properties:path, $listen:path, $connect:path, $isend:path, $irecv:path) => {
        NetTable {
            name: plugin::name(),
            init: $init,
            devices: plugin::devices,
            get_properties: $properties,
            listen: $listen,
            connect: $connect,
            accept: plugin::accept,
            reg_mr: plugin::reg_mr,
            reg_mr_dma_buf: None,
            dereg_mr: plugin::dereg_mr,
            isend: $isend,
            irecv: $irecv,
            iflush: plugin::iflush,
            test: plugin::test,
            close_send: plugin::close,
            close_recv: plugin::close,
            close_listen: plugin::close_listen,
            get_device_mr: None,
            irecv_consumed: None,
        }
    };
}

/// What NCCL 2.20 to 2.23 looks for.
#[unsafe(export_name = "ncclNetPlugin_v8")]
pub static NET_V8: NetTableV8 = table!(
    init_v8,
    properties::<PropertiesV8>,
    listen_v8,
    connect_v8,
    isend_v8,
    irecv_v8
);

/// What NCCL 2.24 and 2.25 look for.
#[unsafe(export_name = "ncclNetPlugin_v9")]
pub static NET_V9: NetTableV9 = NetTableV9 {
    base: table!(
        init_v8,
        properties::<PropertiesV9>,
        listen_v8,
        connect_v8,
        isend_v9,
        irecv_v9
    ),
    make_virtual: None,
};

/// What NCCL 2.26 and 2.27 look for.
#[unsafe(export_name = "ncclNetPlugin_v10")]
pub static NET_V10: NetTableV10 = NetTableV10 {
    base: table!(
        init_v10,
        properties::<PropertiesV9>,
        listen_v8,
        connect_v10,
        plugin::isend,
        plugin::irecv
    ),
    make_virtual: None,
};

/// What NCCL 2.28 and 2.29 look for.
#[unsafe(export_name = "ncclNetPlugin_v11")]
pub static NET_V11: NetTableV11 = NetTableV11 {
    base: table!(
        plugin::init,
        properties::<PropertiesV11>,
        plugin::listen,
        plugin::connect,
        plugin::isend,
        plugin::irecv
    ),
    make_virtual: None,
    finalize: plugin::finalize,
    set_net_attr: None,
};

/// What NCCL 2.30 and later look for.
#[unsafe(export_name = "ncclNetPlugin_v12")]
pub static NET_V12: NetTableV12 = NetTableV12 {
    base: table!(
        plugin::init,
        properties::<PropertiesV12>,
        plugin::listen,
        plugin::connect,
        plugin::isend,
        plugin::irecv
    ),
    make_virtual: None,
    finalize: plugin::finalize,
    set_net_attr: None,
};

unsafe extern "C" fn init_v8(logger: Logger) -> NcclResult {
    plugin::guarded("init", || plugin::initialize(logger))
}

unsafe extern "C" fn init_v10(logger: Logger, _profiler: ProfilerCallback) -> NcclResult {
    plugin::guarded("init", || plugin::initialize(logger))
}

unsafe extern "C" fn properties<P: From<PropertiesV12>>(dev: c_int, out: *mut P) -> NcclResult {
    plugin::guarded("getProperties", || {
        let properties = plugin::properties_of(dev)?;
        // SAFETY: NCCL gives a place for the properties of this version.
        unsafe { out.write(properties.into()) };
        Ok(())
    })
}

unsafe extern "C" fn listen_v8(dev: c_int, handle: Pointer, listen_comm: Place) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe { plugin::listen(ptr::null_mut(), dev, handle, listen_comm) }
}

unsafe extern "C" fn connect_v8(
    dev: c_int,
    handle: Pointer,
    send_comm: Place,
    device: Place,
) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe { plugin::connect(ptr::null_mut(), dev, handle, send_comm, device) }
}

unsafe extern "C" fn connect_v10(
    dev: c_int,
    _config: Pointer,
    handle: Pointer,
    send_comm: Place,
    device: Place,
) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe { plugin::connect(ptr::null_mut(), dev, handle, send_comm, device) }
}

unsafe extern "C" fn isend_v8(
    send_comm: Pointer,
    data: Pointer,
    size: c_int,
    tag: c_int,
    mhandle: Pointer,
    request: Place,
) -> NcclResult {
    // No size is negative; one that were would be refused as too long.
    let size = size as usize;
    // SAFETY: as NCCL promises for this version's function.
    unsafe {
        plugin::isend(
            send_comm,
            data,
            size,
            tag,
            mhandle,
            ptr::null_mut(),
            request,
        )
    }
}

unsafe extern "C" fn isend_v9(
    send_comm: Pointer,
    data: Pointer,
    size: usize,
    tag: c_int,
    mhandle: Pointer,
    request: Place,
) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe {
        plugin::isend(
            send_comm,
            data,
            size,
            tag,
            mhandle,
            ptr::null_mut(),
            request,
        )
    }
}

unsafe extern "C" fn irecv_v8(
    recv_comm: Pointer,
    n: c_int,
    data: Place,
    sizes: *mut c_int,
    tags: *mut c_int,
    mhandles: Place,
    request: Place,
) -> NcclResult {
    // SAFETY: NCCL gives as many sizes as receives; the first is there unless there is none.
    let mut size = if n > 0 { unsafe { *sizes as usize } } else { 0 };
    // SAFETY: as NCCL promises for this version's function; more than one receive is refused.
    unsafe { irecv_v9(recv_comm, n, data, &mut size, tags, mhandles, request) }
}

unsafe extern "C" fn irecv_v9(
    recv_comm: Pointer,
    n: c_int,
    data: Place,
    sizes: *mut usize,
    tags: *mut c_int,
    mhandles: Place,
    request: Place,
) -> NcclResult {
    let handles = ptr::null_mut();
    // SAFETY: as NCCL promises for this version's function.
    unsafe { plugin::irecv(recv_comm, n, data, sizes, tags, mhandles, handles, request) }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn tables_have_the_sizes_of_nccl() {
        assert_eq!(size_of::<NetTableV8>(), 152);
        assert_eq!(size_of::<NetTableV9>(), 160);
        assert_eq!(size_of::<NetTableV10>(), 160);
        assert_eq!(size_of::<NetTableV11>(), 176);
        assert_eq!(size_of::<NetTableV12>(), 176);
        assert_eq!(offset_of!(NetTableV11, set_net_attr), 168);
        assert_eq!(offset_of!(NetTableV12, set_net_attr), 168);
        assert_eq!(offset_of!(NetTableV8, test), 104);
        assert_eq!(offset_of!(NetTableV8, irecv_consumed), 144);
    }
}
