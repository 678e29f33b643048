//! The structures of `gradwire.h`, with the field names and the field order of the header.

use std::ffi::{c_char, c_int, c_void};

/// `gw_counters`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct GwCounters {
    /// First transmissions of a segment.
    pub sent_segments: u64,
    /// Segments that stayed missing, within the tolerance.
    pub lost_segments: u64,
    /// Segments sent again because they were lost.
    pub repaired_segments: u64,
    /// Segments that arrived for the first time.
    pub received_segments: u64,
    /// Lost segments as the loss budget counts them.
    pub ledger_lost_segments: u64,
    /// Packets that could not be decoded, or failed the checksum.
    pub malformed_packets: u64,
    /// Packets dropped by injected faults.
    pub faults_dropped: u64,
    /// Packets the kernel dropped because a socket was full.
    pub kernel_drops: u64,
    /// Bytes of all packets sent, headers included.
    pub sent_bytes: u64,
    /// Bytes of all packets received, headers included.
    pub received_bytes: u64,
}

/// `gw_credentials`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GwCredentials {
    /// The secret that the ranks share.
    pub token: *const c_char,
    /// The certificate's file, or null.
    pub certificate: *const c_char,
    /// Its key's file, or null.
    pub key: *const c_char,
    /// The authority's file, or null.
    pub authority: *const c_char,
}

/// `gw_opening`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GwOpening {
    /// A job file, or null.
    pub job_path: *const c_char,
    /// The rank of this process.
    pub rank: u32,
    /// The number of ranks.
    pub world: u32,
    /// Its number among the ranks of its host; negative: unknown.
    pub local_rank: i32,
    /// A local address that peers can reach.
    pub bind_host: *const c_char,
    /// The folder that its flight recorder is written to on failure, or null.
    pub trace_folder: *const c_char,
    /// The log level on standard error; null: "info".
    pub log_level: *const c_char,
    /// Its token and certificates.
    pub credentials: GwCredentials,
    /// The port at which rank 0 awaits the others; 0: any free one.
    pub port: u32,
}

/// `gw_layer`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct GwLayer {
    /// Offset in the buffer of the layer's first byte.
    pub offset_bytes: u64,
    /// The layer; 0 is the first in the forward pass.
    pub layer: u32,
    /// Zero.
    pub reserved: u32,
}

/// `gw_hole`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct GwHole {
    /// Offset in the buffer of the first missing byte.
    pub offset_bytes: u64,
    /// How many bytes kept their old values.
    pub bytes: u64,
}

/// `gw_operation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GwOperation {
    /// The collective.
    pub kind: u32,
    /// Element type.
    pub dtype: u32,
    /// Reduction.
    pub reduce: u32,
    /// Position in `ranks` of the source or destination.
    pub root: u32,
    /// The result, in and out.
    pub buffer: *mut c_void,
    /// Its length.
    pub bytes: usize,
    /// The separate input that some collectives have.
    pub input: *const c_void,
    /// Its length.
    pub input_bytes: usize,
    /// Number of the group.
    pub group: u32,
    /// Members of the group.
    pub ranks: *const u32,
    /// Their number.
    pub ranks_len: usize,
    /// Number of the operation in its group.
    pub sequence: u32,
    /// Share of a message that may be missing; negative: lossless.
    pub tolerance: f64,
    /// Training step.
    pub step: u32,
    /// Layers of the model; 0: unknown.
    pub layer_count: u32,
    /// The offsets at which layers start; may be null.
    pub layers: *const GwLayer,
    /// Their number.
    pub layers_len: usize,
    /// Identifies the tensor; the same in every step.
    pub tensor_key: u64,
    /// The operation fails after this many seconds.
    pub timeout_seconds: f64,
    /// The tag of a point-to-point message.
    pub tag: u32,
    /// The rule that fills missing elements.
    pub holes: u32,
    /// Bytes of an all-to-all's input for each rank; null: all equal.
    pub input_splits: *const u64,
    /// Bytes of an all-to-all's buffer from each rank; null: all equal.
    pub output_splits: *const u64,
    /// How values are encoded between hosts.
    pub codec: u32,
    /// Share of the values that top-k sends; 0: the job's.
    pub codec_share: f64,
}

/// `gw_done`.
pub type GwDone = unsafe extern "C" fn(user: *mut c_void, code: c_int, message: *const c_char);

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_match_the_layout_of_c() {
        assert_eq!(size_of::<GwCounters>(), 80);
        assert_eq!(size_of::<GwCredentials>(), 32);
        assert_eq!(size_of::<GwOpening>(), 88);
        assert_eq!(offset_of!(GwOpening, bind_host), 24);
        assert_eq!(size_of::<GwLayer>(), 16);
        assert_eq!(size_of::<GwOperation>(), 168);
        assert_eq!(offset_of!(GwOperation, buffer), 16);
        assert_eq!(offset_of!(GwOperation, ranks), 56);
        assert_eq!(offset_of!(GwOperation, tolerance), 80);
        assert_eq!(offset_of!(GwOperation, timeout_seconds), 120);
        assert_eq!(offset_of!(GwOperation, tag), 128);
        assert_eq!(offset_of!(GwOperation, holes), 132);
        assert_eq!(size_of::<GwHole>(), 16);
        assert_eq!(offset_of!(GwOperation, output_splits), 144);
        assert_eq!(offset_of!(GwOperation, codec_share), 160);
    }
}
