//! Data centre bridging of an interface: priority flow control, and the priority of each DSCP. Asks
//! the kernel as `dcb pfc show` and `dcb app show` do (`linux/dcbnl.h`).

use std::io::{self, ErrorKind, Read};

use socket2::{Domain, Protocol, Socket, Type};

const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const DCB_ATTR_IEEE_PFC: u16 = 2;
const DCB_ATTR_IEEE_APP_TABLE: u16 = 3;
/// `struct dcb_app` is a selector, a priority and the selected 16 bits; this selector means DSCPs.
const SELECTS_DSCP: u8 = 5;
/// Bytes of `struct nlmsghdr`, and of the `struct dcbmsg` after it: family, command, padding.
const HEADER_BYTES: usize = 16;
const DCB_BYTES: usize = 4;
/// Of an attribute: length and type.
const ATTRIBUTE_BYTES: usize = 4;
/// Bits of a type that are flags.
const FLAGS: u16 = 0xc000;
const REPLY_BYTES: usize = 16 << 10;

/// The settings of an interface for priorities.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DcbSettings {
    /// Priorities whose sender is paused when buffers are full (PFC).
    pub paused: Vec<u8>,
    /// Pairs of DSCP and priority. If empty, the NIC ignores DSCPs.
    pub by_dscp: Vec<(u8, u8)>,
}

/// Reads the settings of an interface.
///
/// # Errors
/// The system's error, if there is no such interface, or if its driver does not support this.
pub fn bridging(interface: &str) -> io::Result<DcbSettings> {
    let mut socket = socket()?;
    socket.send(&question(interface))?;
    let mut reply = vec![0; REPLY_BYTES];
    // The kernel answers within the send, so the reply is already there.
    socket.set_nonblocking(true)?;
    let length = socket.read(&mut reply)?;
    read(&reply[..length])
}

#[expect(
    clippy::disallowed_methods,
    reason = "probes have sockets of their own, in the crate that may open sockets"
)]
fn socket() -> io::Result<Socket> {
    let route = Protocol::from(libc::NETLINK_ROUTE);
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(route))
}

fn question(interface: &str) -> Vec<u8> {
    let name = [interface.as_bytes(), &[0]].concat();
    let body = [
        vec![0, DCB_CMD_IEEE_GET, 0, 0],
        attribute(DCB_ATTR_IFNAME, &name),
    ]
    .concat();
    message(RTM_GETDCB, &body)
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = (HEADER_BYTES + body.len()) as u32;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and sender, which the kernel ignores.
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = (ATTRIBUTE_BYTES + value.len()) as u16;
    let mut attribute = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Reads the kernel's answer.
fn read(reply: &[u8]) -> io::Result<DcbSettings> {
    let strange = || io::Error::new(ErrorKind::InvalidData, "an answer in an unexpected form");
    let body = reply.get(HEADER_BYTES..).ok_or_else(strange)?;
    let kind = u16::from_ne_bytes([reply[4], reply[5]]);
    if i32::from(kind) == libc::NLMSG_ERROR {
        let code = body.first_chunk().copied().ok_or_else(strange)?;
        return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(code)));
    }
    let attributes = body.get(DCB_BYTES..).ok_or_else(strange)?;
    let ieee = NetlinkAttributes(attributes).find(|(kind, _)| *kind == DCB_ATTR_IEEE);
    let (_, ieee) = ieee.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
    let mut told = DcbSettings::default();
    for (kind, value) in NetlinkAttributes(ieee) {
        match (kind, value) {
            // struct ieee_pfc: how many it can, then which it does.
            (DCB_ATTR_IEEE_PFC, [_, enabled, ..]) => {
                let is_on = |priority: &u8| enabled >> priority & 1 == 1;
                told.paused = (0..8).filter(is_on).collect();
            }
            (DCB_ATTR_IEEE_APP_TABLE, table) => told.by_dscp = by_dscp(table),
            _ => {}
        }
    }
    Ok(told)
}

fn by_dscp(table: &[u8]) -> Vec<(u8, u8)> {
    let entry = |(_, value): (u16, &[u8])| match *value {
        [SELECTS_DSCP, priority, low, high] => {
            let dscp = u16::from_ne_bytes([low, high]);
            Some((u8::try_from(dscp).ok()?, priority))
        }
        _ => None,
    };
    let mut found: Vec<(u8, u8)> = NetlinkAttributes(table).filter_map(entry).collect();
    found.sort_unstable();
    found
}

/// Attributes of type and value, one after the other. Ends at the first invalid one.
struct NetlinkAttributes<'a>(&'a [u8]);

impl<'a> Iterator for NetlinkAttributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let header = self.0.first_chunk::<ATTRIBUTE_BYTES>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !FLAGS;
        let value = self.0.get(ATTRIBUTE_BYTES..length)?;
        let next = length.next_multiple_of(4);
        self.0 = self.0.get(next..).unwrap_or_default();
        Some((kind, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_priorities_and_dscps_are_read() {
        // struct ieee_pfc has 136 bytes.
        let mut pfc = vec![0; 136];
        pfc[..2].copy_from_slice(&[8, 0b0000_1001]);
        let app = |selector, priority, what: u16| {
            let what = what.to_ne_bytes();
            attribute(1, &[selector, priority, what[0], what[1]])
        };
        let table = [app(5, 6, 40), app(1, 3, 0x8906), app(5, 2, 18)].concat();
        let ieee = [
            attribute(1, &[0; 60]),
            attribute(DCB_ATTR_IEEE_PFC, &pfc),
            attribute(DCB_ATTR_IEEE_APP_TABLE, &table),
        ]
        .concat();
        let body = [
            vec![0, DCB_CMD_IEEE_GET, 0, 0],
            attribute(DCB_ATTR_IFNAME, b"eth2\0"),
            attribute(DCB_ATTR_IEEE | 0x8000, &ieee),
        ]
        .concat();
        let reply = message(RTM_GETDCB, &body);
        let told = DcbSettings {
            paused: vec![0, 3],
            by_dscp: vec![(18, 2), (40, 6)],
        };
        assert_eq!(read(&reply).expect("it is whole"), told);
        for cut in 0..reply.len() {
            // A reply that is cut is an error or less, never a panic.
            if let Ok(less) = read(&reply[..cut]) {
                assert!(less.by_dscp.len() < told.by_dscp.len(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_interface_without_a_hardware_queue_says_so() {
        let error = bridging("lo").expect_err("loopback has no such thing");
        let code = error.raw_os_error();
        assert!(
            [libc::EOPNOTSUPP, libc::EPERM].map(Some).contains(&code),
            "{error}"
        );
        assert!(bridging("nowhere0").is_err());
    }
}
