//! Values of a job that only its ranks together know, fitted to them once they have met.
//!
//! 1. An MTU that the job leaves open is the smallest of all interfaces.
//! 2. The bytes in flight to a rank fit its receive buffers: a packet that the kernel drops there
//!    would be a loss that no network made.
//! 3. Up to `UNGRANTED_PEERS` peers share half of the buffers: each has a window of its own.
//! 4. More peers would overrun the link before the buffers (incast). Then the rank grants
//!    ([`crate::grants`]) to all of them together as much as one alone may have in flight, and the
//!    unscheduled starts of all of them together are no larger. Each keeps its whole window, since
//!    in a ring one peer sends alone.

use crate::job::{GrantWindow, Job};
use crate::units::ByteCount;

/// No window shrinks below this, however many ranks share a receive buffer. Packets that then do
/// not fit are repaired.
const WINDOW_MIN: ByteCount = ByteCount::kib(64);
/// Maximum number of peers that need no grants.
const UNGRANTED_PEERS: u64 = 4;
/// Minimum size of an unscheduled start: about a packet, which announces its message.
const UNSCHEDULED_MIN: ByteCount = ByteCount::kib(1);

/// The facts of all ranks that a job is fitted to; equal on all of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LaunchFacts {
    /// The smallest MTU of all interfaces, in bytes.
    pub mtu: u32,
    /// The smallest receive buffers of a rank.
    pub receive_buffer: ByteCount,
    /// The largest number of peers that a rank reaches over a network.
    pub peers: u64,
}

/// The job, fitted to its ranks.
#[must_use]
pub fn fitted(job: Job, facts: &LaunchFacts) -> Job {
    let mut job = job.with_mtu(facts.mtu);
    let peers = facts.peers.max(1);
    let half = facts.receive_buffer.get() / 2;
    let transport = &mut job.transport;
    let grants = transport.grant_window.unwrap_or_else(|| match peers {
        0..=UNGRANTED_PEERS => GrantWindow::Unlimited,
        _ => {
            let short = transport.window.short();
            GrantWindow::Bytes(short.min(ByteCount::new(half)).max(WINDOW_MIN))
        }
    });
    let (window, unscheduled) = match grants {
        GrantWindow::Unlimited => (half / peers, half / peers),
        GrantWindow::Bytes(all) => (half, all.get() / peers),
    };
    transport.grant_window = Some(grants);
    transport.window = (transport.window).within(ByteCount::new(window).max(WINDOW_MIN));
    let short = transport.window.short();
    transport.initial_window = transport.initial_window.min(short);
    let unscheduled = ByteCount::new(unscheduled).max(UNSCHEDULED_MIN);
    transport.unscheduled = (transport.unscheduled).min(unscheduled).min(short);
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Mtu, SendWindow};

    fn facts(peers: u64, receive_buffer: u64) -> LaunchFacts {
        LaunchFacts {
            mtu: 1400,
            receive_buffer: ByteCount::new(receive_buffer),
            peers,
        }
    }

    #[test]
    fn an_open_mtu_becomes_what_every_interface_takes() {
        let job = fitted(Job::default(), &facts(2, 1 << 30));
        assert_eq!(job.transport.mtu, Mtu::Bytes(1400));
        let job = fitted(Job::default().with_mtu(9000), &facts(2, 1 << 30));
        assert_eq!(job.transport.mtu, Mtu::Bytes(9000));
    }

    #[test]
    fn few_windows_together_fill_half_a_receive_buffer() {
        let window = |peers, buffer| {
            let transport = fitted(Job::default(), &facts(peers, buffer)).transport;
            assert_eq!(transport.grant_window, Some(GrantWindow::Unlimited));
            transport.window
        };
        assert_eq!(window(1, 64 << 20), SendWindow::Auto(ByteCount::mib(32)));
        assert_eq!(window(4, 2 << 20), SendWindow::Auto(ByteCount::kib(256)));
    }

    #[test]
    fn many_peers_are_granted_what_one_alone_may_have() {
        let transport = fitted(Job::default(), &facts(127, 16 << 20)).transport;
        let window = ByteCount::mib(1);
        assert_eq!(transport.window.short(), window);
        assert_eq!(transport.grant_window, Some(GrantWindow::Bytes(window)));
        let starts = transport.unscheduled.get() * 127;
        assert!(
            starts <= window.get(),
            "{starts} bytes of unscheduled starts"
        );
    }

    #[test]
    fn a_fitted_job_never_contradicts_itself() {
        for peers in [0, 1, 4, 5, 63, 1000, 65_534] {
            for buffer in [0, 1 << 16, 212_992, 1 << 20, 1 << 23, 1 << 32] {
                let job = fitted(Job::default(), &facts(peers, buffer));
                let checked = job.checked().map(|_| ());
                assert_eq!(checked, Ok(()), "{peers} peers, {buffer} bytes");
            }
        }
    }
}
