//! The features of an interface, and whether it pauses the whole link, as `ethtool -k` and
//! `ethtool -a` show them.
#![expect(unsafe_code, reason = "ioctl takes raw pointers")]

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;

use super::socket::ProbeSocket;
use crate::interface;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_SET_SIZES: u32 = 0x37;
const GET_STRINGS: u32 = 0x1b;
const GET_FEATURES: u32 = 0x3a;
const GET_PAUSE: u32 = 0x12;
/// The set of strings with the names of features.
const SET_FEATURES: u32 = 4;
const NAME_BYTES: usize = 32;
/// Four words for every 32 features: available, requested, active, never changed.
const BLOCK_WORDS: usize = 4;

/// The features of the interface called `name`, and whether each is active.
///
/// # Errors
/// If there is no such interface, or its driver does not answer.
pub fn features(name: &str) -> io::Result<BTreeMap<String, bool>> {
    let socket = ProbeSocket::open(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    let ask = |words: &mut [u32]| ethtool(socket.descriptor(), name, words);
    // struct ethtool_sset_info: command, reserved, mask of 64 bits, sizes.
    let mut sizes = [GET_SET_SIZES, 0, 1 << SET_FEATURES, 0, 0];
    ask(&mut sizes)?;
    let count = sizes[4] as usize;
    // struct ethtool_gstrings: command, set, length, strings.
    let mut strings = vec![0; 3 + count * NAME_BYTES / 4];
    strings[..3].copy_from_slice(&[GET_STRINGS, SET_FEATURES, count as u32]);
    ask(&mut strings)?;
    // struct ethtool_gfeatures: command, size in blocks, blocks.
    let blocks = count.div_ceil(32);
    let mut active = vec![0; 2 + blocks * BLOCK_WORDS];
    active[..2].copy_from_slice(&[GET_FEATURES, blocks as u32]);
    ask(&mut active)?;
    let names = strings[3..].chunks_exact(NAME_BYTES / 4).map(name_in);
    let is_active = |index: usize| {
        let word = active[2 + index / 32 * BLOCK_WORDS + 2];
        word >> (index % 32) & 1 == 1
    };
    let all = names.enumerate();
    Ok(all.map(|(index, name)| (name, is_active(index))).collect())
}

/// Pausing of a whole link, all priorities together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkPause {
    /// The interface stops sending when the other side asks for it.
    pub receives: bool,
    /// The interface stops the other side when its buffers are full.
    pub sends: bool,
}

/// Whether the interface called `name` takes part in flow control of the whole link.
///
/// # Errors
/// If there is no such interface, or its driver does not answer.
pub fn pause(name: &str) -> io::Result<LinkPause> {
    let socket = ProbeSocket::open(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
    // struct ethtool_pauseparam: command, negotiated, received, sent.
    let mut words = [GET_PAUSE, 0, 0, 0];
    ethtool(socket.descriptor(), name, &mut words)?;
    Ok(LinkPause {
        receives: words[2] != 0,
        sends: words[3] != 0,
    })
}

fn name_in(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&name).into_owned()
}

/// Passes words to the driver of an interface, which writes its reply over them.
fn ethtool(descriptor: RawFd, name: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = interface::request(name)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request points to words; the first ones tell the kernel how many it may write,
    // which is as many as there are.
    let failed = unsafe { libc::ioctl(descriptor, SIOCETHTOOL, &raw mut request) };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_tells_its_features() {
        let features = features("lo").expect("loopback tells");
        assert_eq!(
            features.get("tx-udp-segmentation"),
            Some(&true),
            "{features:?}"
        );
        assert!(features.contains_key("rx-gro"), "{features:?}");
    }

    #[test]
    fn missing_interfaces_are_errors() {
        assert!(features("nowhere0").is_err());
        assert!(pause("nowhere0").is_err());
        assert!(features("a-name-that-is-too-long").is_err());
    }
}
