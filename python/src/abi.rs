//! The entry points of `gradwire.h`. The header documents each of them.
//!
//! - No panic crosses the boundary: `guarded` turns it into an error.
//! - A null rank is an error, not a crash.
//! - The header states the safety rules of every entry point: pointers are null or valid for the
//!   lengths given with them, strings end with zero, and `gw_close` is the last use of a rank.
#![expect(unsafe_code, reason = "a C interface is made of raw pointers")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header and the module state it once for all entry points"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gradwire_collectives::holes::Hole;
use gradwire_protocol::job::Job;
use gradwire_protocol::units::Rank;
use gradwire_runtime::log::{self, LogLevel};
use gradwire_runtime::tuner::SchedulePoint;
use gradwire_runtime::{
    CertificateFiles, EndError, EndedOperation, LocalRank, OpenRank, Opening, Ticket,
};

use crate::layout::{GwCounters, GwCredentials, GwDone, GwHole, GwOpening, GwOperation};
use crate::{operation, termination, text};

/// The longest time that `gw_join` waits, in seconds. Longer timeouts are cut to it.
const JOIN_SECONDS_MAX: f64 = 86_400.0;

/// `gw_rank`: a rank from `gw_open` to `gw_close`.
#[derive(Debug)]
pub struct GwRank {
    /// The process that opened the rank. A fork of it has the memory, but not the threads.
    process: u32,
    job: Job,
    rendezvous: String,
    /// Whether its flight recorder is written to a folder.
    is_traced: bool,
    stage: Mutex<Stage>,
}

/// The progress of a rank.
#[derive(Debug)]
enum Stage {
    Open(Box<OpenRank>),
    Joining,
    Joined(Arc<LocalRank>),
}

impl GwRank {
    /// Refuses a fork of the process that opened the rank. Two processes that send as one rank
    /// would corrupt the sums of the others, and encrypt twice with one nonce.
    fn own_process(&self) -> Result<(), String> {
        let (here, opened) = (std::process::id(), self.process);
        if here == opened {
            return Ok(());
        }
        Err(format!(
            "process {here} is a fork of process {opened}, which opened this rank: a fork cannot \
             take part in the job; start workers by spawn or forkserver, or create the process \
             group after the fork"
        ))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rank once it has joined its job.
    pub(crate) fn joined(&self) -> Option<Arc<LocalRank>> {
        match &*self.stage() {
            Stage::Joined(rank) => Some(Arc::clone(rank)),
            Stage::Open(_) | Stage::Joining => None,
        }
    }
}

/// Where an entry point writes its error.
#[derive(Clone, Copy)]
pub(crate) struct ErrorOut {
    out: *mut c_char,
    room: usize,
}

impl ErrorOut {
    /// The buffer of `room` bytes that a caller gives.
    pub(crate) const fn new(out: *mut c_char, room: usize) -> Self {
        Self { out, room }
    }
}

/// Runs the body of an entry point; an error or a panic is written to `error` and gives `None`.
pub(crate) fn guarded<T>(error: ErrorOut, body: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err("gradwire panicked; the panic is on standard error".to_owned()));
    result
        .map_err(|message| {
            // SAFETY: the caller of the entry point guarantees the error buffer.
            unsafe { text::write(&message.replace('\n', " "), error.out, error.room) }
        })
        .ok()
}

const NO_ERROR_TEXT: ErrorOut = ErrorOut {
    out: std::ptr::null_mut(),
    room: 0,
};

/// The rank behind a pointer that may be null, for the process that opened it.
///
/// # Safety
/// `rank` is null or came from `gw_open` and was not closed.
pub(crate) unsafe fn borrowed<'a>(rank: *const GwRank) -> Result<&'a GwRank, String> {
    // SAFETY: the caller guarantees that the pointer is valid.
    let rank = unsafe { rank.as_ref() }.ok_or("the rank is null")?;
    rank.own_process()?;
    Ok(rank)
}

/// The rank behind a pointer, which must have joined its job.
///
/// # Safety
/// As [`borrowed`].
pub(crate) unsafe fn joined(rank: *const GwRank) -> Result<Arc<LocalRank>, String> {
    // SAFETY: the caller guarantees that the pointer is valid.
    let rank = unsafe { borrowed(rank) }?;
    rank.joined()
        .ok_or_else(|| "this rank has not joined its job: call gw_join first".to_owned())
}

/// See `gw_open` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_open(
    opening: *const GwOpening,
    error: *mut c_char,
    error_len: usize,
) -> *mut GwRank {
    let out = ErrorOut::new(error, error_len);
    // SAFETY: the header requires null or a valid opening with strings that end with zero.
    let opened = guarded(out, || unsafe {
        opened(opening.as_ref().ok_or("the opening is null")?)
    });
    opened.map_or(std::ptr::null_mut(), |rank| Box::into_raw(Box::new(rank)))
}

/// # Safety
/// Every pointer in `opening` is null or a string that ends with zero.
unsafe fn opened(opening: &GwOpening) -> Result<GwRank, String> {
    // SAFETY: the caller guarantees that the strings are valid.
    let (job_path, level, folder, host, (token, certificates)) = unsafe {
        (
            text::read_if_any(opening.job_path, "the job's path")?,
            text::read_if_any(opening.log_level, "the log level")?,
            text::read_if_any(opening.trace_folder, "the trace folder")?,
            text::read(opening.bind_host, "the host to bind")?,
            read_credentials(&opening.credentials)?,
        )
    };
    let level: LogLevel = level
        .unwrap_or("info")
        .parse()
        .map_err(|error| format!("GRADWIRE_LOG: {error}"))?;
    log::start(level);
    let number = |value: u32, name: &str| {
        u16::try_from(value).map_err(|_| format!("{name} {value}: allowed are 0 to 65535"))
    };
    let rank = Rank(number(opening.rank, "rank")?);
    let open = OpenRank::open(Opening {
        job: job_path.map_or_else(|| Ok(Job::default()), read_job)?,
        rank,
        world_size: number(opening.world, "world size")?,
        bind: host.parse().map_err(|_| {
            format!("host {host:?} is not an IP address: give an IP address of this host")
        })?,
        port: number(opening.port, "port")?,
        token,
        certificates,
    });
    let open = open
        .map_err(|error| error.to_string())?
        .with_local_rank(u16::try_from(opening.local_rank).ok())
        .with_trace_folder(folder.map(PathBuf::from));
    if let Some(warning) = open.job().security_warning().filter(|_| rank == Rank(0)) {
        ::log::warn!("{warning}");
    }
    let rendezvous = open
        .rendezvous()
        .map_or_else(String::new, |address| address.to_string());
    Ok(GwRank {
        process: std::process::id(),
        job: open.job().clone(),
        rendezvous,
        is_traced: folder.is_some(),
        stage: Mutex::new(Stage::Open(Box::new(open))),
    })
}

/// The token, and the files of the certificates if there are any.
///
/// # Safety
/// Every pointer in `credentials` is null or a string that ends with zero.
unsafe fn read_credentials(
    credentials: &GwCredentials,
) -> Result<(String, Option<CertificateFiles>), String> {
    let path = |file: *const c_char, name: &str| {
        // SAFETY: the caller guarantees that the string is valid.
        let path = unsafe { text::read_if_any(file, name) }?;
        Ok::<_, String>(path.map(PathBuf::from))
    };
    let certificates = CertificateFiles::all_or_none(
        path(credentials.certificate, "the certificate's path")?,
        path(credentials.key, "the key's path")?,
        path(credentials.authority, "the authority's path")?,
    );
    // SAFETY: the caller guarantees that the string is valid.
    let token = unsafe { text::read(credentials.token, "the token") }?;
    let certificates = certificates.map_err(|error| error.to_string())?;
    if token.is_empty() && certificates.is_none() {
        return Err(
            "the token is empty: give a secret that all ranks share, or certificates".to_owned(),
        );
    }
    Ok((token.to_owned(), certificates))
}

pub(crate) fn read_job(path: &str) -> Result<Job, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Job::from_toml(&text).map_err(|error| format!("{path}: {error}"))
}

/// See `gw_rendezvous` in the header. On ranks other than 0 the text is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_rendezvous(rank: *mut GwRank, out: *mut c_char, len: usize) -> usize {
    // SAFETY: the header requires a valid rank and buffer.
    guarded(NO_ERROR_TEXT, || unsafe {
        Ok(text::write(&borrowed(rank)?.rendezvous, out, len))
    })
    .unwrap_or(0)
}

/// See `gw_join` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_join(
    rank: *mut GwRank,
    rendezvous: *const c_char,
    timeout_seconds: f64,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let joined = guarded(ErrorOut::new(error, error_len), || {
        // SAFETY: the header requires a valid rank and strings that end with zero.
        let (rank, rendezvous) =
            unsafe { (borrowed(rank)?, text::read(rendezvous, "the rendezvous")?) };
        if timeout_seconds.is_nan() || timeout_seconds <= 0.0 {
            return Err(format!(
                "a timeout of {timeout_seconds} s: give one above 0"
            ));
        }
        let timeout = Duration::from_secs_f64(timeout_seconds.min(JOIN_SECONDS_MAX));
        let before = std::mem::replace(&mut *rank.stage(), Stage::Joining);
        let open = match before {
            Stage::Open(open) => open,
            joined => {
                *rank.stage() = joined;
                return Err("this rank has joined before, or tried to: open a new one".to_owned());
            }
        };
        let joined = open
            .join(rendezvous, timeout)
            .map_err(|error| error.to_string())?;
        let joined = Arc::new(joined);
        if rank.is_traced {
            termination::watch(&joined);
        }
        *rank.stage() = Stage::Joined(joined);
        Ok(())
    });
    c_int::from(joined.is_none())
}

/// The caller's callback with its argument. The header allows calls on any thread.
struct Callback {
    done: GwDone,
    user: *mut c_void,
}

// SAFETY: the header announces calls on other threads, so `user` must be usable there.
unsafe impl Send for Callback {}

impl Callback {
    fn call(self, result: Result<(), EndError>) {
        let (code, message) = match result {
            Ok(()) => (0, None),
            Err(error) => (1, CString::new(error.to_string().replace('\0', " ")).ok()),
        };
        let text = message
            .as_ref()
            .map_or(std::ptr::null(), |message| message.as_ptr());
        // SAFETY: the caller of `gw_submit` guarantees the function and its argument.
        unsafe { (self.done)(self.user, code, text) }
    }
}

/// See `gw_operation_bytes` in the header.
#[unsafe(no_mangle)]
pub extern "C" fn gw_operation_bytes() -> usize {
    size_of::<GwOperation>()
}

/// See `gw_submit` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_submit(
    rank: *mut GwRank,
    operation: *const GwOperation,
    done: Option<GwDone>,
    user: *mut c_void,
    error: *mut c_char,
    error_len: usize,
) -> *mut GwTicket {
    let accepted = guarded(ErrorOut::new(error, error_len), || {
        // SAFETY: the header requires a valid rank and operation.
        let (rank, operation) = unsafe { (borrowed(rank)?, operation.as_ref()) };
        let operation = operation.ok_or("the operation is null")?;
        let callback = Callback {
            done: done.ok_or("the callback is null")?,
            user,
        };
        let joined = rank
            .joined()
            .ok_or("this rank has not joined its job: call gw_join first")?;
        // SAFETY: the header requires memory as long as the lengths say, until the callback.
        let task = unsafe { operation::task(operation, &rank.job, joined.rank()) }?;
        let (received, ranks) = (
            ReceiveResults::default(),
            Arc::clone(&task.operation.group.ranks),
        );
        let found = received.clone();
        // The core has dropped the buffers by now, so the caller may reuse them.
        let done = Box::new(move |result: Result<EndedOperation, _>| {
            if let Ok(ended) = &result {
                found.note(ended, &ranks);
            }
            callback.call(result.map(drop));
        });
        let ticket = joined.submit(task, done);
        Ok(GwTicket { ticket, received })
    });
    accepted.map_or(std::ptr::null_mut(), |ticket| {
        Box::into_raw(Box::new(ticket))
    })
}

/// `gw_ticket`: an operation that was submitted.
#[derive(Debug)]
pub struct GwTicket {
    ticket: Ticket,
    received: ReceiveResults,
}

/// The results of a receive that has ended.
#[derive(Clone, Debug, Default)]
struct ReceiveResults {
    /// The position of the rank that sent, plus 1; 0 before the receive has ended.
    source: Arc<AtomicI32>,
    holes: Arc<OnceLock<Vec<Hole>>>,
}

impl ReceiveResults {
    fn note(&self, ended: &EndedOperation, ranks: &[Rank]) {
        let source = ended.outcome.source;
        let position = source.and_then(|source| ranks.iter().position(|&rank| rank == source));
        if let Some(position) = position {
            self.source.store(position as i32 + 1, Ordering::Release);
        }
        if !ended.holes.is_empty() {
            // An operation ends once, so this sets the cell for the first time.
            let _ = self.holes.set(ended.holes.clone());
        }
    }
}

/// See `gw_ticket_source` in the header; -1 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_ticket_source(ticket: *const GwTicket) -> c_int {
    // SAFETY: the header requires a valid ticket.
    let ticket = unsafe { ticket.as_ref() };
    ticket.map_or(-1, |ticket| {
        ticket.received.source.load(Ordering::Acquire) - 1
    })
}

/// See `gw_ticket_holes` in the header; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_ticket_holes(
    ticket: *const GwTicket,
    out: *mut GwHole,
    len: usize,
) -> usize {
    // SAFETY: the header requires a valid ticket.
    let ticket = unsafe { ticket.as_ref() };
    let Some(holes) = ticket.and_then(|ticket| ticket.received.holes.get()) else {
        return 0;
    };
    let room = if out.is_null() { 0 } else { len };
    for (at, hole) in holes.iter().take(room).enumerate() {
        let (offset_bytes, bytes) = (hole.offset as u64, hole.bytes as u64);
        // SAFETY: the header requires room for `len` holes, and `at` is below that.
        unsafe {
            out.add(at).write(GwHole {
                offset_bytes,
                bytes,
            });
        }
    }
    holes.len()
}

/// See `gw_wait` in the header. With a null ticket it returns at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_wait(
    rank: *mut GwRank,
    ticket: *const GwTicket,
    seconds: f64,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let waited = guarded(error, || {
        // SAFETY: the header requires a valid rank and ticket.
        let (rank, ticket) = unsafe { (borrowed(rank)?, ticket.as_ref()) };
        if let (Some(rank), Some(ticket)) = (rank.joined(), ticket) {
            let patience = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            rank.wait(&ticket.ticket, patience);
        }
        Ok(())
    });
    c_int::from(waited.is_none())
}

/// See `gw_ticket_free` in the header. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_ticket_free(ticket: *mut GwTicket) {
    if !ticket.is_null() {
        // SAFETY: the ticket came from `Box::into_raw` in `gw_submit`, and this is its last use.
        drop(unsafe { Box::from_raw(ticket) });
    }
}

/// See `gw_counters_read` in the header; zeros before the rank has joined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_counters_read(rank: *mut GwRank, out: *mut GwCounters) {
    guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank.
        let joined = unsafe { borrowed(rank) }?.joined();
        let counters = joined.map(|rank| rank.counters()).unwrap_or_default();
        // SAFETY: the header requires null or a valid place.
        let out = unsafe { out.as_mut() }.ok_or("the output is null")?;
        *out = GwCounters {
            sent_segments: counters.sent_segments,
            lost_segments: counters.lost_segments,
            repaired_segments: counters.repaired_segments,
            received_segments: counters.received_segments,
            ledger_lost_segments: counters.ledger_lost_segments,
            malformed_packets: counters.malformed_packets + counters.forged_packets,
            faults_dropped: counters.faults_dropped,
            kernel_drops: counters.kernel_drops,
            sent_bytes: counters.sent_bytes,
            received_bytes: counters.received_bytes,
        };
        Ok(())
    });
}

/// See `gw_job_tolerance` in the header; 0 for a null rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_job_tolerance(rank: *mut GwRank) -> f64 {
    guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank.
        Ok(unsafe { borrowed(rank) }?.job.greatest_tolerance().get())
    })
    .unwrap_or(0.0)
}

/// See `gw_job_json` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_job_json(rank: *mut GwRank, out: *mut c_char, len: usize) -> usize {
    guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank.
        let rank = unsafe { borrowed(rank) }?;
        let mut job = rank.job.clone();
        if let Some(rank) = rank.joined() {
            let SchedulePoint { chunk, credit } = rank.schedule();
            (job.collectives.chunk, job.collectives.credit) = (chunk, credit);
        }
        let flat = job.flat();
        let json = serde_json::to_string(&flat).map_err(|error| error.to_string())?;
        // SAFETY: the header requires a valid buffer.
        Ok(unsafe { text::write(&json, out, len) })
    })
    .unwrap_or(0)
}

/// See `gw_trace_json` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_trace_json(rank: *mut GwRank) -> *mut c_char {
    let text = guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank.
        let joined = unsafe { borrowed(rank) }?.joined();
        let trace = joined
            .ok_or("this rank has not joined its job: call gw_join first")?
            .trace();
        CString::new(trace.to_json()).map_err(|error| error.to_string())
    });
    text.map_or(std::ptr::null_mut(), CString::into_raw)
}

/// See `gw_text_free` in the header. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the text came from `CString::into_raw`, and this is its last use.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// See `gw_takes_operations` in the header; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_takes_operations(rank: *mut GwRank) -> c_int {
    let taken = guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank.
        let rank = unsafe { borrowed(rank) }?;
        Ok(rank.joined().is_some_and(|rank| rank.takes_operations()))
    });
    c_int::from(taken.unwrap_or(false))
}

/// See `gw_abort` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_abort(rank: *mut GwRank, reason: *const c_char) {
    guarded(NO_ERROR_TEXT, || {
        // SAFETY: the header requires a valid rank and strings that end with zero.
        let (rank, reason) = unsafe { (borrowed(rank)?, text::read(reason, "the reason")?) };
        if let Some(rank) = rank.joined() {
            rank.abort(reason);
        }
        Ok(())
    });
}

/// See `gw_end_group` in the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_end_group(
    rank: *mut GwRank,
    group: u32,
    error: *mut c_char,
    error_len: usize,
) -> c_int {
    let error = ErrorOut::new(error, error_len);
    let ended = guarded(error, || {
        // SAFETY: the header requires a valid rank.
        let rank = unsafe { joined(rank) }?;
        rank.end_group(operation::group_number(group)?);
        Ok(())
    });
    c_int::from(ended.is_none())
}

/// See `gw_close` in the header. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gw_close(rank: *mut GwRank, seconds: f64) {
    guarded(NO_ERROR_TEXT, || {
        if rank.is_null() {
            return Ok(());
        }
        // SAFETY: the header requires a rank from `gw_open`. A fork leaves it to its parent.
        unsafe { borrowed(rank) }?;
        // SAFETY: the rank came from `Box::into_raw` in `gw_open`, and this is its last use.
        let rank = unsafe { Box::from_raw(rank) };
        if let Some(rank) = rank.joined() {
            let patience = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
            rank.close_within(patience, patience);
        }
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::{null, null_mut};

    use super::*;

    fn error_of(call: impl FnOnce(*mut c_char, usize)) -> String {
        let mut error = [0 as c_char; 200];
        call(error.as_mut_ptr(), error.len());
        // SAFETY: the buffer is zeroed and the call keeps it terminated.
        unsafe { CStr::from_ptr(error.as_ptr()) }
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn null_is_an_error_and_not_a_crash() {
        // SAFETY: null is allowed everywhere.
        unsafe {
            gw_close(null_mut(), 0.0);
            gw_abort(null_mut(), null());
            gw_counters_read(null_mut(), null_mut());
            assert_eq!(gw_wait(null_mut(), null(), 1.0, null_mut(), 0), 1);
            gw_ticket_free(null_mut());
            assert_eq!(gw_ticket_holes(null(), null_mut(), 1), 0);
            assert_eq!(gw_job_json(null_mut(), null_mut(), 0), 0);
            let error = error_of(|out, len| {
                assert!(gw_submit(null_mut(), null(), None, null_mut(), out, len).is_null());
            });
            assert_eq!(error, "the rank is null");
            assert!(gw_trace_json(null_mut()).is_null());
            gw_text_free(null_mut());
            let error = error_of(|out, len| assert!(gw_open(null(), out, len).is_null()));
            assert_eq!(error, "the opening is null");
            let nowhere = GwOpening {
                bind_host: null(),
                ..opening(0)
            };
            let error = error_of(|out, len| assert!(gw_open(&nowhere, out, len).is_null()));
            assert_eq!(error, "the host to bind is null");
        }
    }

    /// The opening of rank `rank` of two on loopback.
    fn opening(rank: u32) -> GwOpening {
        GwOpening {
            job_path: null(),
            rank,
            world: 2,
            local_rank: -1,
            bind_host: c"127.0.0.1".as_ptr(),
            trace_folder: null(),
            log_level: c"warn".as_ptr(),
            credentials: GwCredentials {
                token: c"secret".as_ptr(),
                certificate: null(),
                key: null(),
                authority: null(),
            },
            port: 0,
        }
    }

    fn refusal(opening: &GwOpening) -> String {
        error_of(|out, len| {
            // SAFETY: strings and buffers are valid.
            assert!(unsafe { gw_open(opening, out, len) }.is_null());
        })
    }

    #[test]
    fn an_unknown_log_level_names_the_known() {
        let error = refusal(&GwOpening {
            log_level: c"loud".as_ptr(),
            ..opening(0)
        });
        let wanted = "GRADWIRE_LOG: \"loud\" is not a log level: allowed are warn, info, debug and \
        trace";
        assert_eq!(error, wanted);
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let mut opening = opening(0);
        opening.credentials.certificate = c"rank.crt".as_ptr();
        let error = refusal(&opening);
        assert!(
            error.contains("no key and no authority is given"),
            "{error}"
        );
    }

    #[test]
    fn an_empty_token_needs_certificates() {
        let mut opening = opening(0);
        opening.credentials.token = c"".as_ptr();
        let error = refusal(&opening);
        assert!(error.starts_with("the token is empty"), "{error}");
    }

    #[test]
    fn rank_0_opens_and_tells_its_address() {
        let mut place = [0 as c_char; 64];
        // SAFETY: strings and buffers are valid, and the rank is closed once.
        unsafe {
            let rank = gw_open(&opening(0), null_mut(), 0);
            assert!(!rank.is_null());
            let length = gw_rendezvous(rank, place.as_mut_ptr(), place.len());
            assert!(
                CStr::from_ptr(place.as_ptr())
                    .to_bytes()
                    .starts_with(b"127.0.0.1:")
            );
            assert_eq!(CStr::from_ptr(place.as_ptr()).count_bytes(), length);
            assert_eq!(gw_job_tolerance(rank), 0.0);
            assert!(gw_job_json(rank, null_mut(), 0) > 100);
            gw_close(rank, 1.0);
        }
    }

    #[test]
    fn a_rank_outside_the_world_is_refused() {
        let error = refusal(&opening(2));
        assert!(
            error.starts_with("rank 2 of world size 2 does not exist"),
            "{error}"
        );
    }
}
