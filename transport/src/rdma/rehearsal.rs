//! A device within this process, for tests, and for counting instructions on hosts without RDMA.
//!
//! It implements the functions of the library and of a provider. It moves packets from one queue
//! pair to another at once, through the memory that both have registered: real requests, real
//! completions, a real header before each packet. It has no time, no loss and no other processes.
#![expect(unsafe_code, reason = "it stands in for a C library")]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gradwire_protocol::job::TransportKeys;
use gradwire_protocol::units::Rank;

use super::abi::{
    AddressHandle, AddressVector, AsyncEvent, CompletionChannel, Cq, DeviceLimits, GID_ROCE_V2,
    GidEntry, HEADER_ROOM, LINK_ETHERNET, ListedDevice, MemoryRegistration, OpenDevice,
    PORT_ACTIVE, PortAttributes, ProtectionDomain, Qp, QpAttributes, QpOptions, ReceiveWork,
    SEND_SIGNALLED, ScatterEntry, SendWork, Srq, SrqOptions, WITH_HEADER, WorkCompletion,
};
use super::library::VerbsLibrary;
use super::{Rdma, RdmaError};

/// The address of every rank.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const NAME: &CStr = c"rehearsal0";
/// Datagrams of 4096 bytes, in the library's numbers.
const MTU: u32 = 5;

/// Opens queue pairs of this device.
///
/// # Errors
/// As [`Rdma::open`].
pub fn open(transport: &TransportKeys, rank: Rank) -> Result<Rdma, RdmaError> {
    Rdma::open_by(&LIBRARY, transport, IpAddr::V4(ADDRESS), rank)
}

/// Its functions. Tests replace some of them to provoke errors.
pub(super) static LIBRARY: VerbsLibrary = plain();

pub(super) const fn plain() -> VerbsLibrary {
    VerbsLibrary {
        list,
        free_list,
        name,
        open: open_device,
        close,
        limits,
        port,
        gid,
        next_event,
        end_event,
        make_domain,
        end_domain,
        register,
        unregister,
        make_channel,
        end_channel,
        make_cq,
        end_cq,
        next_notice,
        end_notices,
        make_srq,
        end_srq,
        make_qp,
        change_qp,
        end_qp,
        make_handle,
        end_handle,
        register_dmabuf: None,
    }
}

/// All queue pairs of this process, by their numbers.
static WORLD: Mutex<RehearsalWorld> = Mutex::new(RehearsalWorld {
    pairs: BTreeMap::new(),
    last: 16,
});

struct RehearsalWorld {
    pairs: BTreeMap<u32, PairAddress>,
    last: u32,
}

/// A queue pair's address in memory.
struct PairAddress(*mut MadeQp);

// SAFETY: its target is accessed under the world's lock only.
unsafe impl Send for PairAddress {}

fn world() -> MutexGuard<'static, RehearsalWorld> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[repr(C)]
struct MadeCq {
    cq: Cq,
    ended: VecDeque<WorkCompletion>,
    is_armed: bool,
    channel: *mut MadeChannel,
}

#[repr(C)]
struct MadeChannel {
    channel: CompletionChannel,
    notices: VecDeque<*mut Cq>,
}

#[repr(C)]
struct MadeSrq {
    srq: Srq,
    places: VecDeque<(u64, ScatterEntry)>,
}

#[repr(C)]
struct MadeQp {
    pair: Qp,
    send_cq: *mut MadeCq,
    receive_cq: *mut MadeCq,
    srq: *mut MadeSrq,
    key: u32,
}

unsafe extern "C" fn list(count: *mut c_int) -> *mut *mut ListedDevice {
    // SAFETY: the caller gives room for a number.
    unsafe { *count = 1 };
    Box::into_raw(Box::new(NAME.as_ptr().cast_mut().cast()))
}

unsafe extern "C" fn free_list(list: *mut *mut ListedDevice) {
    // SAFETY: it was made by `list`.
    drop(unsafe { Box::from_raw(list) });
}

unsafe extern "C" fn name(device: *mut ListedDevice) -> *const c_char {
    device.cast_const().cast()
}

unsafe extern "C" fn open_device(device: *mut ListedDevice) -> *mut OpenDevice {
    // SAFETY: no pointers are passed.
    let async_fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    Box::into_raw(Box::new(OpenDevice {
        device,
        before_poll: [ptr::null(); 11],
        poll_cq,
        request_notify,
        between: [ptr::null(); 7],
        post_shared,
        between_posts: [ptr::null(); 4],
        post_send,
        after: [ptr::null(); 6],
        command_fd: -1,
        async_fd,
    }))
}

unsafe extern "C" fn close(open: *mut OpenDevice) -> c_int {
    // SAFETY: it was made by `open_device`, and its descriptor is its own.
    unsafe {
        libc::close((*open).async_fd);
        drop(Box::from_raw(open));
    }
    0
}

unsafe extern "C" fn limits(_: *mut OpenDevice, out: *mut DeviceLimits) -> c_int {
    // SAFETY: the caller gives room for all limits, of which any numbers are valid.
    unsafe {
        (*out).queue_depth = 4096;
        (*out).completions = 65_536;
        (*out).shared_queues = 16;
        (*out).shared_depth = 16_384;
        (*out).ports = 1;
    }
    0
}

pub(super) unsafe extern "C" fn port(_: *mut OpenDevice, _: u8, out: *mut PortAttributes) -> c_int {
    // SAFETY: the caller gives room for a port.
    unsafe {
        (*out).state = PORT_ACTIVE;
        (*out).mtu = MTU;
        (*out).gids = 2;
        (*out).link_layer = LINK_ETHERNET;
    }
    0
}

unsafe extern "C" fn gid(
    _: *mut OpenDevice,
    _: u32,
    index: u32,
    out: *mut GidEntry,
    _: u32,
    _: usize,
) -> c_int {
    // SAFETY: the caller gives room for an entry.
    unsafe {
        (*out).gid = ADDRESS.to_ipv6_mapped().octets();
        // The first one is of RoCE v1.
        (*out).kind = if index == 0 { 1 } else { GID_ROCE_V2 };
    }
    0
}

unsafe extern "C" fn next_event(_: *mut OpenDevice, _: *mut AsyncEvent) -> c_int {
    set_errno(libc::EAGAIN);
    -1
}

unsafe extern "C" fn end_event(_: *mut AsyncEvent) {}

unsafe extern "C" fn make_domain(open: *mut OpenDevice) -> *mut ProtectionDomain {
    open.cast()
}

unsafe extern "C" fn end_domain(_: *mut ProtectionDomain) -> c_int {
    0
}

unsafe extern "C" fn register(
    domain: *mut ProtectionDomain,
    address: *mut c_void,
    length: usize,
    _: c_int,
) -> *mut MemoryRegistration {
    Box::into_raw(Box::new(MemoryRegistration {
        device: domain.cast(),
        domain,
        address,
        length,
        handle: 0,
        local_key: 1,
        remote_key: 0,
    }))
}

unsafe extern "C" fn unregister(registration: *mut MemoryRegistration) -> c_int {
    // SAFETY: it was made by `register`.
    drop(unsafe { Box::from_raw(registration) });
    0
}

unsafe extern "C" fn make_channel(device: *mut OpenDevice) -> *mut CompletionChannel {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    let made = MadeChannel {
        channel: CompletionChannel {
            device,
            fd,
            references: 0,
        },
        notices: VecDeque::new(),
    };
    Box::into_raw(Box::new(made)).cast()
}

unsafe extern "C" fn end_channel(channel: *mut CompletionChannel) -> c_int {
    // SAFETY: it was made by `make_channel`, and its descriptor is its own.
    unsafe {
        libc::close((*channel).fd);
        drop(Box::from_raw(channel.cast::<MadeChannel>()));
    }
    0
}

unsafe extern "C" fn make_cq(
    device: *mut OpenDevice,
    _: c_int,
    _: *mut c_void,
    channel: *mut CompletionChannel,
    _: c_int,
) -> *mut Cq {
    let made = MadeCq {
        cq: Cq { device },
        ended: VecDeque::new(),
        is_armed: false,
        channel: channel.cast(),
    };
    Box::into_raw(Box::new(made)).cast()
}

unsafe extern "C" fn end_cq(cq: *mut Cq) -> c_int {
    // SAFETY: it was made by `make_cq`.
    drop(unsafe { Box::from_raw(cq.cast::<MadeCq>()) });
    0
}

unsafe extern "C" fn next_notice(
    channel: *mut CompletionChannel,
    cq: *mut *mut Cq,
    _: *mut *mut c_void,
) -> c_int {
    let _world = world();
    // SAFETY: it was made by `make_channel`, and the caller gives room for a pointer.
    unsafe {
        let channel = channel.cast::<MadeChannel>();
        let Some(noticed) = (*channel).notices.pop_front() else {
            return -1;
        };
        if (*channel).notices.is_empty() {
            let mut counter = [0_u8; 8];
            libc::read((*channel).channel.fd, counter.as_mut_ptr().cast(), 8);
        }
        *cq = noticed;
    }
    0
}

unsafe extern "C" fn end_notices(_: *mut Cq, _: u32) {}

unsafe extern "C" fn make_srq(domain: *mut ProtectionDomain, _: *mut SrqOptions) -> *mut Srq {
    let made = MadeSrq {
        srq: Srq {
            device: domain.cast(),
        },
        places: VecDeque::new(),
    };
    Box::into_raw(Box::new(made)).cast()
}

unsafe extern "C" fn end_srq(srq: *mut Srq) -> c_int {
    // SAFETY: it was made by `make_srq`.
    drop(unsafe { Box::from_raw(srq.cast::<MadeSrq>()) });
    0
}

unsafe extern "C" fn make_qp(domain: *mut ProtectionDomain, wish: *mut QpOptions) -> *mut Qp {
    let mut world = world();
    world.last += 1;
    let number = world.last;
    // SAFETY: the wish is a whole one, of things that were made here.
    let wish = unsafe { &*wish };
    let made = MadeQp {
        pair: Qp {
            device: domain.cast(),
            pointers: [ptr::null(); 5],
            handle: 0,
            number,
        },
        send_cq: wish.send_cq.cast(),
        receive_cq: wish.receive_cq.cast(),
        srq: wish.srq.cast(),
        key: 0,
    };
    let made = Box::into_raw(Box::new(made));
    world.pairs.insert(number, PairAddress(made));
    made.cast()
}

unsafe extern "C" fn change_qp(pair: *mut Qp, change: *mut QpAttributes, parts: c_int) -> c_int {
    let _world = world();
    if parts & super::abi::CHANGE_PLACE != 0 {
        // SAFETY: it was made by `make_qp`, and the change is a whole one.
        unsafe { (*pair.cast::<MadeQp>()).key = (*change).queue_key };
    }
    0
}

unsafe extern "C" fn end_qp(pair: *mut Qp) -> c_int {
    // SAFETY: it was made by `make_qp`, and no lookup finds it any more.
    unsafe {
        world().pairs.remove(&(*pair).number);
        drop(Box::from_raw(pair.cast::<MadeQp>()));
    }
    0
}

unsafe extern "C" fn make_handle(
    _: *mut ProtectionDomain,
    way: *mut AddressVector,
) -> *mut AddressHandle {
    // SAFETY: the way is a whole one.
    Box::into_raw(Box::new(unsafe { *way })).cast()
}

unsafe extern "C" fn end_handle(handle: *mut AddressHandle) -> c_int {
    // SAFETY: it was made by `make_handle`.
    drop(unsafe { Box::from_raw(handle.cast::<AddressVector>()) });
    0
}

unsafe extern "C" fn poll_cq(cq: *mut Cq, most: c_int, out: *mut WorkCompletion) -> c_int {
    let _world = world();
    // SAFETY: it was made by `make_cq`, and the caller gives room for `most`.
    unsafe {
        let ended = &mut (*cq.cast::<MadeCq>()).ended;
        let count = ended.len().min(most as usize);
        for (at, completion) in ended.drain(..count).enumerate() {
            *out.add(at) = completion;
        }
        count as c_int
    }
}

unsafe extern "C" fn request_notify(cq: *mut Cq, _: c_int) -> c_int {
    let _world = world();
    // SAFETY: it was made by `make_cq`.
    unsafe { (*cq.cast::<MadeCq>()).is_armed = true };
    0
}

unsafe extern "C" fn post_shared(
    srq: *mut Srq,
    mut request: *mut ReceiveWork,
    _: *mut *mut ReceiveWork,
) -> c_int {
    let _world = world();
    // SAFETY: it was made by `make_srq`, and the list is sound, each of one part.
    unsafe {
        while let Some(one) = request.as_ref() {
            let places = &mut (*srq.cast::<MadeSrq>()).places;
            places.push_back((one.id, *one.parts));
            request = one.next;
        }
    }
    0
}

unsafe extern "C" fn post_send(
    pair: *mut Qp,
    mut request: *mut SendWork,
    _: *mut *mut SendWork,
) -> c_int {
    let world = world();
    // SAFETY: it was made by `make_qp`, the list is sound, and whatever it names was made here; the
    // world is locked.
    unsafe {
        let pair = pair.cast::<MadeQp>();
        while let Some(one) = request.as_ref() {
            if let Some(PairAddress(to)) = world.pairs.get(&one.number)
                && (**to).key == one.queue_key
            {
                carry(&*pair, one, &mut **to);
            }
            if one.flags & SEND_SIGNALLED != 0 {
                let ended = WorkCompletion {
                    id: one.id,
                    number: (*pair).pair.number,
                    ..WorkCompletion::default()
                };
                tell(&mut *(*pair).send_cq, ended);
            }
            request = one.next;
        }
    }
    0
}

/// Writes a packet, and a header before it, into the next place; without one it is lost.
///
/// # Safety
/// The request names memory that can be read, and the places memory that can be written.
unsafe fn carry(from: &MadeQp, request: &SendWork, to: &mut MadeQp) {
    // SAFETY: the receive queue of a queue pair lives as long as the pair.
    let places = unsafe { &mut (*to.srq).places };
    let Some((id, place)) = places.pop_front() else {
        return;
    };
    // SAFETY: the caller's; the handle was made by `make_handle`.
    let bytes = unsafe {
        let part = *request.parts;
        let way = *request.handle.cast::<AddressVector>();
        let out = place.address as *mut u8;
        let header = std::slice::from_raw_parts_mut(out, HEADER_ROOM);
        header.fill(0);
        header[20] = 0x45;
        header[21] = way.traffic_class;
        header[32..36].copy_from_slice(&ADDRESS.octets());
        let bytes = part.length.min(place.length - HEADER_ROOM as u32);
        let from = part.address as *const u8;
        ptr::copy_nonoverlapping(from, out.add(HEADER_ROOM), bytes as usize);
        bytes
    };
    let ended = WorkCompletion {
        id,
        bytes: bytes + HEADER_ROOM as u32,
        number: to.pair.number,
        source: from.pair.number,
        flags: WITH_HEADER,
        ..WorkCompletion::default()
    };
    // SAFETY: it lives as long as the queue pair.
    tell(unsafe { &mut *to.receive_cq }, ended);
}

fn tell(cq: &mut MadeCq, ended: WorkCompletion) {
    cq.ended.push_back(ended);
    if !std::mem::take(&mut cq.is_armed) {
        return;
    }
    let raw: *mut Cq = &raw mut cq.cq;
    let one = 1_u64.to_ne_bytes();
    // SAFETY: a queue's channel outlives it; eight bytes are read from a live array.
    unsafe {
        (*cq.channel).notices.push_back(raw);
        libc::write((*cq.channel).channel.fd, one.as_ptr().cast(), one.len());
    }
}

/// Leaves the reason of a failure where C programs look for it.
pub(super) fn set_errno(code: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = code };
}
