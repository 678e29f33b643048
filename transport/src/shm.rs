//! Shared memory between the ranks of one host: a ring of packets per directed pair.
//!
//! - Every rank makes an inbox: a file in `/dev/shm` with one ring per neighbour, and a named pipe
//!   that ends the rank's sleep. File names travel over the control plane. When all ranks have
//!   attached, the files are unlinked; the memory is freed with the last rank. Files of ranks that
//!   died before are removed by the next rank that makes an inbox.
//! - Little of a ring is allocated at first, and more when its reader lags behind, as long as half
//!   of the free memory stays free. A rank without room for its rings is reached by sockets.
//! - The writer copies a packet from the tensor into its ring. The reader reduces or copies it
//!   directly from the ring: two passes over its bytes, and no system call.
//! - Packets have no checksum and no encryption. Whoever can read this memory is the same user on
//!   the same host, and can read the tensors, too.
//! - The protocol above is the same as on sockets; it never sees a loss here.
//!
//! Start here: a rank makes an [`OwnInbox`] and sends its [`MemoryOffer`] to the others,
//! [`MemoryTerms`] follow from all offers, and the driver uses [`HostNeighbours`].

mod inbox;
mod memory;
mod ring;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gradwire_protocol::machine::Transmit;
use gradwire_protocol::reach::MemoryPath;
use gradwire_protocol::units::{ByteCount, Rank};
use serde::{Deserialize, Serialize};

use inbox::{InboxBell, InboxFiles, MemoryInbox, MemoryOutbox};
pub use inbox::{InboxNames, RankLife};
pub(crate) use memory::MappedMemory;
pub use memory::MemoryRoom;
pub use ring::RingPacket;

/// The folder of shared memory.
const FOLDER: &str = "/dev/shm";
/// Maximum bytes of a ring: more than a core's cache is no faster.
pub const RING_MAX: u64 = 1 << 20;
/// Minimum bytes of a ring: several packets.
const RING_MIN: u64 = 256 << 10;
/// Payload bytes of a full packet. It is short enough that the reader starts while the writer is
/// still writing, and long enough that the work per packet is negligible.
const SEGMENT_BYTES: u32 = 16 << 10;

/// The offer of a rank to the other ranks of its host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryOffer {
    /// Identifies the memory: running kernel, mounted file system and user. Ranks with equal places
    /// can map each other's files.
    pub place: String,
    /// The file name of this rank's inbox.
    pub name: String,
    /// Bytes that are free there.
    pub free: u64,
}

impl MemoryOffer {
    /// Whether the name is one that a rank makes: otherwise a rank could be led to any file of its
    /// user.
    fn is_sound(&self) -> bool {
        is_inbox_name(&self.name)
    }
}

/// The common prefix of the names of all inboxes.
const PREFIX: &str = "gradwire-";

fn is_inbox_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(is_digit))
}

/// An inbox of this rank, before the other ranks are known.
#[derive(Debug)]
pub struct OwnInbox {
    files: InboxFiles,
    offer: MemoryOffer,
}

impl OwnInbox {
    /// Makes an inbox with a random name, after the files of ranks that died were removed.
    ///
    /// # Errors
    /// [`ShareError`] if this host has no shared memory, or this process may not write there.
    pub fn make() -> Result<Self, ShareError> {
        let failed = |what| {
            move |source| ShareError {
                what,
                path: PathBuf::from(FOLDER),
                source,
            }
        };
        let device = std::fs::metadata(FOLDER).map_err(failed("use"))?.dev();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.map_err(failed("identify the kernel for"))?;
        inbox::remove_dead(Path::new(FOLDER), is_inbox_name);
        let offer = MemoryOffer {
            place: format!("{}/{device}/{}", boot.trim(), memory::user()),
            name: format!("{PREFIX}{:016x}", rand::random::<u64>()),
            free: room().map_err(failed("use"))?.free,
        };
        let files = InboxFiles::make(&Path::new(FOLDER).join(&offer.name));
        let files = files.map_err(failed("make a file in"))?;
        Ok(Self { files, offer })
    }

    /// The offer to the other ranks.
    pub fn offer(&self) -> &MemoryOffer {
        &self.offer
    }
}

/// The room in the folder of shared memory.
///
/// # Errors
/// If there is no such folder.
pub fn room() -> io::Result<MemoryRoom> {
    memory::room(Path::new(FOLDER))
}

/// The least bytes that must be free in the folder for the rings of this many ranks.
pub fn least_room(ranks: u64) -> u64 {
    2 * RING_MIN * ranks * ranks.saturating_sub(1)
}

/// Bytes of each ring if this many ranks share a folder with `free` bytes, of which rings may take
/// half. `None` if that is too little, or if there is no other rank.
pub fn ring_bytes(free: u64, ranks: u64) -> Option<u64> {
    let pairs = ranks * ranks.saturating_sub(1);
    let share = (free / 2).checked_div(pairs)?;
    let largest = 1 << share.max(1).ilog2();
    let ring_bytes = RING_MAX.min(largest);
    (ring_bytes >= RING_MIN).then_some(ring_bytes)
}

/// The ranks that share memory and the size of their rings, equal on each of them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryTerms {
    /// The ranks of this host in order, including this one, and the names of their inboxes.
    ranks: Vec<(Rank, String)>,
    me: Rank,
    ring_bytes: u64,
    /// Bytes that rings leave free.
    spared: u64,
}

/// The folder is too small for the rings of a host's ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{FOLDER} has {free} bytes free, and the rings of {ranks} ranks take {needed} at least: give \
     it more (docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory at {FOLDER})"
)]
pub struct MemoryShortage {
    /// Ranks that offer memory at one place.
    pub ranks: u64,
    /// Bytes that were free there.
    pub free: u64,
    /// Bytes that must be.
    pub needed: u64,
}

impl MemoryShortage {
    /// The reason why the offers lead to no terms, if it is the size; told to one rank of the host.
    pub fn of(offers: &[(Rank, Option<MemoryOffer>)], me: Rank) -> Option<Self> {
        let mine = offers.iter().find(|(rank, _)| *rank == me)?.1.as_ref()?;
        let here = offers.iter().filter_map(|(rank, offer)| {
            let offer = offer.as_ref().filter(|offer| offer.place == mine.place)?;
            Some((*rank, offer.free))
        });
        let here: Vec<(Rank, u64)> = here.collect();
        let ranks = here.len() as u64;
        let free = here.iter().map(|(_, free)| *free).min()?;
        let needed = least_room(ranks);
        (ranks > 1 && free < needed).then_some(Self {
            ranks,
            free,
            needed,
        })
    }
}

impl MemoryTerms {
    /// The terms that follow from the offers of all ranks, in the order of ranks. `None` if no
    /// other rank is at this place, or if its memory is too small for all.
    pub fn of(offers: &[(Rank, Option<MemoryOffer>)], me: Rank) -> Option<Self> {
        let offer = |wanted| {
            let found = offers.iter().find(|(rank, _)| *rank == wanted);
            found.and_then(|(_, offer)| offer.as_ref())
        };
        let place = &offer(me)?.place;
        let here = offers.iter().filter_map(|(rank, offer)| {
            let of_place = |offer: &&MemoryOffer| offer.place == *place && offer.is_sound();
            let offer = offer.as_ref().filter(of_place)?;
            Some((*rank, offer))
        });
        let here: Vec<(Rank, &MemoryOffer)> = here.collect();
        let free = here.iter().map(|(_, offer)| offer.free).min()?;
        let ring_bytes = ring_bytes(free, here.len() as u64)?;
        let named = |(rank, offer): (Rank, &MemoryOffer)| (rank, offer.name.clone());
        Some(Self {
            ranks: here.into_iter().map(named).collect(),
            me,
            ring_bytes,
            spared: free / 2,
        })
    }

    /// The other ranks of this host that offer memory.
    pub fn others(&self) -> impl Iterator<Item = Rank> {
        let ranks = self.ranks.iter().map(|(rank, _)| *rank);
        ranks.filter(|rank| *rank != self.me)
    }

    /// The parameters of this path for the protocol.
    pub fn near(&self) -> MemoryPath {
        MemoryPath {
            segment_bytes: SEGMENT_BYTES,
            window: ByteCount::new(self.ring_bytes / 2),
        }
    }

    /// The index of the ring in `owner`'s inbox for packets from `from`.
    fn ring_of(&self, owner: Rank, from: Rank) -> usize {
        let ranks = self.ranks.iter().map(|(rank, _)| *rank);
        let others = ranks.filter(|rank| *rank != owner);
        others.take_while(|rank| *rank != from).count()
    }

    fn path(&self, rank: Rank) -> PathBuf {
        let found = self.ranks.iter().find(|(other, _)| *other == rank);
        let (_, name) = found.expect("asked for ranks of this host only");
        PathBuf::from(FOLDER).join(name)
    }
}

/// Memory could not be shared.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {what} {}: {source}; {}transport.wire = \"udp\" works without shared memory",
    path.display(),
    remedy(source)
)]
pub struct ShareError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => "give it more room (docker run --shm-size=1g); ",
        _ => "",
    }
}

/// The rings between a rank and the other ranks of its host.
#[derive(Debug)]
pub struct HostNeighbours {
    inbox: MemoryInbox,
    /// The ranks that write into the rings of the inbox.
    writers: Vec<Rank>,
    /// By rank.
    outboxes: Vec<Option<MemoryOutbox>>,
}

impl HostNeighbours {
    /// Adds rings to this rank's inbox. When all ranks have done so, call
    /// [`HostNeighbours::attach`].
    ///
    /// # Errors
    /// [`ShareError`] if the file cannot be mapped.
    pub fn new(own: OwnInbox, terms: &MemoryTerms) -> Result<Self, ShareError> {
        let writers: Vec<Rank> = terms.others().collect();
        let inbox = MemoryInbox::new(own.files, writers.len(), terms.ring_bytes);
        Ok(Self {
            inbox: inbox.map_err(|source| ShareError {
                what: "map",
                path: terms.path(terms.me),
                source,
            })?,
            writers,
            outboxes: Vec::new(),
        })
    }

    /// Opens the inboxes of the others. Two ranks share memory if both found room for their rings.
    /// When all ranks have attached, the [names](HostNeighbours::take_names) are no longer needed.
    ///
    /// # Errors
    /// [`ShareError`] if one cannot be opened.
    pub fn attach(&mut self, terms: &MemoryTerms) -> Result<(), ShareError> {
        if !self.inbox.is_open() {
            return Ok(());
        }
        for to in terms.others() {
            let path = terms.path(to);
            let ring = (terms.ring_of(to, terms.me), terms.ring_bytes);
            let outbox =
                MemoryOutbox::open(&path, ring, terms.spared).map_err(|source| ShareError {
                    what: "open",
                    path,
                    source,
                })?;
            let place = usize::from(to.0);
            self.outboxes
                .resize_with(self.outboxes.len().max(place + 1), || None);
            self.outboxes[place] = outbox;
        }
        Ok(())
    }

    /// The ranks that are reached through memory.
    pub fn reached(&self) -> impl Iterator<Item = Rank> {
        let outboxes = (0..).map(Rank).zip(&self.outboxes);
        outboxes.filter_map(|(rank, outbox)| outbox.as_ref().map(|_| rank))
    }

    /// Whether all `ranks` of the job are this one or are reached through memory.
    pub fn reach_all(&self, ranks: usize) -> bool {
        self.reached().count() + 1 == ranks
    }

    /// The rank that writes into ring `index`.
    pub fn writer(&self, index: usize) -> Rank {
        self.writers[index]
    }

    /// The names of this rank's files. Dropping them unlinks the files; the memory lasts as long as
    /// a process maps it.
    pub fn take_names(&mut self) -> InboxNames {
        std::mem::take(&mut self.inbox.names)
    }

    /// The handles that show whether the other ranks' processes live. Returns them once.
    pub fn take_lives(&mut self) -> Vec<(Rank, RankLife)> {
        let outboxes = (0..).map(Rank).zip(&mut self.outboxes);
        let lives =
            outboxes.filter_map(|(rank, outbox)| Some((rank, outbox.as_mut()?.life.take()?)));
        lives.collect()
    }

    /// Whether a rank is reached through memory.
    pub fn reaches(&self, rank: Rank) -> bool {
        let outbox = self.outboxes.get(usize::from(rank.0));
        outbox.is_some_and(Option::is_some)
    }

    /// Writes the packets of a run, as many as fit, and wakes the receiver if it sleeps. Returns
    /// how many are written.
    pub fn send(&mut self, transmit: &Transmit<'_>) -> usize {
        let outbox = self.outboxes[usize::from(transmit.to.0)].as_mut();
        let outbox = outbox.expect("sent to ranks that are reached only");
        outbox.send(transmit)
    }

    /// The oldest packet that has not been [released](HostNeighbours::release), of ring `index`.
    pub fn peek(&mut self, index: usize) -> Option<RingPacket<'_>> {
        self.inbox.rings[index].peek()
    }

    /// Frees the packet that was peeked at: its writer may reuse the room.
    pub fn release(&mut self, index: usize) {
        self.inbox.rings[index].release();
    }

    /// The number of rings to read.
    pub fn len(&self) -> usize {
        self.inbox.rings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inbox.rings.is_empty()
    }

    /// The bell that ends this rank's sleep when a packet arrives.
    pub(crate) fn bell(&self) -> &InboxBell {
        &self.inbox.bell
    }
}
