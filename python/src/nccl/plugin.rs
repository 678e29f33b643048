//! The plugin of this process, and the functions that NCCL calls, with the shapes of version 12.
//!
//! - The party is opened at the first `init` and lives until the process exits: NCCL may finalize a
//!   communicator and begin the next one.
//! - `connect` is asked again with the same handle until it has a connection. The handle's last
//!   bytes, which NCCL does not touch, hold the number of the attempt.
//! - A request is a pointer into its connection, so that closing a connection frees its requests.
//! - Every pointer comes from NCCL, which promises: arguments are valid for the call, objects are
//!   used until they are closed, and memory of a request until its test is done or its connection
//!   closed.
#![expect(unsafe_code, reason = "NCCL's interface is made of raw pointers")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradwire_collectives::buffer::LentMemory;
use gradwire_runtime::log::{self as rank_log, LogLevel};
use gradwire_runtime::party::{
    PairTicket, Party, PartyDialer, PartyListener, PartyOpening, PartyReceiver, PartySender,
    REQUESTS_MAX, RequestError, RequestNumber,
};

use super::abi::{
    HANDLE_BYTES, Logger, NcclResult, PTR_HOST, ProfilerCallback, PropertiesHead, PropertiesV12,
    REQUESTS, UNDEFINED, WideVirtualDevice,
};
use super::launch::NcclLaunch;
use super::tables::NET_V12;
use super::voice;
use crate::lent::{LentTensor, TensorAccess};

/// The name by which `NCCL_NET` chooses the plugin.
pub(super) const NAME: &CStr = c"gradwire";
/// The first bytes of a handle.
const MAGIC: [u8; 8] = *b"gwnccl\x00\x01";
/// Where a handle has its ticket.
const TICKET_AT: usize = MAGIC.len();
/// Where `connect` keeps the number of its attempt.
const ATTEMPT_AT: usize = HANDLE_BYTES - 8;
/// An attempt to connect that is not asked for this long has been given up.
const ATTEMPT_AGE: Duration = Duration::from_secs(300);
/// Megabits a second of an interface that does not tell its own.
const SPEED: c_int = 10_000;
/// Microseconds; NCCL adds them to each step.
const LATENCY: f32 = 20.0;
/// Connections that NCCL may make.
const CONNECTIONS: c_int = 65_536;
/// Bytes of one message: more than NCCL ever sends.
const MESSAGE_BYTES: usize = 1 << 30;

const _: () = assert!(REQUESTS == REQUESTS_MAX);

/// Why a call fails.
pub(super) struct CallFailure {
    result: NcclResult,
    text: String,
}

impl CallFailure {
    fn new(result: NcclResult, text: impl ToString) -> Self {
        let text = text.to_string();
        Self { result, text }
    }

    fn of_request(error: &RequestError) -> Self {
        let result = match error {
            RequestError::TooLong { .. } | RequestError::Refused { .. } | RequestError::Size(_) => {
                NcclResult::InvalidUsage
            }
            RequestError::Ended | RequestError::Silent(_) | RequestError::Path(_) => {
                NcclResult::RemoteError
            }
            RequestError::Driver(_) => NcclResult::SystemError,
        };
        Self::new(result, error)
    }
}

/// Runs the body of a call. A failure is told in NCCL's log, and so is a panic.
pub(super) fn guarded(call: &str, body: impl FnOnce() -> Result<(), CallFailure>) -> NcclResult {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        let text = "gradwire panicked; the panic is on standard error";
        Err(CallFailure::new(NcclResult::InternalError, text))
    });
    match result {
        Ok(()) => NcclResult::Success,
        Err(CallFailure { result, text }) => {
            voice::warn(&format!("{call}: {text}"));
            result
        }
    }
}

/// The plugin of this process.
struct NcclPlugin {
    party: Arc<Party>,
    interface: CString,
    pci_path: Option<CString>,
    speed: c_int,
    guid: u64,
    attempts: Mutex<Attempts>,
    is_used: AtomicBool,
}

/// Connections that are being made, by the number in their handle.
#[derive(Default)]
struct Attempts {
    last: u64,
    open: BTreeMap<u64, Attempt>,
}

struct Attempt {
    dialer: PartyDialer,
    asked: Instant,
}

static PLUGIN: Mutex<Option<&'static NcclPlugin>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The plugin, which `init` has opened.
fn plugin() -> Result<&'static NcclPlugin, CallFailure> {
    let plugin = *locked(&PLUGIN);
    plugin.ok_or_else(|| CallFailure::new(NcclResult::InvalidUsage, "init has not succeeded"))
}

impl NcclPlugin {
    fn open() -> Result<Self, String> {
        let launch = NcclLaunch::read();
        let level: Result<LogLevel, _> = launch.log.as_deref().unwrap_or("warn").parse();
        let level = level.map_err(|error| format!("GRADWIRE_LOG: {error}"))?;
        // A rank of this process may have chosen a level already.
        if log::max_level() == log::LevelFilter::Off {
            rank_log::start(level);
        }
        let (interface, bind) = launch.interface()?;
        let (job, token) = (launch.job()?, launch.token()?);
        if let Some(warning) = job.security_warning() {
            voice::warn(&warning);
        }
        let opening = PartyOpening { job, bind, token };
        let party = Party::open(opening).map_err(|error| error.to_string())?;
        if !launch.names_protocols {
            // SAFETY: NCCL calls init before it reads this variable, and reads it on this thread.
            // Threads of other libraries that change the environment meanwhile race with NCCL's
            // own reading, too.
            unsafe { std::env::set_var("NCCL_PROTO", "Simple") };
        }
        let device = std::fs::canonicalize(format!("/sys/class/net/{interface}/device"));
        let device = device
            .ok()
            .and_then(|path| path.to_str().map(str::to_owned));
        let plugin = Self {
            guid: guid(bind),
            speed: speed(&interface),
            pci_path: device.and_then(|path| CString::new(path).ok()),
            interface: CString::new(interface).map_err(|error| error.to_string())?,
            attempts: Mutex::default(),
            is_used: AtomicBool::new(false),
            party,
        };
        voice::note(&plugin.line(&launch));
        Ok(plugin)
    }

    /// The line that says that the plugin is loaded.
    fn line(&self, launch: &NcclLaunch) -> String {
        let security = self.party.job().protection();
        let trust = match self.party.has_token() {
            true => "by token",
            false => "without a token: set GRADWIRE_TOKEN_FILE where others reach the network",
        };
        let protocols = match launch.names_protocols {
            true => "as NCCL_PROTO says; only Simple is safe",
            false => "Simple",
        };
        format!(
            "gradwire {} is loaded: interface {} ({}), security {security}, connections {trust}, \
             NCCL's protocols {protocols}",
            env!("CARGO_PKG_VERSION"),
            self.interface.to_string_lossy(),
            self.party.address(),
        )
    }

    fn properties(&self) -> PropertiesV12 {
        PropertiesV12 {
            head: PropertiesHead {
                name: self.interface.as_ptr(),
                pci_path: self
                    .pci_path
                    .as_ref()
                    .map_or(ptr::null(), |path| path.as_ptr()),
                guid: self.guid,
                ptr_support: PTR_HOST,
                reg_is_global: 1,
                force_flush: 0,
                speed: self.speed,
                port: 0,
                latency: LATENCY,
                max_comms: CONNECTIONS,
                max_recvs: 1,
                net_device_type: 0,
                net_device_version: 0,
            },
            virtual_device: WideVirtualDevice {
                ndevs: 1,
                ..WideVirtualDevice::default()
            },
            max_p2p_bytes: MESSAGE_BYTES,
            max_coll_bytes: MESSAGE_BYTES,
            max_multi_request_size: 1,
            rail_id: UNDEFINED,
            plane_id: UNDEFINED,
        }
    }

    /// The connection to the listener of a handle, if it is made.
    fn connect(&self, handle: &mut [u8; HANDLE_BYTES]) -> Result<Option<PartySender>, CallFailure> {
        let remote = |error| CallFailure::new(NcclResult::RemoteError, error);
        let (head, attempt) = handle.split_at_mut(ATTEMPT_AT);
        let number = u64::from_le_bytes((&*attempt).try_into().expect("8 bytes"));
        let now = now();
        let mut attempts = locked(&self.attempts);
        attempts
            .open
            .retain(|_, attempt| now - attempt.asked < ATTEMPT_AGE);
        let mut dialer = match attempts.open.remove(&number) {
            Some(begun) => begun.dialer,
            None => self.party.dial(&ticket(head)?).map_err(remote)?,
        };
        attempt.fill(0);
        let connected = dialer.poll().map_err(remote)?;
        if connected.is_none() {
            attempts.last += 1;
            let number = attempts.last;
            attempt.copy_from_slice(&number.to_le_bytes());
            let begun = Attempt { dialer, asked: now };
            attempts.open.insert(number, begun);
        }
        Ok(connected)
    }

    /// Says once that NCCL uses the plugin.
    fn note_use(&self) {
        if !self.is_used.swap(true, Ordering::Relaxed) {
            voice::note("gradwire is in use: the first connection of this process is made");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how old an attempt is is no matter of the protocol"
)]
fn now() -> Instant {
    Instant::now()
}

fn ticket(handle: &[u8]) -> Result<PairTicket, CallFailure> {
    if handle[..TICKET_AT] != MAGIC {
        let text = "the handle is not one of this plugin's: use gradwire on all hosts";
        return Err(CallFailure::new(NcclResult::InvalidArgument, text));
    }
    let ticket = &handle[TICKET_AT..TICKET_AT + PairTicket::BYTES];
    Ok(PairTicket::from_bytes(
        ticket.try_into().expect("its length"),
    ))
}

fn speed(interface: &str) -> c_int {
    let told = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed"));
    let told = told.ok().and_then(|text| text.trim().parse().ok());
    told.filter(|&speed| speed > 0).unwrap_or(SPEED)
}

/// A number of the device that no other host has.
fn guid(address: IpAddr) -> u64 {
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// NCCL's `listenComm`.
struct NcclListener(Mutex<PartyListener>);

/// NCCL's `sendComm` and `recvComm`.
struct NcclConnection {
    end: Mutex<NcclEnd>,
    tickets: Vec<RequestTicket>,
}

enum NcclEnd {
    Sends(PartySender),
    Receives(PartyReceiver),
}

/// NCCL's `request`.
struct RequestTicket {
    connection: *const NcclConnection,
    number: usize,
}

impl NcclConnection {
    /// A connection as NCCL holds it.
    fn leaked(end: NcclEnd) -> *mut c_void {
        let connection = Box::into_raw(Box::new(Self {
            end: Mutex::new(end),
            tickets: Vec::new(),
        }));
        let ticket = |number| RequestTicket { connection, number };
        // SAFETY: it was made above, and no one else has it yet.
        unsafe { (*connection).tickets.extend((0..REQUESTS).map(ticket)) };
        connection.cast()
    }

    fn ticket(&self, RequestNumber(number): RequestNumber) -> *mut c_void {
        ptr::from_ref(&self.tickets[number]).cast_mut().cast()
    }
}

/// Makes sure that NCCL does not unload this library: it has threads.
fn stay_loaded() {
    let mut found = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let own: *const c_void = ptr::from_ref(&NET_V12).cast();
    let flags = libc::RTLD_NOLOAD | libc::RTLD_NODELETE | libc::RTLD_NOW;
    // SAFETY: the address is of this library, and the path that `dladdr` finds ends with zero.
    unsafe {
        if libc::dladdr(own, &mut found) != 0 {
            libc::dlopen(found.dli_fname, flags);
        }
    }
}

/// Opens the plugin, or finds it open.
pub(super) fn initialize(logger: Logger) -> Result<(), CallFailure> {
    voice::hear(logger);
    let mut plugin = locked(&PLUGIN);
    if plugin.is_none() {
        stay_loaded();
        let opened = NcclPlugin::open().map_err(|text| {
            let text = format!("gradwire cannot be used: {text}");
            CallFailure::new(NcclResult::SystemError, text)
        })?;
        *plugin = Some(Box::leak(Box::new(opened)));
    }
    Ok(())
}

/// The properties of the device with this number.
pub(super) fn properties_of(dev: c_int) -> Result<PropertiesV12, CallFailure> {
    match dev {
        0 => Ok(plugin()?.properties()),
        _ => Err(CallFailure::new(
            NcclResult::InvalidArgument,
            format!("device {dev}: there is one, with number 0"),
        )),
    }
}

/// `init`.
pub(super) unsafe extern "C" fn init(
    ctx: *mut *mut c_void,
    _comm_id: u64,
    _config: *mut c_void,
    logger: Logger,
    _profiler: ProfilerCallback,
) -> NcclResult {
    guarded("init", || {
        initialize(logger)?;
        // SAFETY: NCCL gives a place for the context.
        unsafe { *ctx = NAME.as_ptr().cast_mut().cast() };
        Ok(())
    })
}

/// `devices`.
pub(super) unsafe extern "C" fn devices(ndev: *mut c_int) -> NcclResult {
    guarded("devices", || {
        // SAFETY: NCCL gives a place for the count.
        unsafe { *ndev = c_int::from(plugin().is_ok()) };
        Ok(())
    })
}

/// `listen`.
pub(super) unsafe extern "C" fn listen(
    _ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    listen_comm: *mut *mut c_void,
) -> NcclResult {
    guarded("listen", || {
        properties_of(dev)?;
        let listener = plugin()?.party.listen();
        let listener =
            listener.map_err(|error| CallFailure::new(NcclResult::SystemError, error))?;
        // SAFETY: NCCL gives 128 bytes for the handle, and a place for the listener.
        let (handle, place) =
            unsafe { (&mut *handle.cast::<[u8; HANDLE_BYTES]>(), &mut *listen_comm) };
        handle.fill(0);
        handle[..TICKET_AT].copy_from_slice(&MAGIC);
        let ticket = listener.ticket().to_bytes();
        handle[TICKET_AT..TICKET_AT + ticket.len()].copy_from_slice(&ticket);
        *place = Box::into_raw(Box::new(NcclListener(Mutex::new(listener)))).cast();
        Ok(())
    })
}

/// `connect`.
pub(super) unsafe extern "C" fn connect(
    _ctx: *mut c_void,
    dev: c_int,
    handle: *mut c_void,
    send_comm: *mut *mut c_void,
    _device: *mut *mut c_void,
) -> NcclResult {
    guarded("connect", || {
        // SAFETY: NCCL gives the 128 bytes of a handle, and a place for the connection.
        let (handle, place) =
            unsafe { (&mut *handle.cast::<[u8; HANDLE_BYTES]>(), &mut *send_comm) };
        *place = ptr::null_mut();
        properties_of(dev)?;
        if let Some(sender) = plugin()?.connect(handle)? {
            *place = NcclConnection::leaked(NcclEnd::Sends(sender));
            plugin()?.note_use();
        }
        Ok(())
    })
}

/// `accept`.
pub(super) unsafe extern "C" fn accept(
    listen_comm: *mut c_void,
    recv_comm: *mut *mut c_void,
    _device: *mut *mut c_void,
) -> NcclResult {
    guarded("accept", || {
        // SAFETY: NCCL gives a listener of `listen`, and a place for the connection.
        let (listener, place) = unsafe { (&*listen_comm.cast::<NcclListener>(), &mut *recv_comm) };
        *place = ptr::null_mut();
        let accepted = locked(&listener.0).accept();
        let accepted =
            accepted.map_err(|error| CallFailure::new(NcclResult::SystemError, error))?;
        if let Some(receiver) = accepted {
            *place = NcclConnection::leaked(NcclEnd::Receives(receiver));
            plugin()?.note_use();
        }
        Ok(())
    })
}

/// `regMr`.
pub(super) unsafe extern "C" fn reg_mr(
    comm: *mut c_void,
    _data: *mut c_void,
    _size: usize,
    kind: c_int,
    mhandle: *mut *mut c_void,
) -> NcclResult {
    guarded("regMr", || {
        if kind != PTR_HOST {
            let text = format!(
                "memory of type {kind}: this plugin takes host memory (type {PTR_HOST}), and NCCL \
                 stages that of devices"
            );
            return Err(CallFailure::new(NcclResult::InvalidArgument, text));
        }
        // Host memory needs no registration: any handle serves.
        // SAFETY: NCCL gives a place for the handle.
        unsafe { *mhandle = comm };
        Ok(())
    })
}

/// `deregMr`.
pub(super) unsafe extern "C" fn dereg_mr(_comm: *mut c_void, _mhandle: *mut c_void) -> NcclResult {
    NcclResult::Success
}

/// `isend`.
pub(super) unsafe extern "C" fn isend(
    send_comm: *mut c_void,
    data: *mut c_void,
    size: usize,
    _tag: c_int,
    _mhandle: *mut c_void,
    _phandle: *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guarded("isend", || {
        // SAFETY: NCCL gives a connection of `connect`, and a place for the request.
        let (connection, place) = unsafe { (&*send_comm.cast::<NcclConnection>(), &mut *request) };
        *place = ptr::null_mut();
        // SAFETY: NCCL does not change the memory before the request is done, or closed.
        let memory = unsafe { lent(data, size, TensorAccess::Read) }?;
        let NcclEnd::Sends(sender) = &mut *locked(&connection.end) else {
            let text = "this connection receives: isend takes one of connect";
            return Err(CallFailure::new(NcclResult::InvalidUsage, text));
        };
        let number = sender.send(memory);
        let number = number.map_err(|error| CallFailure::of_request(&error))?;
        *place = number.map_or(ptr::null_mut(), |number| connection.ticket(number));
        Ok(())
    })
}

/// # Safety
/// The memory is valid until its request is done or closed, and used by no one else meanwhile but
/// for reading, if the request reads it.
unsafe fn lent(
    data: *mut c_void,
    size: usize,
    access: TensorAccess,
) -> Result<Box<dyn LentMemory>, CallFailure> {
    // SAFETY: as the caller guarantees.
    match unsafe { LentTensor::new(data.cast(), size, access) } {
        Some(memory) => Ok(Box::new(memory)),
        None => {
            let text = format!("{size} bytes at address 0");
            Err(CallFailure::new(NcclResult::InvalidArgument, text))
        }
    }
}

/// `irecv`.
pub(super) unsafe extern "C" fn irecv(
    recv_comm: *mut c_void,
    n: c_int,
    data: *mut *mut c_void,
    sizes: *mut usize,
    _tags: *mut c_int,
    _mhandles: *mut *mut c_void,
    _phandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    guarded("irecv", || {
        // SAFETY: NCCL gives a connection of `accept`, and a place for the request.
        let (connection, place) = unsafe { (&*recv_comm.cast::<NcclConnection>(), &mut *request) };
        *place = ptr::null_mut();
        if n != 1 {
            let text = format!("{n} receives in one call: this plugin takes 1 (maxRecvs)");
            return Err(CallFailure::new(NcclResult::InvalidUsage, text));
        }
        // SAFETY: NCCL gives one address and one size, and does not use the memory before the
        // request is done, or closed.
        let memory = unsafe { lent(*data, *sizes, TensorAccess::Change) }?;
        let NcclEnd::Receives(receiver) = &mut *locked(&connection.end) else {
            let text = "this connection sends: irecv takes one of accept";
            return Err(CallFailure::new(NcclResult::InvalidUsage, text));
        };
        let number = receiver.receive(memory);
        let number = number.map_err(|error| CallFailure::of_request(&error))?;
        *place = number.map_or(ptr::null_mut(), |number| connection.ticket(number));
        Ok(())
    })
}

/// `iflush`: host memory needs none.
pub(super) unsafe extern "C" fn iflush(
    _recv_comm: *mut c_void,
    _n: c_int,
    _data: *mut *mut c_void,
    _sizes: *mut c_int,
    _mhandles: *mut *mut c_void,
    request: *mut *mut c_void,
) -> NcclResult {
    // SAFETY: NCCL gives a place for the request; null means that it is done.
    unsafe { *request = ptr::null_mut() };
    NcclResult::Success
}

/// `test`.
pub(super) unsafe extern "C" fn test(
    request: *mut c_void,
    done: *mut c_int,
    sizes: *mut c_int,
) -> NcclResult {
    guarded("test", || {
        // SAFETY: NCCL gives a request that is not done yet, of a connection that is not closed,
        // and a place for the outcome.
        let (ticket, done) = unsafe { (&*request.cast::<RequestTicket>(), &mut *done) };
        *done = 0;
        // SAFETY: as above.
        let connection = unsafe { &*ticket.connection };
        let number = RequestNumber(ticket.number);
        let length = match &mut *locked(&connection.end) {
            NcclEnd::Sends(sender) => sender.test(number),
            NcclEnd::Receives(receiver) => receiver.test(number),
        };
        let length = length.map_err(|error| CallFailure::of_request(&error))?;
        if let Some(length) = length {
            *done = 1;
            // SAFETY: NCCL gives null or a place for one size.
            if let Some(size) = unsafe { sizes.as_mut() } {
                *size = c_int::try_from(length).unwrap_or(c_int::MAX);
            }
        }
        Ok(())
    })
}

/// `closeSend` and `closeRecv`.
pub(super) unsafe extern "C" fn close(comm: *mut c_void) -> NcclResult {
    guarded("close", || {
        // SAFETY: NCCL gives a connection, and does not use it any more.
        drop(unsafe { Box::from_raw(comm.cast::<NcclConnection>()) });
        Ok(())
    })
}

/// `closeListen`.
pub(super) unsafe extern "C" fn close_listen(listen_comm: *mut c_void) -> NcclResult {
    guarded("closeListen", || {
        // SAFETY: NCCL gives a listener, and does not use it any more.
        drop(unsafe { Box::from_raw(listen_comm.cast::<NcclListener>()) });
        Ok(())
    })
}

/// `finalize`: the party lives on.
pub(super) unsafe extern "C" fn finalize(_ctx: *mut c_void) -> NcclResult {
    NcclResult::Success
}

/// The name as a field of a table.
pub(super) const fn name() -> *const c_char {
    NAME.as_ptr()
}
