//! Tells the drops of this host from the packets that a filter keeps out: the kernel counts both at
//! the socket (SO_RXQ_OVFL, SO_MEMINFO).
//!
//! A packet that finds a full socket, or no memory, is also counted for all UDP sockets of the
//! network namespace (`RcvbufErrors` and `MemErrors` of snmp); one that a filter rejects is not. So
//! of the drops at a socket at most as many are this host's as that count has grown by. It counts
//! the drops of other programs, too, so too many drops may count as this host's, but not too few.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The counts of the namespace: of IPv4 in two lines of names and values, of IPv6 in a line each.
const COUNTS: [&str; 2] = ["/proc/thread-self/net/snmp", "/proc/thread-self/net/snmp6"];
const OWN: [&str; 2] = ["RcvbufErrors", "MemErrors"];
/// More than either file has.
const COUNTS_BYTES: usize = 16 << 10;

/// The drops at sockets with a filter.
#[derive(Debug)]
pub(super) struct KeptOut {
    counts: Vec<File>,
    /// The namespace's drops when they were last read.
    before: u64,
    /// Drops of the namespace that no drop at a socket has been counted for.
    unclaimed: u64,
    /// Drops at the sockets that are either.
    undecided: u64,
}

impl KeptOut {
    /// Begins before the filter does.
    pub(super) fn begin() -> Self {
        let counts = COUNTS.iter().filter_map(|path| File::open(path).ok());
        let counts: Vec<File> = counts.collect();
        Self {
            before: namespace_drops(&counts).unwrap_or_default(),
            counts,
            unclaimed: 0,
            undecided: 0,
        }
    }

    /// A socket has dropped packets, or its filter has.
    pub(super) fn note(&mut self, drops: u64) {
        self.undecided += drops;
    }

    /// How many of the noted drops are this host's.
    pub(super) fn own_drops(&mut self) -> u64 {
        match self.undecided {
            0 => 0,
            _ => self.claim(namespace_drops(&self.counts)),
        }
    }

    /// Without the namespace's count all drops are this host's.
    fn claim(&mut self, now: Option<u64>) -> u64 {
        let noted = std::mem::take(&mut self.undecided);
        let Some(now) = now else {
            return noted;
        };
        self.unclaimed += now.saturating_sub(self.before);
        self.before = now;
        let own = noted.min(self.unclaimed);
        self.unclaimed -= own;
        own
    }
}

/// `None` where a file cannot be read or has no such count.
fn namespace_drops(counts: &[File]) -> Option<u64> {
    let texts = counts.iter().map(text).collect::<io::Result<Vec<_>>>();
    let drops = texts.ok()?.iter().filter_map(|text| drops_in(text)).sum();
    (!counts.is_empty()).then_some(drops)
}

fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; COUNTS_BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn drops_in(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    if let Some(names) = lines.find(|line| line.starts_with("Udp: ")) {
        let counts = names
            .split_whitespace()
            .zip(lines.next()?.split_whitespace());
        let own = counts.filter(|(name, _)| OWN.contains(name));
        return Some(own.filter_map(|(_, count)| count.parse::<u64>().ok()).sum());
    }
    let counts = text.lines().filter_map(|line| line.strip_prefix("Udp6"));
    let counts = counts.filter_map(|line| line.split_once(char::is_whitespace));
    let own = counts.filter(|(name, _)| OWN.contains(name));
    Some(
        own.filter_map(|(_, count)| count.trim().parse::<u64>().ok())
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_both_families_are_read() {
        let four = "Tcp: RcvbufErrors\nTcp: 9\nUdp: InErrors RcvbufErrors MemErrors\nUdp: 7 2 1\n\
                    UdpLite: InErrors RcvbufErrors MemErrors\nUdpLite: 5 5 5\n";
        assert_eq!(drops_in(four), Some(3));
        let six =
            "Ip6InReceives   \t8\nUdp6InErrors \t7\nUdp6RcvbufErrors   \t2\nUdp6MemErrors \t4\n";
        assert_eq!(drops_in(six), Some(6));
        let here = KeptOut::begin();
        assert!(
            namespace_drops(&here.counts).is_some(),
            "this kernel has the counts"
        );
    }

    #[test]
    fn kept_out_packets_hide_no_drop_of_this_host() {
        let mut kept_out = KeptOut::begin();
        kept_out.before = 100;
        kept_out.note(50);
        assert_eq!(kept_out.claim(Some(100)), 0, "a filter rejected all");
        // The namespace counts a drop before the socket is asked for it.
        kept_out.note(50);
        assert_eq!(kept_out.claim(Some(160)), 50);
        kept_out.note(20);
        assert_eq!(kept_out.claim(Some(160)), 10);
        kept_out.note(3);
        assert_eq!(kept_out.claim(None), 3, "nothing tells them apart");
    }
}
