//! The inbox of a rank: a file with a flag that says whether the rank sleeps and a ring per
//! neighbour, and a named pipe.
#![expect(unsafe_code, reason = "the flag lies in shared memory")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use gradwire_protocol::machine::Transmit;

use super::memory::{self, MappedMemory};
use super::ring::{self, CONTROL_BYTES, RingFile, RingReader, RingWriter};
use crate::process::{ProcessMark, ReleasedInChildren};

/// Bytes before the first ring: a page. Its first word says whether the rank sleeps, the next one
/// whether there are rings.
const START: usize = 4096;
const OPEN_AT: usize = 4;
const CLOSED: u32 = 0;
const OPEN: u32 = 1;
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// A word of the first page.
fn word(mapping: &MappedMemory, at: usize) -> &AtomicU32 {
    let address = mapping.at(at).cast::<AtomicU32>();
    // SAFETY: these are four aligned bytes of the mapping, which all sides use only as an atomic.
    unsafe { address.as_ref() }
}

fn ring_at(index: usize, ring_bytes: u64) -> usize {
    START + index * (CONTROL_BYTES + ring_bytes as usize)
}

/// Wakes a rank: a flag says whether it sleeps, and a pipe ends the sleep.
#[derive(Debug)]
pub(crate) struct InboxBell {
    mapping: Arc<MappedMemory>,
    pipe: File,
}

impl InboxBell {
    fn flag(&self) -> &AtomicU32 {
        word(&self.mapping, 0)
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
    /// Declared before the file, which must be open until no child releases it any more.
    _released: ReleasedInChildren,
    /// Holds a lock as long as this process lives.
    _life: File,
}

/// The names of files, which are unlinked when this is dropped, except in a forked child.
#[derive(Debug)]
pub struct InboxNames {
    paths: Vec<PathBuf>,
    owner: ProcessMark,
}

impl InboxNames {
    fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            owner: ProcessMark::current(),
        }
    }
}

impl Default for InboxNames {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Drop for InboxNames {
    fn drop(&mut self) {
        let own = self.owner.is_current();
        for path in self.paths.iter().filter(|_| own) {
            // A file that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The files of an inbox before its rank knows its neighbours: a page and a pipe.
#[derive(Debug)]
pub(super) struct InboxFiles {
    /// Declared before the file, which must be open until no child releases it any more.
    released: ReleasedInChildren,
    /// Holds a lock as long as this process lives.
    file: File,
    pipe: File,
    names: InboxNames,
}

impl InboxFiles {
    /// Makes the file and the pipe.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        let file = create_locked(path)?;
        let pipe_path = pipe_path(path);
        let names = InboxNames::new(vec![path.to_owned(), pipe_path.clone()]);
        memory::allocate(&file, 0..START)?;
        memory::make_pipe(&pipe_path)?;
        Ok(Self {
            released: ReleasedInChildren::new(file.as_raw_fd()),
            pipe: open_pipe(&pipe_path)?,
            file,
            names,
        })
    }
}

/// Creates a file and locks it. Until it is locked another rank takes it for a dead rank's file and
/// may remove it; then it is created again.
fn create_locked(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    loop {
        let file = options.open(path)?;
        file.lock()?;
        match std::fs::metadata(path) {
            Ok(found) if found.ino() == file.metadata()?.ino() => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
}

/// Removes the files in `folder` that `is_ours` and whose ranks have ended without doing so.
pub(super) fn remove_dead(folder: &Path, is_ours: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let own = entry
            .metadata()
            .is_ok_and(|file| file.uid() == memory::user());
        if !own || !name.to_str().is_some_and(&is_ours) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
            continue;
        };
        // The lock is held until the names are gone: a rank that waits for it makes new ones.
        if file.try_lock().is_ok() {
            drop(InboxNames::new(vec![pipe_path(&path), path]));
        }
    }
}

impl MemoryInbox {
    /// Adds rings to the files. If there is no room for them, the inbox has none, and neighbours
    /// that attach find it closed.
    pub(super) fn new(files: InboxFiles, rings: usize, ring_bytes: u64) -> io::Result<Self> {
        let InboxFiles {
            released,
            file,
            pipe,
            names,
        } = files;
        let bytes = ring_at(rings, ring_bytes);
        file.set_len(bytes as u64)?;
        let mut starts = (0..rings).map(|index| ring_at(index, ring_bytes));
        let reserved = starts.try_for_each(|start| ring::reserve(&file, start));
        let mapping = Arc::new(MappedMemory::of(&file, bytes)?);
        let reader = |index| {
            let start = ring_at(index, ring_bytes);
            RingReader::new(Arc::clone(&mapping), start, ring_bytes as usize)
        };
        let rings = match reserved {
            Ok(()) => (0..rings).map(reader).collect(),
            Err(_) => Vec::new(),
        };
        let open = if rings.is_empty() { CLOSED } else { OPEN };
        word(&mapping, OPEN_AT).store(open, Ordering::SeqCst);
        Ok(Self {
            rings,
            bell: InboxBell { mapping, pipe },
            names,
            _released: released,
            _life: file,
        })
    }

    /// Whether neighbours can write into it.
    pub(super) fn is_open(&self) -> bool {
        !self.rings.is_empty()
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

/// Reports whether the process of a neighbour lives. The process holds a lock on its inbox; the
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
    /// Opens a neighbour's file at the ring of this rank, which leaves `spared` bytes of the file
    /// system to others; `None` if the neighbour found no room for rings.
    pub(super) fn open(
        path: &Path,
        (ring, ring_bytes): (usize, u64),
        spared: u64,
    ) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let end = ring_at(ring + 1, ring_bytes);
        if file.metadata()?.len() < end as u64 {
            return Err(io::Error::other(
                "the file is shorter than its rank announced",
            ));
        }
        let mapping = Arc::new(MappedMemory::of(&file, end)?);
        if word(&mapping, OPEN_AT).load(Ordering::SeqCst) != OPEN {
            return Ok(None);
        }
        let start = ring_at(ring, ring_bytes);
        let more = RingFile {
            file: file.try_clone()?,
            spared,
        };
        Ok(Some(Self {
            ring: RingWriter::new(Arc::clone(&mapping), more, start, ring_bytes as usize),
            bell: InboxBell {
                mapping,
                pipe: open_pipe(&pipe_path(path))?,
            },
            life: Some(RankLife(file)),
        }))
    }

    pub(super) fn send(&mut self, transmit: &Transmit<'_>) -> usize {
        let mut done = 0;
        while done < transmit.packets() && self.ring.write(transmit, done) {
            done += 1;
        }
        if done > 0 {
            self.bell.wake();
        }
        done
    }
}
