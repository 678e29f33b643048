//! Watches a device in use: it may be removed or fail, and its port may go down.
//!
//! - A port that is down may come back, for example when a cable is moved. Packets lost meanwhile
//!   are repaired.
//! - If the port stays down for half of the peer timeout, the rank fails: at this time it can still
//!   report the reason.
//! - Some drivers (Soft-RoCE) cannot remove a device that is in use. They send no event and wait
//!   until all users have closed it. Such a device has left `/sys/dev/char`, so that is checked.
#![expect(unsafe_code, reason = "events are C structures")]

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gradwire_protocol::units::Span;

use super::abi::{AsyncEvent, EVENT_CQ_ERROR, EVENT_DEVICE_FATAL, EVENT_QP_FATAL, EVENT_SRQ_ERROR};
use super::device::{RdmaDevice, checked};
use super::error::RdmaError;
use super::receive_ring::unblocked;

/// Calls of [`DeviceWatch::look_sometimes`] per look at the device.
const LOOKS: u32 = 4096;

/// Time between two looks at the system's list of devices.
const LIST_EVERY: Duration = Duration::from_millis(100);

/// The maximum time that a port may be down: a replugged cable is back by then.
const PATIENCE_MAX: Duration = Duration::from_secs(4);

/// The state of a device in use.
#[derive(Debug)]
pub(super) struct DeviceWatch {
    fd: RawFd,
    /// The device's path in the system's list, if known.
    listed: Option<PathBuf>,
    listed_at: Option<Instant>,
    looks: u32,
    down: Option<Instant>,
    patience: Duration,
}

impl DeviceWatch {
    /// Watches a device. Peers declare this rank dead after `peer_timeout` without a sign.
    pub(super) fn new(device: &RdmaDevice, peer_timeout: Span) -> Result<Self, RdmaError> {
        // SAFETY: the device is open, and its descriptor does not change.
        let fd = unsafe { (*device.raw()).async_fd };
        unblocked(fd).map_err(|source| device.failed("waiting for its events", source))?;
        // SAFETY: as above.
        let listed = place_in_list(unsafe { (*device.raw()).command_fd });
        Ok(Self {
            fd,
            listed: listed.filter(|place| place.exists()),
            listed_at: None,
            looks: 0,
            down: None,
            patience: Duration::from_nanos(peer_timeout.as_nanos() / 2).min(PATIENCE_MAX),
        })
    }

    /// Sets how long a port may be down.
    #[cfg(test)]
    pub(super) fn be_patient_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The descriptor that is readable when an event has arrived.
    pub(super) fn descriptor(&self) -> RawFd {
        self.fd
    }

    /// Looks at the device once in many calls, since that takes a system call.
    pub(super) fn look_sometimes(&mut self, device: &RdmaDevice) -> Result<(), RdmaError> {
        self.looks = self.looks.wrapping_add(1);
        match self.looks.is_multiple_of(LOOKS) {
            true => self.look(device),
            false => Ok(()),
        }
    }

    /// Reads the events, and checks list and port.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a port has been down is no matter of the protocol"
    )]
    pub(super) fn look(&mut self, device: &RdmaDevice) -> Result<(), RdmaError> {
        let has_changed = self.take_events(device)?;
        let now = Instant::now();
        if self.listed_at.is_none_or(|at| now - at > LIST_EVERY) {
            self.listed_at = Some(now);
            self.look_at_the_list(device)?;
        }
        if !has_changed && self.down.is_none() {
            return Ok(());
        }
        if device.is_up()? {
            self.down = None;
            return Ok(());
        }
        let since = *self.down.get_or_insert(now);
        if now - since < self.patience {
            return Ok(());
        }
        Err(RdmaError::PortLost {
            device: device.name.clone(),
            port: device.place.port,
            waited_ms: self.patience.as_millis() as u64,
        })
    }

    fn look_at_the_list(&self, device: &RdmaDevice) -> Result<(), RdmaError> {
        match &self.listed {
            Some(place) if !place.exists() => Err(RdmaError::DeviceGone {
                device: device.name.clone(),
                sign: format!("{} has gone", place.display()),
            }),
            _ => Ok(()),
        }
    }

    /// Reads all events. Returns whether there were any; some of them are errors.
    fn take_events(&self, device: &RdmaDevice) -> Result<bool, RdmaError> {
        let gone = |sign: String| RdmaError::DeviceGone {
            device: device.name.clone(),
            sign,
        };
        let mut any = false;
        loop {
            let mut event = AsyncEvent {
                element: 0,
                kind: 0,
            };
            // SAFETY: the event is written when there is one; the descriptor does not block.
            let code = unsafe { (device.library.next_event)(device.raw(), &raw mut event) };
            match checked(code) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(gone(format!("its events cannot be read: {error}"))),
            }
            // SAFETY: it was just taken.
            unsafe { (device.library.end_event)(&raw mut event) };
            any = true;
            let sign = match event.kind {
                EVENT_DEVICE_FATAL => "the kernel says that it is gone",
                EVENT_QP_FATAL => "a queue pair has failed",
                EVENT_CQ_ERROR => "a completion queue has overflowed",
                EVENT_SRQ_ERROR => "the receive queue has failed",
                _ => continue,
            };
            return Err(gone(sign.to_owned()));
        }
    }
}

/// The path under which the system lists the device of a descriptor.
fn place_in_list(fd: RawFd) -> Option<PathBuf> {
    let found = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    let is_device = found.file_type().is_char_device();
    is_device.then(|| PathBuf::from(format!("/sys/dev/char/{major}:{minor}")))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn devices_are_listed_and_files_are_not() {
        let null = fs::File::open("/dev/null").expect("every Linux has it");
        let place = place_in_list(null.as_raw_fd());
        assert_eq!(place, Some(PathBuf::from("/sys/dev/char/1:3")));
        let status = fs::File::open("/proc/self/status").expect("every Linux has it");
        assert_eq!(place_in_list(status.as_raw_fd()), None);
        assert_eq!(place_in_list(-1), None);
    }
}
