//! Tests on a device that exists in this process only, whole or broken on purpose.

#![expect(unsafe_code, reason = "broken devices stand in for C libraries")]

use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use gradwire_protocol::endpoint::Endpoint;
use gradwire_protocol::job::{Checksum, Job, SendWindow, WireChoice};
use gradwire_protocol::machine::Machine;
use gradwire_protocol::message::SendRequest;
use gradwire_protocol::priority::MessageShape;
use gradwire_protocol::segment::Segmentation;
use gradwire_protocol::settings::Identity;
use gradwire_protocol::units::{
    ByteCount, Instant, JobId, Layer, MessageKey, Share, Signature, Step,
};

use super::abi::{
    AsyncEvent, Cq, EVENT_DEVICE_FATAL, ListedDevice as Listed, MemoryRegistration, OpenDevice,
    PortAttributes, ProtectionDomain, Qp, SendWork, WorkCompletion,
};
use super::device::nothing;
use super::rehearsal::{self, plain, set_errno};
use super::*;
use crate::seal::Seal;

/// The MTU of the rehearsal's port.
const DATAGRAM: u32 = 4096;
/// Packets of one queue pair on their way at once, and of one list.
const DEPTH: usize = 128;

fn identity(rank: u16) -> Identity {
    Identity {
        rank: Rank(rank),
        world_size: 2,
        job: JobId(9),
        epoch: 0,
    }
}

fn job() -> Job {
    let mut job = Job::default();
    job.transport.wire = WireChoice::Rdma;
    job.transport.entropies = 2;
    job.transport.mtu = Mtu::Bytes(mtu_of(DATAGRAM));
    job.transport.spray_burst = 64;
    let window = ByteCount::mib(64);
    job.transport.window = SendWindow::Bytes(window);
    job.transport.initial_window = window;
    job.transport.unscheduled = window;
    job
}

fn open_with(change: impl FnOnce(&mut VerbsLibrary)) -> Result<Rdma, RdmaError> {
    let mut library = plain();
    change(&mut library);
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let library = Box::leak(Box::new(library));
    Rdma::open_by(library, &job().transport, address, Rank(0))
}

/// The error of a rank that opens a broken device.
fn refused(change: impl FnOnce(&mut VerbsLibrary)) -> String {
    open_with(change).expect_err("it is broken").to_string()
}

/// Sends `packets` full packets; returns how many the device accepted.
fn send(from: &mut Rdma, to: &[Address], packets: u32) -> usize {
    let (taken, result) = try_send(from, to, packets);
    result.expect("the device works");
    taken
}

fn try_send(from: &mut Rdma, to: &[Address], packets: u32) -> (usize, io::Result<()>) {
    let job = job();
    let mut endpoint = Endpoint::new(identity(0), &job, 1);
    let bytes = packets * endpoint.segment_bytes();
    let segments = Segmentation::new(bytes, endpoint.segment_bytes()).segments();
    let shape = MessageShape {
        segments,
        layer_count: 0,
    };
    let tags = endpoint.settings().policy.lossless(shape, &[(0, Layer(0))]);
    let outgoing = SendRequest {
        key: MessageKey::new(0, 1, 0),
        signature: Signature::NONE,
        step: Step(0),
        bytes,
        tolerance: Share::NONE,
        contributors: 1,
        tags,
    };
    endpoint.send(Instant::START, Rank(1), outgoing);
    let mut seal = Seal::none(identity(0), Checksum::On);
    let mut taken = 0;
    while let Some(transmit) = endpoint.poll_transmit(Instant::START) {
        match from.send(
            &transmit,
            Destination {
                addresses: to,
                seal: &mut seal,
            },
        ) {
            Ok(sent) if sent == transmit.packets() => taken += sent,
            Ok(sent) => return (taken + sent, Ok(())),
            Err(error) => return (taken, Err(error)),
        }
    }
    (taken, Ok(()))
}

/// Receives all packets; returns how many were ours.
fn drain(wire: &mut Rdma, from: &[Address]) -> usize {
    let seal = Seal::none(identity(1), Checksum::On);
    let (mut slot, mut count) = (PacketSlot::new(), 0);
    while !wire.readable().expect("the device works").is_empty() {
        let arrival = wire.receive(&mut slot).expect("the device works");
        let arrival = arrival.expect("it was readable");
        assert!(from.iter().any(|one| one.is_source(&arrival.from)));
        for packet in arrival.packets(&mut slot) {
            seal.read(packet).expect("a packet of ours");
            count += 1;
        }
    }
    count
}

fn pair() -> (Rdma, Rdma) {
    let open = |rank| rehearsal::open(&job().transport, Rank(rank)).expect("it is sound");
    (open(0), open(1))
}

#[test]
fn a_run_is_one_doorbell_and_few_packets_ask_for_completions() {
    let (mut from, mut to) = pair();
    let sent = send(&mut from, to.addresses(), 1024);
    assert_eq!(drain(&mut to, from.addresses()), sent);
    from.sending
        .collect(&from.device)
        .expect("the device works");
    let tally = from.tally();
    assert!(sent >= 1024, "{sent}");
    assert_eq!(tally.packets, sent as u64);
    // A run has at most 64 KiB.
    assert!(tally.packets / tally.send_doorbells >= 14, "{tally:?}");
    let unsignalled = tally.packets - 32 * tally.completions;
    assert!(unsignalled < 2 * 32, "two queue pairs: {tally:?}");
}

#[test]
fn places_go_back_in_batches_and_none_gets_lost() {
    let (mut from, mut to) = pair();
    let first = to.tally().receive_doorbells;
    let mut arrived = 0;
    for _ in 0..20 {
        let sent = send(&mut from, to.addresses(), 500);
        assert_eq!(drain(&mut to, from.addresses()), sent);
        arrived += sent as u64;
    }
    let tally = to.tally();
    assert!(arrived > 5 * to.receiving.places() as u64, "{arrived}");
    let batches = tally.receive_doorbells - first;
    assert!(batches <= arrived / 32, "{batches} for {arrived}");
    assert_eq!(tally.dry, 0);
}

#[test]
fn a_ring_that_ran_dry_counts_as_a_drop_of_this_host() {
    let (mut from, mut to) = pair();
    let places = to.receiving.places();
    let sent = send(&mut from, to.addresses(), places as u32 + 100);
    assert!(sent > places, "{sent}");
    assert_eq!(drain(&mut to, from.addresses()), places);
    assert_eq!((to.tally().dry, to.counters().kernel_drops), (1, 1));
    send(&mut from, to.addresses(), 10);
    assert!(drain(&mut to, from.addresses()) >= 10, "it works again");
}

unsafe extern "C" fn polls_nothing(_: *mut Cq, _: c_int, _: *mut WorkCompletion) -> c_int {
    0
}

unsafe extern "C" fn opens_a_slow_one(device: *mut Listed) -> *mut OpenDevice {
    // SAFETY: the rehearsal's own function, and its own object.
    unsafe {
        let open = (plain().open)(device);
        (*open).poll_cq = polls_nothing;
        open
    }
}

#[test]
fn no_place_is_written_again_before_the_device_has_sent_it() {
    let mut slow = open_with(|library| library.open = opens_a_slow_one).expect("it opens");
    let (_, to) = pair();
    let sent = send(&mut slow, to.addresses(), 1024);
    // Of each path as much as fits; the first that does not ends it.
    assert!((DEPTH..=2 * DEPTH).contains(&sent), "{sent}");
}

static TAKEN: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn takes_three(
    _: *mut Qp,
    request: *mut SendWork,
    failed: *mut *mut SendWork,
) -> c_int {
    // SAFETY: the list has more than three requests.
    unsafe { *failed = (*(*(*request).next).next).next };
    TAKEN.fetch_add(3, Ordering::Relaxed);
    libc::ENOMEM
}

unsafe extern "C" fn refuses(
    _: *mut Qp,
    request: *mut SendWork,
    failed: *mut *mut SendWork,
) -> c_int {
    // SAFETY: the caller gives room for a pointer.
    unsafe { *failed = request };
    libc::EIO
}

macro_rules! opening_with_post {
    ($name:ident, $post:ident) => {
        unsafe extern "C" fn $name(device: *mut Listed) -> *mut OpenDevice {
            // SAFETY: the rehearsal's own function, and its own object.
            unsafe {
                let open = (plain().open)(device);
                (*open).post_send = $post;
                open
            }
        }
    };
}
opening_with_post!(opens_a_full_one, takes_three);
opening_with_post!(opens_a_dead_one, refuses);

#[test]
fn what_a_full_queue_takes_is_counted() {
    let mut full = open_with(|library| library.open = opens_a_full_one).expect("it opens");
    let (_, to) = pair();
    assert_eq!(send(&mut full, to.addresses(), 64), 3);
    assert_eq!(TAKEN.load(Ordering::Relaxed), 3);
    assert_eq!(full.tally().packets, 3);
}

#[test]
fn a_device_that_takes_nothing_any_more_is_named() {
    let mut dead = open_with(|library| library.open = opens_a_dead_one).expect("it opens");
    let (_, to) = pair();
    let (taken, result) = try_send(&mut dead, to.addresses(), 64);
    assert_eq!(taken, 0);
    let error = result.expect_err("it refuses").to_string();
    assert!(
        error.contains("rehearsal0 was removed or has failed"),
        "{error}"
    );
}

#[test]
fn every_refusal_names_cause_and_mend() {
    for (change, cause, mend) in BROKEN {
        let said = refused(change);
        assert!(said.contains(cause) && said.contains(mend), "{said}");
    }
}

type Broken = (fn(&mut VerbsLibrary), &'static str, &'static str);

const BROKEN: [Broken; 6] = [
    (
        |library| library.list = lists_nothing,
        "no RDMA device",
        "rdma link add",
    ),
    (
        |library| library.list = cannot_list,
        "cannot be listed",
        "modprobe ib_uverbs",
    ),
    (
        |library| library.open = is_forbidden,
        "/dev/infiniband/uverbs*",
        "mode or group",
    ),
    (
        |library| library.open = is_missing,
        "there is no /dev/infiniband/uverbs*",
        "--device /dev/infiniband",
    ),
    (
        |library| library.port = is_down,
        "is down",
        "ip link set up",
    ),
    (
        |library| library.register = has_no_memory,
        "limit of locked memory",
        "ulimit -l unlimited",
    ),
];

unsafe extern "C" fn lists_nothing(count: *mut c_int) -> *mut *mut Listed {
    // SAFETY: the caller gives room for a number; the rehearsal's list can be freed.
    unsafe {
        let list = (plain().list)(count);
        *count = 0;
        list
    }
}

unsafe extern "C" fn cannot_list(_: *mut c_int) -> *mut *mut Listed {
    set_errno(libc::ENOSYS);
    nothing()
}

unsafe extern "C" fn is_forbidden(_: *mut Listed) -> *mut OpenDevice {
    set_errno(libc::EACCES);
    nothing()
}

unsafe extern "C" fn is_missing(_: *mut Listed) -> *mut OpenDevice {
    set_errno(libc::ENOENT);
    nothing()
}

unsafe extern "C" fn is_down(open: *mut OpenDevice, number: u8, out: *mut PortAttributes) -> c_int {
    // SAFETY: as the rehearsal's own.
    unsafe {
        let code = rehearsal::port(open, number, out);
        (*out).state = 1;
        code
    }
}

unsafe extern "C" fn has_no_memory(
    _: *mut ProtectionDomain,
    _: *mut c_void,
    _: usize,
    _: c_int,
) -> *mut MemoryRegistration {
    set_errno(libc::ENOMEM);
    nothing()
}

/// The error of a rank that asks for something that this host lacks.
fn asked(change: impl FnOnce(&mut TransportKeys), address: Ipv4Addr) -> String {
    let mut transport = job().transport;
    change(&mut transport);
    let address = IpAddr::V4(address);
    let opened = Rdma::open_by(&rehearsal::LIBRARY, &transport, address, Rank(0));
    opened.expect_err("it is not there").to_string()
}

#[test]
fn what_is_not_there_is_answered_with_what_is() {
    let own = Ipv4Addr::new(192, 0, 2, 1);
    let said = asked(|wanted| wanted.rdma_device = vec!["mlx5_0".into()], own);
    assert!(
        said.contains("\"mlx5_0\"") && said.contains("are rehearsal0"),
        "{said}"
    );
    let said = asked(|wanted| wanted.rdma_gid = Some(0), own);
    assert!(
        said.contains("rdma_gid is 0") && said.contains("1: 192.0.2.1"),
        "{said}"
    );
    let said = asked(|_| (), Ipv4Addr::new(192, 0, 2, 9));
    assert!(
        said.contains("192.0.2.9") && said.contains("rehearsal0 (1: 192.0.2.1)"),
        "{said}"
    );
    let said = asked(|wanted| wanted.mtu = Mtu::Bytes(9000), own);
    assert!(said.contains("set transport.mtu to 4144"), "{said}");
}

#[test]
fn ranks_of_a_host_take_named_devices_in_turn() {
    let mut transport = job().transport;
    transport.rdma_device = vec!["rehearsal0".into(), "other0".into()];
    assert!(rehearsal::open(&transport, Rank(2)).is_ok());
    let other = rehearsal::open(&transport, Rank(3));
    assert!(matches!(other, Err(RdmaError::UnknownDevice { given, .. }) if given == "other0"));
}

unsafe extern "C" fn tells_of_removal(_: *mut OpenDevice, event: *mut AsyncEvent) -> c_int {
    // SAFETY: the caller gives room for an event.
    unsafe { (*event).kind = EVENT_DEVICE_FATAL };
    0
}

#[test]
fn a_removed_device_ends_the_wire() {
    let mut wire = open_with(|library| library.next_event = tells_of_removal).expect("it opens");
    let error = wire.get_up().expect_err("it was removed").to_string();
    assert!(error.contains("was removed or has failed"), "{error}");
}

static STATE: AtomicU32 = AtomicU32::new(abi::PORT_ACTIVE);

unsafe extern "C" fn changes(open: *mut OpenDevice, number: u8, out: *mut PortAttributes) -> c_int {
    // SAFETY: as the rehearsal's own.
    unsafe {
        let code = rehearsal::port(open, number, out);
        (*out).state = STATE.load(Ordering::Relaxed);
        code
    }
}

static EVENTS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn tells_once(_: *mut OpenDevice, event: *mut AsyncEvent) -> c_int {
    let left = EVENTS.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(1)
    });
    if left.is_err() {
        set_errno(libc::EAGAIN);
        return -1;
    }
    // SAFETY: the caller gives room for an event. It is IBV_EVENT_PORT_ERR.
    unsafe { (*event).kind = 10 };
    0
}

#[test]
fn a_port_may_go_down_for_a_while_but_not_for_long() {
    let wire = open_with(|library| {
        library.port = changes;
        library.next_event = tells_once;
    });
    let mut wire = wire.expect("it opens");
    wire.watch
        .be_patient_for(std::time::Duration::from_millis(50));
    STATE.store(1, Ordering::Relaxed);
    EVENTS.store(1, Ordering::Relaxed);
    wire.get_up().expect("not for long yet");
    STATE.store(abi::PORT_ACTIVE, Ordering::Relaxed);
    wire.get_up().expect("it is up again");
    STATE.store(1, Ordering::Relaxed);
    EVENTS.store(1, Ordering::Relaxed);
    wire.get_up().expect("not for long yet");
    std::thread::sleep(std::time::Duration::from_millis(60));
    let error = wire.get_up().expect_err("for long").to_string();
    assert!(error.contains("did not come back within 50 ms"), "{error}");
}

unsafe extern "C" fn cannot_dmabuf(
    _: *mut ProtectionDomain,
    _: u64,
    _: usize,
    _: u64,
    fd: c_int,
    _: c_int,
) -> *mut MemoryRegistration {
    set_errno(if fd == 99 {
        libc::EBADF
    } else {
        libc::EOPNOTSUPP
    });
    nothing()
}

#[test]
fn memory_of_a_gpu_is_refused_with_who_lacks_what() {
    let file = std::fs::File::open("/dev/null").expect("every Linux has it");
    let refused = |wire: Rdma, fd: BorrowedFd<'_>| {
        let memory = GpuMemory::new(
            &wire.device,
            GpuRange {
                fd,
                offset: 0,
                bytes: 4096,
            },
        );
        memory.expect_err("there is no GPU").to_string()
    };
    let old = open_with(|_| ()).expect("it opens");
    let said = refused(old, file.as_fd());
    assert!(said.contains("rdma-core 34"), "{said}");
    let with = || open_with(|library| library.register_dmabuf = Some(cannot_dmabuf));
    let said = refused(with().expect("it opens"), file.as_fd());
    assert!(said.contains("GPUDirect device and Linux 5.12"), "{said}");
    // SAFETY: the number only goes to a function that looks at nothing else.
    let closed = unsafe { BorrowedFd::borrow_raw(99) };
    let said = refused(with().expect("it opens"), closed);
    assert!(
        said.contains("descriptor 99") && said.contains("no dma-buf"),
        "{said}"
    );
}
