//! The measured collectives: how large their buffers are, and how their bandwidths are computed.

use serde::{Deserialize, Serialize};

use super::ELEMENT_BYTES;

/// A measured collective.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PerfCollective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets its block of the sum.
    ReduceScatter,
    /// Every rank gets all blocks.
    AllGather,
    /// Every rank gets the tensor of rank 0.
    Broadcast,
    /// Rank 0 gets the sum.
    Reduce,
    /// Every rank gets a block of every rank.
    AllToAll,
    /// No rank continues before all have arrived.
    Barrier,
    /// Ping-pong between ranks 0 and 1.
    SendRecv,
}

impl PerfCollective {
    /// Factor from algbw to the bandwidth of one link (nccl-tests, doc/PERFORMANCE.md). A ping-pong
    /// has one message on the link at a time, so its factor is 1.
    pub fn bus_factor(self, ranks: u16) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            Self::AllReduce => 2.0 * others,
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => others,
            Self::Broadcast | Self::Reduce | Self::Barrier | Self::SendRecv => 1.0,
        }
    }

    /// Sizes are multiples of this many bytes: whole elements of each rank's block.
    pub fn granule(self, ranks: u16) -> u64 {
        match self {
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => {
                ELEMENT_BYTES * u64::from(ranks)
            }
            _ => ELEMENT_BYTES,
        }
    }

    /// Whether contributions are summed, so that some may be missing.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// The reduction of elements, as nccl-tests names it.
    pub fn reduction(self) -> &'static str {
        if self.reduces() { "sum" } else { "none" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        let factors = [
            (PerfCollective::AllReduce, 1.5),
            (PerfCollective::ReduceScatter, 0.75),
            (PerfCollective::AllGather, 0.75),
            (PerfCollective::AllToAll, 0.75),
            (PerfCollective::Broadcast, 1.0),
            (PerfCollective::Reduce, 1.0),
            (PerfCollective::SendRecv, 1.0),
        ];
        for (kind, factor) in factors {
            assert_eq!(kind.bus_factor(4), factor, "{kind}");
        }
    }

    #[test]
    fn ranks_read_the_name_that_people_type() {
        for kind in [
            PerfCollective::AllReduce,
            PerfCollective::SendRecv,
            PerfCollective::AllToAll,
        ] {
            let line = serde_json::to_string(&kind).expect("a plain name");
            assert_eq!(line, format!("\"{kind}\""));
        }
    }
}
