//! A job's parameters for one rank, in the units of its machine.

use crate::job::{GrantWindow, Job, Mtu, PacketOrder, QueueSignal, SendWindow};
use crate::parity::ParityRule;
use crate::priority::Policy;
use crate::segment;
use crate::units::{ByteCount, JobId, MessageId, PathNumber, Rank, Span};

/// Maximum bytes of one run, as many as one GSO send can carry with the kernel's headers.
const RUN_BYTES_MAX: u32 = 65_000;
/// The IP packet size while the MTU of the path is not known.
const MTU_DEFAULT: u32 = 1500;
/// A window is acknowledged in this many parts.
const ACKS_PER_WINDOW: u64 = 8;

/// How much an endpoint remembers, and in which form. A job reaches most of the
/// [usual](EndpointLimits::USUAL) numbers after hours or weeks; a test with smaller ones sees at
/// once how the endpoint handles them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndpointLimits {
    /// Messages of one peer beyond which early ones are refused. A peer can only be ahead by the
    /// operations that it has not finished.
    pub early_messages: usize,
    /// Segments of one peer's early messages beyond which more are refused, so that invented
    /// headers cannot take all memory.
    pub early_segments: u64,
    /// Ranges of closed messages beyond which a RESET for an unknown message is not taken, so that
    /// invented headers cannot take all memory. There are as many only if more messages are open.
    pub closed_ranges: usize,
    /// Steps of which the ledger keeps an account.
    pub steps: usize,
    /// Packets after a loss until the paths to a peer count as clean.
    pub clean_packets: u64,
    /// Packets that come in order before a peer's paths are trusted to keep it.
    pub order_proof: u32,
    /// The largest number of peers whose states are kept unpacked; that of the one in use always
    /// is. To pack the others saves nine tenths of their memory in a simulator with thousands of
    /// endpoints. It changes no packet, and takes some microseconds each time, more for long
    /// messages.
    pub awake_peers: usize,
}

impl EndpointLimits {
    /// The limits of every job.
    pub const USUAL: Self = Self {
        early_messages: 4096,
        early_segments: 1 << 26,
        closed_ranges: 1 << 16,
        steps: 64,
        clean_packets: 1 << 16,
        order_proof: 4096,
        awake_peers: usize::MAX,
    };
}

/// A rank and its job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Its number.
    pub rank: Rank,
    /// How many ranks there are.
    pub world_size: u16,
    /// The job, drawn by rank 0.
    pub job: JobId,
    /// The membership epoch.
    pub epoch: u16,
}

/// A job's parameters for one rank.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// This rank and its job.
    pub identity: Identity,
    /// Payload bytes of a full packet.
    pub segment_bytes: u32,
    /// Maximum bytes in flight to one peer.
    pub window: SendWindow,
    /// Bytes in flight at the start.
    pub initial_window: ByteCount,
    /// Bytes of a message that may be sent before its receiver has posted it.
    pub unscheduled: ByteCount,
    /// Bytes with which a message may begin although its receiver grants segments.
    pub speculative: ByteCount,
    /// Segments that all peers together may have in flight to this rank; `None`: any number.
    pub grant_segments: Option<u64>,
    /// Most segments of one run.
    pub run_segments: usize,
    /// Paths to each peer.
    pub entropies: u8,
    /// Minimum gap after which holes are accepted.
    pub gap: Span,
    /// Whether paths keep order.
    pub order: PacketOrder,
    /// How much parity follows messages.
    pub parity: ParityRule,
    /// How long queues show.
    pub queues: QueueSignal,
    /// How much the round trip may exceed the minimum without congestion.
    pub delay_target: Span,
    /// A peer that owes an answer and sends no packet for this long is silent.
    pub peer_timeout: Span,
    /// The id of the first message to each peer.
    pub first_message: MessageId,
    /// The number of the first packet of each path, from and to all peers.
    pub first_number: PathNumber,
    /// How much it remembers.
    pub limits: EndpointLimits,
    /// Classes, DSCPs and protection.
    pub policy: Policy,
}

/// Most segments of one run of a job's packets.
pub fn run_segments(job: &Job, segment_bytes: u32) -> usize {
    let fitting = RUN_BYTES_MAX / (segment_bytes + job.packet_overhead());
    u32::from(job.transport.spray_burst).min(fitting).max(1) as usize
}

impl EndpointSettings {
    pub(crate) fn new(identity: Identity, job: &Job) -> Self {
        let mtu = match job.transport.mtu {
            Mtu::Auto => MTU_DEFAULT,
            Mtu::Bytes(bytes) => bytes,
        };
        let overhead = job.packet_overhead();
        let segment_bytes = segment::segment_bytes(mtu, overhead);
        Self {
            identity,
            segment_bytes,
            window: job.transport.window,
            initial_window: job.transport.initial_window,
            unscheduled: job.transport.unscheduled,
            speculative: job.transport.speculative,
            grant_segments: match job.transport.grant_window {
                None | Some(GrantWindow::Unlimited) => None,
                Some(GrantWindow::Bytes(bytes)) => {
                    Some((bytes.get() / u64::from(segment_bytes)).max(2))
                }
            },
            run_segments: run_segments(job, segment_bytes),
            entropies: job.transport.entropies,
            gap: job.transport.gap,
            order: job.transport.order,
            parity: job.transport.parity,
            queues: job.transport.queues,
            delay_target: job.transport.delay_target,
            peer_timeout: job.transport.peer_timeout,
            first_message: MessageId(1),
            first_number: PathNumber(0),
            limits: EndpointLimits::USUAL,
            policy: job.policy(),
        }
    }

    /// Segments of a full packet that so many bytes are.
    pub(crate) fn in_segments(&self, bytes: ByteCount) -> u64 {
        bytes.get() / u64::from(self.segment_bytes)
    }

    /// Segments of a message that may be sent before its receiver has posted it.
    pub fn unscheduled_segments(&self) -> u32 {
        self.in_segments(self.unscheduled).max(1) as u32
    }

    /// Segments with which a message may begin although its receiver grants segments.
    pub fn speculative_segments(&self) -> u32 {
        match self.grant_segments {
            Some(_) => self.in_segments(self.speculative) as u32,
            None => 0,
        }
    }

    /// Whether this many segments are acknowledged at once: they fill a part of the window, give or
    /// take less than a segment.
    pub fn is_worth_an_ack(&self, segments: u32) -> bool {
        let filled = (u64::from(segments) + 1) * u64::from(self.segment_bytes);
        filled * ACKS_PER_WINDOW > self.window.short().get()
    }
}
