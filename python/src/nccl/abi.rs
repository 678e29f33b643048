//! NCCL's structures and constants, as its net and tuner interfaces lay them out on x86-64.
//!
//! The names of fields are NCCL's, in the spelling of this code.

use std::ffi::{c_char, c_int, c_ulong, c_void};

/// `ncclResult_t`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub enum NcclResult {
    /// It worked, or is to be asked again.
    Success = 0,
    /// The system refused.
    SystemError = 2,
    /// A bug of the plugin.
    InternalError = 3,
    /// An argument that is not allowed.
    InvalidArgument = 4,
    /// A call that is not allowed.
    InvalidUsage = 5,
    /// The other side has failed.
    RemoteError = 6,
}

/// `NCCL_PTR_HOST`.
pub(super) const PTR_HOST: c_int = 1;
/// `NCCL_NET_HANDLE_MAXSIZE`.
pub(super) const HANDLE_BYTES: usize = 128;
/// `NCCL_NET_MAX_REQUESTS`.
pub(super) const REQUESTS: usize = 32;
/// Rail and plane of a device that has none.
pub(super) const UNDEFINED: i16 = -1;

/// `ncclDebugLogger_t`.
pub(super) type Logger =
    Option<unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...)>;
/// `ncclProfilerCallback_t`.
pub(super) type ProfilerCallback = Option<
    unsafe extern "C" fn(*mut *mut c_void, c_int, *mut c_void, i64, *mut c_void) -> NcclResult,
>;

/// `ncclNetVDeviceProps_v9_t` to `_v11_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct VirtualDevice {
    /// How many devices it joins.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; 4],
}

/// `ncclNetVDeviceProps_v12_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct WideVirtualDevice {
    /// How many devices it joins.
    pub ndevs: c_int,
    /// Their numbers.
    pub devs: [c_int; 8],
}

/// `ncclNetProperties_v8_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesV8 {
    /// The interface.
    pub name: *const c_char,
    /// Its place in /sys, or null.
    pub pci_path: *const c_char,
    /// Unique number of the device.
    pub guid: u64,
    /// Kinds of memory, as bits.
    pub ptr_support: c_int,
    /// Whether registrations serve all connections.
    pub reg_is_global: c_int,
    /// Megabits a second.
    pub speed: c_int,
    /// Port, from 0.
    pub port: c_int,
    /// Microseconds.
    pub latency: f32,
    /// Connections at most.
    pub max_comms: c_int,
    /// Receives of one call at most.
    pub max_recvs: c_int,
    /// 0: the host drives it.
    pub net_device_type: c_int,
    /// 0: none.
    pub net_device_version: c_int,
}

/// The fields with which the properties of version 9 and of all later ones begin.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesHead {
    /// As in version 8.
    pub name: *const c_char,
    /// As in version 8.
    pub pci_path: *const c_char,
    /// As in version 8.
    pub guid: u64,
    /// As in version 8.
    pub ptr_support: c_int,
    /// As in version 8.
    pub reg_is_global: c_int,
    /// Whether each receive is flushed.
    pub force_flush: c_int,
    /// As in version 8.
    pub speed: c_int,
    /// As in version 8.
    pub port: c_int,
    /// As in version 8.
    pub latency: f32,
    /// As in version 8.
    pub max_comms: c_int,
    /// As in version 8.
    pub max_recvs: c_int,
    /// As in version 8.
    pub net_device_type: c_int,
    /// As in version 8.
    pub net_device_version: c_int,
}

/// `ncclNetProperties_v9_t` and `_v10_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesV9 {
    /// The first fields.
    pub head: PropertiesHead,
    /// The devices that it joins: itself.
    pub virtual_device: VirtualDevice,
    /// Bytes of a point-to-point message at most.
    pub max_p2p_bytes: usize,
    /// Bytes of a collective at most.
    pub max_coll_bytes: usize,
}

/// `ncclNetProperties_v11_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesV11 {
    /// The part that version 10 has.
    pub before: PropertiesV9,
    /// Requests that one call may make.
    pub max_multi_request_size: c_int,
}

/// `ncclNetProperties_v12_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PropertiesV12 {
    /// The first fields.
    pub head: PropertiesHead,
    /// The devices that it joins: itself.
    pub virtual_device: WideVirtualDevice,
    /// As in version 9.
    pub max_p2p_bytes: usize,
    /// As in version 9.
    pub max_coll_bytes: usize,
    /// As in version 11.
    pub max_multi_request_size: c_int,
    /// The rail of the device.
    pub rail_id: i16,
    /// The plane of the device.
    pub plane_id: i16,
}

impl From<PropertiesV12> for PropertiesV9 {
    fn from(all: PropertiesV12) -> Self {
        let mut virtual_device = VirtualDevice {
            ndevs: all.virtual_device.ndevs,
            ..VirtualDevice::default()
        };
        virtual_device
            .devs
            .copy_from_slice(&all.virtual_device.devs[..4]);
        Self {
            head: all.head,
            virtual_device,
            max_p2p_bytes: all.max_p2p_bytes,
            max_coll_bytes: all.max_coll_bytes,
        }
    }
}

impl From<PropertiesV12> for PropertiesV11 {
    fn from(all: PropertiesV12) -> Self {
        Self {
            before: all.into(),
            max_multi_request_size: all.max_multi_request_size,
        }
    }
}

impl From<PropertiesV12> for PropertiesV8 {
    fn from(PropertiesV12 { head, .. }: PropertiesV12) -> Self {
        Self {
            name: head.name,
            pci_path: head.pci_path,
            guid: head.guid,
            ptr_support: head.ptr_support,
            reg_is_global: head.reg_is_global,
            speed: head.speed,
            port: head.port,
            latency: head.latency,
            max_comms: head.max_comms,
            max_recvs: head.max_recvs,
            net_device_type: head.net_device_type,
            net_device_version: head.net_device_version,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn properties_have_the_layout_of_nccl() {
        assert_eq!(size_of::<PropertiesV8>(), 64);
        assert_eq!(offset_of!(PropertiesV8, speed), 32);
        assert_eq!(offset_of!(PropertiesV8, net_device_version), 56);
        assert_eq!(size_of::<PropertiesV9>(), 104);
        assert_eq!(offset_of!(PropertiesV9, virtual_device), 64);
        assert_eq!(offset_of!(PropertiesV9, max_p2p_bytes), 88);
        assert_eq!(offset_of!(PropertiesV9, max_coll_bytes), 96);
        assert_eq!(size_of::<PropertiesV11>(), 112);
        assert_eq!(offset_of!(PropertiesV11, max_multi_request_size), 104);
        assert_eq!(size_of::<PropertiesV12>(), 128);
        assert_eq!(offset_of!(PropertiesV12, head.speed), 36);
        assert_eq!(offset_of!(PropertiesV12, virtual_device), 64);
        assert_eq!(offset_of!(PropertiesV12, max_p2p_bytes), 104);
        assert_eq!(offset_of!(PropertiesV12, max_coll_bytes), 112);
        assert_eq!(offset_of!(PropertiesV12, max_multi_request_size), 120);
        assert_eq!(offset_of!(PropertiesV12, rail_id), 124);
        assert_eq!(offset_of!(PropertiesV12, plane_id), 126);
        assert_eq!(size_of::<VirtualDevice>(), 20);
        assert_eq!(size_of::<WideVirtualDevice>(), 36);
        assert_eq!(size_of::<NcclResult>(), 4);
    }
}
