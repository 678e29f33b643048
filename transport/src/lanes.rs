//! The form of AEGIS that the processors of a job compute fastest.

use serde::{Deserialize, Serialize};

/// How many blocks of AEGIS a processor computes at a time. Both ends of a path use the same lanes.
/// The order is that of their number.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum AegisLanes {
    /// AEGIS-128X2, which is fast on all processors with AES instructions.
    Two,
    /// AEGIS-128X4, which is faster where an instruction computes four blocks, and slower
    /// elsewhere.
    Four,
}

impl AegisLanes {
    /// What this processor computes fastest.
    pub fn of_this_host() -> Self {
        match has_wide_aes() {
            true => Self::Four,
            false => Self::Two,
        }
    }

    /// The lanes of the least able of these: more would be slower there. Two if there are none.
    pub fn among(lanes: impl IntoIterator<Item = Self>) -> Self {
        lanes.into_iter().min().unwrap_or(Self::Two)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_wide_aes() -> bool {
    is_x86_feature_detected!("vaes") && is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_wide_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_use_the_lanes_of_the_least_able_one() {
        let (two, four) = (AegisLanes::Two, AegisLanes::Four);
        assert_eq!(AegisLanes::among([four, four]), four);
        assert_eq!(AegisLanes::among([four, two, four]), two);
        assert_eq!(AegisLanes::among([]), two);
    }
}
