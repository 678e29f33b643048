//! Which tensors of a model gain from a codec, and into how many parts each is cut: the selective
//! compression of HiPress (SOSP 2021, `SeCoPa`).
//!
//! The time to synchronise a tensor of m elements in K parts is a sum of operations, each of which
//! costs [`LinearCost`] of the elements it takes. With N servers, or N ranks in a ring,
//! contributions of r m elements and sums of s m elements:
//!
//! - Servers, plain: gather(m/K) + broadcast(m/K).
//! - Servers, encoded: gather(rm/K) + broadcast(sm/K); min(K, N-1) contributions and one sum are
//!   encoded, N-1 contributions and min(K, N-1) sums are decoded.
//! - Ring, plain: 2(N-1) send(m/K).
//! - Ring, encoded: (N-1) (send(rm/K) + send(sm/K)); N-1 contributions and one sum are encoded and
//!   decoded.
//!
//! Both add N-1 aggregations of m/K elements. The plan takes the K from 1 to N with the least time,
//! and encodes a tensor if that is less than the least time of the plain one. HiPress has one codec
//! for both (r = s).

use std::fmt;

/// Milliseconds of an operation: a line in the elements, with a floor for small ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearCost {
    /// Milliseconds per element.
    pub per_element: f64,
    /// Where the line meets zero elements, in milliseconds.
    pub base: f64,
    /// The least time, in milliseconds.
    pub floor: f64,
}

impl LinearCost {
    /// An operation that costs nothing.
    pub const FREE: Self = Self {
        per_element: 0.0,
        base: 0.0,
        floor: 0.0,
    };

    /// The line through two measurements: elements and milliseconds, the smaller first. The floor
    /// is the time of the smaller one.
    pub fn through((small, least): (f64, f64), (large, most): (f64, f64)) -> Self {
        let per_element = ((most - least) / (large - small)).max(0.0);
        Self {
            per_element,
            base: (least - per_element * small).max(0.0),
            floor: least,
        }
    }

    /// The time for this many elements, which may be a fraction.
    pub fn of(self, elements: f64) -> f64 {
        let is_small = elements * self.per_element < self.floor - self.base;
        match is_small {
            true => self.floor,
            false => elements * self.per_element + self.base,
        }
    }
}

/// How gradients travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExchangeCosts {
    /// To servers, or to the owners of shards, and back.
    Servers {
        /// From all ranks to one server.
        gather: LinearCost,
        /// From one server to all ranks.
        broadcast: LinearCost,
    },
    /// Around a ring.
    Ring {
        /// From one rank to the next.
        send: LinearCost,
    },
}

/// The costs of one codec.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodingCosts {
    /// Encoded length over length.
    pub ratio: f64,
    /// Of encoding elements.
    pub encode: LinearCost,
    /// Of decoding, in elements of the encoded length.
    pub decode: LinearCost,
}

impl CodingCosts {
    /// Values that leave as they are.
    pub const PLAIN: Self = Self {
        ratio: 1.0,
        encode: LinearCost::FREE,
        decode: LinearCost::FREE,
    };
}

/// The costs of a reduction with codecs, and of a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecCosts {
    /// Of contributions.
    pub contribution: CodingCosts,
    /// Of their finished sum.
    pub sum: CodingCosts,
    /// Of adding one contribution.
    pub aggregate: LinearCost,
    /// Of the way over the network.
    pub exchange: ExchangeCosts,
}

/// The plan of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorPlan {
    /// Its elements.
    pub elements: u64,
    /// Whether it is encoded.
    pub is_encoded: bool,
    /// Into how many parts it is cut.
    pub parts: u32,
    /// Milliseconds without a codec, at the best number of parts.
    pub plain_ms: f64,
    /// Milliseconds with it, at the best number of parts.
    pub encoded_ms: f64,
}

impl CodecCosts {
    /// The costs that HiPress publishes for its own cluster and codec, for 4, 8 or 16 servers;
    /// `None` for other numbers, which it has not measured.
    pub fn published_servers(servers: u32) -> Option<Self> {
        let line = |per_element, base, floor| LinearCost {
            per_element,
            base,
            floor,
        };
        let (gather, broadcast) = match servers {
            4 => (
                line(2.7156e-6, 0.4193, 0.15573),
                line(2.7157e-6, 0.22156, 0.1482),
            ),
            8 => (
                line(6.1167e-6, 0.80768, 0.28778),
                line(6.1172e-6, 0.27285, 0.29666),
            ),
            16 => (
                line(1.2937e-5, 1.4406, 0.59503),
                line(1.2915e-5, 0.45538, 0.58353),
            ),
            _ => return None,
        };
        Some(Self::published(ExchangeCosts::Servers {
            gather,
            broadcast,
        }))
    }

    /// The costs that HiPress publishes for rings of any size.
    pub fn published_ring() -> Self {
        let send = LinearCost {
            per_element: 8.5005e-7,
            base: 0.20337,
            floor: 0.09766,
        };
        Self::published(ExchangeCosts::Ring { send })
    }

    fn published(exchange: ExchangeCosts) -> Self {
        let coding = CodingCosts {
            ratio: 1.0 / 16.0,
            encode: LinearCost {
                per_element: 1.4133e-8,
                base: 0.058938,
                floor: 0.05408,
            },
            decode: LinearCost {
                per_element: 6.2041e-9,
                base: 0.13956,
                floor: 0.07287,
            },
        };
        Self {
            contribution: coding,
            sum: coding,
            aggregate: LinearCost::FREE,
            exchange,
        }
    }

    /// The plan of a tensor among this many servers or ranks.
    pub fn plan(&self, elements: u64, members: u32) -> TensorPlan {
        let best = |time: &dyn Fn(u32) -> f64| {
            let parts = (1..=members.max(1)).map(|parts| (parts, time(parts)));
            parts.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((1, 0.0))
        };
        let (plain_parts, plain_ms) = best(&|parts| self.plain(elements, members, parts));
        let (encoded_parts, encoded_ms) = best(&|parts| self.encoded(elements, members, parts));
        let is_encoded = plain_ms > encoded_ms;
        TensorPlan {
            elements,
            is_encoded,
            parts: if is_encoded {
                encoded_parts
            } else {
                plain_parts
            },
            plain_ms,
            encoded_ms,
        }
    }

    fn plain(&self, elements: u64, members: u32, parts: u32) -> f64 {
        let part = elements as f64 / f64::from(parts);
        let others = f64::from(members - 1);
        let travel = match self.exchange {
            ExchangeCosts::Servers { gather, broadcast } => gather.of(part) + broadcast.of(part),
            ExchangeCosts::Ring { send } => 2.0 * others * send.of(part),
        };
        travel + others * self.aggregate.of(part)
    }

    fn encoded(&self, elements: u64, members: u32, parts: u32) -> f64 {
        let Self {
            contribution, sum, ..
        } = self;
        let part = elements as f64 / f64::from(parts);
        let (given, summed) = (part * contribution.ratio, part * sum.ratio);
        let others = f64::from(members - 1);
        let sent = f64::from(parts.min(members - 1));
        let (travel, encoded, decoded) = match self.exchange {
            ExchangeCosts::Servers { gather, broadcast } => {
                (gather.of(given) + broadcast.of(summed), sent, sent)
            }
            ExchangeCosts::Ring { send } => {
                let travel = others * (send.of(given) + send.of(summed));
                (travel, others, 1.0)
            }
        };
        let encode = encoded * contribution.encode.of(part) + sum.encode.of(part);
        let decode = others * contribution.decode.of(given) + decoded * sum.decode.of(summed);
        travel + encode + decode + others * self.aggregate.of(part)
    }

    /// The least number of elements from which on every tensor is encoded; `None` if no tensor of
    /// up to 2^30 elements is.
    pub fn threshold(&self, members: u32) -> Option<u64> {
        let pays = |elements: u64| self.plan(elements, members).is_encoded;
        let (mut plain, mut encoded) = (0, 1 << 30);
        if !pays(encoded) {
            return None;
        }
        while encoded - plain > 1 {
            let middle = plain + (encoded - plain) / 2;
            match pays(middle) {
                true => encoded = middle,
                false => plain = middle,
            }
        }
        Some(encoded)
    }
}

/// "y,4": whether the tensor is encoded, and its parts; the notation of HiPress.
impl fmt::Display for TensorPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_encoded { 'y' } else { 'n' };
        write!(f, "{sign},{}", self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements of VGG19's tensors, weights and biases in turn.
    const VGG19: [u64; 38] = [
        1728,
        64,
        36_864,
        64,
        73_728,
        128,
        147_456,
        128,
        294_912,
        256,
        589_824,
        256,
        589_824,
        256,
        589_824,
        256,
        1_179_648,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        2_359_296,
        512,
        102_760_448,
        4096,
        16_777_216,
        4096,
        4_096_000,
        1000,
    ];

    fn encoded_of(costs: CodecCosts, members: u32) -> usize {
        let plans = VGG19.map(|elements| costs.plan(elements, members));
        plans.iter().filter(|plan| plan.is_encoded).count()
    }

    #[test]
    fn the_published_plan_of_vgg19_is_reproduced() {
        let costs = CodecCosts::published_servers(4).expect("it is published");
        for elements in VGG19 {
            let published = match elements {
                ..1_179_648 => "n,4",
                1_179_648 => "y,2",
                _ => "y,4",
            };
            assert_eq!(costs.plan(elements, 4).to_string(), published, "{elements}");
        }
    }

    #[test]
    fn larger_groups_and_rings_encode_as_many_as_published() {
        let servers = |count| CodecCosts::published_servers(count).expect("it is published");
        let by_servers = [4, 8, 16].map(|count| encoded_of(servers(count), count));
        assert_eq!(by_servers, [11, 10, 3]);
        let by_ring = [4, 8, 16].map(|count| encoded_of(CodecCosts::published_ring(), count));
        assert_eq!(by_ring, [11, 11, 10]);
        assert_eq!(CodecCosts::published_servers(5), None);
    }

    #[test]
    fn a_plan_is_one_number() {
        let costs = CodecCosts::published_servers(4).expect("it is published");
        let threshold = costs.threshold(4).expect("large tensors are encoded");
        assert!((589_824..=1_179_648).contains(&threshold), "{threshold}");
    }

    #[test]
    fn sums_that_stay_long_gain_less() {
        let both = CodecCosts::published_servers(4).expect("it is published");
        let half = CodecCosts {
            sum: CodingCosts::PLAIN,
            ..both
        };
        let encoded = |costs: CodecCosts| costs.plan(1 << 24, 4).encoded_ms;
        assert!(encoded(half) > encoded(both));
        assert!(half.threshold(4) > both.threshold(4));
    }

    #[test]
    fn a_fast_network_needs_no_codec() {
        let free = LinearCost::FREE;
        let costs = CodecCosts {
            exchange: ExchangeCosts::Ring { send: free },
            ..CodecCosts::published_ring()
        };
        assert_eq!(costs.threshold(4), None);
    }
}
