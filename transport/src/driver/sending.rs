//! Sending: from the machine to rings and sockets.
//!
//! 1. A path takes a run whole, or as much of it as its queue in this host has room for.
//! 2. The machine gets the rest back: it was neither sent nor lost.
//! 3. Then the driver asks for no run until the path has room again, or for [`PAUSE`]: after that
//!    the machine may choose another peer or path. Receiving and timeouts go on meanwhile.

use std::io;

use gradwire_protocol::machine::Machine;
use gradwire_protocol::units::{Entropy, Instant, Span};

use super::engine::DriverEngine;
use super::guests::DriverGuest;
use super::setup::DriverSetup;
use crate::seal::Destination;
use crate::wake::RoomNotice;

/// Runs sent before the sockets are drained again: acknowledgements open the window.
const RUNS_PER_ROUND: usize = 16;
/// The maximum pause after a path was full.
const PAUSE: Span = Span::from_millis(1);

/// A path whose queue in this host was full.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullPath {
    /// The path; `None` for a ring in memory, which does not report when it has room.
    path: Option<Entropy>,
    /// The end of the pause.
    pub(super) until: Instant,
}

impl<M: Machine> DriverEngine<M> {
    /// Sends runs until the machine has none, a path is full, or it is time to receive; returns
    /// whether any packet left.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        let mut busy = false;
        if self.is_paused()? {
            return Ok(busy);
        }
        for _ in 0..RUNS_PER_ROUND {
            let now = self.clock.now();
            let Some(transmit) = self.machine.poll_transmit(now) else {
                break;
            };
            let DriverSetup {
                sockets,
                peers,
                seal,
                neighbours,
                ..
            } = &mut self.setup;
            let rank = usize::from(transmit.to.0);
            let guest = self.guests.receiver(&transmit);
            let near = neighbours.as_mut().filter(|near| near.reaches(transmit.to));
            let (sent, path) = match (guest, near, peers.get(rank)) {
                (Some(DriverGuest { addresses, seal }), ..) => {
                    let to = Destination { addresses, seal };
                    (sockets.send(&transmit, to)?, Some(transmit.entropy))
                }
                // A guest that is forgotten gets nothing more.
                (None, ..) if transmit.template.job != seal.membership().0 => continue,
                (None, Some(neighbours), _) => {
                    let sent = neighbours.send(&transmit);
                    self.tally.sent_packets += sent as u64;
                    (sent, None)
                }
                (None, None, Some(addresses)) => {
                    let to = Destination { addresses, seal };
                    (sockets.send(&transmit, to)?, Some(transmit.entropy))
                }
                (None, None, None) => continue,
            };
            busy |= sent > 0;
            if sent < transmit.packets() {
                let unsent = transmit.unsent_from(sent);
                self.tally.unsent_packets += unsent.packets() as u64;
                self.machine.handle_unsent(now, &unsent);
                let until = now + PAUSE;
                self.full = Some(FullPath { path, until });
                break;
            }
        }
        Ok(busy)
    }

    /// Whether the last path that was full still is, and the pause is not over.
    fn is_paused(&mut self) -> io::Result<bool> {
        let Some(FullPath { path, until }) = self.full else {
            return Ok(false);
        };
        let has_room = match path {
            Some(path) => self.setup.sockets.has_room(path)?,
            None => false,
        };
        if has_room || until <= self.clock.now() {
            self.full = None;
        }
        Ok(self.full.is_some())
    }

    /// Ends a sleep when the path that was full has room.
    pub(super) fn room_notice(&mut self) -> io::Result<Option<RoomNotice>> {
        match self.full.and_then(|full| full.path) {
            Some(path) => Ok(Some(self.setup.sockets.room_notice(path)?)),
            None => Ok(None),
        }
    }
}
