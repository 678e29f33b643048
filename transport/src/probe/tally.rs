//! The counts of a server about packets that it does not answer, per stream. No socket and no
//! clock.

/// The maximum number of streams of a session: two for each class of a job.
pub(super) const STREAMS_MAX: usize = 16;
/// Buckets of delays in each power of two: a percentile is at most 1/32 too low.
const PARTS: u64 = 32;
/// Delays from 2^36 ns, a minute, share the last bucket.
const BUCKETS: usize = (36 - 5 + 1) * PARTS as usize;

/// A packet of a stream, as sent and as received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TaggedPacket {
    /// Traffic class (DSCP and ECN) as it was sent.
    pub(super) sent_class: u8,
    /// Traffic class as it came.
    pub(super) class: u8,
    /// Nanoseconds from the stamp of the sender to the arrival.
    pub(super) delay_ns: u64,
}

/// The counts of a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StreamTally {
    /// Packets.
    pub(super) received: u32,
    /// Packets with CE.
    pub(super) marked: u32,
    /// Packets that were sent as ECT and arrived as not-ECT.
    pub(super) bleached: u32,
    /// Packets with another DSCP than they were sent with.
    pub(super) rewritten: u32,
    /// Shortest delay in nanoseconds, at most 2^32 - 1, as the two others.
    pub(super) least_ns: u32,
    /// Delay that half of the packets do not exceed.
    pub(super) median_ns: u32,
    /// Delay that 99 in 100 packets do not exceed.
    pub(super) p99_ns: u32,
}

/// Counts and delays of a stream that is still arriving.
#[derive(Clone, Debug)]
pub(super) struct TaggedStream {
    tally: StreamTally,
    least_ns: u64,
    delays: Vec<u32>,
}

impl Default for TaggedStream {
    fn default() -> Self {
        Self {
            tally: StreamTally::default(),
            least_ns: u64::MAX,
            delays: vec![0; BUCKETS],
        }
    }
}

impl TaggedStream {
    /// Counts a packet.
    pub(super) fn count(&mut self, passed: &TaggedPacket) {
        let (sent, came) = (passed.sent_class, passed.class);
        let tally = &mut self.tally;
        tally.received += 1;
        tally.marked += u32::from(came & 3 == 3);
        tally.bleached += u32::from(sent & 3 != 0 && came & 3 == 0);
        tally.rewritten += u32::from(sent >> 2 != came >> 2);
        self.least_ns = self.least_ns.min(passed.delay_ns);
        self.delays[bucket(passed.delay_ns)] += 1;
    }

    /// The counts so far.
    pub(super) fn tally(&self) -> StreamTally {
        if self.tally.received == 0 {
            return self.tally;
        }
        let short = |nanos: u64| u32::try_from(nanos).unwrap_or(u32::MAX);
        StreamTally {
            least_ns: short(self.least_ns),
            median_ns: short(self.percentile(50)),
            p99_ns: short(self.percentile(99)),
            ..self.tally
        }
    }

    /// The percentile by nearest rank: the lower end of its bucket, but at least the shortest
    /// delay.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (u64::from(self.tally.received) * percent).div_ceil(100);
        let mut seen = 0;
        let found = self.delays.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        found.map_or(0, lower_end).max(self.least_ns)
    }
}

fn bucket(nanos: u64) -> usize {
    let number = if nanos < PARTS {
        nanos
    } else {
        let shift = nanos.ilog2() - PARTS.ilog2();
        u64::from(shift) * PARTS + (nanos >> shift)
    };
    (number as usize).min(BUCKETS - 1)
}

fn lower_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / PARTS {
        0 => bucket,
        power => (PARTS + bucket % PARTS) << (power - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_a_32nd_too_low() {
        for nanos in (0..4_000).chain((12..36).map(|power| (1 << power) + 12_345)) {
            let low = lower_end(bucket(nanos));
            assert!(low <= nanos && nanos - low <= nanos / 32, "{nanos}: {low}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn tags_and_delays_are_counted() {
        let (ect, not_ect) = (34 << 2 | 2, 34 << 2);
        let mut stream = TaggedStream::default();
        assert_eq!(stream.tally(), StreamTally::default());
        for (sent_class, class) in [(ect, ect), (ect, ect | 3), (ect, not_ect), (not_ect, 0)] {
            let delay_ns = 1_000 * u64::from(stream.tally.received + 1);
            stream.count(&TaggedPacket {
                sent_class,
                class,
                delay_ns,
            });
        }
        let tally = stream.tally();
        assert_eq!((tally.received, tally.marked), (4, 1));
        assert_eq!((tally.bleached, tally.rewritten), (1, 1));
        assert_eq!(tally.least_ns, 1_000);
        assert!((1_937..=2_000).contains(&tally.median_ns), "{tally:?}");
        assert!((3_875..=4_000).contains(&tally.p99_ns), "{tally:?}");
    }
}
