//! A TCP connection between two processes that never waits: frames of the handshake, then only its
//! end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use socket2::{SockRef, TcpKeepalive};

use super::{PairError, is_later};
use crate::process::ReleasedInChildren;

/// Bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// Longest frame: offers are shorter.
const FRAME_MAX: usize = 1 << 16;

/// What is known of the other side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LineState {
    /// It lives.
    Open,
    /// It has closed its end, after this many messages had arrived there.
    Closed(u64),
    /// Its process or its host has ended.
    Lost,
}

/// Notices when the other side closes or ends.
#[derive(Debug)]
pub struct PairLine {
    // Before the stream, so that it goes first.
    _released: ReleasedInChildren,
    stream: TcpStream,
    unsent: Vec<u8>,
    received: Vec<u8>,
    end: LineState,
}

impl PairLine {
    pub(super) fn over(stream: TcpStream, keep_alive: TcpKeepalive) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&keep_alive)?;
        Ok(Self {
            _released: ReleasedInChildren::new(stream.as_raw_fd()),
            stream,
            unsent: Vec::new(),
            received: Vec::new(),
            end: LineState::Open,
        })
    }

    /// What is known of the other side now. Costs a system call.
    pub fn poll(&mut self) -> LineState {
        if self.end != LineState::Open {
            return self.end;
        }
        let is_over = self.fill().unwrap_or(true);
        if let Some(count) = self.received.first_chunk() {
            self.end = LineState::Closed(u64::from_be_bytes(*count));
        } else if is_over {
            self.end = LineState::Lost;
        }
        self.end
    }

    /// Tells the other side that this one closes, and that this many of its messages have arrived.
    /// Never waits: what does not fit into the kernel's buffer is not told.
    pub fn close(mut self, arrived: u64) {
        // The other side may be gone already.
        let _ = self.stream.write(&arrived.to_be_bytes());
    }

    /// Sends a frame, now or with the next [`PairLine::flush`].
    pub(super) fn send(&mut self, frame: &[u8]) {
        self.unsent
            .extend_from_slice(&(frame.len() as u32).to_be_bytes());
        self.unsent.extend_from_slice(frame);
    }

    /// Sends what can be sent; returns whether everything was.
    pub(super) fn flush(&mut self) -> Result<bool, PairError> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err(PairError::Ended),
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if is_unconnected(&error) => return Ok(false),
                Err(error) => return Err(PairError::system("connecting")(error)),
            }
        }
        Ok(true)
    }

    /// The next frame, if it has arrived.
    pub(super) fn frame(&mut self) -> Result<Option<Vec<u8>>, PairError> {
        let is_over = self.fill().map_err(PairError::system("connecting"))?;
        if let Some(length) = self.received.first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > FRAME_MAX {
                return Err(PairError::Foreign);
            }
            if self.received.len() >= LENGTH_BYTES + length {
                let rest = self.received.split_off(LENGTH_BYTES + length);
                let frame = std::mem::replace(&mut self.received, rest);
                return Ok(Some(frame[LENGTH_BYTES..].to_vec()));
            }
        }
        match is_over {
            true => Err(PairError::Ended),
            false => Ok(None),
        }
    }

    /// Reads what has arrived; returns whether the other side has ended the connection.
    fn fill(&mut self) -> io::Result<bool> {
        let mut room = [0; 4096];
        while self.received.len() <= FRAME_MAX {
            match self.stream.read(&mut room) {
                Ok(0) => return Ok(true),
                Ok(read) => self.received.extend_from_slice(&room[..read]),
                Err(error) if is_unconnected(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Whether the connection is still being made, or has nothing to read or no room.
fn is_unconnected(error: &io::Error) -> bool {
    is_later(error) || error.kind() == io::ErrorKind::NotConnected
}
