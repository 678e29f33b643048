//! The inbox of a rank: a file with a flag that tells whether the rank sleeps and a ring per
//! neighbour, and a named pipe beside it.
#![expect(unsafe_code, reason = "the flag lies in shared memory")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use gradwire_protocol::machine::Transmit;

use super::memory::{self, FileMapping};
use super::ring::{CONTROL_BYTES, RingReader, RingWriter};

/// Bytes before the first ring: a page. The flag is its first word.
const START: usize = 4096;
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

fn ring_at(index: usize, ring_bytes: u64) -> usize {
    START + index * (CONTROL_BYTES + ring_bytes as usize)
}

/// Wakes a rank: a flag tells whether it sleeps, and a pipe ends the sleep.
#[derive(Debug)]
pub(crate) struct InboxBell {
    mapping: Arc<FileMapping>,
    pipe: File,
}

impl InboxBell {
    fn flag(&self) -> &AtomicU32 {
        let address = self.mapping.at(0).cast::<AtomicU32>();
        // SAFETY: these are four aligned bytes of the mapping, which all sides use only as an
        // atomic.
        unsafe { address.as_ref() }
    }

    /// Makes writers wake this rank from now on. The caller looks for packets once more before it
    /// sleeps.
    pub(crate) fn lie_down(&self) {
        self.flag().store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Makes writers stop waking this rank.
    pub(crate) fn get_up(&self) {
        self.flag().store(AWAKE, Ordering::SeqCst);
    }

    /// Wakes the rank if it sleeps.
    fn wake(&self) {
        // Orders the packets written before this against the flag read now.
        fence(Ordering::SeqCst);
        let flag = self.flag();
        if flag.load(Ordering::Relaxed) == ASLEEP && flag.swap(AWAKE, Ordering::SeqCst) == ASLEEP {
            // A full pipe wakes, too; a broken one belongs to a rank that has ended.
            let _ = (&self.pipe).write(&[1]);
        }
    }

    /// The descriptor that is readable when a writer rings.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Empties the pipe.
    pub(crate) fn drain(&self) {
        let _ = (&self.pipe).read(&mut [0; 64]);
    }
}

/// The inbox of this rank, which it reads.
#[derive(Debug)]
pub(super) struct MemoryInbox {
    pub(super) rings: Vec<RingReader>,
    pub(super) bell: InboxBell,
    pub(super) names: InboxNames,
    /// Holds a lock as long as this process lives.
    _life: File,
}

/// The names of files, which are unlinked when this is dropped.
#[derive(Debug, Default)]
pub struct InboxNames(Vec<PathBuf>);

impl Drop for InboxNames {
    fn drop(&mut self) {
        for path in &self.0 {
            // A file that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl MemoryInbox {
    /// Makes the file and the pipe.
    pub(super) fn new(path: &Path, rings: usize, ring_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path)?;
        file.lock()?;
        let pipe_path = pipe_path(path);
        let names = InboxNames(vec![path.to_owned(), pipe_path.clone()]);
        let bytes = ring_at(rings, ring_bytes);
        memory::allocate(&file, bytes)?;
        memory::make_pipe(&pipe_path)?;
        let mapping = Arc::new(FileMapping::of(&file, bytes)?);
        let pipe = open_pipe(&pipe_path)?;
        let ring = |index| {
            let start = ring_at(index, ring_bytes);
            RingReader::new(Arc::clone(&mapping), start, ring_bytes as usize)
        };
        Ok(Self {
            rings: (0..rings).map(ring).collect(),
            bell: InboxBell { mapping, pipe },
            names,
            _life: file,
        })
    }
}

fn pipe_path(path: &Path) -> PathBuf {
    path.with_extension("bell")
}

/// Opens a pipe for both directions, so that it never ends and never blocks.
fn open_pipe(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK).open(path)
}

/// Tells whether the process of a neighbour lives. The process holds a lock on its inbox; the
/// kernel releases it when the process and all its forks have ended.
#[derive(Debug)]
pub struct RankLife(File);

impl RankLife {
    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let has_ended = self.0.try_lock_shared().is_ok();
        if has_ended {
            // Other ranks try the lock, too.
            let _ = self.0.unlock();
        }
        has_ended
    }
}

/// The ring into which this rank writes for one neighbour.
#[derive(Debug)]
pub(super) struct MemoryOutbox {
    ring: RingWriter,
    bell: InboxBell,
    /// The life of the neighbour, until it is taken.
    pub(super) life: Option<RankLife>,
}

impl MemoryOutbox {
    /// Opens a neighbour's file at the ring of this rank.
    pub(super) fn open(path: &Path, ring: usize, ring_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let end = ring_at(ring + 1, ring_bytes);
        if file.metadata()?.len() < end as u64 {
            return Err(io::Error::other(
                "the file is shorter than its rank announced",
            ));
        }
        let mapping = Arc::new(FileMapping::of(&file, end)?);
        let start = ring_at(ring, ring_bytes);
        Ok(Self {
            ring: RingWriter::new(Arc::clone(&mapping), start, ring_bytes as usize),
            bell: InboxBell {
                mapping,
                pipe: open_pipe(&pipe_path(path))?,
            },
            life: Some(RankLife(file)),
        })
    }

    pub(super) fn send(&mut self, transmit: &Transmit<'_>, skip: usize) -> usize {
        let mut done = skip;
        while done < transmit.packets() && self.ring.write(transmit, done) {
            done += 1;
        }
        if done > skip {
            self.bell.wake();
        }
        done
    }
}
