//! Shared memory between the ranks of one host: a ring of packets per directed pair.
//!
//! Every rank makes an inbox: a file in `/dev/shm` with one ring for each
//! neighbour, and a bell, a named pipe that ends its sleep. Names travel over the control plane;
//! when all have attached, the files are unlinked, and the memory goes with the last rank.
//!
//! A packet is written into its ring straight from the tensor and is read, reduced or copied
//! straight from the ring: two passes over its bytes, no system call. Neither checksum nor
//! encryption: who can read this memory, the same user on the same host, can read the tensors too.
//! The protocol above is the same; it finds that nothing is ever lost here.
//!
//! Start here: [`MemoryOffer`] is what a rank says of itself, [`MemoryTerms`] what follows from all offers,
//! [`HostNeighbours`] what the driver uses.

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

use inbox::{InboxBell, MemoryInbox, MemoryOutbox};
pub use inbox::{InboxNames, RankLife};
pub use memory::MemoryRoom;
pub use ring::RingPacket;

/// Where memory is shared.
const FOLDER: &str = "/dev/shm";
/// A ring at most; more than a core's cache makes nothing faster.
pub const RING_MAX: u64 = 1 << 20;
/// A ring at least: several packets.
const RING_MIN: u64 = 256 << 10;
/// Payload bytes of a full packet: short enough that the reader starts while the writer is at the
/// next ones, long enough that the work per packet does not count.
const SEGMENT_BYTES: u32 = 16 << 10;

/// What a rank offers to those of its host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct MemoryOffer {
    /// What memory this is: ranks with equal places can map each other's files. The running
    /// kernel, its mounted file system and the user.
    pub place: String,
    /// The name of this rank's inbox.
    pub name: String,
    /// Bytes that are free there.
    pub free: u64,
}

impl MemoryOffer {
    /// This process's offer, under a name that nobody else has; `None` where memory cannot be
    /// shared.
    pub fn new() -> Option<Self> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let device = std::fs::metadata(FOLDER).ok()?.dev();
        Some(Self {
            place: format!("{}/{device}/{}", boot.trim(), memory::user()),
            name: format!("gradwire-{:016x}", rand::random::<u64>()),
            free: room().ok()?.free,
        })
    }
}

/// The room there is where memory is shared.
///
/// # Errors
/// When there is no such place.
pub fn room() -> io::Result<MemoryRoom> {
    memory::room(Path::new(FOLDER))
}

/// Bytes of each ring when so many ranks share a place where `free` bytes are free, of which rings
/// take half at most; `None` when that is too little, or there is nobody to share with.
pub fn ring_bytes(free: u64, ranks: u64) -> Option<u64> {
    let pairs = ranks * ranks.saturating_sub(1);
    let share = (free / 2).checked_div(pairs)?;
    let largest = 1 << share.max(1).ilog2();
    let ring_bytes = RING_MAX.min(largest);
    (ring_bytes >= RING_MIN).then_some(ring_bytes)
}

/// What the ranks of a host share, the same on each.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemoryTerms {
    /// The ranks of this host in order, this one among them, and the names of their inboxes.
    ranks: Vec<(Rank, String)>,
    me: Rank,
    ring_bytes: u64,
}

impl MemoryTerms {
    /// What follows from the offers of all ranks, in the order of ranks; `None` when no other rank
    /// is at this place, or the memory there is too small for all.
    pub fn of(offers: &[(Rank, Option<MemoryOffer>)], me: Rank) -> Option<Self> {
        let offer = |wanted| {
            let found = offers.iter().find(|(rank, _)| *rank == wanted);
            found.and_then(|(_, offer)| offer.as_ref())
        };
        let place = &offer(me)?.place;
        let here = offers.iter().filter_map(|(rank, offer)| {
            let offer = offer.as_ref().filter(|offer| offer.place == *place)?;
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
        })
    }

    /// The other ranks of this host.
    pub fn others(&self) -> impl Iterator<Item = Rank> {
        let ranks = self.ranks.iter().map(|(rank, _)| *rank);
        ranks.filter(|rank| *rank != self.me)
    }

    /// What the protocol must know.
    pub fn near(&self) -> MemoryPath {
        MemoryPath {
            segment_bytes: SEGMENT_BYTES,
            window: ByteCount::new(self.ring_bytes / 2),
        }
    }

    /// Which ring of its inbox a rank has for packets from `from`.
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

/// Why memory could not be shared.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot {what} {}: {source}; transport.wire = \"udp\" does without shared memory",
    path.display()
)]
pub struct ShareError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// A rank's ways to and from the ranks of its host.
#[derive(Debug)]
pub struct HostNeighbours {
    inbox: MemoryInbox,
    /// By rank.
    outboxes: Vec<Option<MemoryOutbox>>,
}

impl HostNeighbours {
    /// Makes this rank's inbox. When all have made theirs, [`HostNeighbours::attach`].
    ///
    /// # Errors
    /// [`ShareError`] when the file cannot be made.
    pub fn new(terms: &MemoryTerms) -> Result<Self, ShareError> {
        let path = terms.path(terms.me);
        let failed = |source| ShareError {
            what: "make",
            path: path.clone(),
            source,
        };
        let inbox = MemoryInbox::new(&path, terms.others().count(), terms.ring_bytes);
        Ok(Self {
            inbox: inbox.map_err(failed)?,
            outboxes: Vec::new(),
        })
    }

    /// Opens the inboxes of the others. When all have done so, nobody needs the
    /// [names](HostNeighbours::take_names) any more.
    ///
    /// # Errors
    /// [`ShareError`] when one cannot be opened.
    pub fn attach(&mut self, terms: &MemoryTerms) -> Result<(), ShareError> {
        for to in terms.others() {
            let path = terms.path(to);
            let ring = (terms.ring_of(to, terms.me), terms.ring_bytes);
            let outbox = MemoryOutbox::open(&path, ring).map_err(|source| ShareError {
                what: "open",
                path,
                source,
            })?;
            let place = usize::from(to.0);
            self.outboxes
                .resize_with(self.outboxes.len().max(place + 1), || None);
            self.outboxes[place] = Some(outbox);
        }
        Ok(())
    }

    /// The names of this rank's files. Dropping them takes them away; the memory lasts as long as
    /// somebody uses it.
    pub fn take_names(&mut self) -> InboxNames {
        std::mem::take(&mut self.inbox.names)
    }

    /// The lives of the other ranks' processes, for who looks after them; once.
    pub fn take_lives(&mut self) -> Vec<(Rank, RankLife)> {
        let outboxes = (0..).map(Rank).zip(&mut self.outboxes);
        let lives =
            outboxes.filter_map(|(rank, outbox)| Some((rank, outbox.as_mut()?.life.take()?)));
        lives.collect()
    }

    /// Whether a rank is reached here.
    pub fn reaches(&self, rank: Rank) -> bool {
        let outbox = self.outboxes.get(usize::from(rank.0));
        outbox.is_some_and(Option::is_some)
    }

    /// Writes the packets of a run from `skip` on, as many as there is room for, and wakes the
    /// receiver if it sleeps. Gives back how many of the run are written, `skip` included.
    pub fn send(&mut self, transmit: &Transmit<'_>, skip: usize) -> usize {
        let outbox = self.outboxes[usize::from(transmit.to.0)].as_mut();
        let outbox = outbox.expect("sent to ranks that are reached only");
        outbox.send(transmit, skip)
    }

    /// The oldest packet that has not been [released](HostNeighbours::release), of ring `index`.
    pub fn peek(&mut self, index: usize) -> Option<RingPacket<'_>> {
        self.inbox.rings[index].peek()
    }

    /// Gives the room of the packet that was peeked at back to its writer.
    pub fn release(&mut self, index: usize) {
        self.inbox.rings[index].release();
    }

    /// How many rings there are to read.
    pub fn len(&self) -> usize {
        self.inbox.rings.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.inbox.rings.is_empty()
    }

    /// What ends this rank's sleep when a packet comes.
    pub(crate) fn alarm(&self) -> &InboxBell {
        &self.inbox.alarm
    }
}
