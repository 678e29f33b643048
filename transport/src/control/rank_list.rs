//! Lists of ranks: how people read them, and how ranks travel in control messages.

use std::fmt;

use gradwire_protocol::units::Rank;
use serde::{Deserialize, Serialize};

/// A list of ranks that reads "ranks 1, 2 and 5".
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Vec<u16>", into = "Vec<u16>")]
pub struct RankList(Vec<Rank>);

impl RankList {
    /// How many ranks are named; further ones are only counted.
    const NAMED: usize = 16;

    /// The ranks in the order in which they were collected.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.0.iter().copied()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Rank> for RankList {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl From<Vec<u16>> for RankList {
    fn from(numbers: Vec<u16>) -> Self {
        numbers.into_iter().map(Rank).collect()
    }
}

impl From<RankList> for Vec<u16> {
    fn from(ranks: RankList) -> Self {
        ranks.iter().map(|rank| rank.0).collect()
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = &self.0[..self.0.len().min(Self::NAMED)];
        match named {
            [] => return f.write_str("ranks unknown here"),
            [one] => return write!(f, "rank {one}"),
            _ => f.write_str("ranks ")?,
        }
        let more = self.0.len() - named.len();
        for (index, rank) in named.iter().enumerate() {
            let separator = match index {
                0 => "",
                last if last + 1 == named.len() && more == 0 => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{rank}")?;
        }
        match more {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Writes a rank as its number, as control messages do.
pub(super) mod rank_number {
    use gradwire_protocol::units::Rank;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(rank: &Rank, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(rank.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Rank, D::Error> {
        u16::deserialize(deserializer).map(Rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(range: std::ops::Range<u16>) -> RankList {
        range.map(Rank).collect()
    }

    #[test]
    fn lists_of_ranks_read_as_english() {
        assert_eq!(ranks(1..2).to_string(), "rank 1");
        assert_eq!(ranks(1..3).to_string(), "ranks 1 and 2");
        assert_eq!(ranks(1..4).to_string(), "ranks 1, 2 and 3");
        assert!(ranks(0..40).to_string().ends_with(", 15 and 24 more"));
    }
}
