//! The types of values that only jobs have. The names of an enum's variants in `job.toml` are
//! derived from their names here.

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::units::{ByteCount, Share};
use crate::wire::TAG_BYTES;

/// Bytes in flight on a short path, unless a job names a number.
const SHORT_WINDOW: ByteCount = ByteCount::mib(1);

/// The value that a receiver uses for elements that did not arrive.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum HoleFilling {
    /// The sum of the contributions that arrived, times world size over their number: unbiased.
    Rescale,
    /// Zero.
    Zero,
    /// The element of the same tensor in the previous step.
    Previous,
    /// Zero now; the sender adds the missing values to the next step, so they are late, not lost.
    ErrorFeedback,
}

/// The largest IP packet that a path carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mtu {
    /// The smallest MTU of the interfaces between the ranks.
    Auto,
    /// This many bytes, IP and UDP headers included.
    Bytes(u32),
}

impl From<Option<u32>> for Mtu {
    fn from(bytes: Option<u32>) -> Self {
        bytes.map_or(Self::Auto, Self::Bytes)
    }
}

impl From<Mtu> for Option<u32> {
    fn from(mtu: Mtu) -> Self {
        match mtu {
            Mtu::Auto => None,
            Mtu::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The maximum that may be in flight to one peer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum SendWindow {
    /// It follows the path, up to this many bytes.
    Auto(ByteCount),
    /// This many bytes.
    Bytes(ByteCount),
}

impl SendWindow {
    /// It follows the path, as far as a job may ask for.
    pub const AUTO: Self = Self::Auto(ByteCount::mib(64));

    /// Bytes that may be in flight on the longest path.
    pub fn most(self) -> ByteCount {
        match self {
            Self::Auto(most) | Self::Bytes(most) => most,
        }
    }

    /// Bytes that may be in flight on a short path.
    pub fn short(self) -> ByteCount {
        match self {
            Self::Auto(most) => most.min(SHORT_WINDOW),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The same, but at most this many bytes.
    #[must_use]
    pub fn within(self, bytes: ByteCount) -> Self {
        match self {
            Self::Auto(most) => Self::Auto(most.min(bytes)),
            Self::Bytes(most) => Self::Bytes(most.min(bytes)),
        }
    }
}

impl From<Option<ByteCount>> for SendWindow {
    fn from(bytes: Option<ByteCount>) -> Self {
        bytes.map_or(Self::AUTO, Self::Bytes)
    }
}

impl From<SendWindow> for Option<ByteCount> {
    fn from(window: SendWindow) -> Self {
        match window {
            SendWindow::Auto(_) => None,
            SendWindow::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The maximum that all peers together may have in flight to one rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GrantWindow {
    /// No common bound: each sender obeys its own window only.
    Unlimited,
    /// This many bytes; the receiver grants messages in turn.
    Bytes(ByteCount),
}

impl From<Option<ByteCount>> for GrantWindow {
    fn from(bytes: Option<ByteCount>) -> Self {
        bytes.map_or(Self::Unlimited, Self::Bytes)
    }
}

impl From<GrantWindow> for Option<ByteCount> {
    fn from(window: GrantWindow) -> Self {
        match window {
            GrantWindow::Unlimited => None,
            GrantWindow::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The packets that injected faults may drop.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum DropFrom {
    /// All packets.
    All,
    /// DATA whose segment may be missing, sent for the first time.
    Droppable,
}

/// Whether packets carry a CRC-32.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// It covers header and payload.
    On,
    /// Only the checksums of the network protect packets.
    Off,
}

/// The means by which packets travel between ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum WireChoice {
    /// Shared memory between ranks of one host, UDP between hosts.
    Auto,
    /// UDP, also between ranks of one host.
    Udp,
    /// UDP by io_uring, also between ranks of one host.
    Uring,
    /// Shared memory; all ranks must be on one host.
    #[strum(serialize = "shm")]
    SharedMemory,
    /// UDP past the network stack of the kernel, by AF_XDP; the rank needs a NIC for itself.
    Xdp,
    /// Unreliable datagrams of an RDMA device, also between ranks of one host.
    Rdma,
}

/// How a rank's driver waits while it has no work.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum IdleMode {
    /// Looks for packets all the time: a core per rank.
    Busy,
    /// Looks for some microseconds, then sleeps until a packet arrives.
    Adaptive,
    /// Sleeps at once.
    Block,
}

/// Protection of packets against attackers who reach the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PacketSecurity {
    /// Every packet is encrypted and authenticated, by a [`PacketCipher`].
    Aead,
    /// No protection: an attacker who reaches the network can read, forge and replay packets.
    None,
}

impl PacketSecurity {
    /// Bytes that follow the payload of every packet.
    pub const fn tag_bytes(self) -> u32 {
        match self {
            Self::Aead => TAG_BYTES as u32,
            Self::None => 0,
        }
    }
}

/// The AEAD that encrypts and authenticates packets. Keys and tags have 16 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
pub enum PacketCipher {
    /// AEGIS-128X4 or AEGIS-128X2 (draft-irtf-cfrg-aegis-aead), whichever all processors compute
    /// faster: a few AES rounds for each 32 bytes, in four or two lanes.
    #[strum(serialize = "aegis")]
    Aegis,
    /// AES-128-GCM (NIST SP 800-38D).
    #[strum(serialize = "aes-128-gcm")]
    Aes128Gcm,
}

/// The algorithm of an all-reduce or a reduce-scatter.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum ReduceAlgorithm {
    /// Chosen by size and world size; direct where loss is tolerated and the network carries what
    /// all ranks send to all.
    Auto,
    /// Each rank sends each shard straight to the rank that sums it.
    Direct,
    /// Around the ring of ranks; lossless.
    Ring,
    /// In pairs of ranks at halved, then doubled distances; lossless. A reduce-scatter is done as
    /// by [`ReduceAlgorithm::Auto`].
    HalvingDoubling,
    /// Within each host, then between hosts, then within each host again. A reduce-scatter, and a
    /// group without ranks that share a host or on one host only, is done as by
    /// [`ReduceAlgorithm::Auto`].
    Hierarchical,
    /// All-reduces by the aggregator that `collectives.aggregator` names, where it carries them;
    /// the rest, and everything while it does not answer, as by [`ReduceAlgorithm::Auto`].
    InNetwork,
}

/// Whether packets of one class and one UDP source port keep their order on the way.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PacketOrder {
    /// Trusted after thousands of packets in order.
    Auto,
    /// They do: switches choose paths by hash. As with `Auto`, packets that overtake each other end
    /// the trust.
    Kept,
}

/// How a long queue on the path shows.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum QueueSignal {
    /// By loss, until the path has marked a packet.
    Auto,
    /// By marks: switches mark before they drop, so the losses are those of links.
    Marks,
}

/// The order in which the contributions of ranks are summed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum SumOrder {
    /// By rank number: a sum depends on its inputs and the algorithm, and not on time.
    Rank,
    /// As contributions arrive: sums of floats may differ in their last bits from run to run.
    Arrival,
}

/// An entry of `collectives.table`: the algorithm of all groups and tensors up to a size, for jobs
/// that leave the algorithm open. Written as `"4 256KiB direct"`; see [`super::notation::choice`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AlgorithmChoice {
    /// The maximum number of ranks of a group; at least 2.
    pub world: u16,
    /// The longest tensor.
    pub bytes: ByteCount,
    /// The algorithm; not [`ReduceAlgorithm::Auto`].
    pub algorithm: ReduceAlgorithm,
}

/// Which messages may lose segments, of those that are long enough and tolerate it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ToleranceUse {
    /// Those that are likely to end sooner so, and none of a tensor that one step reduces.
    WhereItPays,
    /// All.
    Always,
}

/// A transform of contributions to a sum, so that a lost segment is not a hole of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum GradientTransform {
    /// No transform: where a segment is lost, its contribution is missing.
    None,
    /// A randomised Hadamard transform over groups of segments, undone where the sum is finished
    /// (as in OptiReduce, NSDI 2025): a lost segment takes a little from each segment of its group.
    Hadamard,
}

/// The codec of gradients between hosts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum CodecName {
    /// Values leave as they are.
    None,
    /// One bit per value, the sign, and one scale per packet.
    Onebit,
    /// Two bits per value: zero, or plus or minus a threshold.
    Tbq,
    /// Two bits per value: one of four levels, drawn without bias.
    Terngrad,
    /// The values of largest magnitude.
    Topk,
    /// Eight bits per value, and one exponent per packet.
    Blockfloat,
}

/// How gradients are encoded between hosts: three keys of a job, or those of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecTerms {
    /// The codec.
    pub name: CodecName,
    /// The share of the values that top-k sends.
    pub share: Share,
    /// Shorter tensors leave as they are.
    pub min_tensor: ByteCount,
}

impl CodecTerms {
    /// No codec.
    pub const NONE: Self = Self {
        name: CodecName::None,
        share: Share::ALL,
        min_tensor: ByteCount::new(0),
    };
}

/// The processes that may ask a rank for its metrics.
#[derive(Clone, Copy, Debug, Eq, PartialEq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum MetricsAccess {
    /// Processes of the same host.
    Loopback,
    /// Every process that reaches the host.
    Any,
}
