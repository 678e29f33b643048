//! The structures of `gradwire.h`; names and order of fields are the header's.

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
    /// Packets dropped on purpose.
    pub faults_dropped: u64,
    /// Packets the kernel dropped because a socket was full.
    pub kernel_drops: u64,
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
    /// Which rank.
    pub rank: u32,
    /// Of how many.
    pub world: u32,
    /// Its number on its host; negative: not known.
    pub local_rank: i32,
    /// A local address.
    pub bind_host: *const c_char,
    /// Where its flight recorder is written on failure, or null.
    pub trace_folder: *const c_char,
    /// How much is told on standard error; null: "info".
    pub log_level: *const c_char,
    /// What it proves itself by.
    pub credentials: GwCredentials,
}

/// `gw_layer`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct GwLayer {
    /// From this byte of the buffer on,
    pub offset_bytes: u64,
    /// elements belong to this layer.
    pub layer: u32,
    /// Zero.
    pub reserved: u32,
}

/// `gw_hole`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub struct GwHole {
    /// From this byte of the buffer on
    pub offset_bytes: u64,
    /// so many are as they were.
    pub bytes: u64,
}

/// `gw_operation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GwOperation {
    /// Which collective.
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
    /// How many.
    pub ranks_len: usize,
    /// Number of the operation in its group.
    pub sequence: u32,
    /// Share of a message that may be missing; negative: lossless.
    pub tolerance: f64,
    /// Training step.
    pub step: u32,
    /// Layers of the model; 0: unknown.
    pub layer_count: u32,
    /// Where layers start; may be null.
    pub layers: *const GwLayer,
    /// How many.
    pub layers_len: usize,
    /// The same for the same tensor in every step.
    pub tensor_key: u64,
    /// The operation fails when it has taken this long.
    pub timeout_seconds: f64,
    /// Tells point-to-point messages of a pair apart.
    pub tag: u32,
    /// What stands in for what is missing.
    pub holes: u32,
    /// Bytes of an all-to-all's input for each rank; null: all equal.
    pub input_splits: *const u64,
    /// Bytes of an all-to-all's buffer from each rank; null: all equal.
    pub output_splits: *const u64,
}

/// `gw_done`.
pub type GwDone = unsafe extern "C" fn(user: *mut c_void, code: c_int, message: *const c_char);

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_have_the_layout_of_a_64_bit_c_compiler() {
        assert_eq!(size_of::<GwCounters>(), 64);
        assert_eq!(size_of::<GwCredentials>(), 32);
        assert_eq!(size_of::<GwOpening>(), 80);
        assert_eq!(offset_of!(GwOpening, bind_host), 24);
        assert_eq!(size_of::<GwLayer>(), 16);
        assert_eq!(size_of::<GwOperation>(), 152);
        assert_eq!(offset_of!(GwOperation, buffer), 16);
        assert_eq!(offset_of!(GwOperation, ranks), 56);
        assert_eq!(offset_of!(GwOperation, tolerance), 80);
        assert_eq!(offset_of!(GwOperation, timeout_seconds), 120);
        assert_eq!(offset_of!(GwOperation, tag), 128);
        assert_eq!(offset_of!(GwOperation, holes), 132);
        assert_eq!(size_of::<GwHole>(), 16);
        assert_eq!(offset_of!(GwOperation, output_splits), 144);
    }
}
