//! The Ethernet address to which packets for a peer go: its own, or that of the router on the way.
//!
//! The kernel knows it, since it resolves addresses (ARP) for the packets that go through UDP
//! sockets. So packets to a peer go through sockets until the kernel has resolved it. A run goes
//! there again after [`EVERY`], once it would overtake no packet: that keeps the kernel's knowledge
//! fresh when a peer or a router changes.
//!
//! Only the main table of routes counts, not those that `ip rule` chooses.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::frame::Mac;

/// How long an address is used before the kernel is asked again.
const EVERY: Duration = Duration::from_secs(1);
/// The wait before a peer missing from the kernel's tables is looked for again; it doubles each
/// time, up to [`EVERY`].
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The tables of this thread's network namespace: routes, and resolved addresses.
const ROUTES: &str = "/proc/thread-self/net/route";
const RESOLVED: &str = "/proc/thread-self/net/arp";
/// Bytes of them that are read at a time.
const TABLE_PART: usize = 4096;
/// The kernel has resolved it (ATF_COM).
const COMPLETE: u32 = 0x2;
/// The route leads to a router (RTF_GATEWAY).
const BY_ROUTER: u32 = 0x2;

/// The next hops of peers that are reached by one interface.
#[derive(Debug)]
pub(super) struct NextHops {
    interface: String,
    /// The kernel's tables of routes and of resolved addresses.
    tables: [File; 2],
    routes: Vec<Route>,
    resolved: BTreeMap<Ipv4Addr, Mac>,
    /// The peers that have had packets since they were last forgotten.
    peers: BTreeMap<Ipv4Addr, PeerHop>,
    forgotten_at: Option<Instant>,
    /// When the tables were read.
    read_at: Option<Instant>,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug)]
enum PeerHop {
    /// Packets have gone to it through the sockets, so the kernel resolves it. It is looked for
    /// from `until` on, and after a failed look again after `wait`.
    Missing {
        until: Instant,
        wait: Duration,
    },
    Known(Mac),
}

/// Whether packets wait to leave by AF_XDP, which others would overtake through a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Backlog {
    None,
    Some,
}

/// A line of the kernel's table of routes.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Route {
    interface: String,
    destination: u32,
    mask: u32,
    metric: u32,
    router: Option<Ipv4Addr>,
}

impl NextHops {
    /// Next hops by this interface.
    ///
    /// # Errors
    /// The system's, where the kernel's tables cannot be read.
    pub(super) fn by(interface: &str) -> io::Result<Self> {
        Ok(Self {
            interface: interface.to_owned(),
            // Open files keep to the network namespace of the thread that has opened them.
            tables: [File::open(ROUTES)?, File::open(RESOLVED)?],
            routes: Vec::new(),
            resolved: BTreeMap::new(),
            peers: BTreeMap::new(),
            forgotten_at: None,
            read_at: None,
        })
    }

    /// The next hop of a peer; `None` if its packets go through the sockets now.
    pub(super) fn find(
        &mut self,
        peer: Ipv4Addr,
        now: Instant,
        backlog: impl FnOnce() -> Backlog,
    ) -> Option<Mac> {
        let is_old = self.forgotten_at.is_none_or(|at| now - at >= EVERY);
        if is_old && backlog() == Backlog::None {
            self.peers.clear();
            self.forgotten_at = Some(now);
        }
        let wait = match self.peers.get(&peer) {
            Some(PeerHop::Known(hop)) => return Some(*hop),
            Some(PeerHop::Missing { until, .. }) if now < *until => return None,
            Some(PeerHop::Missing { wait, .. }) => *wait,
            // These packets make the kernel resolve it.
            None => {
                let (until, wait) = (now, LOOK_AGAIN);
                self.peers.insert(peer, PeerHop::Missing { until, wait });
                return None;
            }
        };
        let is_new = self.read_at > self.forgotten_at;
        let known = is_new.then(|| self.in_tables(peer)).flatten();
        let found = known.or_else(|| {
            self.read_tables(now);
            self.in_tables(peer)
        });
        let missing = PeerHop::Missing {
            until: now + wait,
            wait: (wait * 2).min(EVERY),
        };
        self.peers
            .insert(peer, found.map_or(missing, PeerHop::Known));
        found
    }

    fn read_tables(&mut self, now: Instant) {
        self.read_at = Some(now);
        let [routes, resolved] = self.tables.each_ref().map(text_of);
        self.routes = routes_in(&routes.unwrap_or_default());
        self.resolved = resolved_in(&resolved.unwrap_or_default(), &self.interface);
    }

    /// The next hop by the most specific route, if that leads over this interface and the kernel
    /// has resolved it.
    fn in_tables(&self, peer: Ipv4Addr) -> Option<Mac> {
        let to = u32::from(peer);
        let leading = self
            .routes
            .iter()
            .filter(|route| to & route.mask == route.destination);
        let best = leading.min_by_key(|route| (Reverse(route.mask), route.metric))?;
        let hop = best.router.unwrap_or(peer);
        let is_here = best.interface == self.interface;
        is_here.then(|| self.resolved.get(&hop).copied()).flatten()
    }
}

/// All of a file of the kernel, from its start.
fn text_of(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut part = [0; TABLE_PART];
    loop {
        let bytes = file.read_at(&mut part, text.len() as u64)?;
        if bytes == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&part[..bytes]);
    }
}

/// Reads lines such as `eth0 0001A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0`.
fn routes_in(text: &str) -> Vec<Route> {
    let address = |word: &str| {
        let number = u32::from_str_radix(word, 16).ok()?;
        // The kernel prints the bytes as a number of this processor.
        Some(u32::from_be_bytes(number.to_ne_bytes()))
    };
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[
            interface,
            destination,
            router,
            flags,
            _,
            _,
            metric,
            mask,
            ..,
        ] = &words[..]
        else {
            return None;
        };
        let has_router = u32::from_str_radix(flags, 16).ok()? & BY_ROUTER != 0;
        let router = address(router)?;
        Some(Route {
            interface: interface.to_owned(),
            destination: address(destination)?,
            mask: address(mask)?,
            metric: metric.parse().ok()?,
            router: has_router.then(|| Ipv4Addr::from(router)),
        })
    };
    text.lines().filter_map(route).collect()
}

/// Reads lines such as `192.168.1.1 0x1 0x2 02:00:00:00:00:01 * eth0`.
fn resolved_in(text: &str, interface: &str) -> BTreeMap<Ipv4Addr, Mac> {
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, flags, hop, _, device] = &words[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
        let is_known = flags & COMPLETE != 0 && device == interface;
        let bytes = hop.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let bytes = bytes.collect::<Result<Vec<u8>, _>>().ok()?;
        is_known.then_some((address.parse().ok()?, bytes.try_into().ok()?))
    };
    text.lines().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\tFE01A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t00000000\tFE02A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
eth1\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
";
    const RESOLVED: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.168.1.7      0x1         0x2         02:00:00:00:00:07     *        eth0
192.168.1.8      0x1         0x0         00:00:00:00:00:00     *        eth0
192.168.1.254    0x1         0x6         02:00:00:00:00:fe     *        eth0
192.168.2.9      0x1         0x2         02:00:00:00:00:09     *        eth1
";

    fn hops() -> NextHops {
        let mut hops = NextHops::by("eth0").expect("Linux has the tables");
        hops.routes = routes_in(ROUTES);
        hops.resolved = resolved_in(RESOLVED, "eth0");
        hops
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_most_specific_route_decides() {
        let hops = hops();
        let to = |address: [u8; 4]| hops.in_tables(Ipv4Addr::from(address));
        assert_eq!(
            to([192, 168, 1, 7]),
            Some([2, 0, 0, 0, 0, 7]),
            "on the link"
        );
        assert_eq!(to([192, 168, 1, 8]), None, "the kernel has not resolved it");
        assert_eq!(to([192, 168, 2, 9]), None, "it is behind another interface");
        assert_eq!(
            to([10, 0, 0, 1]),
            Some([2, 0, 0, 0, 0, 0xfe]),
            "by the better router"
        );
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn longer_masks_come_before_better_metrics() {
        let mut hops = hops();
        hops.routes = routes_in(
            "eth0 0000000A 00000000 0001 0 0 1 000000FF 0 0 0\n\
             eth1 0000010A 00000000 0001 0 0 2 0000FFFF 0 0 0\n\
             eth0 0002010A 00000000 0001 0 0 3 00FFFFFF 0 0 0\n\
             eth1 0302010A 00000000 0001 0 0 4 FFFFFFFF 0 0 0\n",
        );
        let peers = [[10, 9, 9, 9], [10, 1, 9, 9], [10, 1, 2, 9], [10, 1, 2, 3]];
        let peers = peers.map(Ipv4Addr::from);
        hops.resolved = peers.iter().map(|&peer| (peer, [2; 6])).collect();
        let is_by_eth0 = peers.map(|peer| hops.in_tables(peer).is_some());
        assert_eq!(is_by_eth0, [true, false, true, false]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test gives times")]
    fn a_peer_is_asked_for_before_it_is_used_and_again() {
        let (mut hops, start) = (hops(), Instant::now());
        let peer = Ipv4Addr::new(192, 168, 1, 7);
        hops.forgotten_at = Some(start);
        let (later, none) = (start + Duration::from_millis(1), || Backlog::None);
        hops.read_at = Some(later);
        assert_eq!(hops.find(peer, later, none), None, "packets resolve it");
        assert!(hops.find(peer, later, none).is_some());
        let soon = start + EVERY - Duration::from_millis(1);
        assert!(hops.find(peer, soon, none).is_some());
        let old = start + EVERY;
        assert!(hops.find(peer, old, || Backlog::Some).is_some(), "in order");
        assert_eq!(hops.find(peer, old, none), None, "packets keep it fresh");
    }

    #[test]
    fn foreign_lines_are_passed_over() {
        assert!(routes_in("a b c\n\neth0 zz 0 0 0 0 0 0\n").is_empty());
        assert!(
            resolved_in(
                "1.2.3.4 0x1 2 02:00 * eth0\n1.2.3.4 0x1 0x2 02:00 * eth0\n",
                "eth0"
            )
            .is_empty()
        );
    }
}
