//! The symbols by which NCCL tells its collectives and messages: with `GRADWIRE_EVENTS` set to a
//! folder, each rank writes its events there (`profile`).
//!
//! The communicator that is recorded is the first of a process with several ranks, which PyTorch
//! makes for the whole job. NCCL does not say which ranks of the job a smaller one has. The
//! recorded communicator need not use gradwire's net plugin.
//!
//! NCCL's handles are numbers here, never read as addresses.
#![expect(unsafe_code, reason = "NCCL's interface is made of raw pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::abi::{Logger, NcclResult};
use super::launch::NcclLaunch;
use super::plugin::{self, guarded};
use super::profile::{MessageProgress, MessageWay, NcclProfile, ProfiledWork};
use super::voice;

/// `ncclProfileColl`, `ncclProfileProxyOp` and `ncclProfileProxyStep`.
const COLLECTIVE: u8 = 1 << 1;
const OPERATION: u8 = 1 << 3;
const STEP: u8 = 1 << 4;
/// `ncclProfilerProxyStepSendWait`: the message was given to the net plugin.
const SEND_WAIT: c_int = 9;
/// `ncclProfilerProxyStepRecvWait`: its memory was posted.
const RECEIVE_WAIT: c_int = 10;
/// `ncclProfilerProxyStepRecvFlushWait`: it has arrived.
const RECEIVED: c_int = 11;

type Place = *mut *mut c_void;
type InitV4 = unsafe extern "C" fn(
    Place,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Logger,
) -> NcclResult;
type InitV5 = unsafe extern "C" fn(
    Place,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Logger,
) -> NcclResult;
type Start = unsafe extern "C" fn(*mut c_void, Place, *const EventHead) -> NcclResult;
type Stop = unsafe extern "C" fn(*mut c_void) -> NcclResult;
type Record = unsafe extern "C" fn(*mut c_void, c_int, *const usize) -> NcclResult;

/// The fields that every event has. Their place in a descriptor is the same in versions 4 to 6: the
/// kind is one byte in version 4, and eight later, of which the first tells the kinds from each
/// other that are recorded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct EventHead {
    kind: u8,
    parent: *mut c_void,
    rank: c_int,
}

/// A collective's descriptor, as far as it is read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct CollectiveDescriptor {
    head: EventHead,
    sequence: u64,
    function: *const c_char,
    send_buffer: *const c_void,
    receive_buffer: *mut c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
}

/// A proxy operation's descriptor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct OperationDescriptor {
    head: EventHead,
    process: c_int,
    channel: u8,
    peer: c_int,
    steps: c_int,
    chunk_bytes: c_int,
    is_send: c_int,
}

/// A proxy step's descriptor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct StepDescriptor {
    head: EventHead,
    step: c_int,
}

/// A name and five functions.
#[derive(Debug)]
#[repr(C)]
pub struct ProfilerTable<Init> {
    name: *const c_char,
    init: Init,
    start: Start,
    stop: Stop,
    record: Record,
    end: Stop,
}

// SAFETY: the table never changes, and its name is a literal.
unsafe impl<Init> Sync for ProfilerTable<Init> {}

/// `ncclProfiler_v4_t`.
pub type ProfilerTableV4 = ProfilerTable<InitV4>;
/// `ncclProfiler_v5_t` and `ncclProfiler_v6_t`.
pub type ProfilerTableV5 = ProfilerTable<InitV5>;

/// A table with this start.
macro_rules! profiler {
    ($init:path) => {
        ProfilerTable {
            name: plugin::name(),
            init: $init,
            start,
            stop,
            record,
            end,
        }
    };
}

/// NCCL 2.27 looks for this symbol.
#[unsafe(export_name = "ncclProfiler_v4")]
pub static PROFILER_V4: ProfilerTableV4 = profiler!(init_v4);
/// NCCL 2.28 looks for this symbol.
#[unsafe(export_name = "ncclProfiler_v5")]
pub static PROFILER_V5: ProfilerTableV5 = profiler!(init_v5);
/// NCCL 2.29 and later look for this symbol.
#[unsafe(export_name = "ncclProfiler_v6")]
pub static PROFILER_V6: ProfilerTableV5 = profiler!(init_v5);

/// The recording of this process.
enum Recording {
    /// No communicator has asked.
    Unasked,
    /// One is recorded.
    Open(NcclProfile),
    /// Its file is written.
    Written,
}

static RECORDING: Mutex<Recording> = Mutex::new(Recording::Unasked);

/// Works with the open recording, if there is one.
fn recorded<T>(work: impl FnOnce(&mut NcclProfile) -> Option<T>) -> Option<T> {
    let mut recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *recording {
        Recording::Open(profile) => work(profile),
        Recording::Unasked | Recording::Written => None,
    }
}

/// The host's clock, in microseconds, by the process's clock since the first call.
#[expect(
    clippy::disallowed_methods,
    reason = "NCCL calls from threads of its own: events have the time of their call"
)]
fn micros() -> f64 {
    static FIRST: OnceLock<(Instant, f64)> = OnceLock::new();
    let &(since, first) = FIRST.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        (Instant::now(), now.unwrap_or_default().as_secs_f64() * 1e6)
    });
    first + since.elapsed().as_secs_f64() * 1e6
}

fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname");
    told.map_or_else(|_| "host".to_owned(), |name| name.trim().to_owned())
}

/// Begins the recording if the environment asks for it and no communicator is recorded; gives the
/// kinds of events that NCCL is to tell.
fn begin(ranks: (c_int, c_int), run: u64) -> c_int {
    let mut recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = NcclLaunch::read().events;
    let (Recording::Unasked, Some(folder), true) = (&*recording, folder, ranks.1 > 1) else {
        return 0;
    };
    voice::note(&format!("events of NCCL are recorded for {folder}"));
    let mut profile = NcclProfile::new(PathBuf::from(folder), host(), ranks);
    profile.run = (run ^ (run >> 32)) as u32;
    *recording = Recording::Open(profile);
    c_int::from(COLLECTIVE | OPERATION | STEP)
}

unsafe extern "C" fn init_v4(
    out: Place,
    mask: *mut c_int,
    _name: *const c_char,
    comm_id: u64,
    _hosts: c_int,
    ranks: c_int,
    rank: c_int,
    logger: Logger,
) -> NcclResult {
    guarded("profiler init", || {
        voice::hear(logger);
        let kinds = begin((rank, ranks), comm_id);
        // SAFETY: NCCL gives places for both.
        unsafe {
            *mask = kinds;
            *out = ptr::without_provenance_mut(usize::from(kinds != 0));
        }
        Ok(())
    })
}

unsafe extern "C" fn init_v5(
    out: Place,
    comm_id: u64,
    mask: *mut c_int,
    name: *const c_char,
    hosts: c_int,
    ranks: c_int,
    rank: c_int,
    logger: Logger,
) -> NcclResult {
    // SAFETY: as NCCL promises for this version's function.
    unsafe { init_v4(out, mask, name, comm_id, hosts, ranks, rank, logger) }
}

unsafe extern "C" fn start(held: *mut c_void, out: Place, event: *const EventHead) -> NcclResult {
    guarded("profiler startEvent", || {
        // SAFETY: NCCL gives a descriptor of the kind that its first byte names, and a place.
        let (work, parent) = unsafe {
            *out = ptr::null_mut();
            (work(event), (*event).parent.addr())
        };
        let now = micros();
        let number = match work {
            Some(work) if !held.is_null() => recorded(|profile| profile.begin(work, parent, now)),
            _ => None,
        };
        if let Some(number) = number {
            // SAFETY: as above.
            unsafe { *out = ptr::without_provenance_mut(number) };
        }
        Ok(())
    })
}

/// The subject of a descriptor; `None` if that is not recorded.
///
/// # Safety
/// The descriptor is of the kind that its first byte names.
unsafe fn work(event: *const EventHead) -> Option<ProfiledWork> {
    // SAFETY: the caller guarantees the kind of the descriptor.
    unsafe {
        match (*event).kind {
            COLLECTIVE => {
                let told = &*event.cast::<CollectiveDescriptor>();
                collective(told, &text(told.function), &text(told.datatype))
            }
            OPERATION => {
                let told = &*event.cast::<OperationDescriptor>();
                // The events of another process have numbers of that one.
                let is_own = told.process == c_int::try_from(std::process::id()).unwrap_or(-1);
                is_own.then_some(ProfiledWork::Operation {
                    channel: told.channel,
                    peer: told.peer,
                    way: match told.is_send {
                        0 => MessageWay::In,
                        _ => MessageWay::Out,
                    },
                })
            }
            STEP => {
                let step = (*event.cast::<StepDescriptor>()).step;
                Some(ProfiledWork::Message { step, bytes: 0 })
            }
            _ => None,
        }
    }
}

fn collective(told: &CollectiveDescriptor, function: &str, datatype: &str) -> Option<ProfiledWork> {
    let kind = match function {
        "AllReduce" => "all_reduce",
        "ReduceScatter" => "reduce_scatter",
        "AllGather" => "all_gather",
        "AlltoAll" => "all_to_all",
        "Broadcast" => "broadcast",
        "Reduce" => "reduce",
        _ => return None,
    };
    let blocks = match kind {
        // NCCL counts a rank's block of these.
        "reduce_scatter" | "all_gather" | "all_to_all" => {
            recorded(|profile| Some(profile.world_size))
        }
        _ => Some(1),
    };
    let elements = told.count as u64 * u64::try_from(blocks?).unwrap_or(1);
    Some(ProfiledWork::Collective {
        sequence: told.sequence,
        kind,
        bytes: elements * element_bytes(datatype),
        root: matches!(kind, "broadcast" | "reduce").then_some(told.root),
    })
}

/// Bytes of an element, by the name that NCCL gives its type.
fn element_bytes(datatype: &str) -> u64 {
    let bits: String = datatype.chars().filter(char::is_ascii_digit).collect();
    match bits.as_str() {
        "64" => 8,
        "32" => 4,
        "16" => 2,
        _ => 1,
    }
}

/// # Safety
/// The text is null or ends with zero.
unsafe fn text(given: *const c_char) -> String {
    if given.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees the zero.
    let text = unsafe { CStr::from_ptr(given) };
    text.to_string_lossy().into_owned()
}

unsafe extern "C" fn stop(event: *mut c_void) -> NcclResult {
    guarded("profiler stopEvent", || {
        let now = micros();
        recorded(|profile| {
            profile.end(event.addr(), now);
            Some(())
        });
        Ok(())
    })
}

unsafe extern "C" fn record(event: *mut c_void, state: c_int, args: *const usize) -> NcclResult {
    guarded("profiler recordEventState", || {
        let progress = match state {
            SEND_WAIT | RECEIVE_WAIT => MessageProgress::Begun,
            RECEIVED => MessageProgress::Arrived,
            _ => return Ok(()),
        };
        // SAFETY: the arguments of these states begin with the length, if there are any.
        let length = unsafe { args.as_ref() }.map_or(0, |&length| length as u64);
        // The length of a message in is known when it has arrived.
        let length = if state == RECEIVE_WAIT { 0 } else { length };
        let now = micros();
        recorded(|profile| {
            profile.progress(event.addr(), progress, (length, now));
            Some(())
        });
        Ok(())
    })
}

unsafe extern "C" fn end(held: *mut c_void) -> NcclResult {
    guarded("profiler finalize", || {
        if held.is_null() {
            return Ok(());
        }
        let mut recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Recording::Open(profile) = &*recording {
            match profile.write() {
                Ok(path) => voice::note(&format!("events of NCCL are in {}", path.display())),
                Err(error) => {
                    let folder = profile.folder.display();
                    voice::warn(&format!("GRADWIRE_EVENTS {folder}: {error}"));
                }
            }
            *recording = Recording::Written;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn descriptors_have_the_layout_of_nccl() {
        assert_eq!(offset_of!(EventHead, parent), 8);
        assert_eq!(offset_of!(EventHead, rank), 16);
        assert_eq!(offset_of!(CollectiveDescriptor, sequence), 24);
        assert_eq!(offset_of!(CollectiveDescriptor, function), 32);
        assert_eq!(offset_of!(CollectiveDescriptor, count), 56);
        assert_eq!(offset_of!(CollectiveDescriptor, root), 64);
        assert_eq!(offset_of!(CollectiveDescriptor, datatype), 72);
        assert_eq!(offset_of!(OperationDescriptor, process), 24);
        assert_eq!(offset_of!(OperationDescriptor, channel), 28);
        assert_eq!(offset_of!(OperationDescriptor, peer), 32);
        assert_eq!(offset_of!(OperationDescriptor, is_send), 44);
        assert_eq!(offset_of!(StepDescriptor, step), 24);
        assert_eq!(size_of::<ProfilerTableV4>(), 48);
        assert_eq!(size_of::<ProfilerTableV5>(), 48);
    }

    #[test]
    fn elements_have_the_size_that_their_name_says() {
        let names = ["ncclInt8", "ncclBfloat16", "ncclFloat32", "ncclUint64"];
        assert_eq!(names.map(element_bytes), [1, 2, 4, 8]);
        assert_eq!(element_bytes("ncclFloat8e4m3"), 1);
    }
}
