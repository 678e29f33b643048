//! Tests whether runs of packets stay runs inside this host, by sending one from one of its sockets
//! to another. Packets to one of its addresses never reach the NIC, so this tests the kernel and
//! the container. The NIC's part is in [`super::device`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::socket::{self, ProbeSocket, SendOptions};
use crate::udp::SLOT_BYTES;

const RUN_PACKETS: usize = 16;
const PACKET_BYTES: usize = 1_000;
const PATIENCE: Duration = Duration::from_millis(300);

/// The fate of a run of equal packets.
#[derive(Debug)]
pub struct Offload {
    /// Packets of the run.
    pub packets: usize,
    /// The kernel's error, if it did not accept the run as one (GSO).
    pub refused: Option<io::Error>,
    /// The maximum number of packets that were received as one (GRO); 0 if none arrived.
    pub glued: usize,
}

/// Sends a run from `address` to itself.
///
/// # Errors
/// If no socket can be opened on the address.
pub fn offload(address: IpAddr) -> io::Result<Offload> {
    let open = || ProbeSocket::open(SocketAddr::new(address, 0));
    let (sender, receiver) = (open()?, open()?);
    let sending = SendOptions {
        to: receiver.address(),
        class: 0,
        packet_bytes: Some(PACKET_BYTES as u16),
    };
    let refused = sender.send(&[0; RUN_PACKETS * PACKET_BYTES], sending).err();
    let mut glued = 0;
    if refused.is_none() {
        let mut slot = vec![0; SLOT_BYTES];
        socket::wait(std::iter::once(&receiver), PATIENCE);
        while let Some(received) = receiver.receive(&mut slot) {
            let each = received.packet_bytes.unwrap_or(received.bytes).max(1);
            glued = glued.max(received.bytes / each);
        }
    }
    Ok(Offload {
        packets: RUN_PACKETS,
        refused,
        glued,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn loopback_keeps_a_run_together() {
        let offload = offload(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("loopback has ports");
        assert!(offload.refused.is_none(), "{offload:?}");
        assert_eq!(offload.glued, offload.packets);
    }

    #[test]
    fn an_address_of_another_host_cannot_be_probed() {
        assert!(offload(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))).is_err());
    }
}
