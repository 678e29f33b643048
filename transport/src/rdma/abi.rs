//! The structures that libibverbs shares with its callers, as far as datagrams need them.
//!
//! Their layout is the stable ABI of libibverbs.so.1 (rdma-core, `libibverbs/verbs.h`). The sizes
//! and offsets are those of 64-bit systems, and are checked at compile time. Posting and polling
//! are not symbols of the library: each open device has a table of its provider's functions.

#![expect(unsafe_code, reason = "requests point to each other")]

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

/// A device in the library's list; only its address matters.
pub(super) enum ListedDevice {}
/// A protection domain; only its address matters.
pub(super) enum ProtectionDomain {}
/// An address handle; only its address matters.
pub(super) enum AddressHandle {}

type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut WorkCompletion) -> c_int;
type RequestNotify = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
type PostShared = unsafe extern "C" fn(*mut Srq, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int;
type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWork, *mut *mut SendWork) -> c_int;

/// An open device (`ibv_context`), up to its descriptors.
#[repr(C)]
pub(super) struct OpenDevice {
    pub(super) device: *mut ListedDevice,
    pub(super) before_poll: [*const c_void; 11],
    pub(super) poll_cq: PollCq,
    pub(super) request_notify: RequestNotify,
    pub(super) between: [*const c_void; 7],
    pub(super) post_shared: PostShared,
    pub(super) between_posts: [*const c_void; 4],
    pub(super) post_send: PostSend,
    pub(super) after: [*const c_void; 6],
    pub(super) command_fd: c_int,
    pub(super) async_fd: c_int,
}

/// A completion queue (`ibv_cq`), up to the last field in use.
#[repr(C)]
pub(super) struct Cq {
    pub(super) device: *mut OpenDevice,
}

/// A shared receive queue (`ibv_srq`), up to the last field in use.
#[repr(C)]
pub(super) struct Srq {
    pub(super) device: *mut OpenDevice,
}

/// A queue pair (`ibv_qp`), up to the last field in use.
#[repr(C)]
pub(super) struct Qp {
    pub(super) device: *mut OpenDevice,
    pub(super) pointers: [*const c_void; 5],
    pub(super) handle: u32,
    pub(super) number: u32,
}

/// Registered memory (`ibv_mr`).
#[repr(C)]
pub(super) struct MemoryRegistration {
    pub(super) device: *mut OpenDevice,
    pub(super) domain: *mut ProtectionDomain,
    pub(super) address: *mut c_void,
    pub(super) length: usize,
    pub(super) handle: u32,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

/// A channel for notices of completion queues (`ibv_comp_channel`).
#[repr(C)]
pub(super) struct CompletionChannel {
    pub(super) device: *mut OpenDevice,
    pub(super) fd: c_int,
    pub(super) references: c_int,
}

/// The limits of a device (`ibv_device_attr`), as far as they are used.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceLimits {
    pub(super) before: [u64; 14],
    pub(super) queue_depth: c_int,
    pub(super) capabilities: [c_int; 4],
    pub(super) completions: c_int,
    pub(super) between: [c_int; 19],
    pub(super) shared_queues: c_int,
    pub(super) shared_depth: c_int,
    pub(super) shared_entries: c_int,
    pub(super) partitions: u16,
    pub(super) delay: u8,
    pub(super) ports: u8,
    pub(super) after: c_int,
}

/// A port (`ibv_port_attr`), with room for fields that later versions append.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PortAttributes {
    pub(super) state: u32,
    pub(super) largest_mtu: u32,
    pub(super) mtu: u32,
    pub(super) gids: c_int,
    pub(super) between: [u32; 4],
    pub(super) partitions: u16,
    pub(super) lid: u16,
    pub(super) rest: [u8; 10],
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) later: [u32; 8],
}

/// An entry of a port's table of GIDs (`ibv_gid_entry`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    pub(super) index: u32,
    pub(super) port: u32,
    pub(super) kind: u32,
    pub(super) interface: u32,
}

/// A part of memory (`ibv_sge`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ScatterEntry {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) key: u32,
}

/// A request to send a datagram (`ibv_send_wr`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWork {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) parts: *mut ScatterEntry,
    pub(super) count: c_int,
    pub(super) operation: u32,
    pub(super) flags: u32,
    pub(super) immediate: u32,
    pub(super) handle: *mut AddressHandle,
    pub(super) number: u32,
    pub(super) queue_key: u32,
    pub(super) rest: [u64; 9],
}

/// A request to receive (`ibv_recv_wr`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ReceiveWork {
    pub(super) id: u64,
    pub(super) next: *mut Self,
    pub(super) parts: *mut ScatterEntry,
    pub(super) count: c_int,
}

/// A completion of a request (`ibv_wc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: u32,
    pub(super) operation: u32,
    pub(super) vendor_error: u32,
    pub(super) bytes: u32,
    pub(super) immediate: u32,
    pub(super) number: u32,
    pub(super) source: u32,
    pub(super) flags: u32,
    pub(super) partition: u16,
    pub(super) source_lid: u16,
    pub(super) level: u8,
    pub(super) path_bits: u8,
}

/// How a shared receive queue is made (`ibv_srq_init_attr`).
#[repr(C)]
pub(super) struct SrqOptions {
    pub(super) owner: *mut c_void,
    pub(super) depth: u32,
    pub(super) parts: u32,
    pub(super) limit: u32,
}

/// How a queue pair is made (`ibv_qp_init_attr`).
#[repr(C)]
pub(super) struct QpOptions {
    pub(super) owner: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) receive_cq: *mut Cq,
    pub(super) srq: *mut Srq,
    pub(super) send_depth: u32,
    pub(super) receive_depth: u32,
    pub(super) send_parts: u32,
    pub(super) receive_parts: u32,
    pub(super) inline_bytes: u32,
    pub(super) kind: u32,
    pub(super) signal_all: c_int,
}

/// How a queue pair is changed (`ibv_qp_attr`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct QpAttributes {
    pub(super) state: u32,
    pub(super) before_key: [u32; 3],
    pub(super) queue_key: u32,
    pub(super) receive_number: u32,
    pub(super) send_number: u32,
    pub(super) between: [u32; 23],
    pub(super) partition: u16,
    pub(super) before_port: [u8; 7],
    pub(super) port: u8,
    pub(super) rest: [u8; 14],
}

/// Where an address handle leads (`ibv_ah_attr`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct AddressVector {
    pub(super) gid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) own_gid: u8,
    pub(super) hops: u8,
    pub(super) traffic_class: u8,
    pub(super) lid: u16,
    pub(super) level: u8,
    pub(super) path_bits: u8,
    pub(super) rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// An event of a device (`ibv_async_event`).
#[repr(C)]
pub(super) struct AsyncEvent {
    pub(super) element: u64,
    pub(super) kind: u32,
}

// SAFETY: a request is only a description; its pointers are followed only while it is posted.
unsafe impl Send for SendWork {}

impl ScatterEntry {
    /// No memory.
    pub(super) const NONE: Self = Self {
        address: 0,
        length: 0,
        key: 0,
    };
}

impl ReceiveWork {
    /// A request of one part; the caller sets the part.
    pub(super) const EMPTY: Self = Self {
        id: 0,
        next: std::ptr::null_mut(),
        parts: std::ptr::null_mut(),
        count: 1,
    };
}

impl QpAttributes {
    /// No change.
    pub(super) const NONE: Self = Self {
        state: 0,
        before_key: [0; 3],
        queue_key: 0,
        receive_number: 0,
        send_number: 0,
        between: [0; 23],
        partition: 0,
        before_port: [0; 7],
        port: 0,
        rest: [0; 14],
    };
}

impl SendWork {
    /// An unsignalled datagram of one part; the caller sets its destination.
    pub(super) const EMPTY: Self = Self {
        id: 0,
        next: std::ptr::null_mut(),
        parts: std::ptr::null_mut(),
        count: 1,
        operation: OPERATION_SEND,
        flags: 0,
        immediate: 0,
        handle: std::ptr::null_mut(),
        number: 0,
        queue_key: 0,
        rest: [0; 9],
    };
}

/// IBV_QPT_UD.
pub(super) const KIND_DATAGRAM: u32 = 4;
/// IBV_WR_SEND.
pub(super) const OPERATION_SEND: u32 = 2;
/// IBV_SEND_SIGNALED.
pub(super) const SEND_SIGNALLED: u32 = 1 << 1;
/// IBV_SEND_INLINE.
pub(super) const SEND_INLINE: u32 = 1 << 3;
/// IBV_ACCESS_LOCAL_WRITE.
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
/// IBV_WC_GRH: the first 40 bytes hold a header.
pub(super) const WITH_HEADER: u32 = 1;
/// IBV_PORT_ACTIVE.
pub(super) const PORT_ACTIVE: u32 = 4;
/// IBV_LINK_LAYER_ETHERNET.
pub(super) const LINK_ETHERNET: u8 = 2;
/// IBV_GID_TYPE_ROCE_V2.
pub(super) const GID_ROCE_V2: u32 = 2;
/// IBV_QPS_INIT, IBV_QPS_RTR and IBV_QPS_RTS.
pub(super) const STATES: [u32; 3] = [1, 2, 3];
/// IBV_QP_STATE.
pub(super) const CHANGE_STATE: c_int = 1;
/// IBV_QP_PKEY_INDEX, IBV_QP_PORT and IBV_QP_QKEY.
pub(super) const CHANGE_PLACE: c_int = 1 << 4 | 1 << 5 | 1 << 6;
/// IBV_QP_SQ_PSN.
pub(super) const CHANGE_SEND_NUMBER: c_int = 1 << 16;

/// IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_DEVICE_FATAL and IBV_EVENT_SRQ_ERR.
pub(super) const EVENT_CQ_ERROR: u32 = 0;
pub(super) const EVENT_QP_FATAL: u32 = 1;
pub(super) const EVENT_DEVICE_FATAL: u32 = 8;
pub(super) const EVENT_SRQ_ERROR: u32 = 14;

/// Bytes before a datagram where it arrives: a GRH, or an IPv4 header in its last 20 bytes.
pub(super) const HEADER_ROOM: usize = 40;

const _: () = {
    assert!(offset_of!(OpenDevice, poll_cq) == 8 + 88);
    assert!(offset_of!(OpenDevice, request_notify) == 8 + 96);
    assert!(offset_of!(OpenDevice, post_shared) == 8 + 160);
    assert!(offset_of!(OpenDevice, post_send) == 8 + 200);
    assert!(offset_of!(OpenDevice, command_fd) == 264);
    assert!(offset_of!(OpenDevice, async_fd) == 268);
    assert!(offset_of!(Qp, number) == 52);
    assert!(size_of::<MemoryRegistration>() == 48);
    assert!(offset_of!(MemoryRegistration, local_key) == 36);
    assert!(offset_of!(CompletionChannel, fd) == 8);
    assert!(size_of::<DeviceLimits>() == 232);
    assert!(offset_of!(DeviceLimits, queue_depth) == 112);
    assert!(offset_of!(DeviceLimits, completions) == 132);
    assert!(offset_of!(DeviceLimits, shared_queues) == 212);
    assert!(offset_of!(DeviceLimits, shared_depth) == 216);
    assert!(offset_of!(DeviceLimits, ports) == 227);
    assert!(offset_of!(PortAttributes, mtu) == 8);
    assert!(offset_of!(PortAttributes, gids) == 12);
    assert!(offset_of!(PortAttributes, lid) == 34);
    assert!(offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<GidEntry>() == 32);
    assert!(size_of::<ScatterEntry>() == 16);
    assert!(size_of::<SendWork>() == 128);
    assert!(offset_of!(SendWork, handle) == 40);
    assert!(offset_of!(SendWork, queue_key) == 52);
    assert!(size_of::<ReceiveWork>() == 32);
    assert!(size_of::<WorkCompletion>() == 48);
    assert!(offset_of!(WorkCompletion, source) == 32);
    assert!(offset_of!(WorkCompletion, source_lid) == 42);
    assert!(size_of::<SrqOptions>() == 24);
    assert!(size_of::<QpOptions>() == 64);
    assert!(offset_of!(QpOptions, kind) == 52);
    assert!(size_of::<QpAttributes>() == 144);
    assert!(offset_of!(QpAttributes, queue_key) == 16);
    assert!(offset_of!(QpAttributes, partition) == 120);
    assert!(offset_of!(QpAttributes, port) == 129);
    assert!(size_of::<AddressVector>() == 32);
    assert!(offset_of!(AddressVector, lid) == 24);
    assert!(offset_of!(AddressVector, port) == 30);
    assert!(size_of::<AsyncEvent>() == 16);
};
